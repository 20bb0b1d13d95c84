//! What a runtime's words mean, and what of them may be shown.
//!
//! CRI passes on one text and, at best, a code. The table was made from trying containerd 1.6.20 and 2.2.9, and from the sources of
//! 1.7 and of CRI-O, which were not tried. It is read from the top; the first line that fits decides. What fits nowhere is
//! [`Reason::Unknown`], which is tried again.
//!
//! [`facts`] says of each reason what people should know: the page of reasons is made from it.

mod facts;
mod shown;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use facts::{Facts, Retry, facts};
pub use shown::{MAX_TEXT, show};
use table::{FIRST, LAST, Line};

use crate::task::Reason;

/// Code of a gRPC status, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The connection to the runtime is not there or broke: whatever the text says, it speaks of this connection.
    Away,
    /// The runtime says so itself: it is about to stop, or does not speak CRI.
    Unavailable,
    /// Took too long.
    DeadlineExceeded,
    /// Something was not found.
    NotFound,
    /// Not allowed.
    Denied,
    /// Anything else.
    Other,
}

/// What a failed call to the runtime means.
#[must_use]
pub fn classify(code: Code, text: &str) -> Reason {
    if code == Code::Away {
        return Reason::RuntimeUnavailable;
    }
    let text = text.to_lowercase();
    find(FIRST, &text)
        .or_else(|| http_status(&text).and_then(by_status))
        .or_else(|| find(LAST, &text))
        .unwrap_or(match code {
            Code::Away | Code::Unavailable => Reason::RuntimeUnavailable,
            Code::DeadlineExceeded => Reason::Timeout,
            Code::NotFound => Reason::NotFound,
            Code::Denied => Reason::Denied,
            Code::Other => Reason::Unknown,
        })
}

fn find(table: &[Line], text: &str) -> Option<Reason> {
    let fits = |line: &&Line| line.0.iter().all(|part| text.contains(part));
    table.iter().find(fits).map(|line| line.1)
}

/// The HTTP status in a text such as `unexpected status code https://reg/v2/app/manifests/1: 503 Service Unavailable`. The number
/// stands alone after a colon, unlike ports, tags and sizes.
fn http_status(text: &str) -> Option<u16> {
    let rest = &text[text.find("status")?..];
    let words: Vec<&str> = rest.split_whitespace().collect();
    let numbers = words
        .windows(2)
        .filter(|pair| pair[0].ends_with(':'))
        .map(|pair| pair[1].trim_end_matches([',', '.']));
    numbers
        .filter(|number| number.len() == 3)
        .filter_map(|number| number.parse().ok())
        .find(|status| (100..600).contains(status))
}

fn by_status(status: u16) -> Option<Reason> {
    match status {
        401 | 403 | 407 => Some(Reason::Denied),
        404 | 410 => Some(Reason::NotFound),
        408 => Some(Reason::Unreachable),
        429 => Some(Reason::Throttled),
        400..=599 => Some(Reason::RegistryError),
        _ => None,
    }
}

/// How long a registry asks to stay away, where its words made it through the runtime. CRI passes on no headers, but some
/// registries repeat theirs in the text: `toomanyrequests: retry-after: 1.5s, allowed: 44000/minute`.
#[must_use]
pub fn retry_after(text: &str) -> Option<Duration> {
    let text = text.to_lowercase();
    let (_, rest) = text
        .split_once("retry-after")
        .or_else(|| text.split_once("retry after"))?;
    let rest = rest.trim_start_matches([':', '=', ' ', '"']);
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    let (number, rest) = rest.split_at(end);
    let end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
    let scale = match &rest[..end] {
        "ns" => 1e-9,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ms" => 1e-3,
        "" | "s" | "sec" | "second" | "seconds" => 1.0,
        "m" | "min" | "minute" | "minutes" => 60.0,
        "h" | "hour" | "hours" => 3600.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * scale).ok()
}
