//! All restart tasks with their file. What is in here is on disk before anybody acts on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use kruise_api::ids::TaskId;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::record::Record;
use crate::journal;

/// Name of the file in the state directory.
const FILE: &str = "restarts.json";
/// Form of the file.
const VERSION: u32 = 1;
/// What was taken back after it had begun is remembered for so long, unless its result is acknowledged before.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);

#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    version: u32,
    tasks: Vec<Record>,
}

/// What a worker is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Control {
    /// Whether a leader wants it.
    pub(super) wanted: bool,
    /// How many containers may be begun.
    pub(super) released: usize,
}

/// One task.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) record: Record,
    pub(super) control: watch::Sender<Control>,
    /// Whether somebody works on it.
    pub(super) working: bool,
    /// Whether its result is stored, so that it is forgotten as soon as nothing of it runs.
    pub(super) saved: bool,
}

impl Task {
    pub(super) fn new(record: Record) -> Self {
        Self {
            record,
            control: watch::Sender::new(Control::default()),
            working: false,
            saved: false,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Book {
    directory: Option<PathBuf>,
    pub(super) tasks: BTreeMap<TaskId, Task>,
}

impl Book {
    /// Reads what is remembered in a directory; without one nothing is.
    pub(super) fn open(directory: Option<&Path>) -> Self {
        let file: File = directory
            .and_then(|directory| journal::load_file(&directory.join(FILE)))
            .filter(|file: &File| file.version == VERSION)
            .unwrap_or_default();
        let tasks = file.tasks.into_iter();
        Self {
            directory: directory.map(Path::to_owned),
            tasks: tasks
                .map(|record| (record.id.clone(), Task::new(record)))
                .collect(),
        }
    }

    /// Replaces the file. When this returns it is on disk, unless the log says otherwise.
    pub(super) async fn store(&self) {
        let Some(directory) = &self.directory else { return };
        let file = File {
            version: VERSION,
            tasks: self.tasks.values().map(|task| task.record.clone()).collect(),
        };
        if let Err(error) = journal::replace_file(directory, FILE, &file).await {
            tracing::warn!(%error, "the file of restarts is not written: an agent that ends now may run a hook twice");
        }
    }

    /// Forgets what nobody needs any more; the ids of that.
    pub(super) fn sweep(&mut self, now: Timestamp) -> Vec<TaskId> {
        let old = |dropped: Timestamp| now.duration_since(dropped) > REMEMBERED;
        let gone: Vec<TaskId> = self
            .tasks
            .iter()
            .filter(|(_, task)| !task.working && !task.control.borrow().wanted)
            .filter(|(_, task)| {
                task.saved
                    || task
                        .record
                        .dropped
                        .is_some_and(|dropped| !task.record.has_begun() || old(dropped))
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in &gone {
            self.tasks.remove(id);
        }
        gone
    }
}
