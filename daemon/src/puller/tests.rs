//! The puller on a runtime that plays one, in stopped time.

mod ends;
mod life;
mod limits;
mod queue;
mod restart;
mod share;
mod space;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kruise_planner::node::reason::Code;
use kruise_planner::node::stall::Rules;
use kruise_planner::task::{Phase, Reason};
use kruise_proto::dispatch::{self, Credential, PullImage, pull_image};
use kruise_proto::task::TaskStatus;

use super::*;
use crate::runtime::LeaseId;
use crate::runtime::fake::{Event, Fake, Image};

const MIB: u64 = 1 << 20;
const RULES: Rules = Rules {
    min_rate: 64 << 10,
    timeout: Duration::from_secs(30),
};
const APP: &str = "reg:5000/app:1";

/// An agent's puller with its surroundings.
struct Bench {
    fake: Arc<Fake>,
    puller: Puller,
    link: watch::Sender<Link>,
    metrics: Arc<Metrics>,
    welcome: Welcome,
}

impl Bench {
    fn new(slots: Option<usize>) -> Self {
        Self::on(
            Fake::new(Clock::tokio()),
            slots,
            (Journal::none(), State::default()),
        )
    }

    fn with_journal(fake: &Arc<Fake>, directory: &Path) -> Self {
        Self::on(Arc::clone(fake), Some(3), Journal::open(directory))
    }

    fn on(fake: Arc<Fake>, slots: Option<usize>, memory: (Journal, State)) -> Self {
        let settings = Settings {
            slots,
            rules: RULES,
            ..Settings::default()
        };
        Self::with(fake, settings, memory)
    }

    fn with(fake: Arc<Fake>, settings: Settings, (journal, state): (Journal, State)) -> Self {
        let (link, watched) = watch::channel(fake.link());
        let metrics = Arc::new(Metrics::default());
        let deps = Deps {
            clock: Clock::tokio(),
            link: watched,
            journal,
            state,
            metrics: Arc::clone(&metrics),
        };
        let puller = Puller::spawn(settings, deps);
        Self {
            fake,
            puller,
            link,
            metrics,
            welcome: Welcome(1),
        }
    }

    /// Makes these the whole set.
    async fn order(&self, orders: &[Order]) {
        self.puller
            .replace(self.welcome, orders.to_vec())
            .await
            .expect("taken");
    }

    /// Changes the set.
    async fn change(&self, add: Vec<Order>, cancel: &[&str]) {
        let cancel = cancel.iter().map(|id| TaskId::from(*id)).collect();
        self.puller
            .change(self.welcome, add, cancel)
            .await
            .expect("taken");
    }

    /// Waits until a task is as wanted, for at most a day of played time.
    async fn until(&self, id: &str, wanted: impl Fn(&TaskStatus) -> bool) -> TaskStatus {
        let mut board = self.puller.board();
        let id = TaskId::from(id);
        let mut last = None;
        let wait = async {
            loop {
                if let Some(status) = board.borrow_and_update().0.get(&id) {
                    last = Some(Arc::clone(status));
                    if wanted(status) {
                        return status.as_ref().clone();
                    }
                }
                board.changed().await.expect("the engine runs");
            }
        };
        match tokio::time::timeout(Duration::from_secs(25 * 3600), wait).await {
            Ok(status) => status,
            Err(_) => panic!("never came; last {last:?}"),
        }
    }

    async fn end(&self, id: &str) -> TaskStatus {
        self.until(id, |status| phase(status).is_final()).await
    }

    fn status(&self, id: &str) -> Option<TaskStatus> {
        self.puller
            .board()
            .borrow()
            .0
            .get(&TaskId::from(id))
            .map(|status| status.as_ref().clone())
    }

    fn began(&self) -> Vec<(String, Option<LeaseId>)> {
        let began = |event| match event {
            Event::Began(image, lease) => Some((image, lease)),
            _ => None,
        };
        self.fake.events().into_iter().filter_map(began).collect()
    }

    /// Lets everything that is due happen.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn phase(status: &TaskStatus) -> Phase {
    kruise_proto::convert::phase_from_number(status.phase)
}

fn reason(status: &TaskStatus) -> Option<Reason> {
    kruise_proto::convert::reason_from_number(status.reason)
}

fn done(status: &TaskStatus) -> u64 {
    status.progress.unwrap_or_default().bytes_done
}

/// An image of `mib` MiB in layers of one, fetched at 1 MiB per second.
fn image(mib: usize) -> Image {
    Image {
        layers: vec![MIB; mib],
        rate: MIB,
        ..Image::default()
    }
}

fn failing(times: usize, text: &str) -> Image {
    Image {
        failures: vec![(Code::Other, text.to_owned()); times],
        ..image(1)
    }
}

fn pull(image: &str) -> PullImage {
    PullImage {
        image: image.into(),
        backoff_limit: 3,
        requested_by: "ns/job".into(),
        traceparent: String::new(),
        ..Default::default()
    }
}

fn order_of(id: &str, pull: PullImage) -> Order {
    dispatch::Order {
        task_id: id.into(),
        work: Some(dispatch::order::Work::PullImage(pull)),
    }
    .into()
}

fn order(id: &str, image: &str) -> Order {
    order_of(id, pull(image))
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn user(name: &str) -> Credential {
    Credential {
        username: name.into(),
        password: format!("secret-of-{name}"),
        ..Default::default()
    }
}
