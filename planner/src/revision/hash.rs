//! Hashes as OpenKruise makes them.

use serde_json::Value;

use super::go::{self, Kind};
use super::text::{canonical_text, declared_text};

const OFFSET: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

fn fnv1(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(OFFSET, |hash, byte| hash.wrapping_mul(PRIME) ^ u32::from(*byte))
}

fn fnv1a(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(OFFSET, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME))
}

/// Hash of a revision: FNV-1 over its bytes and the collision count, in an alphabet without vowels.
#[must_use]
pub fn hash(data: &Value, collision_count: i32) -> String {
    let text = format!("{}{collision_count}", canonical_text(data));
    fnv1(text.as_bytes())
        .to_string()
        .bytes()
        .map(|digit| char::from(b"456789bcdf"[usize::from(digit - b'0') % 10]))
        .collect()
}

/// What is behind the last dash: the hash of a revision's name, or all of a short label.
#[must_use]
pub fn short_hash(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(_, hash)| hash)
}

/// FNV-1a over a text as Go prints a list of its bytes. The kubelet and OpenKruise hash containers this way.
#[must_use]
pub fn fnv1a_of_text(text: &str) -> u32 {
    let mut printed = "([]uint8)[".to_owned();
    for (index, byte) in text.bytes().enumerate() {
        if index > 0 {
            printed.push(' ');
        }
        printed.push_str(&byte.to_string());
    }
    printed.push(']');
    fnv1a(printed.bytes())
}

/// Hash of the claim templates, for the revision's annotation. Empty without any.
#[must_use]
pub fn claim_template_hash(claims: Option<&Value>) -> String {
    let mut claims: Vec<&Value> = claims.and_then(Value::as_array).into_iter().flatten().collect();
    if claims.is_empty() {
        return String::new();
    }
    let name = |claim: &Value| claim["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    claims.sort_by_key(|claim| name(claim));
    let reduced: Vec<String> = claims
        .iter()
        .map(|claim| reduced(&name(claim), &claim["spec"]))
        .collect();
    fnv1a_of_text(&format!("[{}]", reduced.join(","))).to_string()
}

fn reduced(name: &str, spec: &Value) -> String {
    let kind = Kind::Struct("PersistentVolumeClaimSpec");
    let name = canonical_text(&Value::String(name.to_owned()));
    let spec = declared_text(&go::normal(spec, &kind), &kind);
    format!("{{\"metadata\":{{\"name\":{name},\"creationTimestamp\":null}},\"spec\":{spec},\"status\":{{}}}}")
}
