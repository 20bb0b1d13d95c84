//! The Secret and the ConfigMap: what they say, and what they say after a step.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kruise_api::names::TRUST_BUNDLE_KEY;

use super::Policy;
use super::material::{self, Pair};
use super::plan::{Authority, Facts, Id, Leaf, Next, Step};

const AUTHORITY: (&str, &str) = ("ca.crt", "ca.key");
const LEAF: (&str, &str) = ("tls.crt", "tls.key");
const NEXT: (&str, &str) = ("next-ca.crt", "next-ca.key");
/// When the next authority was first known to be in the bundle, RFC 3339.
const NEXT_SINCE: &str = "next-ca.trusted-since";
/// Certificates of former authorities.
const OLD: &str = "old-ca.crt";
/// When the last certificate of a former authority ends, RFC 3339.
const OLD_UNTIL: &str = "old-ca.until";

/// A step could not be done.
#[derive(Debug, thiserror::Error)]
pub(super) enum MakeError {
    /// The library refused.
    #[error("no certificate could be made")]
    Certificate(#[from] rcgen::Error),
    /// The plan and the objects disagree, which can only be an error of ours.
    #[error("the trust store has no {0}")]
    Missing(&'static str),
}

/// Both objects as read.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    pub(super) secret: Secret,
    pub(super) bundle: ConfigMap,
}

/// An object to write.
#[derive(Debug)]
pub(super) enum Change {
    Secret(Box<Secret>),
    Bundle(Box<ConfigMap>),
}

impl Objects {
    /// The serving certificate with its key.
    pub(super) fn leaf(&self) -> Option<Pair> {
        pair(&self.secret, LEAF)
    }

    /// What the plan wants to know.
    pub(super) fn facts(&self, names: &[String]) -> Facts {
        let authority_pem = text(&self.secret, AUTHORITY.0).unwrap_or_default();
        let authority = material::facts_of(&authority_pem).map(|facts| Authority {
            id: facts.id,
            life: facts.life,
            has_key: text(&self.secret, AUTHORITY.1).is_some(),
        });
        let leaf = self.leaf().and_then(|leaf| {
            Some(Leaf {
                life: material::facts_of(&leaf.certificate)?.life,
                fits: material::fits(&authority_pem, &leaf),
                names: material::has_names(&leaf.certificate, names),
            })
        });
        let next = pair(&self.secret, NEXT).and_then(|next| {
            let facts = material::facts_of(&next.certificate)?;
            Some(Next {
                id: facts.id,
                life: facts.life,
                trusted_since: time(&self.secret, NEXT_SINCE),
            })
        });
        let ids = |pem: &str| {
            material::facts_of_all(pem)
                .into_iter()
                .map(|facts| facts.id)
                .collect()
        };
        Facts {
            authority,
            leaf,
            next,
            old: ids(&text(&self.secret, OLD).unwrap_or_default()),
            old_until: time(&self.secret, OLD_UNTIL),
            bundle: ids(&self.bundle_text()),
        }
    }

    /// The object after a step; none when the step changes nothing.
    pub(super) fn after(
        &self,
        step: &Step,
        names: &[String],
        policy: &Policy,
        now: Timestamp,
    ) -> Result<Option<Change>, MakeError> {
        let mut secret = self.secret.clone();
        let authority = || pair(&self.secret, AUTHORITY).ok_or(MakeError::Missing("authority"));
        match step {
            Step::Nothing | Step::ForeignBroken => return Ok(None),
            Step::WriteBundle(ids) => return Ok(Some(Change::Bundle(Box::new(self.bundle_of(ids))))),
            Step::MakeAuthority => {
                let authority = material::make_authority(policy, now)?;
                set_pair(
                    &mut secret,
                    LEAF,
                    &material::make_leaf(&authority, names, policy, now)?,
                );
                set_pair(&mut secret, AUTHORITY, &authority);
                for key in [NEXT.0, NEXT.1, NEXT_SINCE, OLD, OLD_UNTIL] {
                    set(&mut secret, key, None);
                }
            }
            Step::MakeLeaf => {
                set_pair(
                    &mut secret,
                    LEAF,
                    &material::make_leaf(&authority()?, names, policy, now)?,
                );
            }
            Step::MakeNext => {
                set_pair(&mut secret, NEXT, &material::make_authority(policy, now)?);
                set(&mut secret, NEXT_SINCE, None);
            }
            Step::StampNext => set(&mut secret, NEXT_SINCE, Some(now.to_string())),
            Step::Promote => self.promote(&mut secret, &authority()?, names, policy, now)?,
            Step::DropOld => {
                set(&mut secret, OLD, None);
                set(&mut secret, OLD_UNTIL, None);
            }
        }
        Ok(Some(Change::Secret(Box::new(secret))))
    }

    fn promote(
        &self,
        secret: &mut Secret,
        authority: &Pair,
        names: &[String],
        policy: &Policy,
        now: Timestamp,
    ) -> Result<(), MakeError> {
        let next = pair(&self.secret, NEXT).ok_or(MakeError::Missing("next authority"))?;
        let leaf = self.leaf().and_then(|leaf| material::facts_of(&leaf.certificate));
        let until = [
            leaf.map(|facts| facts.life.until),
            time(&self.secret, OLD_UNTIL),
            Some(now),
        ];
        let old = text(&self.secret, OLD).unwrap_or_default() + &authority.certificate;
        set(secret, OLD, Some(old));
        set(
            secret,
            OLD_UNTIL,
            until.into_iter().flatten().max().map(|until| until.to_string()),
        );
        set_pair(secret, LEAF, &material::make_leaf(&next, names, policy, now)?);
        set_pair(secret, AUTHORITY, &next);
        for key in [NEXT.0, NEXT.1, NEXT_SINCE] {
            set(secret, key, None);
        }
        Ok(())
    }

    fn bundle_text(&self) -> String {
        self.bundle
            .data
            .as_ref()
            .and_then(|data| data.get(TRUST_BUNDLE_KEY))
            .cloned()
            .unwrap_or_default()
    }

    /// The ConfigMap with exactly these certificates, in the order of their ids.
    fn bundle_of(&self, ids: &std::collections::BTreeSet<Id>) -> ConfigMap {
        let places = [AUTHORITY.0, NEXT.0, OLD].map(|key| text(&self.secret, key).unwrap_or_default());
        let known: BTreeMap<Id, String> = places
            .into_iter()
            .chain([self.bundle_text()])
            .flat_map(|pem| material::split(&pem))
            .collect();
        let pem: String = ids
            .iter()
            .filter_map(|id| known.get(id))
            .map(String::as_str)
            .collect();
        let mut bundle = self.bundle.clone();
        bundle.metadata.managed_fields = None;
        bundle
            .data
            .get_or_insert_default()
            .insert(TRUST_BUNDLE_KEY.to_owned(), pem);
        bundle
    }
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    let bytes = &secret.data.as_ref()?.get(key)?.0;
    std::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.trim().is_empty())
        .map(str::to_owned)
}

fn time(secret: &Secret, key: &str) -> Option<Timestamp> {
    text(secret, key)?.trim().parse().ok()
}

fn pair(secret: &Secret, keys: (&str, &str)) -> Option<Pair> {
    Some(Pair {
        certificate: text(secret, keys.0)?,
        key: text(secret, keys.1)?,
    })
}

fn set_pair(secret: &mut Secret, keys: (&str, &str), pair: &Pair) {
    set(secret, keys.0, Some(pair.certificate.clone()));
    set(secret, keys.1, Some(pair.key.clone()));
}

fn set(secret: &mut Secret, key: &str, value: Option<String>) {
    secret.metadata.managed_fields = None;
    let data = secret.data.get_or_insert_default();
    match value {
        Some(value) => data.insert(key.to_owned(), ByteString(value.into_bytes())),
        None => data.remove(key),
    };
}
