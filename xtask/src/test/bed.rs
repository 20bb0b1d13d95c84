//! The cluster that the tests share, with the product installed.

use anyhow::{Context, Result};
use kruise_tests::cluster::{Cluster, Options};

use crate::deploy;
use crate::repo::build;

/// Up with the product in it; taken down when dropped, whatever happened, unless it is to be kept.
#[derive(Debug)]
pub(crate) struct Bed {
    name: &'static str,
    keep: bool,
    is_up: bool,
}

impl Bed {
    pub(crate) fn up(name: &'static str, keep: bool) -> Result<Self> {
        let bed = Self {
            name,
            keep,
            is_up: true,
        };
        if !(keep && Cluster::attach(name).is_ok()) {
            // A run that was killed may have left one behind.
            Cluster::down(name).context("cannot take the cluster of an earlier run down")?;
            let options = Options {
                name: name.to_owned(),
                ..Options::default()
            };
            tokio::runtime::Runtime::new()?.block_on(Cluster::up(options))?;
        }
        deploy::install(name)?;
        // For tests that run a manager of their own, which ends where they say.
        build(&["kruise-manager"])?;
        Ok(bed)
    }

    /// Takes it down and says when that went wrong.
    pub(crate) fn down(mut self) -> Result<()> {
        self.is_up = false;
        if self.keep {
            println!(
                "the cluster {} is still up; `cargo xtask cluster down --name {}` takes it down",
                self.name, self.name
            );
            return Ok(());
        }
        Cluster::down(self.name).map(drop)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if self.is_up
            && !self.keep
            && let Err(error) = Cluster::down(self.name)
        {
            eprintln!("cannot take the cluster {} down: {error:#}", self.name);
        }
    }
}
