//! Takes tasks of callers on this machine.

use kruise_api::ids::TaskId;

use super::Engine;
use crate::puller::Refused;
use crate::puller::here::{self, MAX_HERE};
use crate::puller::order::Order;

impl Engine {
    /// Nothing of it is written down: the caller is gone after a restart.
    pub(super) fn take_here(&mut self, order: Order) -> Result<TaskId, Refused> {
        let held = self.tasks.keys().filter(|id| here::is_here(id)).count();
        if held >= MAX_HERE {
            return Err(Refused::TooManyHere);
        }
        self.last_here += 1;
        let order = Order {
            id: here::id(self.last_here),
            ..order
        };
        let (id, credentials) = self.note_order(order);
        self.start(&id, credentials);
        self.publish(&id);
        self.count();
        Ok(id)
    }

    /// The caller has gone, or has seen the end.
    pub(super) fn leave(&mut self, id: &TaskId) {
        if here::is_here(id) {
            self.forget(id);
            self.count();
        }
    }
}
