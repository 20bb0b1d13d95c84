//! The API server's signing keys, and signatures by them.
//!
//! The algorithm belongs to the key, as the server that published it said: a token's header can only agree with it. `none` and the
//! symmetric algorithms do not exist here at all. The signatures themselves are ring's business, which the TLS stack brings anyway.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, EcdsaVerificationAlgorithm, RSA_PKCS1_2048_8192_SHA256,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

/// Why a signature is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Not a token, or one that asks for something that we do not do.
    Malformed,
    /// Not by the key that it names.
    Forged,
    /// No key of this name is known here.
    UnknownKey,
    /// By a key of a kind that cannot be checked here.
    OtherKind,
}

/// Keys by name. Of those of other kinds only the name is kept.
#[derive(Debug)]
pub(super) struct KeySet {
    keys: BTreeMap<String, Option<Key>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Key {
    Rs256 {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// Points in their plain form.
    Es256(Vec<u8>),
    Es384(Vec<u8>),
}

#[derive(Deserialize)]
struct WireSet {
    keys: Vec<WireKey>,
}

/// A key as in RFC 7517 and 7518. Fields of other kinds of keys are left out.
#[derive(Deserialize)]
struct WireKey {
    #[serde(default)]
    kid: String,
    #[serde(default)]
    kty: String,
    #[serde(default)]
    alg: String,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
    /// Extensions that must be understood (RFC 7515, 4.1.11); there are none.
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

impl KeySet {
    /// Reads a JWKS.
    ///
    /// # Errors
    /// When it is none.
    pub(super) fn read(json: &str) -> Result<Self, serde_json::Error> {
        let WireSet { keys } = serde_json::from_str(json)?;
        let keys = keys
            .into_iter()
            .filter(|wire| !wire.kid.is_empty())
            .map(|wire| (wire.kid.clone(), Key::of(&wire)))
            .collect();
        Ok(Self { keys })
    }

    /// How many keys can be checked with.
    pub(super) fn usable(&self) -> usize {
        self.keys.values().flatten().count()
    }

    /// Checks a token's signature, and nothing else about it.
    pub(super) fn check(&self, token: &str) -> Result<(), Doubt> {
        let (signed, signature) = token.rsplit_once('.').ok_or(Doubt::Malformed)?;
        let header = signed.split('.').next().unwrap_or_default();
        let header: Header = URL_SAFE_NO_PAD
            .decode(header)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or(Doubt::Malformed)?;
        if header.crit.is_some() {
            return Err(Doubt::Malformed);
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Doubt::Malformed)?;
        // No API server signs by these, whoever is asked.
        if header.alg.eq_ignore_ascii_case("none") || header.alg.starts_with("HS") {
            return Err(Doubt::Forged);
        }
        let key = self.keys.get(&header.kid).ok_or(Doubt::UnknownKey)?;
        let key = key.as_ref().ok_or(Doubt::OtherKind)?;
        if header.alg != key.algorithm() || !key.has_signed(signed.as_bytes(), &signature) {
            return Err(Doubt::Forged);
        }
        Ok(())
    }
}

impl Key {
    fn of(wire: &WireKey) -> Option<Self> {
        let number = |text: &str| {
            URL_SAFE_NO_PAD
                .decode(text)
                .ok()
                .filter(|bytes| !bytes.is_empty())
        };
        let point = || {
            let (x, y) = (number(&wire.x)?, number(&wire.y)?);
            Some([&[4][..], &x, &y].concat())
        };
        match (wire.kty.as_str(), wire.alg.as_str(), wire.crv.as_str()) {
            ("RSA", "RS256", _) => Some(Self::Rs256 {
                modulus: number(&wire.n)?,
                exponent: number(&wire.e)?,
            }),
            ("EC", "ES256", "P-256") => point().map(Self::Es256),
            ("EC", "ES384", "P-384") => point().map(Self::Es384),
            _ => None,
        }
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Rs256 { .. } => "RS256",
            Self::Es256(_) => "ES256",
            Self::Es384(_) => "ES384",
        }
    }

    fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let by_point = |algorithm: &'static EcdsaVerificationAlgorithm, point: &[u8]| {
            UnparsedPublicKey::new(algorithm, point).verify(message, signature)
        };
        let verified = match self {
            Self::Rs256 { modulus, exponent } => RsaPublicKeyComponents {
                n: modulus,
                e: exponent,
            }
            .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature),
            Self::Es256(point) => by_point(&ECDSA_P256_SHA256_FIXED, point),
            Self::Es384(point) => by_point(&ECDSA_P384_SHA384_FIXED, point),
        };
        verified.is_ok()
    }
}

#[cfg(test)]
pub(super) mod signer;
#[cfg(test)]
mod tests;
