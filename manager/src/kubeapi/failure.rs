//! What a failed request means for what to do next.

use std::time::Duration;

use crate::leader::NotLeader;

/// Why a request to the API server came to nothing, by what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApiFailure {
    /// The object has changed since it was read: read it again.
    #[error("the object has changed since it was read")]
    Conflict,
    /// The object is gone.
    #[error("the object does not exist")]
    Gone,
    /// This replica does not lead: do nothing.
    #[error("this replica does not lead")]
    NotLeading,
    /// The server will not take it however often it is asked.
    #[error("refused: {0}")]
    Refused(String),
    /// Nobody knows whether it was done: wait and look.
    #[error("no answer that helps: {detail}")]
    Unsure {
        /// For people.
        detail: String,
        /// The server's wish.
        retry_after: Option<Duration>,
    },
}

/// What a failed request means for what to do next.
pub(crate) fn failure(error: &kube::Error) -> ApiFailure {
    let unsure = |detail: String| ApiFailure::Unsure {
        detail,
        retry_after: None,
    };
    match error {
        kube::Error::Api(status) if status.is_conflict() => ApiFailure::Conflict,
        kube::Error::Api(status) if status.is_not_found() => ApiFailure::Gone,
        kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429 => {
            ApiFailure::Refused(status.message.clone())
        }
        kube::Error::Api(status) => {
            let seconds = status.details.as_ref().map(|details| details.retry_after_seconds);
            let retry_after = seconds.filter(|seconds| *seconds > 0);
            ApiFailure::Unsure {
                detail: format!("{} {}", status.code, status.message),
                retry_after: retry_after.map(|seconds| Duration::from_secs(seconds.into())),
            }
        }
        kube::Error::Service(source) if source.is::<NotLeader>() => ApiFailure::NotLeading,
        other => unsure(other.to_string()),
    }
}
