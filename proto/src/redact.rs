//! `Debug` for messages that carry secrets: a log line of a whole message shows that there is a secret, never which.

use std::fmt;

use crate::dispatch::{Credential, TokenRenewal};

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(redacted)")
    }
}

impl fmt::Debug for TokenRenewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenRenewal(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use crate::dispatch::{AttachRequest, Order, PullImage, TokenRenewal, attach_request, order};

    #[test]
    fn debug_output_of_whole_messages_shows_no_secret() {
        let order = Order {
            task_id: "t".into(),
            work: Some(order::Work::PullImage(PullImage {
                credentials: vec![super::Credential {
                    username: "u".into(),
                    password: "hunter2".into(),
                    ..Default::default()
                }],
                ..Default::default()
            })),
        };
        let renewal = AttachRequest {
            message: Some(attach_request::Message::TokenRenewal(TokenRenewal {
                token: "hunter2".into(),
            })),
        };
        let shown = format!("{order:?} {renewal:?}");
        assert!(shown.contains("redacted"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
