//! The API server as this process uses it: three clients over one configuration, and the server's time.
//!
//! - reader: reads and watches of the controllers; retries by itself.
//! - writer: writes of the leader. Refuses each request of a replica that does not lead at that instant, never retries, and gives
//!   up early enough that a deposed leader's request has ended before the next leader acts.
//! - plain: what every replica does for itself (the Lease, reviews of tokens, the trust store). Neither fenced nor retried.

mod complaint;
mod connect;
#[cfg(feature = "failpoints")]
mod failpoint;
mod failure;
#[cfg(test)]
pub(crate) mod fake;
mod guarded;
mod instrument;
mod time;

use std::time::Duration;

use kube::api::PatchParams;

pub use connect::{ConnectError, user_agent};
pub(crate) use failure::{ApiFailure, failure};
pub(crate) use guarded::{Broken, Guarded};

use crate::leader::{Leadership, NotLeader};
use crate::telemetry::ApiMetrics;

use instrument::{Lane, Shared};
pub use time::ServerClock;

/// Time for one request that is not a read, with the default times of leader election: shorter than lease duration minus renew
/// deadline (5 s). See [`kruise_planner::lease::Timing::request_timeout`].
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(4);
/// Time until a read begins to be answered, retries included. The API server itself gives up after a minute.
pub const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Field manager of everything that we write.
pub(crate) const FIELD_MANAGER: &str = "kruise-manager";

/// How we patch.
pub(crate) fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Handle on the API server. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    reader: kube::Client,
    writer: kube::Client,
    plain: kube::Client,
    leadership: Leadership,
    time: ServerClock,
    complaints: complaint::Complaints,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Api")
    }
}

impl Api {
    /// Clients for this configuration, with `limit` as the time for one request that is not a read. Does not talk to the server
    /// yet.
    ///
    /// # Errors
    /// When the configuration makes no client (bad certificates, an unsupported proxy).
    pub fn new(
        config: &kube::Config,
        limit: Duration,
        leadership: Leadership,
        metrics: ApiMetrics,
    ) -> Result<Self, ConnectError> {
        let time = ServerClock::new(crate::clock::Monotonic::boot());
        let shared = Shared {
            leadership: leadership.clone(),
            time: time.clone(),
            metrics,
            limit,
        };
        let client = |lane: Lane| connect::client(config, lane, &shared);
        Ok(Self {
            reader: client(Lane::Read)?,
            writer: client(Lane::Write)?,
            plain: client(Lane::Plain)?,
            leadership,
            time,
            complaints: complaint::Complaints::default(),
        })
    }

    /// For tests: all three lanes over a service in this process.
    #[cfg(test)]
    pub(crate) fn over(server: &fake::FakeApi, leadership: Leadership) -> Self {
        let time = ServerClock::new(crate::clock::Monotonic::tokio());
        let shared = Shared {
            leadership: leadership.clone(),
            time: time.clone(),
            metrics: ApiMetrics::default(),
            limit: WRITE_TIMEOUT,
        };
        let client = |lane| instrument::wrap(server.clone(), "default", lane, shared.clone());
        Self {
            reader: client(Lane::Read),
            writer: client(Lane::Write),
            plain: client(Lane::Plain),
            leadership,
            time,
            complaints: complaint::Complaints::default(),
        }
    }

    /// For reads and watches.
    #[must_use]
    pub fn reader(&self) -> kube::Client {
        self.reader.clone()
    }

    /// For one write of the leader. Each request of the client checks the lease once more.
    ///
    /// # Errors
    /// [`NotLeader`] when the lease is not provably ours at this instant.
    pub fn writer(&self) -> Result<kube::Client, NotLeader> {
        self.leadership.check()?;
        Ok(self.writer.clone())
    }

    /// For this replica's own housekeeping.
    #[must_use]
    pub fn plain(&self) -> kube::Client {
        self.plain.clone()
    }

    /// The API server's time, by the Date headers of its answers; this machine's own until the first one.
    #[must_use]
    pub fn now(&self) -> jiff::Timestamp {
        self.time.now()
    }

    /// The clock behind [`Self::now`].
    #[must_use]
    pub fn clock(&self) -> &ServerClock {
        &self.time
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::PostParams;

    use super::*;
    use crate::leader::LeaderState;

    fn leader() -> LeaderState {
        let epoch = kruise_api::ids::Epoch(1);
        LeaderState::Leader {
            epoch,
            since: tokio::time::Instant::now(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_kept_over_the_loss_of_the_lease_writes_nothing() {
        let server = fake::FakeApi::default();
        let (leadership, control) = Leadership::settable(leader());
        let api = Api::over(&server, leadership);
        let maps: kube::Api<ConfigMap> = kube::Api::namespaced(api.writer().expect("leads"), "ns");
        let map = |name: &str| ConfigMap {
            metadata: kube::core::ObjectMeta {
                name: Some(name.to_owned()),
                ..Default::default()
            },
            ..Default::default()
        };
        maps.create(&PostParams::default(), &map("first"))
            .await
            .expect("leads");
        control.revoke();
        assert!(api.writer().is_err());
        let error = maps
            .create(&PostParams::default(), &map("second"))
            .await
            .expect_err("deposed");
        assert!(
            matches!(&error, kube::Error::Service(source) if source.is::<NotLeader>()),
            "the refusal is recognisable: {error:?}"
        );
        assert_eq!(server.writes(), ["POST /api/v1/namespaces/ns/configmaps"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_hangs_ends_before_the_lease_can_move() {
        let server = fake::FakeApi::default();
        server.hang(true);
        let api = Api::over(&server, Leadership::fixed(leader()));
        let maps: kube::Api<ConfigMap> = kube::Api::namespaced(api.writer().expect("leads"), "ns");
        let started = tokio::time::Instant::now();
        maps.get("any").await.expect_err("nobody answers");
        assert_eq!(started.elapsed(), WRITE_TIMEOUT);
    }
}
