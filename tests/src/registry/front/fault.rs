//! What may go wrong, and with which requests.

use std::sync::Arc;
use std::time::Duration;

use super::log::Access;
use super::{Shared, State};

/// One way of going wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// This status instead of an answer.
    Status(u16),
    /// A status together with a Retry-After in seconds.
    RetryAfter(u16, u64),
    /// The answer comes after a while.
    Delay(Duration),
    /// The connection is reset after so many bytes of the body; 0 resets before any answer.
    ResetAfter(u64),
    /// After so many bytes of the body nothing more comes, and the connection stays open.
    StallAfter(u64),
    /// The body comes at so many bytes per second.
    Trickle(u64),
    /// A body of so many bytes that claims to be whole.
    Truncate(u64),
    /// The answer claims to have so many bytes.
    Claim(u64),
    /// A body of the right length with one byte changed.
    Corrupt,
    /// A redirect to the same place, for ever.
    RedirectLoop,
}

/// Which requests a fault is for.
#[derive(Clone, Debug, Default)]
pub struct Match {
    part: Option<&'static str>,
    containing: Option<String>,
    node: Option<String>,
}

impl Match {
    /// Every request.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests for manifests: the first of a pull.
    #[must_use]
    pub fn manifests() -> Self {
        Self {
            part: Some("/manifests/"),
            ..Self::default()
        }
    }

    /// Requests for blobs: configuration and layers.
    #[must_use]
    pub fn blobs() -> Self {
        Self {
            part: Some("/blobs/"),
            ..Self::default()
        }
    }

    /// Only paths with this in them: a repository's name, a tag, a digest.
    #[must_use]
    pub fn containing(mut self, part: &str) -> Self {
        self.containing = Some(part.to_owned());
        self
    }

    /// Only requests of this node.
    #[must_use]
    pub fn node(mut self, node: &str) -> Self {
        self.node = Some(node.to_owned());
        self
    }

    fn fits(&self, access: &Access) -> bool {
        self.part.is_none_or(|part| access.path.contains(part))
            && self
                .containing
                .as_ref()
                .is_none_or(|part| access.path.contains(part))
            && (self.node.is_none() || self.node == access.node)
    }
}

/// A fault in force, by its place among the front's faults.
#[derive(Debug)]
pub struct Rule {
    shared: Arc<Shared>,
    id: usize,
}

#[derive(Debug)]
pub(super) struct Entry {
    id: usize,
    on: Match,
    fault: Fault,
    /// How often it is still to be applied.
    left: Option<usize>,
    applied: usize,
}

impl Rule {
    pub(super) fn add(shared: Arc<Shared>, on: Match, fault: Fault) -> Self {
        let mut state = shared.lock();
        let id = state.next_rule;
        state.next_rule += 1;
        state.rules.push(Entry {
            id,
            on,
            fault,
            left: None,
            applied: 0,
        });
        drop(state);
        Self { shared, id }
    }

    /// Applies it to so many requests and no more.
    pub fn times(self, count: usize) -> Self {
        self.with(|entry| entry.left = Some(count));
        self
    }

    /// Applies it to every request until it is removed.
    pub fn always(self) -> Self {
        self.with(|entry| entry.left = None);
        self
    }

    /// How many requests it was applied to.
    #[must_use]
    pub fn applied(&self) -> usize {
        self.with(|entry| entry.applied).unwrap_or(0)
    }

    /// Takes it out of force.
    pub fn remove(self) {
        self.shared.lock().rules.retain(|entry| entry.id != self.id);
    }

    fn with<T>(&self, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.shared
            .lock()
            .rules
            .iter_mut()
            .find(|entry| entry.id == self.id)
            .map(work)
    }
}

impl State {
    /// The fault for a request, counted as applied.
    pub(super) fn take_fault(&mut self, access: &Access) -> Option<Fault> {
        let entry = self
            .rules
            .iter_mut()
            .find(|entry| entry.left != Some(0) && entry.on.fits(access))?;
        entry.left = entry.left.map(|left| left - 1);
        entry.applied += 1;
        Some(entry.fault.clone())
    }
}
