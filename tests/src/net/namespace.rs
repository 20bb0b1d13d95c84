//! Running code inside a network namespace, on a thread of its own: a namespace belongs to a thread, and
//! so do the sockets that the thread opens.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Moves the calling thread for good. Only for threads and processes made for it.
pub(crate) fn enter(file: &Path) -> Result<()> {
    let namespace = File::open(file).with_context(|| format!("no network namespace {}", file.display()))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("cannot enter {}", file.display()))
}

/// Runs `work` in the namespace and waits for its answer.
pub fn in_namespace<T: Send>(file: &Path, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                enter(file)?;
                work()
            })
            .join()
            .map_err(|_| anyhow!("the work in {} panicked", file.display()))?
    })
}

/// Runs `work` in the namespace on a thread that lives on.
pub fn spawn_in_namespace<T: Send + 'static>(
    file: &Path,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> JoinHandle<Result<T>> {
    let file = file.to_owned();
    std::thread::spawn(move || {
        enter(&file)?;
        work()
    })
}
