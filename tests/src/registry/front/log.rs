//! The front's access log.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use super::Shared;

/// One request.
#[derive(Clone, Debug)]
pub struct Access {
    /// Which one; also after the log was cleared.
    pub(super) id: u64,
    pub began: Instant,
    pub time: Timestamp,
    /// When the last byte was handed on, or the client was gone.
    pub ended: Option<Instant>,
    pub client: IpAddr,
    /// The node that the address belongs to.
    pub node: Option<String>,
    pub method: String,
    pub path: String,
    /// The range asked for, where a pull goes on from what it has.
    pub range: Option<String>,
    pub status: u16,
    /// Bytes of the body that were handed on so far.
    pub bytes: u64,
    /// The fault that was applied.
    pub fault: Option<String>,
}

impl Access {
    #[must_use]
    pub fn is_blob(&self) -> bool {
        self.path.contains("/blobs/")
    }

    #[must_use]
    pub fn is_manifest(&self) -> bool {
        self.path.contains("/manifests/")
    }
}

/// The log entry of one request while it is under way. Dropping it notes the end.
pub(super) struct Entry {
    shared: Arc<Shared>,
    id: u64,
}

impl Entry {
    pub(super) fn begin(shared: &Arc<Shared>, mut access: Access) -> Self {
        let mut state = shared.lock();
        let id = state.next_access;
        state.next_access += 1;
        access.id = id;
        state.log.push(access);
        Self {
            shared: shared.clone(),
            id,
        }
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Access)) {
        let mut state = self.shared.lock();
        if let Some(access) = state.log.iter_mut().rev().find(|a| a.id == self.id) {
            change(access);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.update(|access| access.ended = Some(Instant::now()));
    }
}
