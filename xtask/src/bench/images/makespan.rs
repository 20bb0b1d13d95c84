//! One job over all nodes of the bed, beside `crictl pull` of as many bytes on each of them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kruise_tests::audit::{Counters, Mark};
use kruise_tests::registry::{Compression, Front, ImageSpec, LayerSpec};
use serde::Serialize;
use serde_json::json;

use super::agents::{Agent, crictl_pull};
use crate::bench::bed::Bed;
use crate::bench::jobs::Jobs;
use crate::bench::meter::Spread;
use crate::bench::scale::per;

/// Longest time of a job.
const PATIENCE: Duration = Duration::from_secs(300);

/// One kind of job.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) parallelism: usize,
    /// How long the bytes of one pull are on their way.
    pub(crate) seconds: f64,
}

pub(crate) const CASES: [Case; 4] = [
    Case {
        parallelism: 1,
        seconds: 0.5,
    },
    Case {
        parallelism: 4,
        seconds: 0.5,
    },
    Case {
        parallelism: 1,
        seconds: 5.0,
    },
    Case {
        parallelism: 4,
        seconds: 5.0,
    },
];

/// Bytes of the one layer. Small, so that unpacking it is no work.
const LAYER: u64 = 2 << 20;

/// What came of it. Times in seconds.
#[derive(Debug, Serialize)]
pub(crate) struct Makespan {
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) nodes: usize,
    /// From the request that makes the job until its status says that it is complete.
    pub(crate) makespan: f64,
    /// Sum of the times of `crictl pull`, as many at once as the job has.
    pub(crate) crictl_sum: f64,
    pub(crate) crictl: Spread,
    /// Sum over parallelism over makespan.
    pub(crate) efficiency: f64,
    pub(crate) api_writes: usize,
    pub(crate) events: usize,
}

pub(crate) async fn run(
    bed: &Bed,
    jobs: &Jobs,
    front: &Front,
    agents: &[Agent],
    case: Case,
) -> Result<Makespan> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rate of some megabytes per second"
    )]
    front.limit_each((LAYER as f64 / case.seconds) as u64);
    let tenths = (case.seconds * 10.0).round();
    let name = format!("makespan-{}-{tenths}", case.parallelism);
    let raw = push(bed, front, &format!("{name}-raw")).await?;
    let times = crictl_pulls(bed, agents, &raw, case.parallelism)?;
    let image = push(bed, front, &name).await?;
    let mark = Mark::now(&bed.cluster)?;
    let begun = Instant::now();
    jobs.create(&name, &image, json!({"parallelism": case.parallelism}))
        .await?;
    let (succeeded, failed) = jobs.ended(&name, PATIENCE).await?;
    let makespan = begun.elapsed().as_secs_f64();
    if usize::try_from(succeeded)? != agents.len() || failed > 0 {
        bail!("{succeeded} nodes of {} succeeded, {failed} failed", agents.len());
    }
    // The log is written a little later than answered.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let writes = Counters::since(&bed.cluster, mark)?.api_writes("kruise-manager");
    let crictl_sum = times.iter().sum::<f64>();
    let result = Makespan {
        case,
        nodes: agents.len(),
        makespan,
        crictl_sum,
        crictl: Spread::of(times),
        efficiency: crictl_sum / per(case.parallelism) / makespan,
        api_writes: writes.writes,
        events: writes.events,
    };
    eprintln!("  {result:?}");
    Ok(result)
}

/// An image of one layer that no node has seen, and its reference by way of the front.
async fn push(bed: &Bed, front: &Front, name: &str) -> Result<String> {
    let seed = name
        .bytes()
        .fold(7_u64, |seed, byte| seed.wrapping_mul(31) ^ u64::from(byte));
    let layer = LayerSpec::random(LAYER, seed).compression(Compression::None);
    let spec = ImageSpec::new(&format!("bench/{name}"), "1").layer(layer);
    bed.cluster.registry().push(&spec).await?;
    Ok(format!("{}/bench/{name}:1", front.host()))
}

/// `crictl pull` on every node, so many at once. Seconds.
fn crictl_pulls(bed: &Bed, agents: &[Agent], image: &str, at_once: usize) -> Result<Vec<f64>> {
    let nodes = std::sync::Mutex::new(agents.iter().map(|agent| agent.node.clone()));
    let next = || nodes.lock().ok()?.next();
    let work = || -> Result<Vec<f64>> {
        let mut times = Vec::new();
        while let Some(node) = next() {
            times.push(crictl_pull(bed, &node, image)?.as_secs_f64());
        }
        Ok(times)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().ok().context("a worker panicked")??);
        }
        Ok(all)
    })
}
