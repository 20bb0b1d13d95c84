//! Answers to the manager's questions whether images are there already.
//!
//! A question starts nothing and is no order: it is answered beside the stream's own work, and what cannot be told in time is told as such.

use std::sync::Arc;
use std::time::Duration;

use kruise_api::reference::ImageRef;
use kruise_proto::dispatch::{AttachRequest, Probe, ProbeAnswer, attach_request, probe_answer::Presence};
use tokio::sync::mpsc;

use super::Session;
use crate::runtime::{Link, Runtime};

/// Most images of one question.
const MOST_IMAGES: usize = 64;
/// For one look. The runtime answers from memory when it is well.
const PATIENCE: Duration = Duration::from_secs(5);

impl Session {
    /// Answers each image of a question on the stream that it came by, if that is still there.
    pub(super) fn answer(&self, probe: Probe, sender: &mpsc::Sender<AttachRequest>) {
        let runtime = match &*self.deps.link.borrow() {
            Link::Up { runtime, .. } => Some(Arc::clone(runtime)),
            _ => None,
        };
        let sender = sender.downgrade();
        tokio::spawn(async move {
            for image in probe.images.into_iter().take(MOST_IMAGES) {
                let answer = look(runtime.as_deref(), image).await;
                // A stream that has ended wants no answer: the next one is asked anew.
                let Some(sender) = sender.upgrade() else { return };
                let message = Some(attach_request::Message::ProbeAnswer(answer));
                if sender.send(AttachRequest { message }).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn look(runtime: Option<&dyn Runtime>, image: String) -> ProbeAnswer {
    let mut answer = ProbeAnswer {
        image,
        ..ProbeAnswer::default()
    };
    let (Some(runtime), Ok(reference)) = (runtime, ImageRef::parse(&answer.image)) else {
        return answer;
    };
    match tokio::time::timeout(PATIENCE, runtime.image(&reference)).await {
        Ok(Ok(Some(id))) => {
            answer.set_presence(Presence::Present);
            answer.image_id = id;
        }
        Ok(Ok(None)) => answer.set_presence(Presence::Absent),
        Ok(Err(error)) => tracing::debug!(%error, image = answer.image, "presence cannot be told"),
        Err(_) => tracing::debug!(image = answer.image, "the runtime took too long to tell presence"),
    }
    answer
}
