//! The puller on a real containerd: that bytes are true, and that a pull that was cut off goes on where it stopped.
//!
//! Needs a socket and an image that takes some seconds to fetch, given by KRUISE_TEST_CONTAINERD and KRUISE_TEST_IMAGE; without
//! them there is nothing to test. Several images, separated by spaces, with what each must end with, such as
//! `reg:5000/nope:1=NotFound`, are given by KRUISE_TEST_REASONS; an image of which the registry spoils a layer the first time that
//! it is asked for it, by KRUISE_TEST_SPOILT; and a command that kills and restarts the runtime, by KRUISE_TEST_RESTART.
//! Tests that each need an image of their own take it from KRUISE_TEST_SLOW, such as `reg:5000/slow-{}:1`, where `{}` becomes the
//! name of the test: images of 30 MB or more that come at 4 MB per second or so.

#![expect(
    clippy::print_stdout,
    reason = "what a pull looked like is what these tests are run for"
)]

use std::sync::Arc;
use std::time::Duration;

use kruise_api::ids::TaskId;
use kruise_api::reference::ImageRef;
use kruise_daemon::clock::Clock;
use kruise_daemon::journal::{Journal, State};
use kruise_daemon::metrics::Metrics;
use kruise_daemon::puller::order::Order;
use kruise_daemon::puller::{Deps, Puller, Settings, Welcome};
use kruise_daemon::runtime::cri::Cri;
use kruise_daemon::runtime::{Link, Runtime};
use kruise_planner::node::stall::Rules;
use kruise_planner::task::{Phase, Reason};
use kruise_proto::dispatch::{self, PullImage};
use kruise_proto::{convert, task};
use tokio::sync::watch;
use tokio::time::Instant;

struct Node {
    puller: Puller,
    _link: watch::Sender<Link>,
}

async fn start(socket: &str, journal: (Journal, State)) -> Node {
    let (cri, info) = Cri::connect(socket).await.expect("a container runtime");
    let runtime: Arc<dyn Runtime> = Arc::new(cri);
    let (sender, link) = watch::channel(Link::Up {
        runtime,
        info,
        disk: None,
    });
    let rules = Rules {
        min_rate: 65_536,
        timeout: Duration::from_secs(30),
    };
    let settings = Settings {
        slots: Some(3),
        rules,
        ..Settings::default()
    };
    let (journal, state) = journal;
    let deps = Deps {
        clock: Clock::boot(),
        link,
        journal,
        state,
        metrics: Arc::new(Metrics::default()),
    };
    Node {
        puller: Puller::spawn(settings, deps),
        _link: sender,
    }
}

fn order(id: &str, image: &str, backoff_limit: u32) -> Order {
    let pull = PullImage {
        image: image.into(),
        backoff_limit,
        ..Default::default()
    };
    dispatch::Order {
        task_id: id.into(),
        work: Some(dispatch::order::Work::PullImage(pull)),
    }
    .into()
}

/// Waits for a state of the task, and prints how it gets there.
async fn until(puller: &Puller, id: &str, wanted: impl Fn(&task::TaskStatus) -> bool) -> task::TaskStatus {
    let mut board = puller.board();
    let begin = Instant::now();
    let id = TaskId::from(id);
    let wait = async {
        loop {
            if let Some(status) = board.borrow_and_update().0.get(&id) {
                let progress = status.progress.unwrap_or_default();
                println!(
                    "{:5.1} s {:?} {}/{} B {} B/s layers {}/{} attempt {} {}",
                    begin.elapsed().as_secs_f32(),
                    convert::phase_from_number(status.phase),
                    progress.bytes_done,
                    progress.bytes_total,
                    progress.bytes_per_second,
                    progress.layers_done,
                    progress.layers_total,
                    status.attempts,
                    status.message,
                );
                if wanted(status) || ended(status) {
                    return status.as_ref().clone();
                }
            }
            board.changed().await.expect("the engine runs");
        }
    };
    tokio::time::timeout(Duration::from_secs(180), wait)
        .await
        .expect("in time")
}

fn ended(status: &task::TaskStatus) -> bool {
    convert::phase_from_number(status.phase).is_final()
}

#[tokio::test]
async fn a_pull_that_was_cut_off_goes_on() {
    let (Ok(socket), Ok(image)) = (
        std::env::var("KRUISE_TEST_CONTAINERD"),
        std::env::var("KRUISE_TEST_IMAGE"),
    ) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let node = start(&socket, Journal::open(directory.path())).await;
    node.puller
        .replace(Welcome(1), vec![order("t", &image, 0)])
        .await
        .expect("taken");
    let half = |status: &task::TaskStatus| {
        let progress = status.progress.unwrap_or_default();
        progress.bytes_total > 0 && progress.bytes_done * 2 > progress.bytes_total
    };
    let before = until(&node.puller, "t", half).await.progress.expect("known");
    // As a crash does it: the call breaks off, nothing is tidied up.
    node.puller.stop().await;
    drop(node);
    tokio::time::sleep(Duration::from_secs(3)).await;

    let node = start(&socket, Journal::open(directory.path())).await;
    let begin = Instant::now();
    node.puller
        .replace(Welcome(1), vec![order("t", &image, 0)])
        .await
        .expect("taken");
    let first = until(&node.puller, "t", |status| {
        status.progress.unwrap_or_default().bytes_total > 0
    })
    .await;
    let resumed = first.progress.expect("known").bytes_done;
    println!("cut off at {} B, goes on at {resumed} B", before.bytes_done);
    assert!(
        resumed * 10 >= before.bytes_done * 9,
        "{resumed} of {}",
        before.bytes_done
    );
    let last = until(&node.puller, "t", ended).await;
    println!(
        "done {:.1} s after the restart: {last:?}",
        begin.elapsed().as_secs_f32()
    );
    assert_eq!(convert::phase_from_number(last.phase), Phase::Succeeded);
    let progress = last.progress.expect("known");
    assert_eq!(progress.bytes_done, progress.bytes_total);
    assert!(!last.already_present && last.image_id.starts_with("sha256:"));
    let (cri, _) = Cri::connect(&socket).await.expect("a container runtime");
    let reference = ImageRef::parse(&image).expect("an image");
    assert!(cri.image(&reference).await.expect("an answer").is_some());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let leases = cri
        .content()
        .expect("containerd")
        .leases()
        .await
        .expect("an answer");
    assert!(leases.is_empty(), "{leases:?}");
}

#[tokio::test]
async fn failures_have_their_reasons() {
    let (Ok(socket), Ok(cases)) = (
        std::env::var("KRUISE_TEST_CONTAINERD"),
        std::env::var("KRUISE_TEST_REASONS"),
    ) else {
        return;
    };
    let node = start(&socket, (Journal::none(), State::default())).await;
    let mut wrong = Vec::new();
    for case in cases.split_whitespace() {
        let (image, want) = case.split_once('=').expect("IMAGE=REASON");
        node.puller
            .replace(Welcome(1), vec![order(image, image, 0)])
            .await
            .expect("taken");
        let last = until(&node.puller, image, ended).await;
        let reason = convert::reason_from_number(last.reason);
        println!("{image}: {reason:?}: {}", last.message);
        if reason.map(|reason: Reason| reason.to_string()).as_deref() != Some(want) {
            wrong.push(format!("{image}: {reason:?}, not {want}: {}", last.message));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn a_layer_that_came_spoilt_is_fetched_again() {
    let (Ok(socket), Ok(image)) = (
        std::env::var("KRUISE_TEST_CONTAINERD"),
        std::env::var("KRUISE_TEST_SPOILT"),
    ) else {
        return;
    };
    let node = start(&socket, (Journal::none(), State::default())).await;
    node.puller
        .replace(Welcome(1), vec![order("spoilt", &image, 2)])
        .await
        .expect("taken");
    let last = until(&node.puller, "spoilt", ended).await;
    assert_eq!(
        convert::phase_from_number(last.phase),
        Phase::Succeeded,
        "{last:?}"
    );
    assert_eq!(last.attempts, 2);
}

#[tokio::test]
async fn a_runtime_that_is_killed_costs_no_bytes() {
    let (Ok(socket), Ok(image), Ok(restart)) = (
        std::env::var("KRUISE_TEST_CONTAINERD"),
        std::env::var("KRUISE_TEST_IMAGE"),
        std::env::var("KRUISE_TEST_RESTART"),
    ) else {
        return;
    };
    let node = start(&socket, (Journal::none(), State::default())).await;
    node.puller
        .replace(Welcome(1), vec![order("killed", &image, 0)])
        .await
        .expect("taken");
    let half = |status: &task::TaskStatus| {
        let progress = status.progress.unwrap_or_default();
        progress.bytes_total > 0 && progress.bytes_done * 2 > progress.bytes_total
    };
    until(&node.puller, "killed", half).await;
    let killed = std::process::Command::new("sh")
        .args(["-c", &restart])
        .status()
        .expect("a shell");
    assert!(killed.success());
    let last = until(&node.puller, "killed", ended).await;
    println!("{last:?}");
    assert_eq!(convert::phase_from_number(last.phase), Phase::Succeeded);
    assert_eq!(last.attempts, 2, "no try is wasted on a runtime that is away");
}

/// The image of one test, if there are any.
fn slow(test: &str) -> Option<(String, String)> {
    let socket = std::env::var("KRUISE_TEST_CONTAINERD").ok()?;
    let image = std::env::var("KRUISE_TEST_SLOW").ok()?;
    Some((socket, image.replace("{}", test)))
}

fn order_of(id: &str, pull: PullImage) -> Order {
    dispatch::Order {
        task_id: id.into(),
        work: Some(dispatch::order::Work::PullImage(pull)),
    }
    .into()
}

async fn leases(socket: &str) -> usize {
    let (cri, _) = Cri::connect(socket).await.expect("a container runtime");
    let content = cri.content().expect("containerd");
    content.leases().await.expect("an answer").len()
}

#[tokio::test]
async fn a_download_longer_than_its_own_time_out_succeeds() {
    let Some((socket, image)) = slow("timeout") else {
        return;
    };
    let node = start(&socket, (Journal::none(), State::default())).await;
    let pull = PullImage {
        image,
        backoff_limit: 0,
        attempt_timeout: Some(prost_types::Duration { seconds: 3, nanos: 0 }),
        ..Default::default()
    };
    let begin = Instant::now();
    let orders = vec![order_of("timeout", pull)];
    node.puller.replace(Welcome(1), orders).await.expect("taken");
    let last = until(&node.puller, "timeout", ended).await;
    println!(
        "done in {:.1} s, {} attempts of 3 s",
        begin.elapsed().as_secs_f32(),
        last.attempts
    );
    assert_eq!(
        convert::phase_from_number(last.phase),
        Phase::Succeeded,
        "{last:?}"
    );
    assert!(last.attempts > 1);
    let progress = last.progress.expect("known");
    assert_eq!(progress.bytes_done, progress.bytes_total);
}

#[tokio::test]
async fn one_of_two_who_share_a_pull_is_cancelled() {
    let Some((socket, image)) = slow("share") else {
        return;
    };
    let node = start(&socket, (Journal::none(), State::default())).await;
    let orders = vec![order("a", &image, 0), order("b", &image, 0)];
    node.puller.replace(Welcome(1), orders).await.expect("taken");
    let some = |status: &task::TaskStatus| status.progress.unwrap_or_default().bytes_done > 5_000_000;
    until(&node.puller, "b", some).await;
    let cancel = vec![TaskId::from("a")];
    node.puller
        .change(Welcome(1), Vec::new(), cancel)
        .await
        .expect("taken");
    let last = until(&node.puller, "b", ended).await;
    assert_eq!(
        (convert::phase_from_number(last.phase), last.attempts),
        (Phase::Succeeded, 1)
    );
}

#[tokio::test]
async fn an_image_that_is_too_large_leaves_nothing() {
    let Some((socket, image)) = slow("large") else {
        return;
    };
    let node = start(&socket, (Journal::none(), State::default())).await;
    let pull = PullImage {
        image: image.clone(),
        max_size_bytes: 1_000_000,
        ..Default::default()
    };
    let begin = Instant::now();
    let orders = vec![order_of("large", pull)];
    node.puller.replace(Welcome(1), orders).await.expect("taken");
    let last = until(&node.puller, "large", ended).await;
    println!(
        "refused after {:.2} s: {}",
        begin.elapsed().as_secs_f32(),
        last.message
    );
    assert_eq!(convert::reason_from_number(last.reason), Some(Reason::TooLarge));
    assert!(last.bytes_fetched < 5_000_000, "{last:?}");
    let (cri, _) = Cri::connect(&socket).await.expect("a container runtime");
    let reference = ImageRef::parse(&image).expect("an image");
    assert_eq!(cri.image(&reference).await.expect("an answer"), None);
}

#[tokio::test]
async fn an_image_is_pinned_and_let_go() {
    let Some((socket, image)) = slow("pin") else {
        return;
    };
    let (cri, info) = Cri::connect(&socket).await.expect("a container runtime");
    let node = start(&socket, (Journal::none(), State::default())).await;
    let pull = PullImage {
        image: image.clone(),
        pin_for: Some(prost_types::Duration { seconds: 3, nanos: 0 }),
        ..Default::default()
    };
    let orders = vec![order_of("pin", pull)];
    node.puller.replace(Welcome(1), orders).await.expect("taken");
    let last = until(&node.puller, "pin", ended).await;
    assert_eq!(
        convert::phase_from_number(last.phase),
        Phase::Succeeded,
        "{last:?}"
    );
    println!("{} {}: {:?}", info.name, info.version, last.pin());
    let content = cri.content().expect("containerd");
    let now = || Clock::boot().now_wall();
    if last.pin() == task::Pin::Pinned {
        // What the kubelet sees of it: it asks for the very label.
        assert!(pinned(&socket, &image).await, "the runtime says so itself");
        let later = async {
            while pinned(&socket, &image).await {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), later)
            .await
            .expect("let go when its time is over");
    } else {
        assert!(!pinned(&socket, &image).await);
    }
    assert_eq!(content.unpin(now()).await.expect("an answer"), None);
    let gone = async {
        while leases(&socket).await > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone)
        .await
        .expect("the lease ends with the task");
}

/// Whether CRI calls the image pinned.
async fn pinned(socket: &str, image: &str) -> bool {
    use k8s_cri::v1::image_service_client::ImageServiceClient;
    use k8s_cri::v1::{ImageSpec, ImageStatusRequest};

    let channel = tonic::transport::Endpoint::from_shared(format!("unix://{socket}"))
        .expect("an address")
        .connect()
        .await
        .expect("a connection");
    let request = ImageStatusRequest {
        image: Some(ImageSpec {
            image: image.to_owned(),
            ..Default::default()
        }),
        verbose: false,
    };
    let answer = ImageServiceClient::new(channel).image_status(request).await;
    let found = answer.expect("an answer").into_inner().image;
    found.expect("it is there").pinned
}
