//! Pulls by the socket, and the images that are there.

use kruise_proto::dispatch::{self, Credential};
use tonic::Code;
use tonic_types::StatusExt as _;

use super::*;
use crate::puller::Welcome;
use crate::runtime::fake::{Event, Fake, Image};

const APP: &str = "reg:5000/app:1";

/// A service whose puller and board are one, with a runtime that plays.
struct Machine {
    fake: Arc<Fake>,
    puller: Puller,
    _link: watch::Sender<Link>,
    client: NodeServiceClient<Channel>,
    _directory: tempfile::TempDir,
}

impl Machine {
    async fn new(slots: usize) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("agent.sock");
        let clock = Clock::tokio();
        let fake = Fake::new(clock.clone());
        let link = watch::Sender::new(fake.link());
        let deps = Deps {
            clock: clock.clone(),
            link: link.subscribe(),
            journal: Journal::none(),
            state: State::default(),
            metrics: Arc::new(Metrics::default()),
        };
        let settings = Settings {
            slots: Some(slots),
            ..Settings::default()
        };
        let puller = Puller::spawn(settings, deps);
        let sources = Sources {
            node_name: "node1".into(),
            clock,
            board: puller.board(),
            puller: puller.clone(),
            link: link.subscribe(),
            view: watch::Sender::new(View::default()).subscribe(),
        };
        let incoming = UnixListenerStream::new(socket::bind(&path).expect("bound"));
        let routes = routes(sources).await.expect("contracts");
        tokio::spawn(Server::builder().add_routes(routes).serve_with_incoming(incoming));
        Self {
            fake,
            puller,
            _link: link,
            client: NodeServiceClient::new(dial(&path).await),
            _directory: directory,
        }
    }

    fn image(&self, name: &str, layer: u64) {
        let image = Image {
            layers: vec![layer],
            rate: 10 << 20,
            ..Image::default()
        };
        self.fake.image(name, image);
    }

    async fn pull(&self, request: PullImageRequest) -> Result<tonic::Streaming<PullImageResponse>, Status> {
        Ok(self.client.clone().pull_image(request).await?.into_inner())
    }

    /// Waits until the board has so many tasks, and none that is not over if so wanted.
    async fn tasks(&self, count: usize) {
        let mut board = self.puller.board();
        let wait = board.wait_for(|board| board.0.len() == count);
        tokio::time::timeout(Duration::from_secs(20), wait)
            .await
            .expect("in time")
            .expect("runs");
    }

    async fn events(&self, wanted: impl Fn(&[Event]) -> bool) {
        for _ in 0..200 {
            if wanted(&self.fake.events()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{:?}", self.fake.events());
    }
}

fn of(image: &str) -> PullImageRequest {
    PullImageRequest {
        image: image.into(),
        ..PullImageRequest::default()
    }
}

async fn last(
    mut stream: tonic::Streaming<PullImageResponse>,
) -> (Option<task::TaskStatus>, Result<usize, Status>) {
    let (mut last, mut count) = (None, 0);
    loop {
        match stream.message().await {
            Ok(Some(response)) => {
                last = response.task;
                count += 1;
            }
            Ok(None) => return (last, Ok(count)),
            Err(status) => return (last, Err(status)),
        }
    }
}

fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|info| info.reason)
        .unwrap_or_default()
}

fn began(events: &[Event]) -> usize {
    events
        .iter()
        .filter(|event| matches!(event, Event::Began(..)))
        .count()
}

#[tokio::test]
async fn a_pull_tells_how_it_goes_and_is_forgotten() {
    let machine = Machine::new(1).await;
    machine.image(APP, 12 << 20);
    let stream = machine.pull(of(APP)).await.expect("taken");
    let (task, ended) = last(stream).await;
    let task = task.expect("told");
    assert_eq!(task.phase(), task::Phase::Succeeded);
    assert!(
        task.task_id.starts_with("local/") && !task.image_id.is_empty(),
        "{task:?}"
    );
    assert!(ended.expect("well") > 2, "progress on the way");
    machine.tasks(0).await;
    let (task, ended) = last(machine.pull(of(APP)).await.expect("taken")).await;
    assert!(task.expect("told").already_present && ended.is_ok());
    assert_eq!(began(&machine.fake.events()), 1);
}

#[tokio::test]
async fn a_pull_that_fails_ends_with_its_reason() {
    let machine = Machine::new(1).await;
    let (task, ended) = last(machine.pull(of("reg:5000/nowhere:1")).await.expect("taken")).await;
    assert_eq!(task.expect("told").phase(), task::Phase::Failed);
    let status = ended.expect_err("failed");
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::NotFound, "PULL_FAILED")
    );
    let info = status.get_details_error_info().expect("details");
    assert_eq!(
        (info.domain.as_str(), info.metadata["reason"].as_str()),
        ("kruise.io", "NotFound")
    );
    machine.tasks(0).await;
}

#[tokio::test]
async fn leaving_cancels_unless_somebody_else_wants_it() {
    let machine = Machine::new(2).await;
    machine.image(APP, 1 << 30);
    let first = machine.pull(of(APP)).await.expect("taken");
    let second = machine.pull(of(APP)).await.expect("taken");
    machine.tasks(2).await;
    machine.events(|events| began(events) == 1).await;
    drop(first);
    machine.tasks(1).await;
    assert!(
        !machine
            .fake
            .events()
            .iter()
            .any(|event| matches!(event, Event::Dropped(_)))
    );
    drop(second);
    machine.tasks(0).await;
    machine
        .events(|events| events.iter().any(|event| matches!(event, Event::Dropped(_))))
        .await;
    assert_eq!(machine.fake.most_running(), 1);
}

#[tokio::test]
async fn the_managers_tasks_and_callers_share_slots_and_calls_and_nothing_else() {
    let machine = Machine::new(1).await;
    machine.image(APP, 1 << 30);
    machine.image("reg:5000/other:1", 1 << 20);
    let pull = dispatch::PullImage {
        image: APP.into(),
        ..dispatch::PullImage::default()
    };
    let order = || dispatch::Order {
        task_id: "pull/x".into(),
        work: Some(dispatch::order::Work::PullImage(pull.clone())),
    };
    machine
        .puller
        .replace(Welcome(1), vec![order().into()])
        .await
        .expect("taken");
    let same = machine.pull(of(APP)).await.expect("taken");
    let other = machine.pull(of("reg:5000/other:1")).await.expect("taken");
    machine.tasks(3).await;
    machine.events(|events| began(events) == 1).await;
    // The manager wants nothing any more, and is then lost: callers here are served all the same.
    machine.puller.replace(Welcome(1), vec![]).await.expect("taken");
    machine.puller.suspend(Welcome(1)).await;
    machine.tasks(2).await;
    assert!(
        !machine
            .fake
            .events()
            .iter()
            .any(|event| matches!(event, Event::Dropped(_)))
    );
    drop(same);
    let (task, ended) = last(other).await;
    assert_eq!(task.expect("told").phase(), task::Phase::Succeeded, "{ended:?}");
    assert_eq!(machine.fake.most_running(), 1, "one slot for all");
    // No manager takes a caller's pull over.
    let _held = machine.pull(of(APP)).await.expect("taken");
    machine.tasks(1).await;
    let id = machine
        .puller
        .board()
        .borrow()
        .0
        .keys()
        .next()
        .cloned()
        .expect("held");
    let theft = dispatch::Order {
        task_id: id.as_str().into(),
        ..order()
    };
    assert!(
        machine
            .puller
            .replace(Welcome(2), vec![theft.into()])
            .await
            .is_err()
    );
    machine.puller.acknowledge(vec![id.clone()]).await;
    machine
        .puller
        .change(Welcome(2), vec![], vec![id])
        .await
        .expect("taken");
    machine.tasks(1).await;
}

#[tokio::test]
async fn what_is_out_of_bounds_is_refused() {
    let machine = Machine::new(1).await;
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let long = Credential {
        password: "x".repeat((16 << 10) + 1),
        ..Credential::default()
    };
    let cases = [
        (of("Not An Image"), "INVALID_REFERENCE"),
        (of(""), "INVALID_REFERENCE"),
        (of(&"a".repeat(1025)), "OUT_OF_BOUNDS"),
        (
            PullImageRequest {
                attempt_timeout: seconds(0),
                ..of(APP)
            },
            "OUT_OF_BOUNDS",
        ),
        (
            PullImageRequest {
                attempt_timeout: seconds(-5),
                ..of(APP)
            },
            "OUT_OF_BOUNDS",
        ),
        (
            PullImageRequest {
                deadline: seconds(25 * 3600),
                ..of(APP)
            },
            "OUT_OF_BOUNDS",
        ),
        (
            PullImageRequest {
                backoff_limit: 101,
                ..of(APP)
            },
            "OUT_OF_BOUNDS",
        ),
        (
            PullImageRequest {
                credentials: vec![Credential::default(); 17],
                ..of(APP)
            },
            "OUT_OF_BOUNDS",
        ),
        (
            PullImageRequest {
                credentials: vec![long],
                ..of(APP)
            },
            "OUT_OF_BOUNDS",
        ),
    ];
    for (request, want) in cases {
        let status = machine.pull(request).await.expect_err("refused");
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (Code::InvalidArgument, want),
            "{status:?}"
        );
    }
    machine.image(APP, 1 << 30);
    let mut held = Vec::new();
    for _ in 0..MAX_HERE {
        held.push(machine.pull(of(APP)).await.expect("taken"));
    }
    let status = machine.pull(of(APP)).await.expect_err("one too many");
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::ResourceExhausted, "TOO_MANY_CALLS")
    );
    assert!(status.get_details_retry_info().is_some());
    held.pop();
    machine.tasks(MAX_HERE - 1).await;
    assert!(machine.pull(of(APP)).await.is_ok());
}

#[tokio::test]
async fn images_are_listed_by_name() {
    let machine = Machine::new(1).await;
    let image = |tag: &str| node::Image {
        repo_tags: vec![tag.into()],
        ..node::Image::default()
    };
    machine.fake.machine.images(vec![image("b:1"), image("a:1")]);
    let images = machine
        .client
        .clone()
        .list_images(ListImagesRequest {})
        .await
        .expect("an answer")
        .into_inner()
        .images;
    assert_eq!(images, [image("a:1"), image("b:1")]);
    machine.fake.away(true);
    machine.fake.machine.away(true);
    let status = machine
        .client
        .clone()
        .list_images(ListImagesRequest {})
        .await
        .expect_err("away");
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::Unavailable, "RUNTIME_UNAVAILABLE")
    );
}
