//! Why a caller was refused, and how gRPC says it.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// Domain of every `google.rpc.ErrorInfo` of this project.
pub const DOMAIN: &str = "kruise.io";

/// A caller was refused, or could not be judged. Never holds any part of a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No `authorization: Bearer TOKEN`, or more than one.
    #[error("one bearer token is wanted in the authorization metadata")]
    TokenMissing,
    /// The API server does not accept the token.
    #[error("the token is not valid: {detail}")]
    TokenInvalid {
        /// For people.
        detail: String,
    },
    /// The token has ended.
    #[error("the token has expired")]
    TokenExpired,
    /// The token is meant for somebody else.
    #[error("the token is not meant for audience {wanted:?}")]
    WrongAudience {
        /// The audience that it needs.
        wanted: String,
    },
    /// A valid token of somebody who is not a node agent.
    #[error("{username} is not a node agent")]
    NotAnAgent {
        /// Who it is.
        username: String,
    },
    /// An agent that speaks for another node, or whose pod or node is another one by now.
    #[error("the agent of node {token_node:?} may not act for {claimed:?}")]
    NodeMismatch {
        /// Node that the token is bound to.
        token_node: String,
        /// Node that was claimed, or what differs.
        claimed: String,
    },
    /// The node of a token was deleted, or made again under the same name.
    #[error("node {node:?} has been deleted, or made again, since the token was issued")]
    NodeGone {
        /// Its name.
        node: String,
    },
    /// A known person without the right.
    #[error("{username} may not {verb} {resource}.inspect.kruise.io")]
    Forbidden {
        /// Who.
        username: String,
        /// On what.
        resource: String,
        /// To do what.
        verb: String,
    },
    /// The API server could not be asked in time.
    #[error("the token could not be verified now: {detail}")]
    Backend {
        /// What went wrong.
        detail: String,
        /// When to come back.
        retry_after: Duration,
    },
}

impl AuthError {
    pub(super) fn invalid(detail: &str) -> Self {
        Self::TokenInvalid {
            detail: detail.to_owned(),
        }
    }

    pub(super) fn not_in_a_pod(username: &str) -> Self {
        Self::NotAnAgent {
            username: format!("{username} without a pod"),
        }
    }

    pub(super) fn pod_gone() -> Self {
        Self::invalid("its pod is gone")
    }

    pub(super) fn account_gone() -> Self {
        Self::invalid("its service account is gone")
    }

    pub(super) fn node_gone(name: &str) -> Self {
        Self::NodeGone {
            node: name.to_owned(),
        }
    }

    /// Stable name of the refusal, as in `google.rpc.ErrorInfo`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TokenMissing => "TOKEN_MISSING",
            Self::TokenInvalid { .. } => "TOKEN_INVALID",
            Self::TokenExpired => "TOKEN_EXPIRED",
            Self::WrongAudience { .. } => "WRONG_AUDIENCE",
            Self::NotAnAgent { .. } => "NOT_AN_AGENT",
            Self::NodeMismatch { .. } => "NODE_MISMATCH",
            Self::NodeGone { .. } => "NODE_GONE",
            Self::Forbidden { .. } => "FORBIDDEN",
            Self::Backend { .. } => "AUTH_BACKEND_UNAVAILABLE",
        }
    }

    /// Status code for the caller.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::TokenMissing
            | Self::TokenInvalid { .. }
            | Self::TokenExpired
            | Self::WrongAudience { .. } => Code::Unauthenticated,
            Self::NotAnAgent { .. }
            | Self::NodeMismatch { .. }
            | Self::NodeGone { .. }
            | Self::Forbidden { .. } => Code::PermissionDenied,
            Self::Backend { .. } => Code::Unavailable,
        }
    }
}

impl From<AuthError> for Status {
    fn from(error: AuthError) -> Self {
        let mut details = ErrorDetails::with_error_info(error.reason(), DOMAIN, []);
        if let AuthError::Backend { retry_after, .. } = &error {
            details.set_retry_info(Some(*retry_after));
        }
        Self::with_error_details(error.code(), error.to_string(), details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_a_reason_in_our_domain_and_only_the_backend_asks_to_come_back() {
        let text = || "x".to_owned();
        let all = [
            (AuthError::TokenMissing, Code::Unauthenticated, "TOKEN_MISSING"),
            (
                AuthError::TokenInvalid { detail: text() },
                Code::Unauthenticated,
                "TOKEN_INVALID",
            ),
            (AuthError::TokenExpired, Code::Unauthenticated, "TOKEN_EXPIRED"),
            (
                AuthError::WrongAudience { wanted: text() },
                Code::Unauthenticated,
                "WRONG_AUDIENCE",
            ),
            (
                AuthError::NotAnAgent { username: text() },
                Code::PermissionDenied,
                "NOT_AN_AGENT",
            ),
            (
                AuthError::NodeMismatch {
                    token_node: text(),
                    claimed: text(),
                },
                Code::PermissionDenied,
                "NODE_MISMATCH",
            ),
            (
                AuthError::NodeGone { node: text() },
                Code::PermissionDenied,
                "NODE_GONE",
            ),
            (
                AuthError::Forbidden {
                    username: text(),
                    resource: text(),
                    verb: text(),
                },
                Code::PermissionDenied,
                "FORBIDDEN",
            ),
            (
                AuthError::Backend {
                    detail: text(),
                    retry_after: Duration::from_secs(1),
                },
                Code::Unavailable,
                "AUTH_BACKEND_UNAVAILABLE",
            ),
        ];
        for (error, code, reason) in all {
            let backend = matches!(error, AuthError::Backend { .. });
            let status = Status::from(error);
            assert_eq!(status.code(), code);
            let details = status.get_error_details();
            let info = details.error_info().expect("always there");
            assert_eq!((info.reason.as_str(), info.domain.as_str()), (reason, DOMAIN));
            assert_eq!(details.retry_info().is_some(), backend, "{reason}");
        }
    }
}
