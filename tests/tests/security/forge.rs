//! Tokens as somebody would make them who must not: with other keys, with none, or with the API server's own key and false claims.

use std::fs;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kruise_tests::cluster::Cluster;
use rcgen::KeyPair;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

/// A key to sign with.
pub(crate) struct Key(EcdsaKeyPair);

impl Key {
    /// The API server's own.
    pub(crate) fn of(cluster: &Cluster) -> Result<Self> {
        let pem = fs::read_to_string(cluster.layout().pki("sa.key")).context("cannot read sa.key")?;
        Self::from_der(&KeyPair::from_pem(&pem)?.serialize_der())
    }

    /// A new one.
    pub(crate) fn new() -> Result<Self> {
        Self::from_der(&KeyPair::generate()?.serialize_der())
    }

    fn from_der(der: &[u8]) -> Result<Self> {
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &SystemRandom::new());
        key.map(Self)
            .map_err(|error| anyhow::anyhow!("not a P-256 key: {error}"))
    }

    /// Signs by ES256, whatever the header says.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> Result<String> {
        let text = format!("{}.{}", part(header), part(claims));
        let signature = self.0.sign(&SystemRandom::new(), text.as_bytes());
        let signature = signature.map_err(|_| anyhow::anyhow!("no random bytes"))?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// A real token taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) header: Value,
    pub(crate) claims: Value,
    pub(crate) signature: String,
}

impl Parts {
    pub(crate) fn of(token: &str) -> Result<Self> {
        let parts: Vec<&str> = token.split('.').collect();
        let [header, claims, signature] = parts.as_slice() else {
            anyhow::bail!("not a JSON web token");
        };
        let read =
            |text: &str| -> Result<Value> { Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text)?)?) };
        Ok(Self {
            header: read(header)?,
            claims: read(claims)?,
            signature: (*signature).to_owned(),
        })
    }

    /// The claims with one of them changed.
    pub(crate) fn with(&self, pointer: &str, value: Value) -> Result<Value> {
        let mut claims = self.claims.clone();
        *claims
            .pointer_mut(pointer)
            .with_context(|| format!("no claim {pointer}"))? = value;
        Ok(claims)
    }

    /// The claims without one of them.
    pub(crate) fn without(&self, name: &str) -> Value {
        let mut claims = self.claims.clone();
        if let Some(map) = claims.as_object_mut() {
            map.remove(name);
        }
        claims
    }

    /// The header with one field more or changed.
    pub(crate) fn header_with(&self, name: &str, value: Value) -> Value {
        let mut header = self.header.clone();
        header[name] = value;
        header
    }

    /// Other claims under the old signature.
    pub(crate) fn swapped(&self, claims: &Value) -> String {
        format!("{}.{}.{}", part(&self.header), part(claims), self.signature)
    }

    /// The claims under a header that asks for no signature, with none.
    pub(crate) fn unsigned(&self) -> String {
        let header = json!({"alg": "none", "typ": "JWT"});
        format!("{}.{}.", part(&header), part(&self.claims))
    }

    /// The claims with the API server's public key used as the secret of a symmetric algorithm.
    pub(crate) fn confused(&self, cluster: &Cluster) -> Result<String> {
        let public = fs::read(cluster.layout().pki("sa.pub")).context("cannot read sa.pub")?;
        let text = format!(
            "{}.{}",
            part(&self.header_with("alg", json!("HS256"))),
            part(&self.claims)
        );
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &public), text.as_bytes());
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag)))
    }
}
