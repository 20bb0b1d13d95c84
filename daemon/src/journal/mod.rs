//! The agent's small memory on disk: which leader it has seen, what it holds, what it has not yet been able to report.
//!
//! The file is replaced as a whole, so it is always one that was complete once. Whatever goes wrong with it costs memory of the
//! past, never the agent: a file that cannot be read is moved aside, a directory that cannot be written leaves the agent without.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kruise_api::ids::Epoch;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::puller::record::Record;

/// Name of the file in the state directory.
const FILE: &str = "state.json";
/// Largest file that is read; many times what the largest set of tasks needs.
const MAX_SIZE: u64 = 16 << 20;
/// A disk that takes longer is treated as one that cannot be written, rather than stopping the agent with it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Form of the file.
const VERSION: u32 = 1;

/// What is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    version: u32,
    /// Highest epoch that this agent has acknowledged.
    pub highest_epoch: Epoch,
    /// Tasks that it holds.
    pub tasks: Vec<Record>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            version: VERSION,
            highest_epoch: Epoch::default(),
            tasks: Vec::new(),
        }
    }
}

/// The file.
#[derive(Debug)]
pub struct Journal {
    directory: Option<PathBuf>,
    failing: bool,
}

impl Journal {
    /// One that keeps nothing.
    #[must_use]
    pub fn none() -> Self {
        Self {
            directory: None,
            failing: false,
        }
    }

    /// Opens the journal of a directory, with what it remembers.
    #[must_use]
    pub fn open(directory: &Path) -> (Self, State) {
        if let Err(error) = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
        {
            let directory = directory.display();
            tracing::warn!(%directory, %error, "no state directory: a restart will forget what was not yet reported");
            return (Self::none(), State::default());
        }
        let state = load(&directory.join(FILE));
        (
            Self {
                directory: Some(directory.to_owned()),
                failing: false,
            },
            state,
        )
    }

    /// Where it is; none if it keeps nothing.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Replaces what is remembered. When this returns it is on disk, unless the log says otherwise.
    pub async fn store(&mut self, state: &State) {
        let Some(directory) = self.directory.clone() else {
            return;
        };
        match replace_file(&directory, FILE, state).await {
            Ok(()) => self.failing = false,
            Err(error) if self.failing => tracing::debug!(%error, "state file still not written"),
            Err(error) => {
                self.failing = true;
                tracing::warn!(%error, "state file not written: a restart will forget the latest changes");
            }
        }
    }
}

/// Replaces a file of a directory. When this returns it is on disk.
pub(crate) async fn replace_file<T: Serialize>(
    directory: &Path,
    name: &'static str,
    content: &T,
) -> io::Result<()> {
    let (directory, text) = (directory.to_owned(), serde_json::to_vec(content)?);
    let write = tokio::task::spawn_blocking(move || replace(&directory, name, &text));
    match tokio::time::timeout(WRITE_TIMEOUT, write).await {
        Ok(Ok(written)) => written,
        Ok(Err(error)) => Err(io::Error::other(error)),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the disk does not answer",
        )),
    }
}

/// Reads a file that [`replace_file`] wrote. One that makes no sense is moved aside.
pub(crate) fn load_file<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let read = || -> io::Result<T> {
        let mut text = Vec::new();
        File::open(path)?.take(MAX_SIZE).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    };
    match read() {
        Ok(content) => Some(content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            move_aside(path, &error);
            None
        }
    }
}

/// Reads the file. One that makes no sense is moved aside for people to look at.
fn load(path: &Path) -> State {
    let error = match read(path) {
        Ok(state) => return state,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return State::default(),
        Err(error) => error,
    };
    move_aside(path, &error);
    State::default()
}

fn move_aside(path: &Path, error: &io::Error) {
    let aside = path.with_extension("json.broken");
    let moved = fs::rename(path, &aside);
    let (path, aside) = (path.display(), aside.display());
    match moved {
        Ok(()) => {
            tracing::warn!(%path, %aside, %error, "state file is not readable; moved aside, starting without");
        }
        Err(move_error) => {
            tracing::warn!(%path, %error, %move_error, "state file is not readable; starting without");
        }
    }
}

fn read(path: &Path) -> io::Result<State> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_SIZE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_SIZE {
        return Err(io::Error::other("larger than any that this program writes"));
    }
    let state: State = serde_json::from_slice(&text)?;
    if state.version != VERSION {
        return Err(io::Error::other(format!(
            "form {} is not {VERSION}",
            state.version
        )));
    }
    Ok(state)
}

/// Writes beside the file, then puts it in its place; both are on disk before this returns.
fn replace(directory: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let temporary = directory.join(format!("{name}.new"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&temporary, directory.join(name))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests;
