//! Signatures, good and otherwise.

use ring::hmac;
use serde_json::json;

use super::signer::Signer;
use super::*;

/// Made by openssl; the private key was thrown away.
const RSA_MODULUS: &str = "2q5P1Vtxpeic-QmokkicNr-oBUTsDfrURcmyuSlB-cWdbmHuEbmIMkefbJXzHWnD-WdQtaSt-HEK4pu3u-ylFvLY5bhIeIN6UfgvXgeYvb8ZlaxKvq2rOnQ-63quh6Xscv92Sui1yECxy4WRyaRwmjDAVdxP_pg1VMQkDCpvo70bA1P3IPRE1rUSWPVhs7cKevsUfmgiUesNVdxV2HJffXLDPlvXRtHdOAsn2YqVAxT9_PwguJUVD5XTMPK0Q8wqMd6nO1C1DFMmu0UYINxCvQ4amMbHGOXRlSO55L38DU9ywfLEYE2D-_L0mGc1_CFXqLYGhSBdtDfnssJDhxrKFw";
const RSA_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYS0xIn0.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMiLCJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0.SvWBJx7FbQ97wLnQuEQZ00BkNT-UISWm4oDw_tIZPdhFQS33gwclhFka_2SB7vLdtRg7_LdLSV2VaMCmtBKrvaL78dhB27tmggPhUF1l6U1MbRh6z9_1O34TQ0qeFjUq_nmLdupzpfkjFfNxua7ypkz05-H0WAeFvqM86Mzj2gh9oWuZxy6sSLQSmEnfofHM_r7MWINHHePUUEhQKXGEi6bFdBtZ4pLa2-GbXmX1ZbdcL-GGmN_suEXcaEASEiMIVEXIPqw349f-b0-kh_hJWwHpkpUpkXByXWPub0WNX1__WOIuFEfUxb6XlSS0a7y8tcPAppZp0Hnq2Z_CC9ocvA";

fn rsa_key() -> serde_json::Value {
    json!({"use": "sig", "kty": "RSA", "kid": "rsa-1", "alg": "RS256", "n": RSA_MODULUS, "e": "AQAB"})
}

fn set(keys: &[serde_json::Value]) -> KeySet {
    KeySet::read(&json!({ "keys": keys }).to_string()).expect("a key set")
}

#[test]
fn tokens_of_both_kinds_of_keys_are_good_and_a_changed_one_is_not() {
    let signer = Signer::new("ec-1");
    let keys = set(&[rsa_key(), signer.public()]);
    assert_eq!(keys.usable(), 2);
    for token in [RSA_TOKEN.to_owned(), signer.token(&json!({"sub": "x"}))] {
        assert_eq!(keys.check(&token), Ok(()));
        let (signed, signature) = token.rsplit_once('.').expect("three parts");
        let first = if signature.starts_with('A') { "B" } else { "A" };
        let forged = format!("{signed}.{first}{}", &signature[1..]);
        assert_eq!(keys.check(&forged), Err(Doubt::Forged));
        assert_eq!(keys.check(&format!("{signed}.")), Err(Doubt::Forged));
        assert_eq!(keys.check(&format!("{signed}x.{signature}")), Err(Doubt::Forged));
        assert_eq!(keys.check(&format!("{signed}.*")), Err(Doubt::Malformed));
    }
}

#[test]
fn another_key_of_the_same_name_is_no_help() {
    let (ours, theirs) = (Signer::new("k"), Signer::new("k"));
    let token = theirs.token(&json!({}));
    assert_eq!(set(&[ours.public()]).check(&token), Err(Doubt::Forged));
    assert_eq!(set(&[rsa_key()]).check(&token), Err(Doubt::UnknownKey));
}

#[test]
fn the_header_cannot_choose_the_algorithm() {
    let signer = Signer::new("k");
    let keys = set(&[signer.public(), rsa_key()]);
    for algorithm in ["none", "None", "HS256", "RS256", "ES384", "PS256", ""] {
        let token = signer.token_with(&json!({"alg": algorithm, "kid": "k"}), &json!({}));
        assert_eq!(keys.check(&token), Err(Doubt::Forged), "{algorithm}");
    }
    for algorithm in ["none", "NONE", "HS256"] {
        let token = signer.token_with(&json!({"alg": algorithm}), &json!({}));
        assert_eq!(
            keys.check(&token),
            Err(Doubt::Forged),
            "{algorithm} without a key's name"
        );
    }
    // The classic: the public key as the secret of a symmetric algorithm.
    let text = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","kid":"rsa-1"}"#),
        URL_SAFE_NO_PAD.encode("{}")
    );
    let secret = hmac::Key::new(hmac::HMAC_SHA256, RSA_MODULUS.as_bytes());
    let tag = URL_SAFE_NO_PAD.encode(hmac::sign(&secret, text.as_bytes()));
    assert_eq!(keys.check(&format!("{text}.{tag}")), Err(Doubt::Forged));
    let critical = signer.token_with(&json!({"alg": "ES256", "kid": "k", "crit": ["b64"]}), &json!({}));
    assert_eq!(keys.check(&critical), Err(Doubt::Malformed));
}

#[test]
fn junk_is_malformed_and_keys_of_other_kinds_are_known_by_name_only() {
    let signer = Signer::new("k");
    let odd = [
        json!({"kty": "EC", "kid": "a", "alg": "ES512", "crv": "P-521", "x": "AA", "y": "AA"}),
        json!({"kty": "EC", "kid": "b", "alg": "ES256", "crv": "P-384", "x": "AA", "y": "AA"}),
        json!({"kty": "RSA", "kid": "c", "alg": "RS256", "n": "", "e": "AQAB"}),
        json!({"kty": "oct", "kid": "d", "alg": "HS256", "k": "c2VjcmV0"}),
        json!({"kty": "RSA", "alg": "RS256", "n": "AQAB", "e": "AQAB"}),
        json!({}),
    ];
    let keys = set(&[&odd[..], &[signer.public()]].concat());
    assert_eq!(keys.usable(), 1);
    let token = signer.token_with(&json!({"alg": "ES512", "kid": "a"}), &json!({}));
    assert_eq!(keys.check(&token), Err(Doubt::OtherKind));
    for junk in ["", ".", "..", "a.b.c", "e30.e30.", "ü.ü.ü", "bnVsbA.e30.e30"] {
        assert_eq!(keys.check(junk), Err(Doubt::Malformed), "{junk}");
    }
    assert!(KeySet::read("[]").is_err() && KeySet::read("").is_err());
}
