//! Why a stream is refused or ended, as gRPC says it.

use std::time::Duration;

use kruise_api::ids::NodeName;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::engine::event::AttachRefused;
use crate::identity::{AuthError, DOMAIN};
use crate::leader::Peer;

/// When to come back to a replica that does not know the leader, or to a leader that is not ready.
const SOON: Duration = Duration::from_secs(1);

fn status(code: Code, reason: &str, message: impl Into<String>, retry: Option<Duration>) -> Status {
    with_details(
        code,
        message,
        ErrorDetails::with_error_info(reason, DOMAIN, []),
        retry,
    )
}

fn with_details(
    code: Code,
    message: impl Into<String>,
    mut details: ErrorDetails,
    retry: Option<Duration>,
) -> Status {
    if retry.is_some() {
        details.set_retry_info(retry);
    }
    Status::with_error_details(code, message, details)
}

/// The reason in a status, for logs; the code of one that has none.
pub(crate) fn reason(status: &Status) -> String {
    let details = status.get_error_details();
    details
        .error_info()
        .map_or_else(|| format!("{:?}", status.code()), |info| info.reason.clone())
}

/// Whether a status says that the caller may not, rather than not now.
pub(super) fn is_refusal(status: &Status) -> bool {
    matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied)
}

/// Whether a stream that ends so has been misused, or its agent is an agent no more: nothing good can come of the connection.
pub(super) fn is_last(status: &Status) -> bool {
    let misused = matches!(
        status.code(),
        Code::InvalidArgument | Code::OutOfRange | Code::Internal | Code::ResourceExhausted
    );
    misused || is_refusal(status)
}

/// This replica does not lead; who does is in `leader_address`.
pub(crate) fn not_leader(leader: Option<&Peer>) -> Status {
    let Some(peer) = leader else {
        let message = "this replica does not lead, and nobody is known to";
        return status(Code::Unavailable, "NOT_LEADER", message, Some(SOON));
    };
    let address = ("leader_address".to_owned(), peer.address.clone());
    let details = ErrorDetails::with_error_info("NOT_LEADER", DOMAIN, [address]);
    with_details(
        Code::Unavailable,
        format!("this replica does not lead; {} does", peer.name),
        details,
        None,
    )
}

/// Too many agents attach at once.
pub(super) fn attach_rate(wait: Duration) -> Status {
    let message = "too many agents attach at this moment";
    status(
        Code::Unavailable,
        "ATTACH_RATE",
        message,
        Some(wait.max(Duration::from_millis(100))),
    )
}

/// The leader has not read jobs and nodes yet.
pub(super) fn starting() -> Status {
    attach(AttachRefused::NotReady)
}

pub(super) fn attach(refused: AttachRefused) -> Status {
    let (reason, retry) = match refused {
        AttachRefused::OldEpoch => return old_epoch(),
        AttachRefused::NotReady => ("LEADER_STARTING", SOON),
        AttachRefused::UnknownNode => ("UNKNOWN_NODE", Duration::from_secs(5)),
        AttachRefused::NotLeading => return not_leader(None),
        AttachRefused::Overtaken => {
            return status(Code::Aborted, "HELLO_OVERTAKEN", refused.to_string(), None);
        }
        AttachRefused::Busy => ("BUSY", SOON),
    };
    status(Code::Unavailable, reason, refused.to_string(), Some(retry))
}

pub(super) fn no_hello(message: &str) -> Status {
    status(Code::InvalidArgument, "HELLO_WANTED", message, None)
}

pub(super) fn bad_message(message: &str) -> Status {
    status(Code::InvalidArgument, "BAD_MESSAGE", message, None)
}

pub(super) fn silent(after: Duration) -> Status {
    let message = format!("no heartbeat for {} s", after.as_secs());
    status(Code::DeadlineExceeded, "NO_HEARTBEAT", message, None)
}

pub(super) fn too_slow() -> Status {
    let message = "the stream is read too slowly; attach again to get the whole set";
    status(Code::ResourceExhausted, "SLOW_READER", message, Some(SOON))
}

pub(super) fn too_much() -> Status {
    let message = "too many messages; at most one a second per task is wanted";
    status(
        Code::ResourceExhausted,
        "TOO_MANY_MESSAGES",
        message,
        Some(Duration::from_secs(10)),
    )
}

pub(super) fn replaced() -> Status {
    status(
        Code::Aborted,
        "REPLACED",
        "another stream of this node has taken over",
        None,
    )
}

pub(super) fn node_gone(name: &NodeName) -> Status {
    AuthError::NodeGone {
        node: name.to_string(),
    }
    .into()
}

pub(super) fn old_epoch() -> Status {
    let message = "the agent has seen a newer leader than this one";
    status(Code::Unavailable, "OLD_EPOCH", message, Some(SOON))
}
