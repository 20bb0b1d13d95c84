//! What a pull task is and how it stands, in the words shared by manager and agent.

use std::fmt;

use kruise_api::ids::{JobUid, NodeUid, TaskId};
use kruise_api::reference::ImageRef;
use serde::{Deserialize, Serialize};

/// Why an attempt or a task failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// The repository, tag or digest does not exist.
    NotFound,
    /// The registry refused the credentials, or wants some.
    Denied,
    /// The reference cannot be parsed.
    InvalidReference,
    /// Name look-up, connection or TLS failed.
    Unreachable,
    /// The registry asked to slow down.
    Throttled,
    /// The registry answered with a server error.
    RegistryError,
    /// What arrived is not what the digest or size promised.
    Corrupt,
    /// No space left on the node.
    NoSpace,
    /// One attempt was longer than its time-out.
    Timeout,
    /// No bytes for the stall time-out.
    Stalled,
    /// The job's deadline passed.
    DeadlineExceeded,
    /// The container runtime is away or broke off.
    RuntimeUnavailable,
    /// No image for this platform, or the content is no image.
    Unsupported,
    /// The node was away for too long; decided by the manager.
    NodeUnreachable,
    /// The image is larger than its job allows.
    TooLarge,
    /// None of the others; the message has the runtime's words.
    Unknown,
}

impl Reason {
    /// All of them, in a fixed order.
    pub const ALL: [Self; 16] = [
        Self::NotFound,
        Self::Denied,
        Self::InvalidReference,
        Self::Unreachable,
        Self::Throttled,
        Self::RegistryError,
        Self::Corrupt,
        Self::NoSpace,
        Self::Timeout,
        Self::Stalled,
        Self::DeadlineExceeded,
        Self::RuntimeUnavailable,
        Self::Unsupported,
        Self::NodeUnreachable,
        Self::TooLarge,
        Self::Unknown,
    ];

    /// Whether trying again cannot help, so that the task ends at once instead of burning its retries.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(
            self,
            Self::NotFound
                | Self::Denied
                | Self::InvalidReference
                | Self::Unsupported
                | Self::TooLarge
                | Self::DeadlineExceeded
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Bytes of an image on its way to a node, counted in the runtime's content store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Compressed bytes that are on the node.
    pub bytes_done: u64,
    /// Compressed bytes in all; 0 while unknown.
    pub bytes_total: u64,
    /// Measured over the last seconds; 0 when nothing was measured.
    pub bytes_per_second: u64,
    /// Layers present in full.
    pub layers_done: u32,
    /// Layers in all; 0 while unknown.
    pub layers_total: u32,
    /// False where the runtime shows no bytes.
    pub bytes_known: bool,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Accepted, nothing runs: waits for a slot or between attempts. Goes to `Pulling`, or to an end.
    Waiting,
    /// The runtime fetches. Goes to `Unpacking`, `Waiting` (retry), `Suspended`, or an end.
    Pulling,
    /// All bytes are there, the runtime unpacks. Goes to an end or to `Waiting`.
    Unpacking,
    /// Present and whole. Final.
    Succeeded,
    /// Failed for good. Final.
    Failed,
    /// Stopped by the agent itself for want of a leader; bytes are kept. Goes to `Waiting` when a leader still wants it.
    Suspended,
}

impl Phase {
    /// Whether nothing more will happen to the task.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Identity of one pull: what it serves, where, and which content, in which round.
#[must_use]
pub fn pull_task_id(job: &JobUid, node: &NodeUid, image: &ImageRef, round: u32) -> TaskId {
    TaskId::new(format!(
        "pull/{job}/{node}/{:016x}/{round}",
        fnv64(image.canonical().as_bytes())
    ))
}

/// Job of a pull task's id, for tasks that an agent names before the manager has looked at them.
#[must_use]
pub fn job_of(task: &TaskId) -> Option<JobUid> {
    let mut parts = task.as_str().split('/');
    (parts.next() == Some("pull"))
        .then(|| parts.next().map(JobUid::new))
        .flatten()
}

/// 64-bit FNV-1a: short, stable over versions and machines, and no defence against people who look for collisions.
#[must_use]
pub fn fnv64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
