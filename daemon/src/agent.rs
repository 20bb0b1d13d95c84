//! One agent, put together from its parts.
//!
//! A real agent has a real runtime behind the link; one that only plays an agent, as in tests with thousands of them, has a
//! [`crate::runtime::fake::Fake`]. The rest is the same.

use std::sync::Arc;

use kruise_api::ids::Epoch;
use kruise_proto::node;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::journal::{Journal, State};
use crate::metrics::Metrics;
use crate::puller::{self, Puller, Settings};
use crate::restart::{self, Restarter};
use crate::runtime::Link;
use crate::session::transport::Transport;
use crate::session::trust::TrustError;
use crate::session::{self, Session, View};

/// What an agent stands on.
#[derive(Debug)]
pub struct Parts {
    /// Clocks.
    pub clock: Clock,
    /// The container runtime.
    pub link: watch::Receiver<Link>,
    /// Memory on disk with what it remembered.
    pub journal: (Journal, State),
    /// How the manager is reached.
    pub transport: Arc<dyn Transport>,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

/// A running engine, with a session that wants to be run or without any.
#[derive(Clone, Debug)]
pub struct Agent {
    puller: Puller,
    contact: Contact,
}

#[derive(Clone, Debug)]
enum Contact {
    Manager(Arc<Session>),
    /// With what it shows instead.
    Nobody(Arc<watch::Sender<View>>),
}

impl Agent {
    /// Starts the engine. Nothing is dialled before [`Agent::run`].
    #[must_use]
    pub fn new(config: session::Config, settings: Settings, parts: Parts) -> Self {
        let Parts {
            clock,
            link,
            journal: (journal, state),
            transport,
            metrics,
        } = parts;
        let highest: Epoch = state.highest_epoch;
        let directory = journal.directory().map(ToOwned::to_owned);
        let deps = puller::Deps {
            clock: clock.clone(),
            link: link.clone(),
            journal,
            state,
            metrics: Arc::clone(&metrics),
        };
        let puller = Puller::spawn(settings, deps);
        let restarter = Restarter::spawn(
            directory.as_deref(),
            restart::Deps {
                clock: clock.clone(),
                link: link.clone(),
                board: puller.shows(),
            },
        );
        let deps = session::Deps {
            clock,
            puller: puller.clone(),
            restarter,
            link,
            transport,
            metrics,
        };
        let contact = Contact::Manager(Arc::new(Session::new(config, deps, highest)));
        Self { puller, contact }
    }

    /// Starts an engine that no manager knows of. It remembers nothing: its tasks are those of callers on this machine.
    #[must_use]
    pub fn alone(
        settings: Settings,
        clock: Clock,
        link: watch::Receiver<Link>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let deps = puller::Deps {
            clock,
            link,
            journal: Journal::none(),
            state: State::default(),
            metrics,
        };
        let view = View {
            contact: node::Contact::Standalone,
            ..View::default()
        };
        Self {
            puller: Puller::spawn(settings, deps),
            contact: Contact::Nobody(Arc::new(watch::Sender::new(view))),
        }
    }

    /// The engine.
    #[must_use]
    pub fn puller(&self) -> &Puller {
        &self.puller
    }

    /// State of the contact with the manager.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<View> {
        match &self.contact {
            Contact::Manager(session) => session.view(),
            Contact::Nobody(view) => view.subscribe(),
        }
    }

    /// Stays in contact with the manager until dropped, if there is one.
    ///
    /// # Errors
    /// There is nobody to trust.
    pub async fn run(&self) -> Result<(), TrustError> {
        match &self.contact {
            Contact::Manager(session) => session.run().await,
            Contact::Nobody(_) => std::future::pending().await,
        }
    }

    /// Stops all pulls, keeps their bytes and remembers where they stand.
    pub async fn stop(&self) {
        self.puller.stop().await;
    }
}
