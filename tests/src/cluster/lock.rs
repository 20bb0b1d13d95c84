//! One change of the machine's namespaces at a time: two clusters may come up or go down at once.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

use super::layout::bed_dir;

/// Held while the folder of clusters and the machine's namespaces change. The folder itself is what is
/// locked, so that no lock file stays behind.
#[derive(Debug)]
pub(crate) struct BedLock {
    _folder: File,
}

impl BedLock {
    pub(crate) fn acquire() -> Result<Self> {
        let path = bed_dir();
        loop {
            fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
            let folder = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
            flock(&folder, FlockOperation::LockExclusive).context("cannot lock the folder of clusters")?;
            // Whoever held it before may have removed the folder with its last cluster.
            let ours = folder
                .metadata()
                .context("cannot look at the folder of clusters")?
                .ino();
            if fs::metadata(&path).is_ok_and(|now| now.ino() == ours) {
                return Ok(Self { _folder: folder });
            }
        }
    }
}
