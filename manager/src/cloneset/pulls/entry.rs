//! One image that is wanted on one node.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kruise_api::ids::{JobUid, TaskId};
use kruise_planner::cloneset::{GateFacts, TaskSeen, cannot_be_had, gate_task_id, retry_at};
use kruise_planner::task::{Phase, Progress, Reason};
use kruise_proto::convert::{phase_from_number, reason_from_number};
use kruise_proto::task::TaskStatus;

use super::super::event::Now;
use super::Key;

/// So long what is known of an image counts; the planner asks again after that.
const COUNTS: SignedDuration = SignedDuration::from_secs(60);

/// A node's agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) attached: bool,
    pub(super) since: Duration,
}

/// What the agent has said last.
#[derive(Debug)]
struct Heard {
    phase: Phase,
    reason: Option<Reason>,
    message: String,
    progress: Progress,
    /// When something last moved.
    moved: Duration,
    ended_at: Timestamp,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) task: TaskId,
    round: u32,
    asked: bool,
    behind: Vec<JobUid>,
    since: Duration,
    heard: Option<Heard>,
    problem: Option<String>,
    failed_at: Option<Timestamp>,
    failures: u32,
}

impl Entry {
    pub(super) fn new(set: &str, key: &Key, now: Now) -> Self {
        // A leader's rounds begin where no earlier leader's end: agents may still know those.
        let round = u32::try_from(now.wall.as_second().rem_euclid(1 << 31)).unwrap_or(0);
        Self {
            task: task_id(set, key, round),
            round,
            asked: false,
            behind: Vec::new(),
            since: now.mono,
            heard: None,
            problem: None,
            failed_at: None,
            failures: 0,
        }
    }

    /// Whether the agent is to be asked, for the first time or anew, in which case this is a new question.
    pub(super) fn is_to_be_asked(&mut self, set: &str, key: &Key, behind: &[JobUid], now: Now) -> bool {
        if !self.asked {
            self.asked = true;
            self.behind = behind.to_vec();
            return true;
        }
        let failed = self
            .failed_at
            .is_some_and(|at| retry_at(at, self.failures) <= now.wall);
        if failed || self.is_stale(now) {
            self.failures = if failed {
                self.failures.saturating_add(1)
            } else {
                0
            };
            self.round = self.round.wrapping_add(1);
            self.task = task_id(set, key, self.round);
            self.heard = None;
            self.problem = None;
            self.failed_at = None;
            self.since = now.mono;
            self.behind = behind.to_vec();
            return true;
        }
        // The job that was to bring the image may be over or gone, and then nobody else says that the wait is over.
        if self.heard.is_none() && self.behind != behind {
            self.behind = behind.to_vec();
            return true;
        }
        false
    }

    /// Whether the agent has said that the image is there.
    pub(super) fn is_present(&self) -> bool {
        self.heard
            .as_ref()
            .is_some_and(|heard| heard.phase == Phase::Succeeded)
    }

    /// Since when the image is wanted.
    pub(super) fn waited(&self, now: Now) -> Duration {
        now.mono.saturating_sub(self.since)
    }

    fn is_stale(&self, now: Now) -> bool {
        self.heard.as_ref().is_some_and(|heard| {
            heard.phase == Phase::Succeeded && now.wall.duration_since(heard.ended_at) > COUNTS
        })
    }

    /// Whether a pod that wishes nothing at the moment may still go by this: it has its turn at once, or waits until the image may be tried again.
    pub(super) fn still_counts(&self, now: Now) -> bool {
        let present = self.is_present();
        let waits = self.failed_at.is_some_and(|at| {
            let until = retry_at(at, self.failures).saturating_add(COUNTS).unwrap_or(at);
            until > now.wall
        });
        (present && !self.is_stale(now)) || waits
    }

    /// Takes what the agent says. Whether that is news.
    pub(super) fn hear(&mut self, status: &TaskStatus, now: Now) -> bool {
        let phase = phase_from_number(status.phase);
        let reason = reason_from_number(status.reason);
        let progress = status.progress.map(Progress::from).unwrap_or_default();
        let same = self.heard.as_ref().is_some_and(|heard| {
            (heard.phase, heard.reason, heard.progress) == (phase, reason, progress)
                && heard.message == status.message
        });
        if same {
            return false;
        }
        let moved = match &self.heard {
            Some(heard) if heard.progress.bytes_done == progress.bytes_done => heard.moved,
            _ => now.mono,
        };
        let failed = phase == Phase::Failed || (phase == Phase::Waiting && reason.is_some_and(cannot_be_had));
        self.failed_at = failed.then(|| self.failed_at.unwrap_or(now.wall));
        self.heard = Some(Heard {
            phase,
            reason,
            message: status.message.clone(),
            progress,
            moved,
            ended_at: now.wall,
        });
        true
    }

    /// The agent could not be asked.
    pub(super) fn stuck(&mut self, problem: String, now: Now) {
        self.problem = Some(problem);
        self.failed_at = Some(now.wall);
    }

    /// Everything that the gate goes by.
    pub(super) fn facts(&self, link: Option<&Link>, timeout: Duration, now: Now) -> GateFacts<'_> {
        let away_since = match link {
            Some(link) if link.attached => None,
            Some(link) => Some(link.since.max(self.since)),
            None => Some(self.since),
        };
        GateFacts {
            wanted_for: now.mono.saturating_sub(self.since),
            away_for: away_since.map(|since| now.mono.saturating_sub(since)),
            timeout,
            problem: self.problem.as_deref(),
            queued: self.heard.is_none() && !self.behind.is_empty(),
            task: self.heard.as_ref().map(|heard| TaskSeen {
                phase: heard.phase,
                reason: heard.reason,
                message: &heard.message,
                progress: heard.progress,
                still_for: now.mono.saturating_sub(heard.moved),
                ended_at: heard.ended_at,
            }),
            failed_at: self.failed_at,
            failures: self.failures,
        }
    }
}

fn task_id(set: &str, key: &Key, round: u32) -> TaskId {
    gate_task_id(set, key.node.as_str(), &key.image, key.always, round)
}
