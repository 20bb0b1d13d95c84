//! Pull secrets of jobs: read when an order is about to go out, used for it, and forgotten.
//!
//! One read is under way at a time, for all jobs whose orders wait for it. A job whose secret is missing hands out nothing: it says so in its
//! status, and the secret is asked for again after a pause that grows from 5 to 60 seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kruise_api::ids::JobUid;
use kruise_planner::job::JobPlan;

use super::super::event::{Effect, Now, SecretAnswer, SecretRequest};
use super::EngineState;

/// Type and reason of the condition of a job whose pull secret cannot be used.
const SECRET_MISSING: &str = "SecretMissing";
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_LONGEST: Duration = Duration::from_secs(60);

/// Why a job's orders wait for secrets.
#[derive(Debug)]
pub(crate) struct SecretBlock {
    text: String,
    /// The server said that the secret is not there, or is of no use; otherwise it could not be asked.
    missing: bool,
    attempts: u32,
    until: Duration,
}

impl SecretBlock {
    pub(super) fn is_shut(&self, now: Now) -> bool {
        self.until > now.mono
    }

    pub(super) fn is_missing(&self) -> bool {
        self.missing
    }

    pub(super) fn until(&self) -> Duration {
        self.until
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// Whether a plan's orders may go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// They need no secrets, or the secrets have just been read.
    Open,
    /// The secrets are being read.
    Reading,
    /// The secrets cannot be used, and it is too early to ask again.
    Shut,
}

impl EngineState {
    pub(super) fn gate(&mut self, uid: &JobUid, plan: &JobPlan, now: Now) -> Gate {
        let Some(entry) = self.jobs.get(uid) else {
            return Gate::Open;
        };
        if plan.assign.is_empty() || entry.object.spec.pull_secrets.is_empty() {
            return Gate::Open;
        }
        if matches!(self.hand.get(uid), Some(SecretAnswer::Ready(_))) {
            return Gate::Open;
        }
        if entry.secrets.as_ref().is_some_and(|block| block.is_shut(now)) {
            return Gate::Shut;
        }
        self.secrets_wanted.insert(uid.clone());
        Gate::Reading
    }

    /// Takes the orders out of a plan and says why they wait.
    pub(super) fn hold_back(&mut self, uid: &JobUid, plan: &mut JobPlan, now: Now) {
        let held = plan.assign.len();
        plan.assign.clear();
        plan.counters.active = plan.counters.active.saturating_sub(held);
        plan.status.active = plan
            .status
            .active
            .saturating_sub(i32::try_from(held).unwrap_or(i32::MAX))
            .max(0);
        let Some(entry) = self.jobs.get(uid) else { return };
        let Some(block) = entry.secrets.as_ref().filter(|block| block.missing) else {
            return;
        };
        let stored = entry.object.status.iter().flat_map(|status| &status.conditions);
        let stored = stored
            .into_iter()
            .find(|condition| condition.type_ == SECRET_MISSING);
        let condition = secret_missing(stored, &block.text, entry.object.generation, now.wall);
        if stored.is_none_or(|stored| stored.message != condition.message) && plan.write.is_none() {
            plan.write = Some(kruise_planner::job::WriteReason::Edited);
        }
        plan.status.conditions.push(condition);
    }

    pub(super) fn take_secrets(&mut self, answers: BTreeMap<JobUid, SecretAnswer>, now: Now) {
        self.secrets_asked = false;
        for (uid, answer) in &answers {
            let Some(entry) = self.jobs.get_mut(uid) else {
                continue;
            };
            entry.secrets = match answer {
                SecretAnswer::Ready(_) => None,
                SecretAnswer::Problem(text) => Some(block(entry.secrets.take(), text, true, now)),
                SecretAnswer::Unavailable(text) => Some(block(entry.secrets.take(), text, false, now)),
            };
            self.dirty.insert(uid.clone());
            self.secrets_wanted.remove(uid);
        }
        // Sessions whose set waits for secrets look again.
        let waiting = self.agents.iter().filter(|(_, agent)| {
            agent
                .session
                .as_ref()
                .is_some_and(|session| session.set_due.is_some())
        });
        self.unsynced.extend(waiting.map(|(node, _)| node.clone()));
        self.hand = answers;
    }

    /// Asks for whatever is wanted, unless an answer is still to come.
    pub(super) fn ask_for_secrets(&mut self) {
        if self.secrets_asked || self.secrets_wanted.is_empty() {
            return;
        }
        let wanted = std::mem::take(&mut self.secrets_wanted);
        let requests: Vec<SecretRequest> = wanted
            .into_iter()
            .filter_map(|job| {
                let object = &self.jobs.get(&job)?.object;
                Some(SecretRequest {
                    secrets: object.pull_secrets(),
                    image: object.spec.image.clone(),
                    job,
                })
            })
            .collect();
        if !requests.is_empty() {
            self.secrets_asked = true;
            self.effects.push(Effect::ReadSecrets(requests));
        }
    }
}

fn block(before: Option<SecretBlock>, text: &str, missing: bool, now: Now) -> SecretBlock {
    let attempts = before.map_or(0, |before| before.attempts.saturating_add(1));
    let pause = (PAUSE_FIRST * 2_u32.saturating_pow(attempts.min(10))).min(PAUSE_LONGEST);
    SecretBlock {
        text: text.to_owned(),
        missing,
        attempts,
        until: now.mono + pause,
    }
}

fn secret_missing(stored: Option<&Condition>, text: &str, generation: i64, now: Timestamp) -> Condition {
    Condition {
        type_: SECRET_MISSING.to_owned(),
        status: "True".to_owned(),
        reason: SECRET_MISSING.to_owned(),
        message: text.to_owned(),
        observed_generation: Some(generation),
        last_transition_time: stored.map_or(Time(now), |stored| stored.last_transition_time.clone()),
    }
}
