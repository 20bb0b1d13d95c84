//! When results are written, and when agents may forget them.

use kruise_proto::task::{Phase, Reason};
use serde_json::json;

use super::world::*;
use crate::engine::event::{Event, JobWrite};
use crate::engine::objects::Listing;
use crate::engine::ports::ApiFailure;

fn unsure() -> ApiFailure {
    ApiFailure::Unsure {
        detail: "500".into(),
        retry_after: None,
    }
}

/// One node by one, all of its results reported, the completing write under way.
fn about_to_complete() -> World {
    let mut world = World::new(1, &json!({}));
    world.attach("node1");
    world.finish_writes();
    world.report("node1", Phase::Succeeded);
    assert_eq!(world.writes.len(), 1);
    world
}

#[test]
fn two_results_one_write() {
    let mut world = World::new(8, &json!({"parallelism": 8}));
    for i in 1..=8 {
        world.attach(&format!("node{i}"));
    }
    world.finish_writes();
    world.pass_alive(10);
    world.report("node1", Phase::Succeeded);
    assert!(world.writes.is_empty());
    world.report("node2", Phase::Succeeded);
    world.report("node3", Phase::Succeeded);
    assert_eq!(world.writes.len(), 1, "one at a time");
    world.finish_write();
    assert_eq!(world.status().succeeded, 2);
    assert!(
        world.told("node3").saved.is_empty(),
        "the third came after the write had begun"
    );
    world.pass_alive(30);
    world.finish_writes();
    assert_eq!(world.status().succeeded, 3);
    assert_eq!(world.told("node3").saved.len(), 1);
}

#[test]
fn a_conflict_reads_the_object_and_writes_again() {
    let mut world = about_to_complete();
    world.edit_unseen("a", |job| job.spec.parallelism = None);
    world.finish_write();
    assert!(world.told("node1").saved.is_empty());
    assert!(world.writes.is_empty(), "not before the read");
    world.finish_fetch();
    world.finish_write();
    assert_eq!(world.status().succeeded, 1);
    assert_eq!(world.told("node1").saved.len(), 1);
}

#[test]
fn a_write_that_was_done_and_not_answered_is_found_by_the_watch() {
    let mut world = about_to_complete();
    let (uid, write) = world.writes.front().cloned().expect("a write");
    world.apply_write(&uid, &write).expect("done");
    world.fail_write(unsure());
    assert!(world.told("node1").saved.is_empty());
    world.watch("a");
    assert_eq!(world.told("node1").saved.len(), 1);
    world.pass_alive(10);
    assert!(world.writes.is_empty(), "it is complete");
}

#[test]
fn a_write_that_was_not_done_is_done_after_a_pause() {
    let mut world = about_to_complete();
    world.fail_write(unsure());
    assert!(world.writes.is_empty());
    world.pass_alive(1);
    assert_eq!(world.writes.len(), 1);
    world.fail_write(ApiFailure::Unsure {
        detail: "429".into(),
        retry_after: Some(std::time::Duration::from_secs(20)),
    });
    world.pass_alive(19);
    assert!(world.writes.is_empty(), "the server asked for 20 s");
    world.pass_alive(1);
    world.finish_write();
    assert_eq!(world.told("node1").saved.len(), 1);
}

#[test]
fn the_watch_may_lag_behind_our_own_writes() {
    let mut world = World::new(2, &json!({}));
    let old = world.job("a").clone();
    world.attach("node1");
    world.attach("node2");
    world.finish_writes();
    world.fail("node1", Reason::Denied);
    world.finish_writes();
    assert_eq!(world.status().failed, 1);
    world.event(Event::Jobs(Listing::Applied(old.clone())));
    assert_eq!(world.pulling(), ["node2"], "the old version is not believed");
    assert!(world.fetches.is_empty());
    world.pass_alive(5);
    world.event(Event::Jobs(Listing::Applied(old)));
    world.finish_fetch();
    assert_eq!(world.pulling(), ["node2"]);
}

#[test]
fn a_job_that_is_gone_is_found_out_by_the_write() {
    let mut world = about_to_complete();
    world.jobs.clear();
    world.finish_write();
    world.finish_fetch();
    assert!(world.state.summaries(&Default::default()).is_empty());
    assert!(world.orders("node1").is_empty());
}

#[test]
fn a_job_made_again_under_its_name_is_another_job() {
    let mut world = World::new(1, &json!({}));
    world.attach("node1");
    let mut again = world.job("a").clone();
    again.uid = "second".into();
    again.version = "99".into();
    world.event(Event::Jobs(Listing::Applied(again)));
    assert!(world.orders("node1")[0].starts_with("pull/second/"));
    assert_eq!(world.told("node1").cancels.len(), 1);
}

#[test]
fn the_time_to_live_deletes_once() {
    let mut world = World::new(
        1,
        &json!({"completionPolicy": {"type": "Always", "ttlSecondsAfterFinished": 10}}),
    );
    world.attach("node1");
    world.report("node1", Phase::Succeeded);
    world.finish_writes();
    world.pass_alive(9);
    assert!(world.writes.is_empty());
    world.pass_alive(1);
    assert_eq!(
        world.writes.pop_front().map(|(_, write)| write),
        Some(JobWrite::Delete)
    );
    world.event(Event::Written {
        job: "uid-a".into(),
        result: Ok(None),
    });
    world.pass_alive(5);
    assert!(world.writes.is_empty(), "the watch has yet to tell");
    world.delete("a");
    world.pass_alive(60);
    assert!(world.writes.is_empty());
}

#[test]
fn the_finalizer_of_openkruise_is_taken_off() {
    let mut world = World::new(1, &json!({}));
    world.finish_writes();
    world.edit("a", |job| {
        job.finalizers = vec!["other".into(), "apps.kruise.io/deletion-protection".into()];
        job.deleting = true;
    });
    world.finish_write();
    assert_eq!(world.job("a").finalizers, ["other"]);
    assert!(world.writes.is_empty());
}

#[test]
fn patches_hold_only_what_changed() {
    let mut world = about_to_complete();
    let (_, write) = world.writes.front().expect("a write");
    let JobWrite::Status { patch, .. } = write else {
        panic!("a status")
    };
    let keys: Vec<_> = patch
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    assert!(
        !keys.contains(&"startTime") && keys.contains(&"completionTime"),
        "{keys:?}"
    );
    world.finish_writes();
}

#[test]
fn a_read_that_the_watch_has_overtaken_is_made_again() {
    let mut world = World::new(1, &json!({"parallelism": 0}));
    world.attach("node1");
    world.fail_write(ApiFailure::Conflict);
    let old = world.job("a").clone();
    world.edit("a", |job| {
        job.spec.parallelism = serde_json::from_value(json!(1)).expect("a number");
    });
    let uid = world.fetches.pop_front().expect("a read");
    world.event(Event::Fetched {
        job: uid,
        result: Ok(Some(old)),
    });
    assert_eq!(world.orders("node1").len(), 1, "what the watch told stays");
    world.finish_fetch();
    world.finish_writes();
    assert_eq!(world.status().observed_generation, Some(2));
}
