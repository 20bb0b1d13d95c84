//! How other tasks ask the controller.

use kruise_api::ids::ObjectKey;
use kruise_proto::inspect::ExplainCloneSetResponse;
use tokio::sync::{mpsc, oneshot};

use crate::engine::EngineGone;

/// Questions that wait. Each costs a plan, so few may.
const QUEUE: usize = 32;

/// Why does this set not move?
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) set: ObjectKey,
    pub(crate) reply: oneshot::Sender<Answer>,
}

/// What is known of a set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// Where it stands, and why.
    Explained(Box<ExplainCloneSetResponse>),
    /// There is no such set.
    Unknown,
    /// The first lists are not complete.
    Starting,
}

/// Handle of the controller. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CloneSetHandle {
    questions: mpsc::Sender<Question>,
}

/// A handle, and what is asked by it.
pub(crate) fn channel() -> (CloneSetHandle, mpsc::Receiver<Question>) {
    let (questions, asked) = mpsc::channel(QUEUE);
    (CloneSetHandle { questions }, asked)
}

impl CloneSetHandle {
    /// Asks about a set. A replica that does not lead drops the question.
    pub(crate) async fn explain(&self, set: ObjectKey) -> Result<Answer, EngineGone> {
        let (reply, answer) = oneshot::channel();
        self.questions
            .try_send(Question { set, reply })
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => EngineGone::Busy,
                mpsc::error::TrySendError::Closed(_) => EngineGone::NotLeading,
            })?;
        answer.await.map_err(|_| EngineGone::NotLeading)
    }
}
