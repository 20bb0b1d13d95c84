//! Everything that is measured with one number of agents.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kruise_tests::audit::{Counters, Mark};
use kruise_tests::fleet::control::{Answer, Fleet, Request, Stamp, stamp};
use kruise_tests::fleet::image;
use serde::Serialize;
use serde_json::json;

use super::bed::{Bed, Programs};
use super::jobs::Jobs;
use super::manager::{Manager, Start};
use super::meter::{self, Books, Memory, Shares, Spread, millis};

/// Time for buffers to be given back and lists to be forgotten before memory counts.
const SETTLE: Duration = Duration::from_secs(30);
/// Time over which the use of an idle manager is measured.
const IDLE: Duration = Duration::from_secs(20);
/// Time for anything that takes long when it goes wrong.
const PATIENCE: Duration = Duration::from_secs(180);
/// Time for acknowledgements and first reports after the last order, of the manager and of the bare server alike.
pub(super) const QUIET: Duration = Duration::from_secs(1);
/// Pulls of a broadcast take so long, so that no result mixes with its orders.
const BROADCAST_PULL: (Duration, Duration) = (Duration::from_secs(8), Duration::from_secs(12));

/// What is measured with one number of agents. Times in milliseconds unless the name says otherwise.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Scale {
    pub(crate) agents: usize,
    /// The manager without agents.
    pub(crate) empty: Memory,
    /// The manager with all agents idle.
    pub(crate) idle: Memory,
    /// Microseconds of processor time per second and agent.
    pub(crate) idle_cpu_us: f64,
    /// From the first dial to the last agent in sync; first dials are spread over 5 s.
    pub(crate) attach: f64,
    /// The lease of the killed manager has to run out, and agents wait in line meanwhile.
    pub(crate) storms: Vec<Storm>,
    /// The new manager leads at once, so that every connection is made under its eyes.
    pub(crate) storms_without_lease: Vec<Storm>,
    pub(crate) broadcasts: Vec<Broadcast>,
    pub(crate) single: Single,
    pub(crate) fleet: Memory,
    /// Average number of processes that wanted a processor in the last minute, at the end.
    pub(crate) load: f64,
}

/// The manager is killed and started again.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Storm {
    /// From its start until it listens.
    pub(crate) listens: f64,
    /// From its start until it leads: the killed one's lease runs out first.
    pub(crate) leads: f64,
    /// From when it listens and leads until the first agent is in sync.
    pub(crate) first: f64,
    /// From when it listens and leads until half of them are.
    pub(crate) half: f64,
    /// From when it listens and leads until all are.
    pub(crate) all: f64,
    /// Processor time from the end of the old one until all are in sync.
    pub(crate) cpu: Shares,
    /// Of that, until it leads.
    pub(crate) cpu_seconds_following: f64,
    /// Most memory so far.
    pub(crate) peak: u64,
    /// Connections that came to nothing, by reason.
    pub(crate) closed_early: BTreeMap<String, u64>,
}

/// One job for all agents.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Broadcast {
    /// From the request that makes the job until the first order comes.
    pub(crate) first: f64,
    /// Until the last.
    pub(crate) last: f64,
    /// Between first and last.
    pub(crate) span: f64,
    /// Processor time of the manager per order until all orders have been acknowledged, in microseconds, without what it uses idle.
    pub(crate) cpu_us_per_order: f64,
    /// The same until all results are stored and acknowledged.
    pub(crate) cpu_us_per_task: f64,
    /// From the request until the job is complete.
    pub(crate) complete: f64,
    /// Requests of the manager and of agents that the API server counts as writes, without events.
    pub(crate) manager_writes: usize,
    pub(crate) agent_requests: usize,
    pub(crate) events: usize,
}

/// One order at a time, to one agent of all.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Single {
    /// From the manager's decision until the agent asks its runtime.
    pub(crate) from_decision: Spread,
    /// From the request that makes the job.
    pub(crate) from_request: Spread,
}

/// The parts of one measurement.
pub(crate) struct Measure<'a> {
    pub(crate) bed: &'a Bed,
    pub(crate) programs: &'a Programs,
    pub(crate) jobs: &'a Jobs,
    pub(crate) agents: usize,
    pub(crate) rounds: usize,
    pub(crate) orders: usize,
    pub(crate) flags: &'a [String],
}

impl Measure<'_> {
    /// Takes all measurements, one after the other.
    pub(crate) async fn run(&self) -> Result<Scale> {
        let mut scale = Scale {
            agents: self.agents,
            ..Scale::default()
        };
        let targets = self.bed.targets(self.agents).await?;
        self.jobs.clear().await?;
        let address = free_address()?;
        let mut manager = self.start(address, Start::default())?;
        manager.leads()?;
        std::thread::sleep(SETTLE / 3);
        scale.empty = meter::memory(manager.process()?)?;
        let mut fleet = fleet(self.bed, self.programs, address, &targets)?;
        let begun = stamp();
        scale.attach = millis(begun, last(&in_sync(&mut fleet, 0)?)?);
        say(&format!(
            "{} agents attached in {:.1} s",
            self.agents,
            scale.attach / 1e3
        ));
        std::thread::sleep(SETTLE);
        scale.idle = meter::memory(manager.process()?)?;
        scale.fleet = meter::memory(fleet.process()?)?;
        let idle_rate = self.idle_rate(&manager)?;
        scale.idle_cpu_us = idle_rate * 1e6 / per(self.agents);
        say(&format!(
            "idle: {} MB, {:.0} ms CPU per second",
            scale.idle.now >> 20,
            idle_rate * 1e3
        ));
        for round in 0..self.rounds {
            let name = format!("broadcast-{}-{round}-{}", self.agents, begun % 1_000_000);
            scale
                .broadcasts
                .push(self.broadcast(&manager, &mut fleet, &name, idle_rate).await?);
        }
        for round in 0..self.rounds {
            let above = in_sync_epoch(&mut fleet)?;
            manager.kill9()?;
            let before = self.books(None, &fleet)?;
            manager = self.start(address, Start::default())?;
            scale
                .storms
                .push(self.storm(&manager, &mut fleet, above, before)?);
            std::thread::sleep(SETTLE / 3);
            let above = in_sync_epoch(&mut fleet)?;
            manager.kill9()?;
            let before = self.books(None, &fleet)?;
            let how = Start {
                alone: true,
                log_orders: round + 1 == self.rounds,
                ..Start::default()
            };
            manager = self.start(address, how)?;
            scale
                .storms_without_lease
                .push(self.storm(&manager, &mut fleet, above, before)?);
            std::thread::sleep(SETTLE / 3);
        }
        scale.single = self.single(&manager, &mut fleet, begun).await?;
        scale.load = meter::load();
        self.jobs.clear().await?;
        Ok(scale)
    }

    fn start<'a>(&'a self, address: SocketAddr, how: Start<'a>) -> Result<Manager> {
        let how = Start {
            flags: self.flags,
            ..how
        };
        Manager::start(self.bed, self.programs, address, how)
    }

    /// Seconds of processor time per second.
    fn idle_rate(&self, manager: &Manager) -> Result<f64> {
        let before = meter::cpu(manager.process()?)?;
        std::thread::sleep(IDLE);
        let after = meter::cpu(manager.process()?)?;
        Ok((after - before).as_secs_f64() / IDLE.as_secs_f64())
    }

    async fn broadcast(
        &self,
        manager: &Manager,
        fleet: &mut Fleet,
        name: &str,
        idle_rate: f64,
    ) -> Result<Broadcast> {
        let image = image(BROADCAST_PULL.0, BROADCAST_PULL.1, 0, name);
        let mark = Mark::now(&self.bed.cluster)?;
        let cpu_before = meter::cpu(manager.process()?)?;
        let (asked, _) = self
            .jobs
            .create(name, &image, json!({"parallelism": self.agents}))
            .await?;
        let orders = fleet.ask(&Request::Orders {
            image: image.clone(),
            count: self.agents,
            within_ms: millis_of(PATIENCE),
        })?;
        // Acknowledgements and first reports are on their way; no pull ends meanwhile.
        std::thread::sleep(QUIET);
        let used = |since: Duration| -> Result<f64> {
            let idle = idle_rate * millis(asked, stamp()) / 1e3;
            let used = (meter::cpu(manager.process()?)? - since).as_secs_f64() - idle;
            Ok(used * 1e6 / per(self.agents))
        };
        let cpu_us_per_order = used(cpu_before)?;
        let (succeeded, failed) = self.jobs.complete(name, PATIENCE).await?;
        let complete = millis(asked, stamp());
        fleet.ask(&Request::Idle {
            within_ms: millis_of(PATIENCE),
        })?;
        let cpu_us_per_task = used(cpu_before)?;
        if usize::try_from(succeeded + failed)? != self.agents {
            bail!("{succeeded} succeeded and {failed} failed of {}", self.agents);
        }
        // The log is written a little later than answered.
        std::thread::sleep(Duration::from_millis(500));
        let counters = Counters::since(&self.bed.cluster, mark)?;
        let writes = counters.api_writes("kruise-manager");
        let (first, last) = (first(&orders)?, last(&orders)?);
        let broadcast = Broadcast {
            first: millis(asked, first),
            last: millis(asked, last),
            span: millis(first, last),
            cpu_us_per_order,
            cpu_us_per_task,
            complete,
            manager_writes: writes.writes,
            agent_requests: counters.count(|request| request.agent.starts_with("kruise-daemon")),
            events: writes.events,
        };
        say(&format!("broadcast: {broadcast:?}"));
        Ok(broadcast)
    }

    fn books(&self, manager: Option<&Manager>, fleet: &Fleet) -> Result<Books> {
        let manager = manager.map(Manager::process).transpose()?;
        Books::read(manager, fleet.process()?, &self.bed.api()?)
    }

    fn storm(&self, manager: &Manager, fleet: &mut Fleet, above: u64, before: Books) -> Result<Storm> {
        let listens = manager.listens()?;
        let (leads, epoch) = manager.leads()?;
        let following = meter::cpu(manager.process()?)?;
        let answer = in_sync(fleet, above)?;
        let cpu = self.books(Some(manager), fleet)?.since(before);
        if answer.epochs != Some((epoch, epoch)) {
            bail!("agents follow {:?} and not {epoch}", answer.epochs);
        }
        let begin = listens.max(leads);
        let half = answer
            .stamps
            .get(answer.stamps.len() / 2)
            .copied()
            .unwrap_or_default();
        let storm = Storm {
            listens: millis(manager.started(), listens),
            leads: millis(manager.started(), leads),
            first: millis(begin, first(&answer)?),
            half: millis(begin, half),
            all: millis(begin, last(&answer)?),
            cpu,
            cpu_seconds_following: following.as_secs_f64(),
            peak: meter::memory(manager.process()?)?.peak,
            closed_early: manager.closed_early()?,
        };
        say(&format!("storm: {storm:?}"));
        Ok(storm)
    }

    async fn single(&self, manager: &Manager, fleet: &mut Fleet, run: Stamp) -> Result<Single> {
        let mut times = Vec::new();
        for number in 0..self.orders {
            let name = format!("single-{}-{number}-{}", self.agents, run % 1_000_000);
            let image = image(Duration::ZERO, Duration::ZERO, 0, &name);
            // Spread over all agents by a step that shares no factor with their number.
            let node = kruise_tests::fleet::nodes::node_name(number * 7919 % self.agents);
            let (asked, _) = self
                .jobs
                .create(
                    &name,
                    &image,
                    json!({"parallelism": 1, "selector": {"names": [node]}}),
                )
                .await?;
            let orders = fleet.ask(&Request::Orders {
                image,
                count: 1,
                within_ms: millis_of(PATIENCE),
            })?;
            times.push((name, asked, first(&orders)?));
            fleet.ask(&Request::Idle {
                within_ms: millis_of(PATIENCE),
            })?;
        }
        let decisions = manager.lines(": order job=");
        let decided = |name: &str| {
            let word = format!("/{name} ");
            decisions
                .iter()
                .find(|(_, line)| line.contains(&word))
                .map(|(at, _)| *at)
        };
        let mut from_decision = Vec::new();
        for (name, _, came) in &times {
            let at = decided(name).with_context(|| format!("the manager did not log the order of {name}"))?;
            from_decision.push(millis(at, *came));
        }
        let single = Single {
            from_decision: Spread::of(from_decision),
            from_request: Spread::of(
                times
                    .iter()
                    .map(|(_, asked, came)| millis(*asked, *came))
                    .collect(),
            ),
        };
        say(&format!("single: {single:?}"));
        Ok(single)
    }
}

/// Starts agents of a manager that has led, with the trust that it has published.
pub(super) fn fleet(bed: &Bed, programs: &Programs, manager: SocketAddr, targets: &Path) -> Result<Fleet> {
    agents(programs, &manager.to_string(), &bed.trust_bundle()?, targets)
}

/// Starts agents of the manager at an address.
pub(super) fn agents(programs: &Programs, manager: &str, ca: &Path, targets: &Path) -> Result<Fleet> {
    let arguments = [
        "agents".to_owned(),
        format!("--manager={manager}"),
        format!("--ca={}", ca.display()),
        format!("--targets={}", targets.display()),
    ];
    Ok(Fleet::start(&programs.fleet, &arguments)?.0)
}

pub(super) fn in_sync(fleet: &mut Fleet, above_epoch: u64) -> Result<Answer> {
    fleet.ask(&Request::InSync {
        above_epoch,
        within_ms: millis_of(PATIENCE),
    })
}

/// The epoch that agents follow now.
pub(super) fn in_sync_epoch(fleet: &mut Fleet) -> Result<u64> {
    let epochs = fleet.ask(&Request::State)?.epochs;
    epochs.map(|(_, highest)| highest).context("no agent is attached")
}

pub(super) fn first(answer: &Answer) -> Result<Stamp> {
    answer.stamps.first().copied().context("an answer without times")
}

pub(super) fn last(answer: &Answer) -> Result<Stamp> {
    answer.stamps.last().copied().context("an answer without times")
}

/// An address on loopback that nobody listens at.
pub(super) fn free_address() -> Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no free port")?;
    listener.local_addr().context("a listener has an address")
}

pub(super) fn millis_of(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "a number of agents")]
pub(super) fn per(count: usize) -> f64 {
    count.max(1) as f64
}

pub(super) fn say(text: &str) {
    eprintln!("  {text}");
}
