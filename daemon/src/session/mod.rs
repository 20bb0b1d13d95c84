//! The agent's side of the dispatch service.
//!
//! [`Session::run`] dials the manager, stays attached to the leader, and dials again, for as long as the process lives. One stream
//! is served by [`stream`]; what may arrive on it is decided by the planner's fence, how long the agent works without it by the
//! planner's contact lease.

mod dial;
mod outbox;
mod probe;
mod stream;
#[cfg(test)]
mod tests;
pub mod transport;
pub mod trust;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kruise_planner::node::contact::{self, Contact, State};
use kruise_planner::node::fence::Fence;
use kruise_proto::node;
use tokio::sync::{Notify, watch};

use self::dial::Goodbye;
use self::transport::Transport;
use self::trust::{Secret, TrustError};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::puller::{Puller, Welcome};
use crate::restart::Restarter;
use crate::runtime::Link;

/// How often a dial that fails in the same way is told.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Who the agent is and whom it dials.
#[derive(Clone, Debug)]
pub struct Config {
    /// Node that the agent acts for.
    pub node_name: String,
    /// Of this boot of the node.
    pub boot_id: String,
    /// `host:port` of the manager.
    pub manager: String,
    /// Name in the manager's certificate, whatever address is dialled.
    pub server_name: String,
    /// Trust bundle, read at each dial.
    pub ca: Secret,
    /// The agent's token, read at each dial and watched while attached.
    pub token: Secret,
    /// Pulls at once, as told to the manager; 0 is no limit.
    pub max_workers: u32,
}

/// State of the contact, for those who ask.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// How the agent stands with a leader.
    pub contact: node::Contact,
    /// Address in use.
    pub manager: String,
    /// When the last answered heartbeat was sent, by the forward clock.
    pub last_contact: Option<Duration>,
    /// Highest epoch seen.
    pub epoch: u64,
    /// Last generation taken on the stream in use.
    pub generation: u64,
    /// Of the last dial or stream; empty when attached.
    pub last_error: String,
}

/// What a session stands on.
#[derive(Debug)]
pub struct Deps {
    /// Clocks.
    pub clock: Clock,
    /// Where orders of images go.
    pub puller: Puller,
    /// Where orders of restarts go.
    pub restarter: Restarter,
    /// The container runtime, for what the agent says of itself.
    pub link: watch::Receiver<Link>,
    /// How the manager is reached.
    pub transport: Arc<dyn Transport>,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

/// One agent's contact with the manager.
#[derive(Debug)]
pub struct Session {
    config: Config,
    deps: Deps,
    view: watch::Sender<View>,
    contact: Mutex<(Contact, Welcome)>,
    contact_changed: Notify,
    fence: Mutex<Fence>,
    /// Of the last Hello.
    stamp: AtomicU64,
    logged: Mutex<BTreeMap<String, Duration>>,
}

impl Session {
    /// A session that has not dialled yet, with the highest epoch that is remembered.
    #[must_use]
    pub fn new(config: Config, deps: Deps, highest: kruise_api::ids::Epoch) -> Self {
        let view = View {
            contact: node::Contact::Connecting,
            epoch: highest.0,
            ..View::default()
        };
        let contact = Contact::new(deps.clock.now_mono());
        Self {
            config,
            deps,
            view: watch::Sender::new(view),
            contact: Mutex::new((contact, Welcome::default())),
            contact_changed: Notify::new(),
            fence: Mutex::new(Fence::new(highest)),
            stamp: AtomicU64::new(0),
            logged: Mutex::default(),
        }
    }

    /// State of the contact.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<View> {
        self.view.subscribe()
    }

    /// Stays in contact until dropped.
    ///
    /// # Errors
    /// There is nobody to trust: only a restart of the container helps, since it makes the kubelet look at the bundle at once.
    pub async fn run(&self) -> Result<(), TrustError> {
        tokio::select! {
            error = self.keep_attached() => Err(error),
            () = self.watch_contact() => Ok(()),
        }
    }

    async fn keep_attached(&self) -> TrustError {
        let mut lost_at = self.deps.clock.now_mono();
        let mut target = self.config.manager.clone();
        let mut named = false;
        loop {
            self.tell(|view| view.manager.clone_from(&target));
            let goodbye = match self.attach(&target).await {
                Ok(goodbye) => goodbye,
                Err(error) => return error,
            };
            let now = self.deps.clock.now_mono();
            if goodbye.was_attached() {
                lost_at = now;
            }
            self.detached(&goodbye, &target);
            match goodbye {
                // A leader that was just named is dialled at once, and once: if it is none, the next dial has its pause.
                Goodbye::Elsewhere { leader: Some(leader) } if !named => {
                    named = true;
                    target = leader;
                }
                _ => {
                    named = false;
                    target.clone_from(&self.config.manager);
                    tokio::time::sleep(contact::redial(now.saturating_sub(lost_at), rand::random())).await;
                }
            }
        }
    }

    fn detached(&self, goodbye: &Goodbye, target: &str) {
        self.deps.metrics.connected.set(0);
        self.fence().closed();
        let state = {
            let mut contact = self.contact();
            contact.0.closed();
            contact.0.state()
        };
        self.log(goodbye, target);
        self.tell(|view| {
            view.contact = if state == State::Lost {
                node::Contact::Lost
            } else {
                node::Contact::Connecting
            };
            view.generation = 0;
            view.last_error = goodbye.to_string();
        });
    }

    /// The end of contact is a warning. Dials that fail the same way are told once in a while only.
    fn log(&self, goodbye: &Goodbye, target: &str) {
        let (text, now) = (format!("{target}: {goodbye}"), self.deps.clock.now_mono());
        if goodbye.was_attached() {
            tracing::warn!(manager = target, error = %goodbye, "contact broke off");
            return;
        }
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged
            .get(&text)
            .is_some_and(|last| now < last.saturating_add(LOG_EVERY))
        {
            tracing::debug!(manager = target, error = %goodbye, "not attached");
            return;
        }
        tracing::info!(manager = target, error = %goodbye, "not attached");
        logged.retain(|_, last| now < last.saturating_add(LOG_EVERY));
        logged.insert(text, now);
    }

    /// Stops all pulls when the contact lease ends.
    async fn watch_contact(&self) {
        loop {
            let (ends, state) = {
                let contact = self.contact();
                (contact.0.ends(), contact.0.state())
            };
            let end = async {
                match state {
                    State::Lost => std::future::pending().await,
                    State::Attached | State::Silent => self.deps.clock.sleep_until(ends).await,
                }
            };
            tokio::select! {
                () = end => {}
                () = self.contact_changed.notified() => continue,
            }
            let lost = {
                let mut contact = self.contact();
                contact.0.tick(self.deps.clock.now_mono()).then_some(contact.1)
            };
            if let Some(welcome) = lost {
                tracing::warn!("no leader has answered for the contact lease");
                self.tell(|view| view.contact = node::Contact::Lost);
                self.deps.restarter.suspend(welcome).await;
                self.deps.puller.suspend(welcome).await;
            }
        }
    }

    fn tell(&self, change: impl FnOnce(&mut View)) {
        self.view.send_modify(change);
    }

    fn contact(&self) -> MutexGuard<'_, (Contact, Welcome)> {
        self.contact.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fence(&self) -> MutexGuard<'_, Fence> {
        self.fence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
