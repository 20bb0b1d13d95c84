//! Which trace something belongs to.

use std::fmt;
use std::fmt::Write as _;

use kruise_planner::revision;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Version of the text form that we write and read.
const VERSION: &str = "00";
/// The trace is recorded.
const SAMPLED: &str = "01";

/// A trace, and the span that others of it hang from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
}

impl Parent {
    /// The update that brings a CloneSet to a template. It follows from what is stored anyway, so that every replica, and a leader that comes later,
    /// finds the same one.
    pub(crate) fn of_update(set_uid: &str, template: &Value) -> Self {
        let mut hash = Sha256::new();
        hash.update(set_uid.as_bytes());
        hash.update(b"\n");
        hash.update(revision::canonical_text(&revision::data(template)).as_bytes());
        let hash = hash.finalize();
        let mut parent = Self {
            trace: [0; 16],
            span: [0; 8],
        };
        for (to, from) in parent.trace.iter_mut().chain(&mut parent.span).zip(hash) {
            *to = from;
        }
        parent
    }

    /// Reads W3C's `traceparent`. None when it is none, or of a trace that nobody records.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if version != VERSION || parts.next().is_some() {
            return None;
        }
        let [flags] = bytes(flags)?;
        let parent = Self {
            trace: bytes(trace)?,
            span: bytes(span)?,
        };
        let is_valid = parent.trace != [0; 16] && parent.span != [0; 8];
        (is_valid && flags & 1 == 1).then_some(parent)
    }

    /// The id of a span below, from what it is about: told twice, it is the same span.
    pub(super) fn child(&self, key: &str) -> [u8; 8] {
        let mut hash = Sha256::new();
        hash.update(self.trace);
        hash.update(self.span);
        hash.update(key.as_bytes());
        let mut id = [0; 8];
        for (to, from) in id.iter_mut().zip(hash.finalize()) {
            *to = from;
        }
        id
    }
}

/// As W3C's `traceparent`.
impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION}-{}-{}-{SAMPLED}", hex(&self.trace), hex(&self.span))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 2 * N || !text.bytes().all(lower) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_update_is_one_trace_whoever_looks() {
        let template = |image: &str| json!({"spec": {"containers": [{"name": "a", "image": image}]}});
        let parent = Parent::of_update("u", &template("b:1"));
        assert_eq!(parent, Parent::of_update("u", &template("b:1")));
        assert_ne!(parent, Parent::of_update("u", &template("b:2")));
        assert_ne!(parent, Parent::of_update("v", &template("b:1")));
        assert_eq!(Parent::parse(&parent.to_string()), Some(parent));
        assert_ne!(parent.child("a"), parent.child("b"));
    }

    #[test]
    fn only_recorded_traces_are_read() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(
            Parent::parse(good).map(|parent| parent.to_string()).as_deref(),
            Some(good)
        );
        for bad in [
            "",
            "x",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319ä-b7ad6b7169203331-01",
        ] {
            assert_eq!(Parent::parse(bad), None, "{bad}");
        }
    }
}
