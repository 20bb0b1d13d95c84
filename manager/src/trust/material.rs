//! Certificates and keys: making them, and reading what others stored.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::plan::{Id, Life};

/// How long things live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Life of an authority.
    pub authority: Duration,
    /// Life of a serving certificate.
    pub leaf: Duration,
    /// How long a new authority is in the bundle before it signs. The kubelet refreshes a mounted ConfigMap within two minutes.
    pub overlap: Duration,
    /// How far a certificate's beginning lies in the past, for clocks that are behind.
    pub back_date: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        Self {
            authority: DAY * 365,
            leaf: DAY * 90,
            overlap: Duration::from_secs(300),
            back_date: Duration::from_secs(300),
        }
    }
}

/// A certificate with its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pair(redacted)")
    }
}

/// Makes an authority. Its name has a part of its own, so that two authorities are never taken for each other.
pub(super) fn make_authority(policy: &Policy, now: Timestamp) -> Result<Pair, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(
        DnType::CommonName,
        format!("kruise-manager-ca {:08x}", rand::random::<u32>()),
    );
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_life(&mut params, policy, policy.authority, now);
    let certificate = params.self_signed(&key)?.pem();
    Ok(Pair {
        certificate,
        key: key.serialize_pem(),
    })
}

/// Makes a serving certificate, signed by an authority and never outliving it.
pub(super) fn make_leaf(
    authority: &Pair,
    names: &[String],
    policy: &Policy,
    now: Timestamp,
) -> Result<Pair, rcgen::Error> {
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key)?)?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    let name = names.first().map_or("kruise-manager", String::as_str);
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    set_life(&mut params, policy, policy.leaf, now);
    if let Some(facts) = facts_of(&authority.certificate) {
        let end = rcgen::date_time_ymd(1970, 1, 1) + since_1970(facts.life.until);
        params.not_after = params.not_after.min(end);
    }
    let certificate = params.signed_by(&key, &issuer)?.pem();
    Ok(Pair {
        certificate,
        key: key.serialize_pem(),
    })
}

fn set_life(params: &mut CertificateParams, policy: &Policy, life: Duration, now: Timestamp) {
    // Sums with the crate's own date spare us a dependency on the crate for dates that it uses.
    let now = rcgen::date_time_ymd(1970, 1, 1) + since_1970(now);
    // Of a short life only a small part lies in the past, else it would be due for renewal at birth.
    params.not_before = now - policy.back_date.min(life / 10);
    params.not_after = now + life;
}

fn since_1970(time: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(time.as_second()).unwrap_or_default())
}

/// Facts of a certificate.
pub(super) struct CertificateFacts {
    pub(super) id: Id,
    pub(super) life: Life,
}

/// Facts of the first certificate in a PEM text; none when there is none.
pub(super) fn facts_of(pem: &str) -> Option<CertificateFacts> {
    facts_of_all(pem).into_iter().next()
}

/// Facts of each certificate in a PEM text. What is no certificate is skipped.
pub(super) fn facts_of_all(pem: &str) -> Vec<CertificateFacts> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok);
    all.filter_map(|der| {
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        let validity = certificate.validity();
        let life = Life {
            from: Timestamp::from_second(validity.not_before.timestamp()).ok()?,
            until: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
        };
        Some(CertificateFacts {
            id: Sha256::digest(&der).into(),
            life,
        })
    })
    .collect()
}

/// Each certificate of a PEM text as a PEM text of its own, with its id.
pub(super) fn split(pem: &str) -> Vec<(Id, String)> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    let parts = pem
        .split(BEGIN)
        .skip(1)
        .map(|part| format!("{BEGIN}{}\n", part.trim_end()));
    parts
        .filter_map(|part| facts_of(&part).map(|facts| (facts.id, part)))
        .collect()
}

/// Whether the authority signed the certificate, and the key belongs to it.
pub(super) fn fits(authority: &str, leaf: &Pair) -> bool {
    let signed = || {
        let authority = CertificateDer::from_pem_slice(authority.as_bytes()).ok()?;
        let leaf = CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).ok()?;
        let (_, authority) = X509Certificate::from_der(&authority).ok()?;
        let (_, leaf) = X509Certificate::from_der(&leaf).ok()?;
        leaf.verify_signature(Some(authority.public_key())).ok()
    };
    signed().is_some() && certified_key(leaf).is_ok()
}

/// Whether the certificate is good for all of these names.
pub(super) fn has_names(certificate: &str, names: &[String]) -> bool {
    let Ok(der) = CertificateDer::from_pem_slice(certificate.as_bytes()) else {
        return false;
    };
    let Ok((_, certificate)) = X509Certificate::from_der(&der) else {
        return false;
    };
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return false;
    };
    let all = &extension.value.general_names;
    names.iter().all(|name| {
        all.iter()
            .any(|other| matches!(other, GeneralName::DNSName(dns) if dns == name))
    })
}

/// A pair in the form that serves.
pub(super) fn certified_key(pair: &Pair) -> Result<CertifiedKey, rustls::Error> {
    let unusable = |_| rustls::Error::General("the PEM text is broken".to_owned());
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pair.certificate.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(unusable)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(unusable)?;
    let key = CertifiedKey::new(chain, rustls::crypto::ring::sign::any_supported_type(&key)?);
    key.keys_match()?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("in range")
    }

    const NOW: i64 = 1_800_000_000;

    fn names() -> Vec<String> {
        vec!["a.svc".to_owned(), "localhost".to_owned()]
    }

    #[test]
    fn a_leaf_fits_its_authority_and_no_other() {
        let policy = Policy::default();
        let authority = make_authority(&policy, at(NOW)).expect("made");
        let other = make_authority(&policy, at(NOW)).expect("made");
        let leaf = make_leaf(&authority, &names(), &policy, at(NOW)).expect("made");
        assert!(fits(&authority.certificate, &leaf));
        assert!(!fits(&other.certificate, &leaf));
        assert!(
            !fits(
                &authority.certificate,
                &Pair {
                    key: other.key,
                    ..leaf.clone()
                }
            ),
            "a key of another"
        );
        assert!(!fits("nonsense", &leaf));
        assert!(has_names(&leaf.certificate, &names()));
        assert!(!has_names(&leaf.certificate, &["b.svc".to_owned()]));
        assert!(!has_names(&authority.certificate, &names()));
    }

    #[test]
    fn lives_are_back_dated_and_a_leaf_never_outlives_its_authority() {
        let policy = Policy {
            authority: Duration::from_secs(600),
            ..Policy::default()
        };
        let authority = make_authority(&policy, at(NOW)).expect("made");
        let life = facts_of(&authority.certificate).expect("a certificate").life;
        assert_eq!(
            life,
            Life {
                from: at(NOW - 60),
                until: at(NOW + 600)
            }
        );
        let leaf = make_leaf(&authority, &names(), &policy, at(NOW + 60)).expect("made");
        assert_eq!(
            facts_of(&leaf.certificate).expect("a certificate").life.until,
            at(NOW + 600)
        );
    }

    #[test]
    fn bundles_come_apart_and_junk_is_skipped() {
        let policy = Policy::default();
        let [one, two] = [1, 2].map(|_| make_authority(&policy, at(NOW)).expect("made").certificate);
        let parts = split(&format!("# a comment\n{one}junk\n{two}"));
        let all: Vec<Id> = facts_of_all(&format!("{one}{two}"))
            .iter()
            .map(|facts| facts.id)
            .collect();
        assert_eq!(parts.iter().map(|(id, _)| *id).collect::<Vec<_>>(), all);
        assert_eq!(facts_of_all(&parts[1].1).len(), 1);
        assert!(split("-----BEGIN CERTIFICATE-----\nnonsense").is_empty());
    }

    #[test]
    fn keys_do_not_show() {
        let pair = make_authority(&Policy::default(), at(NOW)).expect("made");
        assert!(!format!("{pair:?}").contains("KEY"));
    }
}
