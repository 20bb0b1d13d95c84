//! What a runtime's words mean, and what of them may be shown.
//!
//! CRI passes on one text and, at best, a code. The table below was made from the sources and from trying containerd 1.6 and 2.x,
//! with the texts of CRI-O where they are known. It is read from the top; the first line that fits decides. What fits nowhere is
//! [`Reason::Unknown`], which is tried again.

use crate::task::Reason;

/// Longest text that is shown, in bytes.
pub const MAX_TEXT: usize = 1024;

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

/// All of the parts must occur.
type Line = (&'static [&'static str], Reason);

/// Texts that say what they mean whatever else is in them.
const FIRST: &[Line] = &[
    (&["no space left on device"], Reason::NoSpace),
    (&["disk quota exceeded"], Reason::NoSpace),
    // Ours: the lease that keeps the bytes of this task was taken away. It is made again for the next attempt.
    (&["lease does not exist"], Reason::RuntimeUnavailable),
    (&["server is not initialized yet"], Reason::RuntimeUnavailable),
    (&["unknown service runtime.v1"], Reason::RuntimeUnavailable),
    // These end in "not found", so they come before it.
    (&["no match for platform"], Reason::Unsupported),
    (&["no matching manifest for"], Reason::Unsupported),
    (&["no image found in", "for architecture"], Reason::Unsupported),
    (&["rejecting", "byte manifest"], Reason::Unsupported),
    (&["manifest.v1+", "no longer supported"], Reason::Unsupported),
    (&["unsupported media type"], Reason::Unsupported),
    (&["unexpected media type"], Reason::Unsupported),
    (&["unsupported manifest"], Reason::Unsupported),
    (&["encountered unknown type"], Reason::Unsupported),
    (&["invalid tar header"], Reason::Unsupported),
    (&["gzip: invalid header"], Reason::Unsupported),
    (&["mismatched rootfs and manifest layers"], Reason::Unsupported),
    (&["invalid reference format"], Reason::InvalidReference),
    (&["failed to parse image reference"], Reason::InvalidReference),
    (&["invalid checksum digest"], Reason::InvalidReference),
    (&["unexpected commit digest"], Reason::Corrupt),
    (&["unexpected commit size"], Reason::Corrupt),
    (&["failed size validation"], Reason::Corrupt),
    (&["short read: expected"], Reason::Corrupt),
    (&["mismatched digest"], Reason::Corrupt),
    (&["wrong diff id"], Reason::Corrupt),
    (&["does not match config's diffid"], Reason::Corrupt),
    (&["toomanyrequests"], Reason::Throttled),
    (&["too many requests"], Reason::Throttled),
    // A hidden repository and one that does not exist look alike from outside; a log-in may help.
    (&["pull access denied"], Reason::Denied),
    (&["insufficient_scope"], Reason::Denied),
    (&["authorization failed"], Reason::Denied),
    (&["no basic auth credentials"], Reason::Denied),
    (&["authentication required"], Reason::Denied),
    (&["requested access to the resource is denied"], Reason::Denied),
    (&["stopped after 10 redirects"], Reason::RegistryError),
];

/// Texts that are looked for when no HTTP status is named.
const LAST: &[Line] = &[
    (&["no such host"], Reason::Unreachable),
    (&["server misbehaving"], Reason::Unreachable),
    (&["temporary failure in name resolution"], Reason::Unreachable),
    (&["connection refused"], Reason::Unreachable),
    (&["connection reset"], Reason::Unreachable),
    (&["connection timed out"], Reason::Unreachable),
    (&["no route to host"], Reason::Unreachable),
    (&["network is unreachable"], Reason::Unreachable),
    (&["i/o timeout"], Reason::Unreachable),
    (&["handshake timeout"], Reason::Unreachable),
    (&["broken pipe"], Reason::Unreachable),
    (&["x509:"], Reason::Unreachable),
    (&["tls:"], Reason::Unreachable),
    (&["http response to https client"], Reason::Unreachable),
    (&["registryunavailable"], Reason::Unreachable),
    // containerd ends pulls without progress by itself, and so cancels its own requests.
    (&["context canceled"], Reason::Stalled),
    (&["failed to do request"], Reason::Unreachable),
    (&["unexpected eof"], Reason::Corrupt),
    (&["manifest unknown"], Reason::NotFound),
    (&["name unknown"], Reason::NotFound),
    (&["not found"], Reason::NotFound),
    (&["deadline exceeded"], Reason::Timeout),
];

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
        .filter(|pair| pair[0].ends_with(':') && pair[1].len() == 3);
    numbers
        .filter_map(|pair| pair[1].parse().ok())
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

/// A text of the runtime as it may be shown: without query strings and log-ins of addresses, without the given secrets, on one
/// line, and not longer than [`MAX_TEXT`].
#[must_use]
pub fn show(text: &str, secrets: &[&str]) -> String {
    let mut text = text.to_owned();
    // Longer ones first: one may be part of another.
    let mut secrets: Vec<&str> = secrets
        .iter()
        .copied()
        .filter(|secret| secret.len() >= 4)
        .collect();
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    for secret in secrets {
        text = text.replace(secret, "…");
    }
    let line: String = without_addresses(&text)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    cut(line.trim(), MAX_TEXT)
}

/// Takes query strings and log-ins out of whatever looks like an address.
fn without_addresses(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>' | ')' | ']' | '}');
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['?', '@']) {
        let (before, after) = rest.split_at(at);
        if let Some(query) = after.strip_prefix('?') {
            shown.push_str(before);
            shown.push_str("?…");
            rest = &query[query.find(ends).unwrap_or(query.len())..];
        } else {
            let address = before.rfind(ends).map_or(0, |end| {
                end + before[end..].chars().next().map_or(0, char::len_utf8)
            });
            match before[address..].find("://") {
                Some(scheme) if !before[address + scheme + 3..].contains('/') => {
                    shown.push_str(&before[..address + scheme + 3]);
                    shown.push('…');
                }
                _ => shown.push_str(before),
            }
            shown.push('@');
            rest = &after[1..];
        }
    }
    shown.push_str(rest);
    shown
}

fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most - '…'.len_utf8())
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHA: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    /// As containerd 1.6 (first) and 2.x (second) say it, and CRI-O where it differs.
    #[test]
    fn texts_of_runtimes() {
        let cases = [
            (
                Reason::NotFound,
                "failed to pull and unpack image \"10.90.0.1:5000/app:nope\": failed to resolve reference \"10.90.0.1:5000/app:nope\": 10.90.0.1:5000/app:nope: not found",
            ),
            (
                Reason::NotFound,
                "could not fetch content descriptor SHA (application/vnd.oci.image.layer.v1.tar+gzip) from remote: not found",
            ),
            (
                Reason::NotFound,
                "failed to pull and unpack image \"10.90.0.1:5000/app:nope\": failed to resolve image: 10.90.0.1:5000/app:nope: not found",
            ),
            (
                Reason::Denied,
                "failed to resolve image: pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials",
            ),
            (
                Reason::Unsupported,
                "get image config descriptor: no match for platform in manifest SHA: not found",
            ),
            (
                Reason::Unsupported,
                "get image config descriptor: unexpected media type text/html for SHA: not found",
            ),
            (
                Reason::NotFound,
                "reading manifest nope in docker.io/library/nginx: manifest unknown",
            ),
            (
                Reason::Denied,
                "failed to resolve reference \"docker.io/library/nope:latest\": pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed",
            ),
            (
                Reason::Denied,
                "failed to resolve reference \"reg.io/a:1\": failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized",
            ),
            (
                Reason::Denied,
                "failed to resolve reference \"reg.io/a:1\": failed to authorize: failed to fetch anonymous token: unexpected status from GET request to https://reg.io/token?scope=repository%3Aa%3Apull&service=x: 403 Forbidden",
            ),
            (
                Reason::Denied,
                "failed to resolve reference \"10.90.0.1:5000/a:1\": unexpected status from HEAD request to http://10.90.0.1:5000/v2/a/manifests/1: 401 Unauthorized",
            ),
            (
                Reason::Denied,
                "failed to resolve reference \"10.90.0.1:5000/a:1\": pulling from host 10.90.0.1:5000 failed with status code [manifests 1]: 401 Unauthorized",
            ),
            (
                Reason::Denied,
                "reading manifest latest in docker.io/library/nope: requested access to the resource is denied",
            ),
            (
                Reason::InvalidReference,
                "failed to parse image reference \"UPPER\": invalid reference format: repository name must be lowercase",
            ),
            (
                Reason::Unreachable,
                "failed to resolve reference \"10.90.0.1:5001/a:1\": failed to do request: Head \"https://10.90.0.1:5001/v2/a/manifests/1\": dial tcp 10.90.0.1:5001: connect: connection refused",
            ),
            (
                Reason::Unreachable,
                "failed to do request: Head \"https://nowhere.invalid/v2/a/manifests/1\": dial tcp: lookup nowhere.invalid on 10.96.0.10:53: no such host",
            ),
            (
                Reason::Unreachable,
                "failed to do request: Head \"https://reg/v2/a/manifests/1\": http: server gave HTTP response to HTTPS client",
            ),
            (
                Reason::Unreachable,
                "failed to do request: Head \"https://reg/v2/a/manifests/1\": tls: failed to verify certificate: x509: certificate signed by unknown authority",
            ),
            (
                Reason::Unreachable,
                "failed to do request: Get \"http://reg/v2/a/blobs/SHA\": EOF",
            ),
            (
                Reason::Unreachable,
                "failed to copy: read tcp 10.90.0.2:55602->10.90.0.1:5000: read: connection reset by peer",
            ),
            (
                Reason::Unreachable,
                "failed to authorize: failed to fetch anonymous token: Get \"https://auth.docker.io/token?scope=x\": dial tcp: lookup auth.docker.io: i/o timeout",
            ),
            (
                Reason::Throttled,
                "unexpected status code https://reg/v2/a/manifests/1: 429 Too Many Requests - Server message: toomanyrequests: You have reached your pull rate limit",
            ),
            (
                Reason::Throttled,
                "failed to copy: httpReadSeeker: failed open: unexpected status code http://10.90.0.1:5000/v2/a/blobs/SHA: 429 Too Many Requests",
            ),
            (
                Reason::RegistryError,
                "failed to copy: httpReadSeeker: failed open: unexpected status code http://10.90.0.1:5000/v2/a/blobs/SHA: 503 Service Unavailable",
            ),
            (
                Reason::RegistryError,
                "unexpected status from HEAD request to http://10.90.0.1:5000/v2/a/manifests/404: 500 Internal Server Error",
            ),
            (
                Reason::RegistryError,
                "failed to do request: Get \"http://reg/v2/a/blobs/SHA\": stopped after 10 redirects",
            ),
            (
                Reason::Corrupt,
                "failed commit on ref \"layer-SHA\": unexpected commit digest SHA, expected SHA: failed precondition",
            ),
            (
                Reason::Corrupt,
                "failed commit on ref \"layer-SHA\": \"layer-SHA\" failed size validation: 100 != 200: failed precondition",
            ),
            (Reason::Corrupt, "failed to copy: unexpected EOF"),
            (
                Reason::NoSpace,
                "failed to copy: write /var/lib/containerd/io.containerd.content.v1.content/ingest/0a/data: no space left on device",
            ),
            (
                Reason::NoSpace,
                "failed to extract layer SHA: write /var/lib/containerd/tmpmounts/x/big: no space left on device: unknown",
            ),
            (
                Reason::Unsupported,
                "failed to pull and unpack image \"reg/a:1\": no match for platform in manifest: not found",
            ),
            (
                Reason::Unsupported,
                "failed to unpack image on snapshotter overlayfs: unexpected media type text/html for SHA: not found",
            ),
            (
                Reason::Unsupported,
                "failed to resolve reference \"reg/a:1\": rejecting 12345678 byte manifest for reg/a:1: not found",
            ),
            (
                Reason::Stalled,
                "failed to copy: httpReadSeeker: failed open: failed to do request: Get \"http://10.90.0.1:5000/v2/a/blobs/SHA\": context canceled",
            ),
            (
                Reason::RuntimeUnavailable,
                "failed to copy: lease does not exist: not found",
            ),
            (Reason::RuntimeUnavailable, "server is not initialized yet"),
            (
                Reason::RuntimeUnavailable,
                "unknown service runtime.v1.ImageService",
            ),
            (Reason::Unknown, "something else"),
        ];
        for (want, text) in cases {
            let text = text.replace("SHA", SHA);
            assert_eq!(classify(Code::Other, &text), want, "{text}");
        }
    }

    #[test]
    fn the_code_decides_when_the_text_does_not() {
        assert_eq!(
            classify(Code::Away, "tcp connect error: connection refused"),
            Reason::RuntimeUnavailable
        );
        assert_eq!(
            classify(Code::Unavailable, "about to stop"),
            Reason::RuntimeUnavailable
        );
        assert_eq!(classify(Code::DeadlineExceeded, ""), Reason::Timeout);
        assert_eq!(classify(Code::NotFound, "gone"), Reason::NotFound);
        assert_eq!(classify(Code::Denied, ""), Reason::Denied);
        let registry = "unexpected status code http://reg/v2/a/blobs/x: 503 Service Unavailable";
        assert_eq!(classify(Code::Unavailable, registry), Reason::RegistryError);
    }

    #[test]
    fn addresses_are_shown_without_secrets() {
        let cases = [
            (
                "Get \"https://s3/x?X-Amz-Signature=abc&y=1\": EOF",
                "Get \"https://s3/x?…\": EOF",
            ),
            (
                "at https://u:hunter2@reg.io/v2/?a=b end",
                "at https://…@reg.io/v2/?… end",
            ),
            (
                "reg/app@sha256:00 and https://reg/v2/app@sha256:00",
                "reg/app@sha256:00 and https://reg/v2/app@sha256:00",
            ),
            ("why? because", "why?… because"),
            ("ends with ?", "ends with ?…"),
            ("line\none\ttwo ", "line one two"),
        ];
        for (text, want) in cases {
            assert_eq!(show(text, &[]), want);
        }
        assert_eq!(
            show(
                "token hunter2hunter2 and hunter2",
                &["hunter2", "hunter2hunter2", "to"]
            ),
            "token … and …"
        );
    }

    #[test]
    fn texts_are_cut_at_a_letter() {
        let shown = show(&"ü".repeat(2000), &[]);
        assert!(shown.len() <= MAX_TEXT && shown.len() > MAX_TEXT - 4 && shown.ends_with('…'));
    }

    proptest! {
        #[test]
        fn whatever_a_runtime_says(text in ".{0,3000}", secret in "[a-z]{6,12}") {
            let text = format!("{text} https://{secret}@reg/?x={secret} {secret}");
            let shown = show(&text, &[&secret]);
            prop_assert!(shown.len() <= MAX_TEXT);
            prop_assert!(!shown.contains(&secret));
            let _ = classify(Code::Other, &text);
        }
    }
}
