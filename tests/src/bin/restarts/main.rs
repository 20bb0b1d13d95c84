//! How long restarts in place take on a real cluster, beside a stop that the runtime is asked for by hand. Started by `cargo xtask bench restart`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "this is a command line tool that measures: printing figures is what it does"
)]

mod sample;
mod table;

use anyhow::Result;
use clap::Parser;
use kruise_tests::audit::{Counters, Mark};
use kruise_tests::product::Product;

use crate::sample::Bench;

/// Pods that exist at once: one for each way.
const PAIR: [How; 2] = [How::Request, How::ByHand];

/// Who stops the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// A ContainerRecreateRequest.
    Request,
    /// A StopContainer of this program at the runtime's socket; the kubelet does the rest.
    ByHand,
}

#[derive(Debug, Parser)]
struct Args {
    /// Samples of each way, each on a pod of its own.
    #[arg(long, default_value_t = 30)]
    samples: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let product = Product::attach("bench-restart").await?;
    let mark = Mark::now(&product.cluster)?;
    let bench = Bench::begin(product.clone()).await?;
    let (mut requests, mut by_hand) = (Vec::new(), Vec::new());
    for number in 0..args.samples {
        for how in PAIR {
            let sample = bench.sample(number, how).await?;
            match how {
                How::Request => requests.push(sample),
                How::ByHand => by_hand.push(sample),
            }
        }
    }
    let counters = settled(&product, mark).await?;
    print!("{}", table::table(&requests, &by_hand, &bench.issued().await?));
    print!("{}", table::writes(&counters, args.samples));
    product.leave().await
}

/// The API server's log of this run, once nothing has been added to it for a moment: it is written a little later than answered.
async fn settled(product: &Product, mark: Mark) -> Result<Counters> {
    let mut known = 0;
    loop {
        let mut counters = Counters::since(&product.cluster, mark)?;
        counters
            .requests
            .retain(|request| request.namespace == product.namespace);
        if counters.requests.len() == known {
            return Ok(counters);
        }
        known = counters.requests.len();
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}
