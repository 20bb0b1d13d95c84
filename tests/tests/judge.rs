//! An independent judge: reads the registry's access log, knows nothing of the product.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use kruise_tests::registry::Access;

/// When each node was busy with the image: from its first request for a manifest or blob to the end of its last.
fn spans(log: &[Access]) -> BTreeMap<String, (Instant, Instant)> {
    let mut spans: BTreeMap<String, (Instant, Instant)> = BTreeMap::new();
    for access in log
        .iter()
        .filter(|access| access.path.contains("/manifests/") || access.is_blob())
    {
        let Some(node) = &access.node else { continue };
        let ended = access.ended.unwrap_or_else(Instant::now);
        let span = spans.entry(node.clone()).or_insert((access.began, ended));
        span.0 = span.0.min(access.began);
        span.1 = span.1.max(ended);
    }
    spans
}

/// Most nodes that were busy at one instant.
pub(crate) fn most_at_once(log: &[Access]) -> usize {
    let spans = spans(log);
    // The number only rises where a span begins.
    let at = |instant: Instant| {
        spans
            .values()
            .filter(|(began, ended)| *began <= instant && instant < *ended)
            .count()
    };
    spans.values().map(|(began, _)| at(*began)).max().unwrap_or(0)
}

/// Bytes of blobs that a node fetched.
pub(crate) fn bytes_of(log: &[Access], node: &str) -> u64 {
    log.iter()
        .filter(|access| access.is_blob() && access.node.as_deref() == Some(node))
        .map(|access| access.bytes)
        .sum()
}

/// The spans in words, for messages.
pub(crate) fn told(log: &[Access]) -> String {
    let spans = spans(log);
    let Some(first) = spans.values().map(|(began, _)| *began).min() else {
        return "nobody came".to_owned();
    };
    spans
        .iter()
        .fold(String::new(), |mut text, (node, (began, ended))| {
            let seconds = |instant: &Instant| instant.duration_since(first).as_secs_f64();
            let _ = writeln!(
                text,
                "{node}: {:.3} s to {:.3} s, {} bytes",
                seconds(began),
                seconds(ended),
                bytes_of(log, node)
            );
            text
        })
}
