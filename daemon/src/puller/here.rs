//! Pulls for callers on this machine. They are tasks like those of the manager, with these differences: the manager neither knows nor
//! commands them, they go on while it is away, and they live no longer than their caller.

use std::fmt;

use kruise_api::ids::TaskId;
use tokio::sync::{mpsc, watch};

use super::board::Board;
use super::{Command, Puller};

/// Tasks of callers on this machine that are held at once.
pub const MAX_HERE: usize = 64;

/// What the ids of such tasks begin with.
const PREFIX: &str = "local/";

/// Id of the task of this number.
pub(super) fn id(number: u64) -> TaskId {
    TaskId::new(format!("{PREFIX}{number}"))
}

/// Whether a task is one of a caller on this machine.
#[must_use]
pub fn is_here(id: &TaskId) -> bool {
    id.as_str().starts_with(PREFIX)
}

/// A task of a caller on this machine. Dropping it cancels the pull, unless another task shares it, and lets go of the result.
pub struct Here {
    id: TaskId,
    board: watch::Receiver<Board>,
    commands: mpsc::Sender<Command>,
}

impl Here {
    pub(super) fn new(id: TaskId, puller: &Puller) -> Self {
        Self {
            id,
            board: puller.board.clone(),
            commands: puller.commands.clone(),
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &TaskId {
        &self.id
    }

    /// Where it stands, among all tasks.
    #[must_use]
    pub fn board(&self) -> watch::Receiver<Board> {
        self.board.clone()
    }
}

impl fmt::Debug for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Here").field(&self.id).finish()
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let leave = Command::Leave(self.id.clone());
        if let Err(mpsc::error::TrySendError::Full(leave)) = self.commands.try_send(leave)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let commands = self.commands.clone();
            // When the engine ends meanwhile, so does the pull.
            runtime.spawn(async move {
                let _ = commands.send(leave).await;
            });
        }
    }
}
