//! The table of the runtimes' texts.

use crate::task::Reason;

/// All of the parts must occur.
pub(super) type Line = (&'static [&'static str], Reason);

/// Texts that say what they mean whatever else is in them.
pub(super) const FIRST: &[Line] = &[
    (&["no space left on device"], Reason::NoSpace),
    (&["disk quota exceeded"], Reason::NoSpace),
    (&["enospc"], Reason::NoSpace),
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
    (&["magic number mismatch"], Reason::Unsupported),
    (&["private key needed for decryption"], Reason::Unsupported),
    // The node's own policy; the registry was asked and did answer.
    (&["signaturevalidationfailed"], Reason::Unsupported),
    (&["rejected by policy"], Reason::Unsupported),
    (&["invalid reference format"], Reason::InvalidReference),
    (&["failed to parse image reference"], Reason::InvalidReference),
    (&["invalid checksum digest"], Reason::InvalidReference),
    (&["name_invalid"], Reason::InvalidReference),
    (&["invalid repository name"], Reason::InvalidReference),
    (&["unexpected commit digest"], Reason::Corrupt),
    (&["unexpected commit size"], Reason::Corrupt),
    (&["failed size validation"], Reason::Corrupt),
    (&["short read: expected"], Reason::Corrupt),
    (&["mismatched digest"], Reason::Corrupt),
    (&["wrong diff id"], Reason::Corrupt),
    (&["does not match config's diffid"], Reason::Corrupt),
    (&["gzip: invalid checksum"], Reason::Corrupt),
    // A layer that was there a moment ago: it has to be fetched again, so this is not about the registry's "not found".
    (&["failed to get reader from content store"], Reason::Corrupt),
    (&["content digest sha", "not found"], Reason::Corrupt),
    (&["toomanyrequests"], Reason::Throttled),
    (&["too many requests"], Reason::Throttled),
    (&["toomanyreqs"], Reason::Throttled),
    (&["rate limit exceeded"], Reason::Throttled),
    (&["ratelimitexceeded"], Reason::Throttled),
    // A hidden repository and one that does not exist look alike from outside; a log-in may help.
    (&["pull access denied"], Reason::Denied),
    (&["insufficient_scope"], Reason::Denied),
    (&["authorization failed"], Reason::Denied),
    (&["no basic auth credentials"], Reason::Denied),
    (&["authentication required"], Reason::Denied),
    (&["requested access to the resource is denied"], Reason::Denied),
    (&["invalid username/password"], Reason::Denied),
    (&["unauthorized:"], Reason::Denied),
    (&["denied: denied"], Reason::Denied),
    (&["stopped after 10 redirects"], Reason::RegistryError),
];

/// Texts that are looked for when no HTTP status is named.
pub(super) const LAST: &[Line] = &[
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
    (&["use of closed network connection"], Reason::Unreachable),
    (&["client connection lost"], Reason::Unreachable),
    (&["goaway"], Reason::Unreachable),
    (&["stream error: stream id"], Reason::Unreachable),
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
    (&["manifest_unknown"], Reason::NotFound),
    (&["name_unknown"], Reason::NotFound),
    (&["blob unknown"], Reason::NotFound),
    (&["not found"], Reason::NotFound),
    (&["deadline exceeded"], Reason::Timeout),
];
