//! For tests: signs as the API server does.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

/// A key that nobody else has.
pub(crate) struct Signer {
    key: EcdsaKeyPair,
    name: &'static str,
}

impl Signer {
    /// A new key of this name.
    pub(crate) fn new(name: &'static str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("random bytes");
        let key = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("a key just made");
        Self { key, name }
    }

    /// The public part as a key of a JWKS.
    pub(crate) fn public(&self) -> Value {
        let point = self.key.public_key().as_ref();
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({
            "use": "sig", "kty": "EC", "kid": self.name, "alg": "ES256", "crv": "P-256",
            "x": number(&point[1..33]), "y": number(&point[33..]),
        })
    }

    /// A token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"alg": "ES256", "kid": self.name}), claims)
    }

    /// A token with this header, signed with ES256 whatever it says.
    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(header), part(claims));
        let signature = self.key.sign(&SystemRandom::new(), text.as_bytes());
        let signature = signature.expect("random bytes");
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}
