//! Why a set or a pod of it does not move.

use serde::Serialize;

macro_rules! reasons {
    ($($(#[doc = $meaning:literal])+ $name:ident,)+) => {
        /// Why a set or a pod of it does not move. The names are stable: tools may look for them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Reason {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl Reason {
            /// All of them, in the order in which they are shown.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// What it means, for people.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($meaning),+).trim_start(),)+
                }
            }
        }
    };
}

reasons! {
    /// The set is being deleted; the garbage collector takes its pods.
    Deleting,
    /// A field of the spec cannot be acted on; the message names it.
    InvalidField,
    /// An own write is not yet visible; nothing is decided on what is no longer so.
    Expectations,
    /// A pod or claim could not be created; it is tried again.
    CreationFailed,
    /// The last write to these pods failed; they are tried again and hold nobody else up.
    WriteFailed,
    /// More pods are missing than scaleStrategy.maxUnavailable lets be created at once.
    ScaleMaxUnavailable,
    /// These claims are being deleted; their instance ids cannot be used again yet.
    TerminatingClaims,
    /// A preDelete hook holds these pods before their deletion.
    PreDeleteHook,
    /// These pods are to be deleted, and one more unavailable pod would be more than maxUnavailable.
    DeletionBudget,
    /// The update is paused.
    Paused,
    /// updateStrategy.type is OnDelete: a pod comes to the new template when somebody deletes it.
    OnDelete,
    /// The partition keeps these pods on their revision.
    Partition,
    /// As many pods are unavailable as maxUnavailable allows.
    MaxUnavailable,
    /// An inPlaceUpdate hook holds these pods before their update.
    InPlaceUpdateHook,
    /// These pods are updated and wait for their inPlaceUpdate hook to be put back.
    InPlaceUpdateHookReturn,
    /// These new pods wait for their preNormal hook.
    PreNormalHook,
    /// The policy is InPlaceOnly and these pods cannot come to the new revision in place; the message names the field.
    InPlaceImpossible,
    /// The new image is being pulled onto the nodes of these pods, which go on serving.
    PullGate,
    /// The new image cannot be pulled onto the nodes of these pods, which go on serving.
    PullFailed,
    /// These pods are out of service and will be changed when their grace period is over.
    GracePeriod,
    /// The containers of these pods are being restarted by the kubelet.
    ContainerRestart,
    /// The next batch of containers of these pods waits for the containers started before to be ready.
    ContainerBatch,
    /// Pre-download of the new images waits for enough pods to be updated and ready.
    PreDownload,
    /// The restart of all pods is held: the set is paused, or feature gate KruiseDaemon is off.
    RestartHeld,
    /// The restart of all pods waits until the update under way is over.
    RestartUpdate,
    /// As many pods are unavailable as the restart of all pods may take; these wait for their turn.
    RestartBudget,
    /// The containers of these pods are being restarted by requests.
    Restarting,
    /// The restart of all pods was stopped; the message says why. A new value of the annotation begins another.
    RestartFailed,
    /// These pods are not ready.
    NotReady,
    /// These pods are ready, but not yet for minReadySeconds.
    MinReadySeconds,
    /// Pods end and have not gone yet.
    Terminating,
}

/// One reason, and the pods that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Which.
    pub reason: Reason,
    /// Pods that it is about, in order; empty when it is about the set.
    pub pods: Vec<String>,
    /// For people.
    pub message: String,
}
