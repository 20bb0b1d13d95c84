//! What a token says of itself. Nothing here is verified: it spares the API server tokens that cannot be good, and tells when a
//! verified one ends.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

/// The claims that matter here.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub(super) struct Claims {
    /// End, unix seconds.
    #[serde(default)]
    pub(super) exp: Option<i64>,
    #[serde(default)]
    aud: Audience,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Default for Audience {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Claims {
    /// The claims of a JSON web token; none when it is no such thing.
    pub(super) fn of(token: &str) -> Option<Self> {
        let mut parts = token.split('.');
        let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(payload).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Whether it is meant for this audience.
    pub(super) fn is_for(&self, audience: &str) -> bool {
        match &self.aud {
            Audience::One(one) => one == audience,
            Audience::Many(many) => many.iter().any(|one| one == audience),
        }
    }
}

/// A token with these claims and no valid signature.
#[cfg(test)]
pub(super) fn unsigned(claims: &serde_json::Value) -> String {
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!(
        "{}.{}.c2lnbmF0dXJl",
        part(&serde_json::json!({"alg": "RS256"})),
        part(claims)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_are_read_and_anything_else_is_none() {
        let token = unsigned(&json!({"exp": 12, "aud": ["a", "b"], "sub": "x"}));
        let claims = Claims::of(&token).expect("a token");
        assert_eq!(claims.exp, Some(12));
        assert!(claims.is_for("b") && !claims.is_for("c"));
        let single = Claims::of(&unsigned(&json!({"aud": "a"}))).expect("a token");
        assert!(single.is_for("a") && single.exp.is_none());
        assert!(!Claims::of(&unsigned(&json!({}))).expect("a token").is_for("a"));
        for junk in [
            "",
            "a.b.c",
            "a.b",
            "..",
            "a.b.c.d",
            &format!("{token}.x"),
            "ü.ü.ü",
        ] {
            assert_eq!(Claims::of(junk), None, "{junk}");
        }
    }
}
