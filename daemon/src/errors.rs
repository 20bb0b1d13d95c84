//! Errors on one line, for logs and for people.

use std::error::Error;

use tonic::Status;

/// An error with what caused it.
pub(crate) fn chain(error: &dyn Error) -> String {
    with_causes(error.to_string(), error.source())
}

/// Whether a status was made on this side, from a connection that failed, rather than by the peer.
pub(crate) fn is_local(status: &Status) -> bool {
    status.source().is_some()
}

/// What a status says, with what caused it. Its own `Display` shows all fields in the form of the source code.
pub(crate) fn status_text(status: &Status) -> String {
    with_causes(status.message().to_owned(), status.source())
}

fn with_causes(mut text: String, mut source: Option<&(dyn Error + 'static)>) -> String {
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Many errors repeat their cause.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn causes_are_told_once() {
        let cause = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
        let status = Status::from_error(Box::new(io::Error::other(cause)));
        assert!(is_local(&status));
        assert_eq!(status_text(&status), "connection refused");
        assert!(!is_local(&Status::unavailable("busy")));
        assert_eq!(status_text(&Status::unavailable("busy")), "busy");
    }
}
