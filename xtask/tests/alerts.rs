//! Alert rules as Prometheus' own tool reads and runs them.
//!
//! `cargo xtask setup` installs promtool; without it this says so and passes.

#![allow(clippy::print_stderr, reason = "a test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const PROMTOOL: &str = "/usr/bin/promtool";

#[test]
fn each_alert_is_accepted_and_goes_off_when_it_is_to_and_only_then() {
    if !Path::new(PROMTOOL).exists() {
        eprintln!("skipped: there is no {PROMTOOL}; run `cargo xtask setup`");
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (rules, cases) = (
        here.join("../deploy/chart/files/monitoring/rules.yaml"),
        here.join("tests/alerts/cases.yaml"),
    );
    promtool(&["check", "rules"], &rules);
    promtool(&["test", "rules"], &cases);
    let read = |path: &Path| -> Value {
        serde_norway::from_str(&std::fs::read_to_string(path).expect("readable")).expect("YAML")
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (rules, cases) = (read(&rules), read(&cases));
    let all: BTreeSet<String> = list(&rules["groups"][0]["rules"])
        .iter()
        .map(|rule| rule["alert"].as_str().expect("a name").to_owned())
        .collect();
    let (mut fired, mut quiet) = (BTreeSet::new(), BTreeSet::new());
    for case in list(&cases["tests"])
        .iter()
        .flat_map(|test| list(&test["alert_rule_test"]))
    {
        let name = case["alertname"].as_str().expect("a name").to_owned();
        if list(&case["exp_alerts"]).is_empty() {
            quiet.insert(name);
        } else {
            fired.insert(name);
        }
    }
    assert_eq!(fired, all, "each goes off in a case");
    assert_eq!(quiet, all, "each is quiet in a case");
}

fn promtool(words: &[&str], file: &Path) {
    let output = Command::new(PROMTOOL)
        .args(words)
        .arg(file)
        .output()
        .expect("promtool runs");
    let (out, error) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.status.success(), "{words:?}: {out}{error}");
}
