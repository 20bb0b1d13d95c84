//! Objects of one kind by UID, as lists and watches tell of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::DOUBTED;

/// An object, and how to hear that it has changed.
#[derive(Debug)]
pub(super) struct Entry<V> {
    pub(super) value: V,
    /// Cancelled when the object goes or gets another value.
    pub(super) changed: CancellationToken,
}

/// All objects of one kind.
#[derive(Debug)]
pub(in super::super) struct Table<V> {
    entries: BTreeMap<String, Entry<V>>,
    /// Those that the list under way has not named yet.
    unlisted: Option<BTreeSet<String>>,
    complete: bool,
    /// Until when a failed watch is not believed.
    doubted_until: Duration,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            unlisted: None,
            complete: false,
            doubted_until: Duration::ZERO,
        }
    }
}

impl<V: PartialEq> Table<V> {
    pub(super) fn get(&self, uid: &str) -> Option<&Entry<V>> {
        self.entries.get(uid)
    }

    /// The one of a kind of which there is one.
    pub(super) fn first(&self) -> Option<&Entry<V>> {
        self.entries.values().next()
    }

    /// Whether a list has been read in full.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether what is here can be taken for the truth.
    pub(super) fn is_sure(&self, now: Duration) -> bool {
        self.complete && self.doubted_until <= now
    }

    /// The watch failed.
    pub(in super::super) fn doubt(&mut self, now: Duration) {
        self.doubted_until = now + DOUBTED;
    }

    pub(in super::super) fn begin_list(&mut self) {
        self.unlisted = Some(self.entries.keys().cloned().collect());
    }

    pub(in super::super) fn end_list(&mut self) {
        for uid in self.unlisted.take().into_iter().flatten() {
            self.remove(&uid);
        }
        self.complete = true;
        self.doubted_until = Duration::ZERO;
    }

    pub(in super::super) fn apply(&mut self, uid: String, value: V) {
        if let Some(unlisted) = &mut self.unlisted {
            unlisted.remove(&uid);
        }
        if self.entries.get(&uid).is_some_and(|entry| entry.value == value) {
            return;
        }
        let entry = Entry {
            value,
            changed: CancellationToken::new(),
        };
        if let Some(old) = self.entries.insert(uid, entry) {
            old.changed.cancel();
        }
    }

    pub(in super::super) fn remove(&mut self, uid: &str) {
        if let Some(old) = self.entries.remove(uid) {
            old.changed.cancel();
        }
    }
}
