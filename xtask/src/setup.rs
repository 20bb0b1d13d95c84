//! `cargo xtask setup`.

use std::time::Instant;

use anyhow::Result;
use kruise_tests::cluster::Containerd;
use kruise_tests::tools::{self, Setup};

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Also build this container runtime: `2` for the newest major version.
    #[arg(long, default_value_t, value_name = "system|2")]
    containerd: Containerd,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let begun = Instant::now();
    tools::install(Setup {
        containerd_2: args.containerd == Containerd::V2,
    })?;
    eprintln!(
        "everything is in place in {} ({:.1?})",
        tools::cache_dir()?.display(),
        begun.elapsed()
    );
    Ok(())
}
