//! Revisions: which one is wanted, and which ones go.

use serde_json::json;

use super::line::{line, rolling};
use super::world::{World, template, told};
use crate::cloneset::*;

/// Image of the template, images of the revisions that exist (oldest first), and what is done about revisions.
pub(super) fn cases() -> Vec<(&'static str, &'static str, Vec<&'static str>, Vec<&'static str>)> {
    vec![
        ("the first one", "app:1", vec![], vec!["CreateRevision"]),
        ("the newest is wanted", "app:2", vec!["app:1", "app:2"], vec![]),
        (
            "a new template",
            "app:3",
            vec!["app:1", "app:2"],
            vec!["CreateRevision"],
        ),
        (
            "an older one again",
            "app:1",
            vec!["app:1", "app:2"],
            vec!["PatchRevision"],
        ),
        (
            "the oldest of three again",
            "app:1",
            vec!["app:1", "app:2", "app:3"],
            vec!["PatchRevision"],
        ),
    ]
}

fn with_revisions(images: &[&str]) -> World {
    let mut world = World::settled(rolling(0, json!({})));
    world.play.revisions.clear();
    for image in images {
        world.play.set.spec.template = template(image);
        world.step();
    }
    world
}

fn revision_writes(plan: &CloneSetPlan) -> Vec<String> {
    told(plan)
        .into_iter()
        .filter(|told| told.contains("Revision"))
        .collect()
}

#[test]
fn which_revision() {
    for (name, image, known, does) in cases() {
        let mut world = with_revisions(&known);
        world.play.set.spec.template = template(image);
        let plan = world.plan();
        let kinds: Vec<String> = revision_writes(&plan)
            .iter()
            .map(|told| told.split_whitespace().next().unwrap().to_owned())
            .collect();
        assert_eq!(kinds, does, "{name}");
        world.settle();
        let newest = world
            .play
            .revisions
            .iter()
            .max_by_key(|revision| revision.number)
            .unwrap();
        assert_eq!(newest.name, plan.update_revision, "{name}");
    }
}

#[test]
fn a_name_with_other_data_raises_the_collision_count() {
    let mut world = with_revisions(&["app:1"]);
    world.play.set.spec.template = template("app:2");
    let name = world.plan().update_revision;
    let mut stranger = world.play.revisions[0].clone();
    stranger.name.clone_from(&name);
    stranger.controller = Some("other".to_owned());
    world.play.revisions.push(stranger);
    let plan = world.plan();
    assert_ne!(plan.update_revision, name);
    assert_eq!(plan.status.collision_count, Some(1));
}

#[test]
fn old_revisions_go_beyond_the_limit() {
    let images: Vec<String> = (0..8).map(|index| format!("app:{index}")).collect();
    let images: Vec<&str> = images.iter().map(String::as_str).collect();
    let mut world = with_revisions(&images);
    world.play.set.spec.revision_history_limit = Some(2);
    // One pod still runs the oldest revision.
    line(&mut world, "o");
    let plan = world.plan();
    let gone: Vec<String> = revision_writes(&plan);
    let names: Vec<String> = world
        .play
        .revisions
        .iter()
        .map(|revision| revision.name.clone())
        .collect();
    let wanted: Vec<String> = names[1..5]
        .iter()
        .map(|name| format!("DeleteRevision {name}"))
        .collect();
    assert_eq!(gone, wanted);
}

#[test]
fn an_unknown_current_revision_is_the_update_revision() {
    let mut world = World::new(rolling(1, json!({})));
    world.play.set.status.as_mut().unwrap().current_revision = "web-gone".to_owned();
    let plan = world.plan();
    assert_eq!(plan.current_revision, plan.update_revision);
}

#[test]
fn another_claim_template_alone_starts_nothing() {
    let mut world = World::settled(rolling(2, json!({})));
    line(&mut world, "n n");
    world.settle();
    world.play.set.spec.volume_claim_templates = Some(json!([{"metadata": {"name": "data"}, "spec": {}}]));
    assert!(world.plan().actions.is_empty());
}

#[test]
fn another_claim_template_forces_recreation_with_the_gate() {
    for (gate, does) in [
        (false, "UpdateInPlace web-p00 Updating"),
        (true, "Recreate web-p00"),
    ] {
        let mut world = World::new(rolling(2, json!({})));
        world.play.gates.recreate_on_claim_change = gate;
        for (index, hash) in ["1", "2"].iter().enumerate() {
            let annotations = &mut world.play.revisions[index].annotations;
            annotations.insert(
                "kruise.io/cloneset-volumeclaimtemplate-hash".to_owned(),
                (*hash).to_owned(),
            );
        }
        line(&mut world, "o o");
        assert_eq!(told(&world.plan()), [does]);
    }
}
