//! The agent: the real fence and the real contact lease, and one task.

use std::time::Duration;

use kruise_api::ids::{Epoch, Generation};

use super::world::{CONTACT_LEASE, MAX_ORDER_AGE, at};
use crate::node::contact::Contact;
use crate::node::fence::{Envelope, Fence, Kind};

/// The one task that a node can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    /// The runtime fetches.
    Pulling,
    /// From the journal: named to the leader as waiting, and not begun before it is ordered again.
    Held,
    /// Stopped because the contact lease ended.
    Suspended,
    /// Ended, and kept until it is acknowledged.
    Done,
}

/// From leader to agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Down {
    Welcome(Epoch),
    /// The whole set: the order, or nothing.
    Set {
        epoch: Epoch,
        generation: u8,
        stamp: Option<u8>,
        order: bool,
    },
    /// The order more, or less.
    Delta {
        epoch: Epoch,
        generation: u8,
        stamp: Option<u8>,
        order: bool,
    },
    Saved,
}

/// From agent to leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Up {
    Hello(Option<Task>),
    Ack { generation: u8, taken: bool },
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Agent {
    pub(super) fence: Fence,
    pub(super) contact: Contact,
    pub(super) task: Option<Task>,
    /// When the stream in use was opened.
    pub(super) opened: Duration,
    pub(super) welcomed: bool,
    /// Whether the image was ever pulled to its end. For the judge.
    pub(super) has_image: bool,
    /// Highest epoch that ever spoke to an agent of this node, whatever the agent remembers. For the judge.
    pub(super) heard: Epoch,
}

impl Agent {
    pub(super) fn new(now: u8) -> Self {
        Self {
            fence: Fence::new(Epoch(0)),
            contact: Contact::new(at(now)),
            task: None,
            opened: Duration::ZERO,
            welcomed: false,
            has_image: false,
            heard: Epoch(0),
        }
    }

    pub(super) fn pulls(&self) -> bool {
        self.task == Some(Task::Pulling)
    }

    pub(super) fn dial(&mut self, now: u8) -> Up {
        self.opened = at(now);
        self.welcomed = false;
        Up::Hello(self.task)
    }

    pub(super) fn close(&mut self) {
        self.fence.closed();
        self.contact.closed();
        self.welcomed = false;
    }

    pub(super) fn tick(&mut self, now: u8) {
        if self.contact.tick(at(now)) && matches!(self.task, Some(Task::Pulling | Task::Held)) {
            self.task = Some(Task::Suspended);
        }
    }

    pub(super) fn restart(&mut self, now: u8, journal: bool) {
        let fence = Fence::new(if journal { self.fence.highest() } else { Epoch(0) });
        let task = self.task.filter(|_| journal).map(|task| match task {
            Task::Done => Task::Done,
            Task::Pulling | Task::Held | Task::Suspended => Task::Held,
        });
        *self = Self {
            fence,
            task,
            has_image: self.has_image,
            heard: self.heard,
            ..Self::new(now)
        };
    }

    /// Takes a message: the answer, or an error when the stream must be closed.
    pub(super) fn receive(&mut self, message: Down, now: u8) -> Result<Option<Up>, ()> {
        match message {
            Down::Welcome(epoch) => {
                if self.welcomed {
                    return Err(());
                }
                self.fence
                    .welcome(epoch, self.opened, MAX_ORDER_AGE)
                    .map_err(|_| ())?;
                self.contact.welcomed(self.opened, CONTACT_LEASE);
                self.heard = self.heard.max(epoch);
                self.welcomed = true;
                Ok(None)
            }
            // The first message must be the Welcome.
            _ if !self.welcomed => Err(()),
            Down::Set {
                epoch,
                generation,
                stamp,
                order,
            } => Ok(Some(self.order(Kind::Set, epoch, generation, stamp, order, now))),
            Down::Delta {
                epoch,
                generation,
                stamp,
                order,
            } => Ok(Some(self.order(
                Kind::Delta,
                epoch,
                generation,
                stamp,
                order,
                now,
            ))),
            Down::Saved => {
                if self.task == Some(Task::Done) {
                    self.task = None;
                }
                Ok(None)
            }
        }
    }

    fn order(
        &mut self,
        kind: Kind,
        epoch: Epoch,
        generation: u8,
        stamp: Option<u8>,
        order: bool,
        now: u8,
    ) -> Up {
        let envelope = Envelope {
            kind,
            epoch,
            generation: Generation(generation.into()),
            stamp: stamp.map(at),
        };
        let taken = self.fence.check(&envelope, at(now)).is_ok();
        if taken {
            self.fence.taken(&envelope);
            self.task = match (order, self.task) {
                (true, Some(Task::Done)) => Some(Task::Done),
                (true, _) => Some(Task::Pulling),
                (false, _) => None,
            };
        }
        Up::Ack { generation, taken }
    }
}
