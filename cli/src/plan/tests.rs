//! Files in, plan out.

use clap::Parser as _;
use serde_json::Value;

use super::*;
use crate::args::{Cli, Command};

const OBJECTS: &str = include_str!("../../../docs/examples/cloneset-rollout.yaml");
const DOCUMENT: &str = include_str!("../../../docs/cloneset.md");

fn plan_of(text: &str, words: &[&str]) -> Result<String> {
    let line = [&["kruisectl", "plan", "--now", "2026-01-31T12:00:00Z"], words].concat();
    let Command::Plan(args) = Cli::parse_from(line).command else {
        panic!("another command");
    };
    let gates = gates(&args.feature_gates)?;
    let mut objects = objects::from_values(&documents::parse(text)?)?;
    for set in &mut objects.sets {
        objects::edit(set, &args.edits)?;
    }
    told(&objects, gates, args.now.unwrap(), &args)
}

/// The example of the documents, explained.
pub(crate) fn example() -> ExplainCloneSetResponse {
    let objects = objects::from_values(&documents::parse(OBJECTS).unwrap()).unwrap();
    let now = "2026-01-31T12:00:00Z".parse().unwrap();
    explained(&objects.sets[0], &objects, now)
}

fn json(text: &str, words: &[&str]) -> Value {
    serde_json::from_str(&plan_of(text, &[words, &["-o", "json"]].concat()).unwrap()).unwrap()
}

#[test]
fn the_documents_show_what_the_example_gives() {
    for (words, head) in [
        (&[][..], "kruisectl plan -f"),
        (&["--until-settled"], "--until-settled"),
    ] {
        let text = plan_of(OBJECTS, words).unwrap();
        let shown = DOCUMENT.contains(text.trim_end());
        assert!(shown, "docs/cloneset.md does not show this below {head}:\n{text}");
    }
}

#[test]
fn the_schema_is_the_promised_one() {
    let plan = json(OBJECTS, &[]);
    let keys: Vec<&str> = plan.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "actions",
            "cloneSet",
            "currentRevision",
            "namespace",
            "numbers",
            "status",
            "updateRevision",
            "waiting",
            "wakeAfterSeconds"
        ]
    );
    let numbers: Vec<&str> = plan["numbers"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        numbers,
        [
            "deleteReadyLimit",
            "scaleDownNum",
            "scaleDownNumOldRevision",
            "scaleUpLimit",
            "scaleUpNum",
            "scaleUpNumOldRevision",
            "updateMaxUnavailable",
            "updateNum",
            "useSurge",
            "useSurgeOldRevision"
        ]
    );
    assert_eq!(plan["actions"][0]["type"], "UpdateInPlace");
    assert_eq!(plan["actions"][0]["revision"], plan["updateRevision"]);
    assert_eq!(plan["waiting"][0]["reason"], "MaxUnavailable");
    assert_eq!(plan["status"]["updatedReplicas"], 1);
    assert!(plan["wakeAfterSeconds"].is_null());
}

#[test]
fn the_order_of_the_objects_does_not_matter() {
    let mut documents: Vec<&str> = OBJECTS.split("\n---\n").collect();
    documents.reverse();
    assert_eq!(json(&documents.join("\n---\n"), &[]), json(OBJECTS, &[]));
}

#[test]
fn another_image_is_another_revision() {
    let plan = json(OBJECTS, &["--set", "image=registry.example.com/web:3"]);
    assert_eq!(plan["actions"][0]["type"], "CreateRevision");
    assert_eq!(plan["numbers"]["updateNum"], 4);
    assert!(plan_of(OBJECTS, &["--set", "sidecar=x:1"]).is_err());
    assert!(plan_of(OBJECTS, &["--set", "image"]).is_err());
}

#[test]
fn a_play_ends_settled() {
    let play = json(OBJECTS, &["--until-settled"]);
    assert_eq!(play["settled"], true);
    let last = play["steps"].as_array().unwrap().last().unwrap();
    assert_eq!(last["status"]["updatedAvailableReplicas"], 4);
    assert_eq!(last["actions"], serde_json::json!([]));
}

#[test]
fn mistakes_are_told() {
    for (text, words, says) in [
        ("kind: CloneSet\nmetadata: 5\n", &[][..], "not readable"),
        ("metadata: {name: x}\n", &[], "object x has no kind"),
        (OBJECTS, &["--feature-gates", "Nonsense=true"], "Nonsense"),
    ] {
        let error = plan_of(text, words).unwrap_err();
        assert!(crate::exit::chain(&error).contains(says), "{error:#}");
    }
    assert!(objects::set_name("deployment/x").is_err());
    assert_eq!(objects::set_name("clone/x").unwrap(), "x");
}
