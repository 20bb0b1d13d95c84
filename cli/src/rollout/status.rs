//! How a rollout goes.
//!
//! What decides is the set's own status, as for kubectl; the leader's reasons and the pull jobs are shown beside it, where they can be had.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use kruise_api::clone_set::{CloneSet, CloneSetStatus, UpdatePolicy, conditions, names, reasons};
use kruise_api::image_pull_job::ImagePullJob;
use kruise_planner::cloneset::Limits;
use kruise_planner::revision;
use kruise_proto::inspect::ExplainCloneSetRequest;
use kube::Api;
use kube::api::ListParams;
use tokio::time::Instant;

use super::{Target, downtime, is_controlled};
use crate::args::{Global, duration};
use crate::connect::{self, Inspect};
use crate::exit::Code;
use crate::explain::CloneSetExplanation;
use crate::{human, output};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two tries to reach a manager that did not answer.
const TRY_AGAIN: Duration = Duration::from_secs(15);

/// Arguments of `rollout status`.
#[derive(Args, Debug)]
pub(super) struct StatusArgs {
    /// CloneSet, as clone/NAME.
    set: String,
    /// Stay until the rollout is done; with --watch=false say once how it stands.
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    watch: bool,
    /// Longest time to stay, for example 30m. The rollout goes on.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
}

pub(super) async fn run(global: &Global, args: StatusArgs) -> Result<Code> {
    let target = Target::new(global, &args.set).await?;
    if !args.watch {
        return once(&target).await;
    }
    let work = watch(&target);
    let bounded = async {
        match args.timeout {
            Some(limit) => tokio::time::timeout(limit, work).await.ok(),
            None => Some(work.await),
        }
    };
    tokio::select! {
        done = bounded => done.unwrap_or_else(|| {
            eprintln!("not done within the time given; the rollout goes on");
            Ok(Code::TimedOut)
        }),
        _ = tokio::signal::ctrl_c() => Ok(Code::Interrupted),
    }
}

/// Where a rollout stands, by the status of the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing is left to do.
    Done(String),
    /// The set says that it has failed.
    Failed(String),
    /// It is under way.
    Goes(String),
}

pub(super) fn standing(set: &CloneSet) -> Standing {
    let status = set.status.clone().unwrap_or_default();
    let wanted = i64::from(set.spec.wanted());
    if set.metadata.generation > status.observed_generation {
        return Standing::Goes("the manager has not seen the last change yet".to_owned());
    }
    if let Some(message) = deadline_exceeded(&status) {
        return Standing::Failed(message);
    }
    let [pods, updated, available, expected] = [
        status.replicas,
        status.updated_replicas,
        status.updated_available_replicas,
        status.expected_updated_replicas,
    ]
    .map(i64::from);
    let paused = if set.spec.update_strategy.is_paused() {
        " (paused)"
    } else {
        ""
    };
    if updated < expected {
        return Standing::Goes(format!(
            "{updated} of {expected} pods updated, {available} of them available{paused}"
        ));
    }
    if available < expected {
        return Standing::Goes(format!("{available} of {expected} updated pods available"));
    }
    if pods != wanted {
        let what = if pods > wanted {
            "have yet to go"
        } else {
            "are missing"
        };
        return Standing::Goes(format!("{} pods {what}", (pods - wanted).abs()));
    }
    let revision = &status.update_revision;
    let kept = Limits::of(&set.spec).partition.min(wanted);
    Standing::Done(if kept > 0 {
        format!("done: {updated} of {wanted} pods are on {revision}; the partition keeps the others")
    } else {
        format!("done: all {wanted} pods are on {revision}")
    })
}

fn deadline_exceeded(status: &CloneSetStatus) -> Option<String> {
    let mut all = status.conditions.iter();
    let failed =
        all.find(|one| one.kind == conditions::PROGRESSING && one.reason == reasons::DEADLINE_EXCEEDED)?;
    Some(format!("failed: {}", failed.message))
}

/// How it stands now. Like kubectl, only a failed rollout is an error.
pub(super) async fn once(target: &Target) -> Result<Code> {
    let set = target.get().await?;
    let (text, code) = match standing(&set) {
        Standing::Done(text) | Standing::Goes(text) => (text, Code::Success),
        Standing::Failed(text) => (text, Code::RolloutFailed),
    };
    let measured = target.downtimes(&set, &mut Reasons::default()).await;
    output::put(&format!("{text}\n{measured}"))?;
    Ok(code)
}

/// Shows each change until it is over.
pub(super) async fn watch(target: &Target) -> Result<Code> {
    let started = Instant::now();
    let mut reasons = Reasons::default();
    let mut pace = Pace::default();
    let mut shown = String::new();
    let mut uid = None;
    loop {
        let set = match target.sets.get_opt(&target.name).await? {
            Some(set) if uid.is_none() || set.metadata.uid == uid => set,
            // Not there, or another one of that name.
            None if uid.is_none() => target.get().await?,
            _ => {
                output::put(&format!("failed: {} was deleted\n", target.title()))?;
                return Ok(Code::RolloutFailed);
            }
        };
        uid.clone_from(&set.metadata.uid);
        let standing = standing(&set);
        let (text, over) = match &standing {
            Standing::Done(text) => (text.clone(), Some(Code::Success)),
            Standing::Failed(text) => (text.clone(), Some(Code::RolloutFailed)),
            Standing::Goes(text) => (target.details(&set, text, &mut reasons).await, None),
        };
        let status = set.status.clone().unwrap_or_default();
        let done = status.updated_available_replicas.max(0).unsigned_abs();
        let all = status.expected_updated_replicas.max(0).unsigned_abs();
        pace.look(&status.update_revision, started.elapsed(), done);
        if text != shown {
            let left = over.is_none().then(|| pace.left(all)).flatten();
            let left = left.map(|left| format!("; about {} left", human::duration(left)));
            output::put(&format!("{text}{}\n", left.unwrap_or_default()))?;
            shown = text;
        }
        if let Some(code) = over {
            output::put(&target.downtimes(&set, &mut reasons).await)?;
            return Ok(code);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Target {
    /// How long pods were down for changes in place to this revision, as far as the leader says.
    async fn downtimes(&self, set: &CloneSet, reasons: &mut Reasons) -> String {
        let Some(status) = set
            .status
            .as_ref()
            .filter(|_| set.spec.update_strategy.policy() != UpdatePolicy::ReCreate)
        else {
            return String::new();
        };
        let told = reasons.ask(self).await;
        told.map(|told| downtime::text(&told.in_place, &status.update_revision))
            .unwrap_or_default()
    }

    /// One line: numbers, images, and what is waited for.
    async fn details(&self, set: &CloneSet, text: &str, reasons: &mut Reasons) -> String {
        let mut parts = vec![text.to_owned()];
        parts.extend(self.pulled(set).await);
        if let Some(told) = reasons.ask(self).await {
            let waits = told.reasons();
            if !waits.is_empty() {
                parts.push(format!("waits for {waits}"));
            }
        }
        parts.join("; ")
    }

    /// On how many nodes the images of the rollout are, while jobs pull them.
    async fn pulled(&self, set: &CloneSet) -> Option<String> {
        let update = &set.status.as_ref()?.update_revision;
        let label = format!("{}={}", names::REVISION_HASH, revision::short_hash(update));
        let api: Api<ImagePullJob> = Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
        // Whoever may not list jobs sees the rest.
        let jobs = api.list(&ListParams::default().labels(&label)).await.ok()?;
        let own = jobs.items.iter().filter(|job| is_controlled(&job.metadata, set));
        let statuses: Vec<_> = own.filter_map(|job| job.status.as_ref()).collect();
        let sum = |part: fn(&kruise_api::image_pull_job::ImagePullJobStatus) -> i32| -> i32 {
            statuses.iter().map(|status| part(status)).sum()
        };
        let (succeeded, desired) = (sum(|status| status.succeeded), sum(|status| status.desired));
        (desired > 0).then(|| format!("{succeeded} of {desired} pulls done"))
    }
}

/// The leader's reasons, asked for over one connection.
#[derive(Default)]
struct Reasons {
    client: Option<Inspect>,
    not_before: Option<Instant>,
}

impl Reasons {
    async fn ask(&mut self, target: &Target) -> Option<CloneSetExplanation> {
        let now = Instant::now();
        if self.client.is_none() {
            if self.not_before.is_some_and(|at| at > now) {
                return None;
            }
            self.not_before = Some(now + TRY_AGAIN);
            self.client = connect::open(&target.cluster).await.ok();
        }
        let request = ExplainCloneSetRequest {
            clone_set: format!("{}/{}", target.cluster.namespace, target.name),
        };
        match self.client.as_mut()?.explain_clone_set(request).await {
            Ok(answer) => Some(answer.into_inner().into()),
            Err(_) => {
                self.client = None;
                None
            }
        }
    }
}

/// How fast pods get done, by what was seen. Nothing is guessed before two of them were.
#[derive(Debug, Default)]
pub(super) struct Pace {
    revision: String,
    /// When the first change was seen, and how many were done then.
    first: Option<(Duration, u32)>,
    last: Option<(Duration, u32)>,
}

impl Pace {
    pub(super) fn look(&mut self, revision: &str, at: Duration, done: u32) {
        let restarts = self.last.is_some_and(|(_, before)| done < before);
        if self.revision != revision || restarts {
            *self = Self {
                revision: revision.to_owned(),
                ..Self::default()
            };
        }
        match self.last {
            Some((_, before)) if before == done => {}
            // What was done before the first look says nothing about how long it took.
            None => self.last = Some((at, done)),
            Some(_) => {
                self.first.get_or_insert((at, done));
                self.last = Some((at, done));
            }
        }
    }

    /// How long the rest takes at this pace.
    pub(super) fn left(&self, all: u32) -> Option<Duration> {
        let ((since, before), (at, done)) = (self.first?, self.last?);
        let seen = done.checked_sub(before).filter(|seen| *seen > 0)?;
        let rest = all.checked_sub(done).filter(|rest| *rest > 0)?;
        Some((at.saturating_sub(since) / seen).saturating_mul(rest))
    }
}
