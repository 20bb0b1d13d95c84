//! The answers of one stream: a short queue, and a status behind it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use kruise_proto::dispatch::{AttachResponse, attach_response};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

/// Messages that wait for the transport, which has a window of its own: a reader that is further behind does not read.
///
/// A queue keeps room for 32 items however short it is, so that the items are boxed: there are thousands of streams.
const QUEUE: usize = 8;
/// How long a full queue is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What tonic sends.
#[derive(Debug)]
pub struct Outbound {
    messages: mpsc::Receiver<Box<AttachResponse>>,
    end: Option<oneshot::Receiver<Status>>,
}

/// What a session writes to.
#[derive(Debug)]
pub(super) struct Sender {
    messages: mpsc::Sender<Box<AttachResponse>>,
    end: oneshot::Sender<Status>,
}

/// Why a message could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotSent {
    /// The queue stayed full.
    TooSlow,
    /// The agent is gone.
    Gone,
}

pub(super) fn channel() -> (Sender, Outbound) {
    let (sender, messages) = mpsc::channel(QUEUE);
    let (end, ended) = oneshot::channel();
    (
        Sender {
            messages: sender,
            end,
        },
        Outbound {
            messages,
            end: Some(ended),
        },
    )
}

impl Sender {
    pub(super) async fn send(&self, message: attach_response::Message) -> Result<(), NotSent> {
        let message = Box::new(AttachResponse {
            message: Some(message),
        });
        match tokio::time::timeout(PATIENCE, self.messages.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(NotSent::Gone),
            Err(_) => Err(NotSent::TooSlow),
        }
    }

    /// Until the agent is gone.
    pub(super) async fn closed(&self) {
        self.messages.closed().await;
    }

    /// Ends the stream with a status behind what was sent.
    pub(super) fn finish(self, status: Status) {
        // An agent that is gone already needs no status.
        drop(self.end.send(status));
    }
}

impl Stream for Outbound {
    type Item = Result<AttachResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(message) = std::task::ready!(self.messages.poll_recv(cx)) {
            return Poll::Ready(Some(Ok(*message)));
        }
        let Some(end) = &mut self.end else {
            return Poll::Ready(None);
        };
        let status = std::task::ready!(Pin::new(end).poll(cx));
        self.end = None;
        Poll::Ready(status.ok().map(Err))
    }
}
