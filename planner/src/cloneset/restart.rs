//! Restarts the containers of all pods in place when annotation `apps.kruise.io/restart` gets a new value: one request per pod, never more pods down
//! than may be, and each pod once per run.
//!
//! What tells that a pod has had its turn is the request itself, whose name follows from the run and the pod. That a run is over stands in the
//! status, which outlives the requests.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kruise_api::clone_set::restart::RestartWish;
use kruise_api::clone_set::{CloneSetStatus, RestartStatus};
use kruise_api::container_recreate_request::RecreateStrategy;
use kruise_api::container_recreate_request::run::{RunName, RunOptions};

use super::action::Action;
use super::draft::Draft;
use super::facts::{Facts, Member};
use super::numbers::Numbers;
use super::pod::{LifecycleState, Phase};
use super::reason::Reason;
use super::snapshot::RecreateView;
use super::status::whole_seconds;
use crate::restart::bulk::{self, Came, Candidate, Turn};

/// Requests are kept for so long after their end. A run that is not over by then is stopped: without its first requests nobody could tell which pods
/// have had their turn.
const KEPT_SECONDS: i32 = 7 * 24 * 3600;
/// The request of one pod ends after this, whatever is left: as kruisectl has it.
const DEADLINE_SECONDS: i64 = 600;

/// What the requests of a set's run have in common.
#[must_use]
pub fn run_options(containers: &[String], ordered: bool) -> RunOptions {
    RunOptions {
        containers: containers.to_vec(),
        strategy: RecreateStrategy {
            ordered_recreate: ordered,
            ..RecreateStrategy::default()
        },
        deadline_seconds: DEADLINE_SECONDS,
        kept_seconds: KEPT_SECONDS,
    }
}

/// A run at one moment.
#[derive(Debug, Default)]
struct Progress<'a> {
    candidates: Vec<Candidate<'a>>,
    total: i32,
    done: i32,
    failed: i32,
    /// Why the first of the failed ones did.
    problem: Option<String>,
}

impl<'a> Progress<'a> {
    fn at(&self, turn: Turn) -> impl Iterator<Item = &'a str> {
        let pods = self.candidates.iter().filter(move |pod| pod.turn == turn);
        pods.map(|pod| pod.name)
    }
}

impl Facts<'_> {
    /// Begins a run, or hands out the requests that are next in it.
    pub(super) fn restart(&self, update: &Numbers, draft: &mut Draft) {
        let wish = match RestartWish::of(&self.snapshot.set.metadata) {
            Ok(Some(wish)) => wish,
            Ok(None) => return,
            Err(problems) => {
                for problem in problems {
                    let text = format!("metadata.annotations[{}]: {}", problem.key, problem.message);
                    draft.wait(Reason::InvalidField, text);
                }
                return;
            }
        };
        let status = self.snapshot.set.status.as_ref();
        let stored = status.and_then(|status| status.restart.as_ref());
        match stored.filter(|stored| stored.run == wish.value) {
            None => self.begin_run(&wish, draft),
            Some(stored) if stored.completed_at.is_some() => {}
            Some(stored) if stored.is_over() => {
                let text = format!("run {}: {}", wish.value, stored.message);
                draft.wait(Reason::RestartFailed, text);
            }
            Some(stored) => self.go_on(&wish, stored, update, draft),
        }
    }

    /// Nothing is handed out before it is stored when the run began: by that, pods that are made later are told apart.
    fn begin_run(&self, wish: &RestartWish, draft: &mut Draft) {
        let pods = self.members.iter().filter(|member| member.stays()).count();
        draft.restart = Some(RestartStatus {
            run: wish.value.clone(),
            started_at: Some(Time(whole_seconds(self.now))),
            total: i32::try_from(pods).unwrap_or(i32::MAX),
            ..RestartStatus::default()
        });
        let limit = wish.limit(self.spec.wanted());
        draft.tell(
            "RestartBegan",
            format!(
                "run {}: containers of all pods are restarted in place, at most {limit} pods unavailable at once",
                wish.value
            ),
        );
    }

    fn go_on(&self, wish: &RestartWish, stored: &RestartStatus, update: &Numbers, draft: &mut Draft) {
        let began = stored.started_at.as_ref().map_or(self.now, |time| time.0);
        let mut progress = self.run_progress(&wish.run, began);
        let late = self.now.duration_since(began) > SignedDuration::from_secs(i64::from(KEPT_SECONDS));
        let over = progress.done == progress.total;
        if late && !over && progress.problem.is_none() {
            let days = KEPT_SECONDS / (24 * 3600);
            progress.problem = Some(format!("it was not over after {days} days"));
        }
        let mut fresh = RestartStatus {
            total: progress.total,
            done: progress.done,
            failed: progress.failed,
            ..stored.clone()
        };
        if let Some(problem) = progress.problem {
            draft.warn("RestartFailed", format!("run {}: {problem}", wish.value));
            draft.wait(Reason::RestartFailed, format!("run {}: {problem}", wish.value));
            fresh.message = problem;
        } else if over {
            fresh.completed_at = Some(Time(whole_seconds(self.now)));
            let text = format!("run {}: {} pods have been restarted", wish.value, fresh.done);
            draft.tell("RestartCompleted", text);
        } else {
            let text = format!(
                "run {}: {} of {} pods are restarted and available",
                wish.value, progress.done, progress.total
            );
            let running = progress.at(Turn::Runs).map(str::to_owned);
            draft.pods_wait(Reason::Restarting, running, text);
            self.hand_out(wish, &progress, update, draft);
        }
        draft.restart = Some(fresh);
    }

    fn run_progress(&self, run: &RunName, began: Timestamp) -> Progress<'_> {
        let mut progress = Progress::default();
        for member in &self.members {
            // Times have whole seconds: a pod of the very second may be older than the run.
            let newer = member.view.created.is_some_and(|created| created > began);
            let turn = if newer || !member.stays() {
                Turn::Over
            } else {
                progress.total = progress.total.saturating_add(1);
                self.turn_of(member, run, &mut progress)
            };
            progress.candidates.push(Candidate {
                name: &member.view.name,
                available: member.available,
                turn,
            });
        }
        progress
    }

    fn turn_of(&self, member: &Member<'_>, run: &RunName, progress: &mut Progress<'_>) -> Turn {
        let pod = member.view;
        let Some(request) = self.request_of_run(member, run) else {
            // One of another run counts as well: requests of a pod run one after the other. What has not started yet cannot be restarted.
            return match (member.restarting, pod.phase) {
                (true, _) => Turn::Runs,
                (false, Phase::Pending) => Turn::Over,
                (false, _) => Turn::Waits,
            };
        };
        let foreign = request.pod_uid.as_ref().is_some_and(|uid| *uid != pod.uid);
        let problem = match &request.came {
            _ if foreign => format!("{} is the request of an earlier pod", request.name),
            Came::Runs(_) => return Turn::Runs,
            Came::Succeeded => {
                progress.done = progress.done.saturating_add(i32::from(member.available));
                return Turn::Over;
            }
            Came::Failed(why) => why.clone(),
        };
        progress.failed = progress.failed.saturating_add(1);
        progress
            .problem
            .get_or_insert_with(|| format!("pod {}: {problem}", pod.name));
        Turn::Over
    }

    fn request_of_run(&self, member: &Member<'_>, run: &RunName) -> Option<&RecreateView> {
        let pod = member.view;
        let of_pod = self.requests.get(pod.name.as_str())?;
        let name = run.request_for(&pod.name);
        of_pod.iter().copied().find(|request| {
            let labelled = request.run.as_deref() == Some(run.as_str());
            request.name == name || (labelled && request.pod_uid.as_ref() == Some(&pod.uid))
        })
    }

    fn hand_out(&self, wish: &RestartWish, progress: &Progress<'_>, update: &Numbers, draft: &mut Draft) {
        if progress.at(Turn::Waits).next().is_none() {
            return;
        }
        if let Some((reason, why)) = self.holds_run(update) {
            return draft.wait(reason, format!("run {}: {why}", wish.value));
        }
        // A request that was refused would be refused for the next pod too.
        if progress.at(Turn::Waits).any(|pod| self.is_held(pod)) {
            return;
        }
        let limit = wish.limit(self.spec.wanted());
        let next = bulk::next(&progress.candidates, usize::try_from(limit).unwrap_or(usize::MAX));
        let down = bulk::down(&progress.candidates);
        let rest = progress.at(Turn::Waits).filter(|pod| !next.contains(pod));
        draft.pods_wait(
            Reason::RestartBudget,
            rest.map(str::to_owned),
            format!(
                "run {}: {} pods are unavailable or about to be, {} is {limit}",
                wish.value,
                down.max(next.len()),
                kruise_api::clone_set::names::RESTART_MAX_UNAVAILABLE,
            ),
        );
        for pod in next {
            draft.act(Action::CreateContainerRecreateRequest {
                request: wish.run.request_for(pod),
                pod: pod.to_owned(),
                run: wish.run.to_string(),
                containers: wish.containers.clone(),
                ordered: wish.ordered,
                reason: "Restart",
            });
        }
    }

    /// What keeps requests from being handed out, the budget apart.
    fn holds_run(&self, update: &Numbers) -> Option<(Reason, &'static str)> {
        if !self.snapshot.gates.restarts {
            return Some((Reason::RestartHeld, "feature gate KruiseDaemon is off"));
        }
        if self.limits.paused {
            return Some((Reason::RestartHeld, "the set is paused"));
        }
        let changing = |member: &Member<'_>| {
            let state = matches!(
                member.view.state,
                LifecycleState::PreparingUpdate | LifecycleState::Updating | LifecycleState::Updated
            );
            state || !member.view.in_place.is_finished()
        };
        let to_update = update.update_num != 0 && !self.spec.update_strategy.is_on_delete();
        (to_update || self.members.iter().any(changing))
            .then_some((Reason::RestartUpdate, "pods are being updated"))
    }
}

/// Progress alone is written at quarters: each pod that is restarted changes other counters of the status anyway, and those carry it along.
pub(super) fn coalesce(stored: &CloneSetStatus, fresh: &mut CloneSetStatus) {
    let (Some(old), Some(new)) = (&stored.restart, &fresh.restart) else {
        return;
    };
    let quarter = |run: &RestartStatus| i64::from(run.done) * 4 / i64::from(run.total.max(1));
    if old.run != new.run || old.is_over() != new.is_over() || quarter(old) != quarter(new) {
        return;
    }
    let new = fresh.restart.replace(old.clone());
    if fresh != stored {
        fresh.restart = new;
    }
}
