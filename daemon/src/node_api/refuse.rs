//! Why a call is refused or fails, as gRPC says it. The reasons are part of the contract, see `node.proto`.

use std::time::Duration;

use kruise_planner::task::Reason;
use kruise_proto::{convert, task};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::puller::Refused;
use crate::runtime::{Link, RuntimeError};

/// Domain of all reasons.
const DOMAIN: &str = "kruise.io";
/// When to come back to an agent that has enough to do.
const SOON: Duration = Duration::from_secs(5);

fn status(code: Code, reason: &str, message: impl Into<String>) -> Status {
    Status::with_error_details(code, message, ErrorDetails::with_error_info(reason, DOMAIN, []))
}

/// With one thing more for programs.
fn status_with(code: Code, reason: &str, message: impl Into<String>, key: &str, value: &str) -> Status {
    let metadata = [(key.to_owned(), value.to_owned())];
    Status::with_error_details(
        code,
        message,
        ErrorDetails::with_error_info(reason, DOMAIN, metadata),
    )
}

pub(super) fn invalid_reference(error: &impl ToString) -> Status {
    status(Code::InvalidArgument, "INVALID_REFERENCE", error.to_string())
}

pub(super) fn out_of_bounds(field: &str, bounds: &str) -> Status {
    let message = format!("{field} must be {bounds}");
    status_with(Code::InvalidArgument, "OUT_OF_BOUNDS", message, "field", field)
}

pub(super) fn invalid_container_id() -> Status {
    let message = "a container's id has letters and digits, and at least the first 4 of them are wanted";
    status(Code::InvalidArgument, "INVALID_CONTAINER_ID", message)
}

pub(super) fn container_not_found(id: &str) -> Status {
    let message = format!("no container has the id {id}; `crictl ps` shows those that run");
    status(Code::NotFound, "CONTAINER_NOT_FOUND", message)
}

/// A sandbox holds a pod's network; restarting it would restart the pod.
pub(super) fn is_sandbox(id: &str, pod: &str) -> Status {
    let message = format!(
        "{id} is the sandbox of pod {pod} and no container; `crictl ps --pod {id}` shows its containers"
    );
    status_with(Code::NotFound, "CONTAINER_NOT_FOUND", message, "pod", pod)
}

pub(super) fn ambiguous(id: &str, found: &[String]) -> Status {
    let message = format!(
        "{} containers have ids that begin with {id}; give more of it",
        found.len()
    );
    let shown = found.iter().take(10).cloned().collect::<Vec<_>>().join(",");
    status_with(
        Code::FailedPrecondition,
        "CONTAINER_AMBIGUOUS",
        message,
        "containers",
        &shown,
    )
}

pub(super) fn not_running(id: &str) -> Status {
    let message = format!("container {id} does not run, so there is nothing to stop");
    status(Code::FailedPrecondition, "CONTAINER_NOT_RUNNING", message)
}

pub(super) fn not_managed(id: &str) -> Status {
    let message = format!(
        "container {id} was made by no kubelet: it would be stopped, and nobody would start it again"
    );
    status(Code::FailedPrecondition, "CONTAINER_NOT_MANAGED", message)
}

pub(super) fn under_way(id: &str) -> Status {
    let message = format!("container {id} is being restarted already");
    status(Code::FailedPrecondition, "RESTART_UNDER_WAY", message)
}

pub(super) fn too_many(what: &str, most: usize) -> Status {
    let mut details = ErrorDetails::with_error_info("TOO_MANY_CALLS", DOMAIN, []);
    details.set_retry_info(Some(SOON));
    let message = format!("{most} {what} run by calls to this socket already; try again when one has ended");
    Status::with_error_details(Code::ResourceExhausted, message, details)
}

pub(super) fn no_runtime(link: &Link) -> Status {
    let tried = match link {
        Link::Up { .. } => "it has no list of images and containers".to_owned(),
        Link::Down { tried } => {
            let tried = tried
                .iter()
                .map(|tried| format!("{} ({})", tried.socket, tried.error));
            format!("tried {}", tried.collect::<Vec<_>>().join("; "))
        }
    };
    let message = format!("no container runtime can be asked: {tried}");
    status(Code::Unavailable, "RUNTIME_UNAVAILABLE", message)
}

/// A call to the runtime that failed.
pub(super) fn runtime(error: &RuntimeError) -> Status {
    if error.reason() == Reason::RuntimeUnavailable {
        return status(Code::Unavailable, "RUNTIME_UNAVAILABLE", error.to_string());
    }
    status(Code::Internal, "RUNTIME_ERROR", error.to_string())
}

pub(super) fn stopping() -> Status {
    status(Code::Unavailable, "AGENT_STOPS", Refused::Stopping.to_string())
}

pub(super) fn stop_timeout(id: &str, after: Duration) -> Status {
    let message = format!(
        "the runtime did not stop container {id} within {} s",
        after.as_secs()
    );
    status(Code::DeadlineExceeded, "STOP_TIMEOUT", message)
}

pub(super) fn not_started_again(name: &str, pod: &str, after: Duration) -> Status {
    let message = format!(
        "{name} of pod {pod} was stopped, and within {} s no new container ran: its pod may be going, its restart policy may be Never, or \
         the kubelet backs off",
        after.as_secs()
    );
    status(Code::DeadlineExceeded, "NOT_STARTED_AGAIN", message)
}

/// A pull that ended badly.
pub(super) fn pull_failed(task: &task::TaskStatus) -> Status {
    let reason = convert::reason_from_number(task.reason).unwrap_or(Reason::Unknown);
    let code = match reason {
        Reason::NotFound => Code::NotFound,
        Reason::Denied => Code::PermissionDenied,
        Reason::InvalidReference => Code::InvalidArgument,
        Reason::Unreachable | Reason::RegistryError | Reason::RuntimeUnavailable => Code::Unavailable,
        Reason::Throttled | Reason::NoSpace => Code::ResourceExhausted,
        Reason::Timeout | Reason::Stalled | Reason::DeadlineExceeded => Code::DeadlineExceeded,
        Reason::Corrupt => Code::DataLoss,
        Reason::Unsupported => Code::FailedPrecondition,
        _ => Code::Unknown,
    };
    let message = format!("{reason}: {}", task.message);
    status_with(code, "PULL_FAILED", message, "reason", &reason.to_string())
}
