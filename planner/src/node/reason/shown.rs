//! What of a runtime's words may be shown.

/// Longest text that is shown, in bytes.
pub const MAX_TEXT: usize = 1024;

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
