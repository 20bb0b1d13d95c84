//! What waits to be sent. Bounded by construction: one slot per kind, and the latest state instead of a queue of states.

use std::collections::VecDeque;
use std::time::Duration;

use kruise_proto::dispatch::{Ack, AttachRequest, Heartbeat, TaskReport, TokenRenewal, attach_request};

use crate::puller::board::{Board, Follower, News};

/// See the module.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Of sets and deltas; while one waits, no further message is read.
    acks: VecDeque<Ack>,
    heartbeat: bool,
    renewal: Option<String>,
    follower: Follower,
}

impl Outbox {
    pub(super) fn new(follower: Follower) -> Self {
        Self {
            acks: VecDeque::new(),
            heartbeat: false,
            renewal: None,
            follower,
        }
    }

    pub(super) fn ack(&mut self, ack: Ack) {
        self.acks.push_back(ack);
    }

    /// Whether the manager has to read before more is read of it.
    pub(super) fn is_behind(&self) -> bool {
        !self.acks.is_empty()
    }

    pub(super) fn heartbeat(&mut self) {
        self.heartbeat = true;
    }

    pub(super) fn renew(&mut self, token: String) {
        self.renewal = Some(token);
    }

    pub(super) fn repeat_results(&mut self) {
        self.follower.repeat_results();
    }

    /// The next message, the most urgent first, and when to ask again at the latest. A heartbeat is stamped as it leaves.
    pub(super) fn next(
        &mut self,
        board: &Board,
        now: Duration,
        heartbeat: impl FnOnce() -> Heartbeat,
    ) -> (Option<AttachRequest>, Option<Duration>) {
        use attach_request::Message;
        let urgent = if std::mem::take(&mut self.heartbeat) {
            Some(Message::Heartbeat(heartbeat()))
        } else if let Some(ack) = self.acks.pop_front() {
            Some(Message::Ack(ack))
        } else {
            self.renewal
                .take()
                .map(|token| Message::TokenRenewal(TokenRenewal { token }))
        };
        if let Some(message) = urgent {
            return (
                Some(AttachRequest {
                    message: Some(message),
                }),
                Some(now),
            );
        }
        loop {
            match self.follower.next(board, now) {
                (Some(News::Task(status)), again) => {
                    let report = TaskReport {
                        task: Some(status.as_ref().clone()),
                    };
                    return (
                        Some(AttachRequest {
                            message: Some(Message::TaskReport(report)),
                        }),
                        again,
                    );
                }
                // The manager knows: it was its order.
                (Some(News::Gone(_)), _) => {}
                (None, again) => return (None, again),
            }
        }
    }
}
