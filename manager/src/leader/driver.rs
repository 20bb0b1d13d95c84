//! Requests and timers around the elector.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kruise_planner::lease::{Elector, Loss, Next, Outcome, Purpose, State, Timing, Write};
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use super::lease::{peer, seen, written};
use super::{Control, LeaderState};
use crate::clock::{Monotonic, wall_unix_ms};
use crate::kubeapi::Api;
use crate::telemetry::LeaderMetrics;

/// Requests of one tick: a renewal, a read after a conflict, another renewal, and one to spare. More conflicts than that wait for
/// the next tick.
const STEPS_PER_TICK: usize = 4;

/// Where and as whom to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    /// Unique name of this process, [`super::holder_name`].
    pub holder: String,
    /// gRPC address to announce.
    pub address: String,
    /// Times.
    pub timing: Timing,
}

/// Keeps the Lease for one process.
pub struct Driver {
    elector: Elector,
    settings: Settings,
    leases: kube::Api<Lease>,
    control: Control,
    clock: Monotonic,
    metrics: LeaderMetrics,
    state: State,
    /// The Lease as last read or written, so that a write keeps what others put into it.
    latest: Option<Lease>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("settings", &self.settings)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Driver {
    /// A driver that has not looked yet. `clock` must be the one of the guard.
    #[must_use]
    pub fn new(
        settings: Settings,
        api: &Api,
        control: Control,
        clock: Monotonic,
        metrics: LeaderMetrics,
    ) -> Self {
        let elector = Elector {
            name: settings.holder.clone(),
            address: settings.address.clone(),
            timing: settings.timing,
        };
        let leases = kube::Api::namespaced(api.plain(), &settings.namespace);
        Self {
            elector,
            settings,
            leases,
            control,
            clock,
            metrics,
            state: State::new(),
            latest: None,
        }
    }

    /// Runs for leadership, and keeps it, until `stop`; then lets go of it. Whoever stops it must have stopped acting before.
    ///
    /// # Errors
    /// [`Loss`] when the leadership is gone. The process must end at once.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Loss> {
        while !stop.is_cancelled() {
            self.look_at_agents().await?;
            self.tick().await.inspect_err(|_| self.control.revoke())?;
            tokio::select! {
                // Both are cancel-safe: timers and a token.
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.pause()) => {}
            }
        }
        self.release().await;
        Ok(())
    }

    async fn tick(&mut self) -> Result<(), Loss> {
        let mut next = self.elector.tick(&self.state, self.clock.now());
        for _ in 0..STEPS_PER_TICK {
            next = match next {
                Next::Wait => break,
                Next::Lose(loss) => return Err(loss),
                Next::Read => self.read().await,
                Next::Write(write) => self.write(&write).await,
            };
            self.publish();
        }
        match next {
            Next::Lose(loss) => Err(loss),
            _ => Ok(()),
        }
    }

    async fn read(&mut self) -> Next {
        let request = self.leases.get_opt(&self.settings.lease);
        let found = match tokio::time::timeout(self.limit(), request).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                self.complain(&error, "cannot read the lease");
                return self.elector_waits();
            }
            Err(_) => {
                tracing::warn!(lease = %self.settings.lease, "the lease was not read in time");
                return self.elector_waits();
            }
        };
        let now = self.clock.now();
        let state = std::mem::take(&mut self.state);
        let (state, next) = self
            .elector
            .read(state, found.as_ref().map(seen), now, wall_unix_ms());
        self.state = state;
        self.latest = found;
        next
    }

    /// After a read without an answer: nothing, unless the leadership ran out meanwhile.
    fn elector_waits(&self) -> Next {
        match self.elector.tick(&self.state, self.clock.now()) {
            lost @ Next::Lose(_) => lost,
            _ => Next::Wait,
        }
    }

    async fn write(&mut self, write: &Write) -> Next {
        let started = self.clock.now();
        let outcome = self.send(write).await;
        let state = std::mem::take(&mut self.state);
        let (state, next) = self
            .elector
            .wrote(state, write, outcome, started, self.clock.now());
        self.state = state;
        next
    }

    async fn send(&mut self, write: &Write) -> Outcome {
        let base = write.precondition.as_ref().and(self.latest.as_ref());
        let wall = jiff::Timestamp::from_millisecond(i64::try_from(wall_unix_ms()).unwrap_or_default());
        let Settings {
            lease: name,
            namespace,
            ..
        } = &self.settings;
        let lease = written(base, name, namespace, write, wall.unwrap_or_default());
        let params = PostParams::default();
        let request = async {
            match write.precondition {
                Some(_) => self.leases.replace(name, &params, &lease).await,
                None => self.leases.create(&params, &lease).await,
            }
        };
        match tokio::time::timeout(self.limit(), request).await {
            Ok(Ok(lease)) => {
                let version = seen(&lease).version;
                self.latest = Some(lease);
                Outcome::Done(version)
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 || status.is_not_found() => {
                Outcome::Conflict
            }
            Ok(Err(error)) => {
                self.complain(&error, "cannot write the lease");
                Outcome::Unknown
            }
            Err(_) => {
                tracing::warn!(lease = %self.settings.lease, purpose = ?write.purpose, "the lease was not written in time");
                Outcome::Unknown
            }
        }
    }

    /// Time for a request: never beyond the moment at which a leader must stop.
    fn limit(&self) -> Duration {
        let limit = self.settings.timing.request_timeout();
        match &self.state {
            State::Following(_) => limit,
            State::Leading(leading) => limit.min(
                leading
                    .deadline(&self.settings.timing)
                    .saturating_sub(self.clock.now()),
            ),
        }
    }

    /// A jittered retry period, and never beyond the moment at which a leader must stop.
    fn pause(&self) -> Duration {
        let timing = &self.settings.timing;
        let period = timing
            .retry_period
            .mul_f64(1.0 + Timing::JITTER * rand::random::<f64>());
        match &self.state {
            State::Following(_) => period,
            State::Leading(leading) => period.min(leading.deadline(timing).saturating_sub(self.clock.now())),
        }
    }

    fn publish(&self) {
        match &self.state {
            State::Following(_) => {
                let leader = self.elector.leader(&self.state, self.clock.now()).map(peer);
                self.metrics.follows();
                self.control.set(LeaderState::Follower { leader });
            }
            State::Leading(leading) => {
                // The deadline first: whoever hears of the new state may act at once.
                self.control.extend(leading.deadline(&self.settings.timing));
                if self.control.lead(leading.epoch) {
                    self.metrics.leads(leading.epoch.0);
                    tracing::info!(
                        epoch = leading.epoch.0,
                        holder = %self.settings.holder,
                        "this replica leads"
                    );
                }
            }
        }
    }

    /// Lets somebody lead by an epoch that agents obey, when they have obeyed a higher one than ours.
    async fn look_at_agents(&mut self) -> Result<(), Loss> {
        let highest = self.control.outran();
        match &self.state {
            State::Leading(leading) if leading.epoch < highest => {
                self.let_go(self.elector.yield_to(&self.state, highest)).await;
                Err(Loss::Outrun { highest })
            }
            _ => Ok(()),
        }
    }

    async fn release(&mut self) {
        self.let_go(self.elector.release(&self.state)).await;
    }

    async fn let_go(&mut self, write: Option<Write>) {
        self.control.revoke();
        self.metrics.follows();
        let Some(write) = write else { return };
        debug_assert_eq!(write.purpose, Purpose::Release, "nothing else lets go");
        match self.send(&write).await {
            Outcome::Done(_) => tracing::info!("the lease is released"),
            outcome => tracing::warn!(
                ?outcome,
                "the lease could not be released; others wait until it expires"
            ),
        }
    }

    fn complain(&self, error: &kube::Error, what: &str) {
        let lease = format!("{}/{}", self.settings.namespace, self.settings.lease);
        match error {
            kube::Error::Api(status) if status.is_forbidden() => {
                tracing::error!(%lease, reason = %status.message, "{what}: the service account lacks the right");
            }
            _ => {
                tracing::warn!(%lease, error = %crate::telemetry::chain(error), "{what}");
            }
        }
    }
}

#[cfg(test)]
mod tests;
