//! Service account tokens, signed as the API server does, but without asking it ten thousand times.

use std::fs;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::cluster::Cluster;

/// Issuer that the cluster's API server is told, and its own audience.
pub const ISSUER: &str = "https://kubernetes.default.svc";
/// A benchmark takes minutes; nothing of it is about tokens that end.
const LIFE_SECONDS: i64 = 24 * 3600;

/// Signs with the cluster's own key.
#[derive(Debug)]
pub struct Signer {
    key: KeyPair,
    header: String,
    now: i64,
}

/// Whom a token is for. Pods and nodes as (name, UID).
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    pub namespace: &'a str,
    pub account: &'a str,
    pub account_uid: &'a str,
    pub pod: Option<(&'a str, &'a str)>,
    pub node: Option<(&'a str, &'a str)>,
}

impl Signer {
    /// Reads the key of a cluster.
    pub fn of(cluster: &Cluster) -> Result<Self> {
        let read = |file: &str| {
            fs::read_to_string(cluster.layout().pki(file)).with_context(|| format!("cannot read {file}"))
        };
        let key = KeyPair::from_pem(&read("sa.key")?).context("sa.key is no key")?;
        let public: String = read("sa.pub")?
            .lines()
            .filter(|line| !line.starts_with("--"))
            .collect();
        let public = STANDARD.decode(public).context("sa.pub is not PEM")?;
        // The API server knows its keys by the hash of their public part.
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(public));
        Ok(Self {
            key,
            header: part(&json!({"alg": "ES256", "kid": id})),
            now: Timestamp::now().as_second(),
        })
    }

    /// A token with the claims that the API server puts into those that it projects into pods.
    pub fn token(&self, subject: &Subject<'_>, audience: &str) -> Result<String> {
        let Subject {
            namespace,
            account,
            account_uid,
            pod,
            node,
        } = subject;
        let reference = |of: &Option<(&str, &str)>| of.map(|(name, uid)| json!({"name": name, "uid": uid}));
        let mut own =
            json!({"namespace": namespace, "serviceaccount": {"name": account, "uid": account_uid}});
        for (kind, bound) in [("pod", reference(pod)), ("node", reference(node))] {
            if let Some(bound) = bound {
                own[kind] = bound;
            }
        }
        let claims = json!({
            "iss": ISSUER, "aud": [audience], "sub": format!("system:serviceaccount:{namespace}:{account}"),
            "iat": self.now, "nbf": self.now, "exp": self.now + LIFE_SECONDS,
            "jti": pod.map_or(*account_uid, |(_, uid)| uid), "kubernetes.io": own,
        });
        let text = format!("{}.{}", self.header, part(&claims));
        let signature = self.key.sign(text.as_bytes()).context("cannot sign")?;
        let signature = plain(&signature).context("an ECDSA signature is two numbers")?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// From the DER form of a P-256 signature to the 64 bytes that a JSON web token wants.
fn plain(der: &[u8]) -> Option<[u8; 64]> {
    let mut signature = [0; 64];
    let mut rest = der.get(2..)?;
    for half in signature.chunks_exact_mut(32) {
        let length = usize::from(*rest.get(1)?);
        let number = rest.get(2..2 + length)?;
        // A leading zero keeps a number positive, and short numbers are just that.
        let number = number.strip_prefix(&[0]).unwrap_or(number);
        half.get_mut(32_usize.checked_sub(number.len())?..)?
            .copy_from_slice(number);
        rest = rest.get(2 + length..)?;
    }
    Some(signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_signature_are_padded_to_their_places() {
        let der = [0x30, 0x08, 0x02, 0x02, 0x00, 0x80, 0x02, 0x02, 0x01, 0x02];
        let plain = plain(&der).unwrap();
        assert_eq!((plain[30], plain[31], plain[62], plain[63]), (0, 0x80, 1, 2));
        assert_eq!(super::plain(&der[..6]), None);
    }
}
