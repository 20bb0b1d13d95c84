//! Which step the trust store needs now. Pure: the time is an argument, and nothing here knows keys.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

/// SHA-256 of a certificate.
pub(super) type Id = [u8; 32];

/// When a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

impl Life {
    pub(super) fn is_over(self, now: Timestamp) -> bool {
        now >= self.until
    }

    /// Whether a third of it has passed: time for a new one, with two thirds left to get it done.
    fn is_due(self, now: Timestamp) -> bool {
        now.duration_since(self.from) * 3 >= self.until.duration_since(self.from)
    }
}

/// What the Secret and the ConfigMap say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The authority that signs.
    pub(super) authority: Option<Authority>,
    /// The serving certificate.
    pub(super) leaf: Option<Leaf>,
    /// The authority that will sign.
    pub(super) next: Option<Next>,
    /// Authorities that signed certificates which may still be in use.
    pub(super) old: BTreeSet<Id>,
    /// When the last of those ends.
    pub(super) old_until: Option<Timestamp>,
    /// What agents trust.
    pub(super) bundle: BTreeSet<Id>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Authority {
    pub(super) id: Id,
    pub(super) life: Life,
    /// False when somebody else makes the certificates.
    pub(super) has_key: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) life: Life,
    /// Signed by the authority, and its key belongs to it.
    pub(super) fits: bool,
    /// Good for every name that we are called by.
    pub(super) names: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) id: Id,
    pub(super) life: Life,
    /// Since when it is known to be in the bundle.
    pub(super) trusted_since: Option<Timestamp>,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Mends what cannot serve.
    Replica,
    /// Renews and rotates as well.
    Leader,
}

/// One write of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// All is well.
    Nothing,
    /// A new authority and serving certificate from nothing.
    MakeAuthority,
    /// A new serving certificate.
    MakeLeaf,
    /// A new authority beside the old one.
    MakeNext,
    /// Note since when the next authority is trusted.
    StampNext,
    /// Let the next authority sign.
    Promote,
    /// Forget authorities whose certificates have ended.
    DropOld,
    /// Write the bundle, with exactly these.
    WriteBundle(BTreeSet<Id>),
    /// Certificates of somebody else do not fit together.
    ForeignBroken,
}

/// The step that is due. After it was done, the store is read again.
pub(super) fn plan(facts: &Facts, role: Role, overlap: Duration, now: Timestamp) -> Step {
    let Some(authority) = facts.authority.as_ref() else {
        return Step::MakeAuthority;
    };
    if !authority.has_key {
        return foreign(facts, authority, now);
    }
    if authority.life.is_over(now) {
        return Step::MakeAuthority;
    }
    let bundle = wanted_bundle(facts, authority);
    let serves = facts
        .leaf
        .as_ref()
        .filter(|leaf| leaf.fits && leaf.names && !leaf.life.is_over(now));
    match serves {
        None => Step::MakeLeaf,
        Some(_) if !facts.bundle.contains(&authority.id) => Step::WriteBundle(bundle),
        Some(_) if role == Role::Replica => Step::Nothing,
        Some(leaf) => leaders_step(facts, authority, leaf, bundle, overlap, now),
    }
}

fn leaders_step(
    facts: &Facts,
    authority: &Authority,
    leaf: &Leaf,
    bundle: BTreeSet<Id>,
    overlap: Duration,
    now: Timestamp,
) -> Step {
    let old_over = facts.old_until.is_none_or(|until| now >= until);
    if !facts.old.is_empty() && old_over {
        return Step::DropOld;
    }
    if facts.bundle != bundle {
        return Step::WriteBundle(bundle);
    }
    match &facts.next {
        None if authority.life.is_due(now) => return Step::MakeNext,
        Some(Next {
            trusted_since: None, ..
        }) => return Step::StampNext,
        Some(Next {
            trusted_since: Some(since),
            ..
        }) if now.duration_since(*since).unsigned_abs() >= overlap && now >= *since => {
            return Step::Promote;
        }
        _ => {}
    }
    if leaf.life.is_due(now) {
        Step::MakeLeaf
    } else {
        Step::Nothing
    }
}

fn foreign(facts: &Facts, authority: &Authority, now: Timestamp) -> Step {
    let serves = facts
        .leaf
        .as_ref()
        .is_some_and(|leaf| leaf.fits && !leaf.life.is_over(now));
    if !serves {
        Step::ForeignBroken
    } else if facts.bundle.contains(&authority.id) {
        Step::Nothing
    } else {
        // Others may still trust what is there; the owner of the certificates knows when to take it away.
        let mut bundle = facts.bundle.clone();
        bundle.insert(authority.id);
        Step::WriteBundle(bundle)
    }
}

fn wanted_bundle(facts: &Facts, authority: &Authority) -> BTreeSet<Id> {
    let next = facts.next.as_ref().map(|next| next.id);
    facts
        .old
        .iter()
        .copied()
        .chain([authority.id])
        .chain(next)
        .collect()
}

#[cfg(test)]
mod tests;
