//! The agents of a fleet.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kruise_api::names::MANAGER_SERVER_NAME;
use kruise_daemon::agent::{Agent, Parts};
use kruise_daemon::clock::Clock;
use kruise_daemon::journal::{Journal, State};
use kruise_daemon::metrics::Metrics;
use kruise_daemon::puller::Settings;
use kruise_daemon::puller::board::Board;
use kruise_daemon::session::transport::{Bytes, Transport};
use kruise_daemon::session::trust::Secret;
use kruise_daemon::session::{Config, View};
use kruise_planner::node::stall::Rules;
use kruise_proto::node::Contact;
use tokio::net::TcpSocket;
use tokio::sync::watch;

use super::control::{Answer, Request, Stamp, Target, stamp};
use super::runtime::{Book, Scripted};

/// What agents dial first, as in a cluster.
const SERVICE: &str = "kruise-manager.kruise-system.svc:9877";
/// How often conditions are looked at: the resolution of times that are not stamped where they happen.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a fleet is made from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Address of the manager.
    pub manager: SocketAddr,
    /// Trust bundle, PEM.
    pub ca: String,
    /// Seed of everything that is played.
    pub seed: u64,
    /// First dials are spread over so long.
    pub ramp: Duration,
}

/// Running agents. Dropping it cuts them off.
#[derive(Debug)]
pub struct Agents {
    members: Vec<Member>,
    book: Arc<Book>,
}

#[derive(Debug)]
struct Member {
    view: watch::Receiver<View>,
    board: watch::Receiver<Board>,
    /// Keeps the runtime up.
    _link: watch::Sender<kruise_daemon::runtime::Link>,
}

impl Member {
    /// Whether the agent has taken the whole set of a leader with a higher epoch.
    fn in_sync(&self, above: u64) -> bool {
        let view = self.view.borrow();
        view.contact == Contact::Attached && view.epoch > above && view.generation > 0
    }
}

impl Agents {
    /// Starts an agent for each target.
    #[must_use]
    pub fn start(plan: &Plan, targets: Vec<Target>) -> Self {
        let book = Book::new(plan.seed);
        let metrics = Arc::new(Metrics::default());
        let count = u32::try_from(targets.len()).unwrap_or(u32::MAX).max(1);
        let members = targets
            .into_iter()
            .zip(0_u32..)
            .map(|(target, number)| {
                let wait = plan.ramp * number / count;
                member(plan, target, number, wait, &book, &metrics)
            })
            .collect();
        Self { members, book }
    }

    /// Answers one question.
    pub async fn answer(&self, request: Request) -> Answer {
        let until = |millis| Instant::now() + Duration::from_millis(millis);
        let stamps = match request {
            Request::InSync {
                above_epoch,
                within_ms,
            } => self.in_sync(above_epoch, until(within_ms)).await,
            Request::Orders {
                image,
                count,
                within_ms,
            } => self.orders(&image, count, until(within_ms)).await,
            Request::Stops { count, within_ms } => self.stops(count, until(within_ms)).await,
            Request::Idle { within_ms } => self.idle(until(within_ms)).await,
            Request::State => Ok(Vec::new()),
            Request::Broadcast { .. } => Err("agents do not give orders".to_owned()),
        };
        let answer = self.state();
        match stamps {
            Ok(stamps) => Answer { stamps, ..answer },
            Err(problem) => Answer {
                problem: Some(problem),
                ..answer
            },
        }
    }

    async fn in_sync(&self, above: u64, until: Instant) -> Result<Vec<Stamp>, String> {
        let mut waiting: Vec<&Member> = self.members.iter().collect();
        let mut stamps = Vec::with_capacity(waiting.len());
        loop {
            let before = waiting.len();
            waiting.retain(|member| !member.in_sync(above));
            let now = stamp();
            stamps.extend(std::iter::repeat_n(now, before - waiting.len()));
            if waiting.is_empty() {
                return Ok(stamps);
            }
            if Instant::now() >= until {
                return Err(format!("{} agents are not in sync", waiting.len()));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn orders(&self, image: &str, count: usize, until: Instant) -> Result<Vec<Stamp>, String> {
        loop {
            if let Some(stamps) = self.book.orders(image, count) {
                return Ok(stamps);
            }
            if Instant::now() >= until {
                return Err(format!("{} of {count} orders came", self.book.count(image)));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn stops(&self, count: usize, until: Instant) -> Result<Vec<Stamp>, String> {
        loop {
            let stamps = self.book.stops.all();
            if stamps.len() >= count {
                return Ok(stamps);
            }
            if Instant::now() >= until {
                return Err(format!("{} of {count} containers were stopped", stamps.len()));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn idle(&self, until: Instant) -> Result<Vec<Stamp>, String> {
        loop {
            let tasks = self.tasks();
            if tasks == 0 {
                return Ok(vec![stamp()]);
            }
            if Instant::now() >= until {
                return Err(format!("{tasks} tasks are still held"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn tasks(&self) -> usize {
        self.members
            .iter()
            .map(|member| member.board.borrow().0.len())
            .sum()
    }

    fn state(&self) -> Answer {
        let mut answer = Answer {
            tasks: self.tasks(),
            ..Answer::default()
        };
        for member in &self.members {
            let view = member.view.borrow();
            if view.contact == Contact::Attached {
                answer.attached += 1;
                let (lowest, highest) = answer.epochs.unwrap_or((view.epoch, view.epoch));
                answer.epochs = Some((lowest.min(view.epoch), highest.max(view.epoch)));
            } else {
                *answer.errors.entry(view.last_error.clone()).or_default() += 1;
            }
        }
        answer
    }
}

fn member(
    plan: &Plan,
    target: Target,
    number: u32,
    wait: Duration,
    book: &Arc<Book>,
    metrics: &Arc<Metrics>,
) -> Member {
    let config = Config {
        node_name: target.node,
        boot_id: format!("{number:032x}"),
        manager: SERVICE.to_owned(),
        server_name: MANAGER_SERVER_NAME.to_owned(),
        ca: Secret::Text(plan.ca.clone()),
        token: Secret::Text(target.token),
        max_workers: 3,
    };
    let settings = Settings {
        slots: Some(3),
        rules: Rules {
            min_rate: 0,
            timeout: Duration::from_secs(30),
        },
        ..Settings::default()
    };
    let (sender, link) = watch::channel(Scripted::link(number as usize, book));
    let parts = Parts {
        clock: Clock::boot(),
        link,
        journal: (Journal::none(), State::default()),
        transport: Arc::new(From {
            source: address_of(number),
            service: plan.manager,
        }),
        metrics: Arc::clone(metrics),
    };
    let agent = Agent::new(config, settings, parts);
    let member = Member {
        view: agent.view(),
        board: agent.puller().board(),
        _link: sender,
    };
    tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        agent.run().await.context("an agent has ended")
    });
    member
}

/// Every agent has its own address, as in a cluster: there are 28,000 ports to each.
fn address_of(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 0)) + number)
}

/// Plain TCP from an address. The name of the manager's Service leads to the one manager that there is.
#[derive(Clone, Copy, Debug)]
struct From {
    source: Ipv4Addr,
    service: SocketAddr,
}

impl Transport for From {
    fn open(&self, address: String) -> BoxFuture<'static, io::Result<Box<dyn Bytes>>> {
        let Self { source, service } = *self;
        async move {
            let target = if address == SERVICE {
                service
            } else {
                address.parse().map_err(io::Error::other)?
            };
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddrV4::new(source, 0).into())?;
            let stream = socket.connect(target).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Bytes>)
        }
        .boxed()
    }
}
