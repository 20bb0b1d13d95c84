//! What a token says of itself. Nothing here is verified: it sorts out tokens that cannot be good before anything is spent on them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

/// How far another API server's clock may be ahead of the one that we know. The end of a token is taken by the letter: agents renew theirs
/// long before.
const LEEWAY_SECONDS: i64 = 10;

/// The claims that matter here.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub(super) struct Claims {
    #[serde(default)]
    pub(super) iss: String,
    #[serde(default)]
    pub(super) sub: String,
    /// End, unix seconds.
    #[serde(default)]
    pub(super) exp: Option<i64>,
    /// Begin, unix seconds.
    #[serde(default)]
    nbf: Option<i64>,
    #[serde(default)]
    aud: Audience,
    #[serde(default, rename = "kubernetes.io")]
    pub(super) bound: Option<Bound>,
}

/// What a service account's token is bound to.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub(super) struct Bound {
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) serviceaccount: Option<Reference>,
    pub(super) pod: Option<Reference>,
    pub(super) node: Option<Reference>,
}

/// An object by name and UID.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub(super) struct Reference {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) uid: String,
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

    /// Whether it has begun, at this unix second.
    pub(super) fn has_begun(&self, now: i64) -> bool {
        self.nbf
            .is_none_or(|begin| begin <= now.saturating_add(LEEWAY_SECONDS))
    }
}

/// Node that a token claims to come from, for the log; whether that is true is another question.
pub(crate) fn claimed_node(token: &str) -> Option<String> {
    let node = Claims::of(token)?.bound?.node?.name;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    (node.len() <= 253 && node.chars().all(is_name)).then_some(node)
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
        assert_eq!((claims.exp, claims.sub.as_str()), (Some(12), "x"));
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
            &unsigned(&json!({"kubernetes.io": 5})),
            &unsigned(&json!({"exp": "12"})),
        ] {
            assert_eq!(Claims::of(junk), None, "{junk}");
        }
    }

    #[test]
    fn a_token_begins_when_it_says_give_or_take_a_moment() {
        let claims = Claims::of(&unsigned(&json!({"nbf": 1_000}))).expect("a token");
        assert!(claims.has_begun(1_000) && claims.has_begun(990) && !claims.has_begun(989));
        assert!(Claims::default().has_begun(0));
    }

    #[test]
    fn a_claimed_node_gets_into_the_log_only_when_it_looks_like_one() {
        let token = |node: &str| unsigned(&json!({"kubernetes.io": {"node": {"name": node, "uid": "u"}}}));
        assert_eq!(claimed_node(&token("node-1.a")).as_deref(), Some("node-1.a"));
        for odd in ["a b", "a\nb", "ü", &"a".repeat(254)] {
            assert_eq!(claimed_node(&token(odd)), None);
        }
        assert_eq!(claimed_node("x"), None);
    }
}
