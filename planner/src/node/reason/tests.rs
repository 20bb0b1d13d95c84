//! Texts as runtimes say them.

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

/// Texts that differ between lines of containerd, and those of CRI-O. Those of 1.7 and of CRI-O were read in the sources, not seen.
#[test]
fn texts_by_version() {
    let cases = [
        (
            "containerd 1.7",
            Reason::NotFound,
            "failed to pull and unpack image \"reg/a:1\": failed to copy: httpReadSeeker: failed open: content at https://reg/v2/a/manifests/SHA not found: not found",
        ),
        (
            "containerd 1.7",
            Reason::Corrupt,
            "failed to pull and unpack image \"reg/a:1\": failed to unpack image on snapshotter overlayfs: failed to extract layer SHA: failed to get reader from content store: content digest SHA: not found",
        ),
        (
            "containerd 1.7",
            Reason::Denied,
            "failed to pull and unpack image \"ghcr.io/a/b:1\": failed to resolve reference \"ghcr.io/a/b:1\": failed to authorize: failed to fetch anonymous token: unexpected status from GET request to https://ghcr.io/token?scope=repository%3Aa%2Fb%3Apull&service=ghcr.io: 401 Unauthorized",
        ),
        (
            "containerd 1.7",
            Reason::Throttled,
            "failed to copy: httpReadSeeker: failed open: unexpected status code https://registry-1.docker.io/v2/a/manifests/SHA: 429 Too Many Requests - Server message: toomanyrequests: You have reached your pull rate limit.",
        ),
        (
            "containerd 1.7",
            Reason::NoSpace,
            "failed to extract layer SHA: mount callback failed on /var/lib/containerd/tmpmounts/containerd-mount1: write /var/lib/containerd/tmpmounts/containerd-mount1/a: no space left on device: unknown",
        ),
        (
            "containerd 2.x",
            Reason::Unreachable,
            "failed to resolve image: failed to do request: Head \"https://reg/v2/a/manifests/1\": dial tcp 10.0.0.1:443: connect: no route to host",
        ),
        (
            "containerd 2.x",
            Reason::Throttled,
            "failed to resolve image: unexpected status from HEAD request to https://reg/v2/a/manifests/1: 429 Too Many Requests",
        ),
        (
            "containerd 2.x",
            Reason::RegistryError,
            "failed to resolve image: unexpected status from HEAD request to https://reg/v2/a/manifests/1: 502 Bad Gateway",
        ),
        (
            "containerd 2.x",
            Reason::Unreachable,
            "failed to copy: read tcp 10.0.0.2:1->10.0.0.1:443: use of closed network connection",
        ),
        (
            "containerd 2.x",
            Reason::Unreachable,
            "failed to copy: stream error: stream ID 7; INTERNAL_ERROR; received from peer",
        ),
        (
            "containerd 2.x",
            Reason::Unsupported,
            "failed to extract layer SHA to overlayfs as \"x\": magic number mismatch",
        ),
        (
            "CRI-O 1.2x",
            Reason::NotFound,
            "initializing source docker://reg/a:1: reading manifest 1 in reg/a: manifest unknown",
        ),
        (
            "CRI-O 1.2x",
            Reason::NotFound,
            "initializing source docker://reg/a:1: reading manifest 1 in reg/a: name unknown: repository name not known to registry",
        ),
        (
            "CRI-O 1.2x",
            Reason::Denied,
            "initializing source docker://reg/a:1: reading manifest 1 in reg/a: unauthorized: access to the requested resource is not authorized",
        ),
        (
            "CRI-O 1.2x",
            Reason::Denied,
            "initializing source docker://reg/a:1: unable to retrieve auth token: invalid username/password: unauthorized",
        ),
        (
            "CRI-O 1.2x",
            Reason::Unreachable,
            "initializing source docker://reg/a:1: pinging container registry reg: Get \"https://reg/v2/\": dial tcp 10.0.0.1:443: connect: connection refused",
        ),
        (
            "CRI-O 1.2x",
            Reason::RegistryError,
            "parsing image configuration: fetching blob: StatusCode: 503, \"Service Unavailable\"",
        ),
        (
            "CRI-O 1.2x",
            Reason::RegistryError,
            "fetching blob: received unexpected HTTP status: 500 Internal Server Error",
        ),
        (
            "CRI-O 1.2x",
            Reason::Throttled,
            "reading manifest 1 in docker.io/library/a: toomanyrequests: You have reached your pull rate limit",
        ),
        (
            "CRI-O 1.2x",
            Reason::Unsupported,
            "choosing an image from manifest list docker://reg/a:1: no image found in image index for architecture \"arm64\", variant \"v8\", OS \"linux\"",
        ),
        (
            "CRI-O 1.2x",
            Reason::Unsupported,
            "SignatureValidationFailed: Source image rejected: Running image docker://reg/a:1 is rejected by policy.",
        ),
        (
            "CRI-O 1.2x",
            Reason::NoSpace,
            "writing blob: storing blob to file \"/var/tmp/container_images_storage1/1\": write /var/tmp/container_images_storage1/1: no space left on device",
        ),
        (
            "CRI-O 1.3x",
            Reason::Unreachable,
            "RegistryUnavailable: pinging container registry reg: connection closed",
        ),
    ];
    for (version, want, text) in cases {
        let text = text.replace("SHA", SHA);
        assert_eq!(classify(Code::Other, &text), want, "{version}: {text}");
    }
}

#[test]
fn pauses_that_registries_ask_for() {
    let cases = [
        (
            "toomanyrequests: retry-after: 223.441\u{b5}s, allowed: 44000/minute",
            Some(0),
        ),
        ("429 Too Many Requests; Retry-After: 120", Some(120_000)),
        ("slow down, retry after 1.5s please", Some(1_500)),
        ("Retry-After=\"2m\"", Some(120_000)),
        ("retry-after: soon", None),
        ("retry-after: 3 fortnights", Some(3_000)),
        ("retry-after: 9e999", None),
        ("429 Too Many Requests", None),
    ];
    for (text, millis) in cases {
        let pause = retry_after(text).map(|pause| u64::try_from(pause.as_millis()).expect("small"));
        assert_eq!(pause, millis, "{text}");
    }
}

#[test]
fn facts_fit_the_decisions() {
    for reason in Reason::ALL {
        let facts = facts(reason);
        let ends = reason.is_final() || reason == Reason::NodeUnreachable;
        assert_eq!(facts.retry == Retry::Never, ends, "{reason}");
        assert!(facts.meaning.len() > 20 && facts.advice.len() > 20, "{reason}");
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
        let _ = retry_after(&text);
    }
}
