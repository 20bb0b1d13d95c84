//! The session against a manager that tests script, over TLS, in stopped time.

mod contact;
mod leaders;
mod manager;
mod orders;
mod trusting;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kruise_planner::node::stall::Rules;
use kruise_planner::task::Phase;
use kruise_proto::dispatch::{self, PullImage};
use kruise_proto::{convert, node};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::manager::{Authority, Manager, Pipes};
use super::*;
use crate::agent::{Agent, Parts};
use crate::journal::Journal;
use crate::puller::Settings;
use crate::runtime::Link;
use crate::runtime::fake::{Event, Fake, Image};

const APP: &str = "reg:5000/app:1";
const MIB: u64 = 1 << 20;
/// Address in the agent's flags.
const SERVICE: &str = "service:9877";

/// An agent with its surroundings. Dropping it kills the agent.
struct World {
    authority: Authority,
    pipes: Arc<Pipes>,
    fake: Arc<Fake>,
    directory: tempfile::TempDir,
    agent: Agent,
    run: JoinHandle<Result<(), TrustError>>,
    link: watch::Sender<Link>,
    lives: u32,
}

impl Drop for World {
    fn drop(&mut self) {
        self.run.abort();
    }
}

impl World {
    /// An agent of a manager that listens at [`SERVICE`].
    fn new() -> (Self, Manager) {
        let world = Self::with(Authority::new(), tempfile::tempdir().expect("a directory"));
        let manager = world.manager(SERVICE);
        (world, manager)
    }

    fn with(authority: Authority, directory: tempfile::TempDir) -> Self {
        let fake = Fake::new(Clock::tokio());
        fake.otherwise(Image {
            layers: vec![MIB; 10],
            rate: MIB,
            ..Image::default()
        });
        std::fs::write(directory.path().join("token"), "token-1\n").expect("written");
        let pipes = Arc::new(Pipes::default());
        let (agent, run, link) = start(&authority, &pipes, &fake, directory.path(), 0);
        Self {
            authority,
            pipes,
            fake,
            directory,
            agent,
            run,
            link,
            lives: 0,
        }
    }

    /// Kills the agent and starts it anew, with its state file as it is at this moment and the same runtime.
    fn restart(&mut self) {
        self.run.abort();
        self.lives += 1;
        let state = |life: u32| self.directory.path().join(format!("state-{life}"));
        let (old, new) = (state(self.lives - 1), state(self.lives));
        std::fs::create_dir(&new).expect("made");
        // The engine of the old life may still be writing to its own.
        let _ = std::fs::copy(old.join("state.json"), new.join("state.json"));
        (self.agent, self.run, self.link) = start(
            &self.authority,
            &self.pipes,
            &self.fake,
            self.directory.path(),
            self.lives,
        );
    }

    fn manager(&self, address: &str) -> Manager {
        Manager::listen(&self.pipes, &self.authority, address)
    }

    /// Waits until the agent says so of its contact, for at most an hour of played time.
    async fn until(&self, wanted: impl FnMut(&View) -> bool) -> View {
        let mut view = self.agent.view();
        let found = tokio::time::timeout(Duration::from_secs(3600), view.wait_for(wanted)).await;
        found.expect("it came").expect("the session runs").clone()
    }

    fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.fake.events().iter().filter(|event| wanted(event)).count()
    }

    fn began(&self) -> usize {
        self.count(|event| matches!(event, Event::Began(..)))
    }
}

fn start(
    authority: &Authority,
    pipes: &Arc<Pipes>,
    fake: &Arc<Fake>,
    directory: &Path,
    life: u32,
) -> (Agent, JoinHandle<Result<(), TrustError>>, watch::Sender<Link>) {
    let (sender, link) = watch::channel(fake.link());
    let config = Config {
        node_name: "node1".into(),
        boot_id: "boot".into(),
        manager: SERVICE.into(),
        server_name: kruise_api::names::MANAGER_SERVER_NAME.into(),
        ca: Secret::Text(authority.ca.clone()),
        token: Secret::File(directory.join("token")),
        max_workers: 3,
    };
    let rules = Rules {
        min_rate: 64 << 10,
        timeout: Duration::from_secs(30),
    };
    let parts = Parts {
        clock: Clock::tokio(),
        link,
        journal: Journal::open(&directory.join(format!("state-{life}"))),
        transport: Arc::clone(pipes) as Arc<dyn Transport>,
        metrics: Arc::new(Metrics::default()),
    };
    let agent = Agent::new(
        config,
        Settings {
            slots: Some(3),
            rules,
            ..Settings::default()
        },
        parts,
    );
    let running = agent.clone();
    (agent, tokio::spawn(async move { running.run().await }), sender)
}

fn order(id: &str, image: &str) -> dispatch::Order {
    let pull = PullImage {
        image: image.into(),
        backoff_limit: 3,
        ..Default::default()
    };
    dispatch::Order {
        task_id: id.into(),
        work: Some(dispatch::order::Work::PullImage(pull)),
    }
}

fn phase(status: &kruise_proto::task::TaskStatus) -> Phase {
    convert::phase_from_number(status.phase)
}
