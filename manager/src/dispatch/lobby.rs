//! Where agents wait until a leader lets them in.
//!
//! After a failover all agents come within seconds: while nobody leads yet, while the leader still reads, and faster than it takes them in. To send
//! them away would only bring them back, each with a new connection and its cost, and so a storm would feed itself. So a stream whose token
//! was verified waits here, holding nothing but its connection. It is sent away when another replica is known to lead.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tonic::Status;

use super::admission::Bucket;
use super::refuse;
use crate::engine::EngineHandle;
use crate::leader::{LeaderState, Leadership};

/// Longest wait. An agent takes its first set up to 15 s after its Hello, and the rest of the way takes some time as well.
const LONGEST: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Lobby {
    engine: EngineHandle,
    leadership: Leadership,
    admission: Mutex<Bucket>,
}

impl Lobby {
    pub(super) fn new(engine: EngineHandle, leadership: Leadership) -> Self {
        let rate = engine.config().attach_per_second;
        let admission = Mutex::new(Bucket::per_second(rate, engine.clock().now()));
        Self {
            engine,
            leadership,
            admission,
        }
    }

    /// Whether waiting makes sense.
    ///
    /// # Errors
    /// Another replica leads.
    pub(super) fn look(&self) -> Result<(), Status> {
        match self.leadership.check() {
            Err(error) if error.leader.is_some() => Err(refuse::not_leader(error.leader.as_ref())),
            _ => Ok(()),
        }
    }

    /// Waits until this replica leads, its engine has read what it needs, and it is this agent's turn.
    ///
    /// # Errors
    /// Another replica leads, or it took too long.
    pub(super) async fn enter(&self) -> Result<(), Status> {
        let begin = self.engine.clock().now();
        match tokio::time::timeout(LONGEST, self.leads()).await {
            Ok(led) => led?,
            Err(_) => return Err(self.nobody_yet()),
        }
        let now = self.engine.clock().now();
        let left = LONGEST.saturating_sub(now.saturating_sub(begin));
        let turn = {
            let mut bucket = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
            bucket.reserve(now, left).map_err(refuse::attach_rate)?
        };
        tokio::time::sleep(turn).await;
        self.look()
    }

    /// Until the engine of this leader takes agents.
    async fn leads(&self) -> Result<(), Status> {
        let mut states = self.leadership.subscribe();
        loop {
            let state = states.borrow_and_update().clone();
            match state {
                LeaderState::Follower { leader: Some(peer) } => return Err(refuse::not_leader(Some(&peer))),
                LeaderState::Follower { leader: None } => {}
                LeaderState::Leader { .. } => {
                    return match self.engine.opened().await {
                        true => Ok(()),
                        false => Err(refuse::not_leader(None)),
                    };
                }
            }
            tokio::select! {
                // Both are cancel-safe: a state that changed is still there, and so is the end.
                changed = states.changed() => if changed.is_err() {
                    return Err(refuse::not_leader(None));
                },
                () = self.engine.closing() => return Err(refuse::not_leader(None)),
            }
        }
    }

    fn nobody_yet(&self) -> Status {
        match self.leadership.check() {
            Ok(_) => refuse::starting(),
            Err(error) => refuse::not_leader(error.leader.as_ref()),
        }
    }
}
