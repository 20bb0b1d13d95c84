//! The cluster that a test runs on.

use std::env;

use anyhow::{Context, Result};

use crate::cluster::Cluster;

/// The cluster named by `KRUISE_BED`, which `cargo xtask test` sets for the tests that it starts.
pub fn shared() -> Result<Cluster> {
    let name = env::var("KRUISE_BED").context(
        "KRUISE_BED names no cluster: run `cargo xtask test e2e`, or `cargo xtask cluster up` and set \
         KRUISE_BED=kruise",
    )?;
    Cluster::attach(&name)
}
