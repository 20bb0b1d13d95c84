use std::collections::BTreeMap;

use jiff::Timestamp;
use kruise_planner::node::attempt::{Limits, Tries};
use kruise_planner::node::guard::Guard;
use kruise_planner::task::{Progress, Reason};

use super::*;
use crate::puller::order::{Policy, Terms, Work};
use crate::puller::record::{End, Failed};

fn state() -> State {
    let work = Work {
        image: "reg:5000/app:1".into(),
        policy: Policy::Always,
        limits: Limits::new(None, 3, Some(Duration::from_secs(7))),
        labels: BTreeMap::from([("a".into(), "b".into())]),
        annotations: BTreeMap::new(),
        requested_by: "ns/job".into(),
        traceparent: String::new(),
        terms: Terms {
            priority: 100,
            queue_time: -1,
            max_size: 5,
            guard: Some(Guard::default()),
            pin_for: Some(Duration::from_secs(60)),
        },
    };
    let mut record = Record::new("pull/j/n/0/1".into(), work, Timestamp::UNIX_EPOCH);
    record.tries = Tries {
        begun: 2,
        counted: 1,
        broken: 0,
    };
    record.failure = Some(Failed {
        reason: Reason::Throttled,
        message: "slow down".into(),
    });
    record.end = Some(End {
        time: Timestamp::UNIX_EPOCH,
        image_id: Some("sha256:1".into()),
        already_present: false,
        progress: Progress {
            bytes_done: 5,
            bytes_total: 5,
            ..Progress::default()
        },
        pinned: Some(true),
    });
    State {
        highest_epoch: Epoch(7),
        tasks: vec![record],
        ..State::default()
    }
}

#[tokio::test]
async fn what_is_stored_is_found_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let nested = directory.path().join("a/b");
    let (mut journal, empty) = Journal::open(&nested);
    assert_eq!(empty, State::default());
    journal.store(&state()).await;
    journal.store(&state()).await;
    assert_eq!(Journal::open(&nested).1, state());
    let names: Vec<_> = fs::read_dir(&nested)
        .expect("readable")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, [FILE], "nothing is left beside it");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(nested.join(FILE)).expect("there").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_file_cut_anywhere_is_moved_aside() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(FILE);
    let text = serde_json::to_vec(&state()).expect("encodes");
    for cut in (0..text.len()).step_by(7) {
        fs::write(&path, &text[..cut]).expect("written");
        let (mut journal, found) = Journal::open(directory.path());
        assert_eq!(found, State::default(), "cut at {cut}");
        assert!(!path.exists());
        assert_eq!(
            fs::read(path.with_extension("json.broken")).expect("moved aside"),
            &text[..cut]
        );
        journal.store(&state()).await;
        assert_eq!(
            Journal::open(directory.path()).1,
            state(),
            "and the agent can write again"
        );
    }
}

#[tokio::test]
async fn a_half_written_successor_does_not_matter() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut journal, _) = Journal::open(directory.path());
    journal.store(&state()).await;
    fs::write(directory.path().join("state.json.new"), b"{\"vers").expect("written");
    assert_eq!(Journal::open(directory.path()).1, state());
}

#[tokio::test]
async fn other_forms_and_huge_files_are_not_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(FILE);
    let newer = State {
        version: 2,
        ..state()
    };
    fs::write(&path, serde_json::to_vec(&newer).expect("encodes")).expect("written");
    assert_eq!(Journal::open(directory.path()).1, State::default());
    File::create(&path)
        .and_then(|file| file.set_len(MAX_SIZE + 1))
        .expect("made");
    assert_eq!(Journal::open(directory.path()).1, State::default());
}

#[tokio::test]
async fn without_a_directory_the_agent_works_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, b"").expect("written");
    let (mut journal, empty) = Journal::open(&file);
    assert_eq!(empty, State::default());
    journal.store(&state()).await;
    let (mut gone, _) = Journal::open(&directory.path().join("gone"));
    fs::remove_dir(directory.path().join("gone")).expect("removed");
    gone.store(&state()).await;
    assert!(gone.failing);
}
