//! What is remembered of writes that failed: who is left alone for how long, and what was told already.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kruise_planner::cloneset::{Hold, PlanEvent, Writes};

use super::event::{Failed, Step};
use super::space::Kind;
use crate::kubeapi::ApiFailure;

/// First and longest wait after a failed write; it doubles with each failure in a row.
const FIRST: i64 = 1;
const LONGEST: i64 = 60;
/// The same event is not told again for so long.
const TELL_AGAIN: Duration = Duration::from_mins(10);
/// Events that are remembered at most.
const TOLD_AT_MOST: usize = 256;

/// What is remembered of one set's writes.
#[derive(Debug, Default)]
pub(super) struct Holds {
    pods: BTreeMap<String, Backoff>,
    creation: Option<Backoff>,
    /// The set itself, its revisions and its jobs.
    keeping: BTreeMap<Kind, Backoff>,
    scale_failure: Option<String>,
    update_failure: Option<String>,
    told: BTreeMap<(&'static str, String), Duration>,
}

#[derive(Clone, Debug)]
struct Backoff {
    failures: u32,
    hold: Hold,
}

impl Holds {
    /// A pass that tried these steps has ended with these failures.
    pub(super) fn pass_ended(&mut self, tried: &[Step], failures: &[Failed], now: Timestamp) {
        let real: Vec<&Failed> = failures.iter().filter(|failed| failed.holds()).collect();
        let text = |steps: &[Step]| {
            let first = real.iter().find(|failed| steps.contains(&failed.step))?;
            Some(format!("{}: {}", first.name, first.failure))
        };
        // What was not tried, because it is held, is as bad as before.
        let creates = tried.contains(&Step::Create);
        if creates || (tried.contains(&Step::Delete) && self.creation.is_none()) {
            self.scale_failure = text(&[Step::Create, Step::Delete]);
        }
        if tried.contains(&Step::Update) || self.pods.is_empty() {
            self.update_failure = text(&[Step::Update]);
        }
        if creates {
            let creation = real.iter().find(|failed| failed.step == Step::Create);
            self.creation = creation.map(|failed| next(self.creation.as_ref(), failed, now));
        }
        for failed in real.iter().filter(|failed| failed.step == Step::Keep) {
            let backoff = next(self.keeping.get(&failed.kind), failed, now);
            self.keeping.insert(failed.kind, backoff);
        }
        let failed: BTreeMap<&str, &Failed> = real
            .iter()
            .filter(|failed| failed.kind == Kind::Pod && failed.step != Step::Create)
            .map(|failed| (failed.name.as_str(), *failed))
            .collect();
        // One that was held and not tried stays held; the time alone frees it.
        let forgotten = SignedDuration::from_secs(LONGEST);
        self.pods.retain(|name, backoff| {
            failed.contains_key(name.as_str()) || backoff.hold.until + forgotten > now
        });
        for (name, failed) in failed {
            let backoff = next(self.pods.get(name), failed, now);
            self.pods.insert(name.to_owned(), backoff);
        }
    }

    /// A write about the set itself, its revisions or its jobs went well.
    pub(super) fn kept(&mut self, kind: Kind) {
        self.keeping.remove(&kind);
    }

    /// Until when writes about the set itself (its status included), its revisions or its jobs are not tried.
    pub(super) fn kept_until(&self, kind: Kind) -> Option<Timestamp> {
        self.keeping.get(&kind).map(|backoff| backoff.hold.until)
    }

    /// For the planner.
    pub(super) fn writes(&self, unseen: &BTreeSet<(Kind, String)>, now: Timestamp) -> Writes {
        let holds = |backoff: &Backoff| (backoff.hold.until > now).then(|| backoff.hold.clone());
        Writes {
            unseen: unseen.iter().map(|(_, name)| name.clone()).collect(),
            held: self
                .pods
                .iter()
                .filter_map(|(name, backoff)| Some((name.clone(), holds(backoff)?)))
                .collect(),
            creation: self.creation.as_ref().and_then(holds),
            scale_failure: self.scale_failure.clone(),
            update_failure: self.update_failure.clone(),
        }
    }

    /// Events that were not told lately.
    pub(super) fn fresh_events(&mut self, events: Vec<PlanEvent>, now: Duration) -> Vec<PlanEvent> {
        self.told.retain(|_, told| *told + TELL_AGAIN > now);
        events
            .into_iter()
            .filter(|event| {
                let key = (event.reason, event.message.clone());
                let fresh = !self.told.contains_key(&key) && self.told.len() < TOLD_AT_MOST;
                if fresh {
                    self.told.insert(key, now);
                }
                fresh
            })
            .collect()
    }
}

impl Failed {
    /// Whether the write is not to be tried at once: somebody refused it, or nobody answered. Another version, or an object that is gone, is
    /// only news.
    fn holds(&self) -> bool {
        matches!(self.failure, ApiFailure::Refused(_) | ApiFailure::Unsure { .. })
    }
}

fn next(before: Option<&Backoff>, failed: &Failed, now: Timestamp) -> Backoff {
    let failures = before.map_or(0, |before| before.failures).saturating_add(1);
    let doubled = FIRST.checked_shl(failures - 1).unwrap_or(LONGEST).min(LONGEST);
    let asked = match &failed.failure {
        ApiFailure::Unsure {
            retry_after: Some(after),
            ..
        } => i64::try_from(after.as_secs()).unwrap_or(LONGEST).min(LONGEST),
        _ => 0,
    };
    let wait = SignedDuration::from_secs(doubled.max(asked));
    Backoff {
        failures,
        hold: Hold {
            until: now.saturating_add(wait).unwrap_or(now),
            message: failed.failure.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, step: Step) -> Failed {
        Failed {
            kind: Kind::Pod,
            name: name.to_owned(),
            step,
            failure: ApiFailure::Refused("exceeded quota".to_owned()),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("in range")
    }

    #[test]
    fn creation_waits_longer_with_each_failure_in_a_row_and_at_once_after_a_success() {
        let mut holds = Holds::default();
        let mut waits = Vec::new();
        for _ in 0..8 {
            holds.pass_ended(&[Step::Create], &[refused("a", Step::Create)], at(0));
            let hold = holds.writes(&BTreeSet::new(), at(0)).creation.expect("held");
            waits.push(hold.until.as_second());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(holds.writes(&BTreeSet::new(), at(60)).creation, None);
        holds.pass_ended(&[Step::Update], &[], at(1));
        assert!(
            holds.writes(&BTreeSet::new(), at(1)).creation.is_some(),
            "not tried, not cured"
        );
        holds.pass_ended(&[Step::Create], &[], at(60));
        assert_eq!(holds.writes(&BTreeSet::new(), at(0)).creation, None);
        assert_eq!(holds.writes(&BTreeSet::new(), at(0)).scale_failure, None);
    }

    #[test]
    fn one_pods_failure_holds_that_pod_alone_and_a_conflict_holds_nobody() {
        let mut holds = Holds::default();
        let conflict = Failed {
            failure: ApiFailure::Conflict,
            ..refused("b", Step::Update)
        };
        holds.pass_ended(&[Step::Update], &[refused("a", Step::Update), conflict], at(0));
        let writes = holds.writes(&BTreeSet::new(), at(0));
        assert_eq!(writes.held.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(
            writes.update_failure.as_deref(),
            Some("a: refused: exceeded quota")
        );
        assert_eq!(writes.creation, None);
    }

    #[test]
    fn the_same_event_is_told_once_in_ten_minutes() {
        let mut holds = Holds::default();
        let event = PlanEvent {
            warning: true,
            reason: "ScaleUpLimited",
            message: "by 1".to_owned(),
        };
        assert_eq!(holds.fresh_events(vec![event.clone()], Duration::ZERO).len(), 1);
        assert_eq!(
            holds
                .fresh_events(vec![event.clone()], Duration::from_secs(5))
                .len(),
            0
        );
        assert_eq!(holds.fresh_events(vec![event], TELL_AGAIN).len(), 1);
    }
}
