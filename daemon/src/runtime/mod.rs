//! What the agent needs of a container runtime, and nothing more: pull, look, and, where there is one, the content store.
//!
//! - [`cri`] speaks CRI, with containerd's own services beside it;
//! - [`supervisor`] finds the socket and keeps watch over the connection;
//! - [`fake`] is a runtime that tests script.

pub mod containerd;
pub mod containers;
pub mod cri;
pub mod fake;
pub mod fake_pods;
pub mod machine;
mod pins;
pub mod sockets;
pub mod supervisor;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use kruise_api::reference::ImageRef;
use kruise_planner::node::reason::{self, Code};
use kruise_planner::task::Reason;
use kruise_proto::{dispatch, task};

use self::machine::Machine;

/// Images of one container runtime.
pub trait Runtime: Send + Sync + fmt::Debug {
    /// Name and version. Answers quickly while the runtime is well.
    fn version(&self) -> BoxFuture<'_, Result<task::Runtime, RuntimeError>>;

    /// Digest or id of an image, if it is present.
    fn image(&self, image: &ImageRef) -> BoxFuture<'_, Result<Option<String>, RuntimeError>>;

    /// Fetches an image. Dropping the future stops the runtime's work; content under the lease stays.
    fn pull(&self, pull: Pull) -> BoxFuture<'_, Result<(), RuntimeError>>;

    /// Space of the file system that holds images.
    fn disk(&self) -> BoxFuture<'_, Result<task::DiskSpace, RuntimeError>>;

    /// The content store, where the runtime shows it.
    fn content(&self) -> Option<&dyn ContentStore>;

    /// Containers of pods, where the runtime shows them.
    fn containers(&self) -> Option<&dyn containers::Containers> {
        None
    }

    /// What people may ask of the machine; nothing of a runtime that is only played.
    fn machine(&self) -> Option<&dyn Machine> {
        None
    }
}

/// Content and leases of containerd.
pub trait ContentStore: Send + Sync {
    /// Makes a lease, so that content that is fetched under it survives the call. One that is there already is kept.
    fn make_lease(&self, lease: &LeaseId, expires: Timestamp) -> BoxFuture<'_, Result<(), RuntimeError>>;

    /// Lets go of a lease; one that is gone already is fine. With `now`, what nothing else holds is collected before this returns.
    fn drop_lease(&self, lease: &LeaseId, now: bool) -> BoxFuture<'_, Result<(), RuntimeError>>;

    /// Leases that agents have made.
    fn leases(&self) -> BoxFuture<'_, Result<BTreeSet<LeaseId>, RuntimeError>>;

    /// Digests of the complete blobs that a lease holds.
    fn leased(&self, lease: &LeaseId) -> BoxFuture<'_, Result<BTreeSet<String>, RuntimeError>>;

    /// Throws away the unfinished downloads that a lease holds.
    fn discard(&self, lease: &LeaseId) -> BoxFuture<'_, Result<(), RuntimeError>>;

    /// Those of the given blobs that are complete.
    fn blobs(&self, digests: &[&str]) -> BoxFuture<'_, Result<Vec<BlobInfo>, RuntimeError>>;

    /// Bytes of running downloads, by digest.
    fn downloads(&self) -> BoxFuture<'_, Result<BTreeMap<String, u64>, RuntimeError>>;

    /// Keeps an image from the kubelet's image collection until then, or for as long as it already was to be kept. False where this
    /// version of the runtime has no such thing.
    fn pin(&self, image: &ImageRef, until: Timestamp) -> BoxFuture<'_, Result<bool, RuntimeError>>;

    /// Ends what [`ContentStore::pin`] began, where its time is over at `now`. When the next one's is.
    fn unpin(&self, now: Timestamp) -> BoxFuture<'_, Result<Option<Timestamp>, RuntimeError>>;

    /// The start of a blob: all of it if it is a document of at most `most` bytes, else only some of it.
    fn document(&self, digest: &str, most: u64) -> BoxFuture<'_, Result<Vec<u8>, RuntimeError>>;
}

/// A complete blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobInfo {
    /// With its algorithm.
    pub digest: String,
    /// Bytes.
    pub size: u64,
    /// When it became complete.
    pub created: Timestamp,
}

/// Name of a lease on content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseId(pub String);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One call to fetch an image.
#[derive(Clone, Debug)]
pub struct Pull {
    /// What.
    pub image: ImageRef,
    /// Goes into the sandbox config of the call.
    pub labels: BTreeMap<String, String>,
    /// Goes into the sandbox config of the call.
    pub annotations: BTreeMap<String, String>,
    /// How to log in; its `Debug` shows nothing.
    pub credential: Option<dispatch::Credential>,
    /// Under which lease.
    pub lease: Option<LeaseId>,
    /// After which time the runtime shall end the call by itself, should this agent be stopped meanwhile and unable to cancel it.
    pub limit: Duration,
}

/// A call to the runtime that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{call}: {text}")]
pub struct RuntimeError {
    /// Which call.
    pub call: &'static str,
    /// Kind of the failure.
    pub code: Code,
    /// The runtime's words, as they came.
    pub text: String,
}

impl RuntimeError {
    /// What it means for a task.
    #[must_use]
    pub fn reason(&self) -> Reason {
        reason::classify(self.code, &self.text)
    }
}

/// Whether a runtime is there.
#[derive(Clone, Debug)]
pub enum Link {
    /// It answers.
    Up {
        /// The runtime.
        runtime: Arc<dyn Runtime>,
        /// What it says of itself.
        info: task::Runtime,
        /// Space when last looked at.
        disk: Option<task::DiskSpace>,
    },
    /// None of the sockets answers.
    Down {
        /// What was tried, with what came of it.
        tried: Vec<Tried>,
    },
}

/// A socket that did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Path.
    pub socket: String,
    /// Why not.
    pub error: String,
}

impl Link {
    /// The runtime, if it is there.
    #[must_use]
    pub fn runtime(&self) -> Option<&Arc<dyn Runtime>> {
        match self {
            Self::Up { runtime, .. } => Some(runtime),
            Self::Down { .. } => None,
        }
    }
}
