//! Rules of the tree that no compiler knows.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::MetadataCommand;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_path_buf()
}

/// Files that git knows or would add.
fn files() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    let text = String::from_utf8(output.stdout).expect("names are text");
    text.lines()
        .map(|line| root().join(line))
        .filter(|path| path.is_file())
        .collect()
}

fn rust_files() -> Vec<(PathBuf, String)> {
    files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter(|path| !path.components().any(|part| part.as_os_str() == "gen"))
        .map(|path| {
            let text = fs::read_to_string(&path).expect("readable");
            (path, text)
        })
        .collect()
}

/// What a crate reaches by ordinary dependencies, with its own features and nobody else's.
fn reached_by(name: &str) -> BTreeSet<String> {
    let output = Command::new("cargo")
        .args([
            "tree",
            "--package",
            name,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("names are text");
    text.lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn decisions_reach_no_runtime_and_no_client() {
    for member in ["kruise-api", "kruise-planner"] {
        let reached = reached_by(member);
        for banned in [
            "tokio",
            "kube-client",
            "kube-runtime",
            "tonic",
            "hyper",
            "rustls",
            "rand",
        ] {
            assert!(!reached.contains(banned), "{member} reaches {banned}");
        }
    }
}

#[test]
fn the_agent_reaches_no_kubernetes_client() {
    let reached = reached_by("kruise-daemon");
    for banned in ["kube-client", "kube-runtime"] {
        assert!(!reached.contains(banned), "kruise-daemon reaches {banned}");
    }
}

/// `cargo xtask setup` installs what other crates need to build, protoc among it, so xtask must build without.
#[test]
fn xtask_builds_before_anything_is_installed() {
    let reached = reached_by("xtask");
    for banned in ["containerd-client", "k8s-cri", "kruise-manager", "kruise-daemon"] {
        assert!(!reached.contains(banned), "xtask reaches {banned}");
    }
}

#[test]
fn there_is_one_of_each_big_library() {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .exec()
        .expect("metadata");
    for name in [
        "tonic",
        "hyper",
        "rustls",
        "prost",
        "tokio",
        "http",
        "kube-core",
        "k8s-openapi",
        "jiff",
    ] {
        let versions: BTreeSet<String> = metadata
            .packages
            .iter()
            .filter(|package| package.name.as_str() == name)
            .map(|package| package.version.to_string())
            .collect();
        assert!(versions.len() <= 1, "{name}: {versions:?}");
    }
    let banned = ["openssl", "native-tls", "aws-lc-rs"];
    let found: Vec<_> = metadata
        .packages
        .iter()
        .filter(|package| banned.contains(&package.name.as_str()))
        .collect();
    assert!(found.is_empty(), "{found:?}");
}

/// The licences that `deny.toml` allows, held against what cargo knows; needs no network and no other tool.
#[test]
fn every_licence_is_allowed() {
    let rules = fs::read_to_string(root().join("deny.toml")).expect("readable");
    let (_, list) = rules.split_once("allow = [").expect("a list of licences");
    let (list, _) = list.split_once(']').expect("its end");
    let allowed: BTreeSet<&str> = list.split('"').skip(1).step_by(2).collect();
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        // Only what is linked on the machines that the programs run on.
        .other_options([
            "--filter-platform".to_owned(),
            "x86_64-unknown-linux-gnu".to_owned(),
        ])
        .exec()
        .expect("metadata");
    let mut refused = Vec::new();
    for package in &metadata.packages {
        let text = package.license.clone().unwrap_or_default().replace('/', " OR ");
        let plain = text.replace(['(', ')'], " ");
        // One way to take it under allowed licences is enough. Brackets appear only around alternatives.
        let mut ways = plain.split(" OR ").map(|way| way.split(" AND ").map(str::trim));
        if !ways.any(|mut parts| parts.all(|part| allowed.contains(part))) {
            refused.push(format!("{} {:?}", package.name, package.license));
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn every_file_says_what_it_is_for() {
    let mut silent = Vec::new();
    for (path, text) in rust_files() {
        let is_test_child = path.ends_with("tests.rs") && text.len() < 200;
        let first = text.lines().find(|line| !line.is_empty()).unwrap_or_default();
        let inner_test = path.file_name().is_some_and(|name| name == "tests.rs");
        if !(first.starts_with("//!") || is_test_child || inner_test) {
            silent.push(path);
        }
    }
    assert!(silent.is_empty(), "without a module doc: {silent:#?}");
}

/// The test command names the files of integration tests that need no cluster; none may be forgotten.
#[test]
fn every_file_of_integration_tests_is_run() {
    let command = fs::read_to_string(root().join("xtask/src/test/mod.rs")).expect("readable");
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("metadata");
    for target in metadata.packages.iter().flat_map(|package| &package.targets) {
        if target.is_test() {
            assert!(
                command.contains(&format!("\"{}\"", target.name)),
                "{} is not run",
                target.name
            );
        }
    }
}

#[test]
fn files_stay_small_enough_to_hold_in_the_head() {
    for (path, text) in rust_files() {
        let lines = text.lines().count();
        assert!(lines <= 600, "{} has {lines} lines", path.display());
    }
}

#[test]
fn dependencies_live_in_the_workspace_table() {
    for path in files().into_iter().filter(|path| path.ends_with("Cargo.toml")) {
        let text = fs::read_to_string(&path).expect("readable");
        if text.contains("[workspace]") {
            continue;
        }
        let in_dependencies = |section: &str| section.ends_with("dependencies]");
        let mut section = "";
        for line in text.lines() {
            if line.starts_with('[') {
                section = line;
            } else if in_dependencies(section) && line.contains('=') && !line.trim_start().starts_with('#') {
                assert!(line.contains("workspace = true"), "{}: {line}", path.display());
            }
        }
    }
}

#[test]
fn nothing_is_left_for_later() {
    let words = ["TO", "FIX", "XX"].map(|half| {
        format!(
            "{half}{}",
            if half == "TO" {
                "DO"
            } else if half == "FIX" {
                "ME"
            } else {
                "X"
            }
        )
    });
    for (path, text) in rust_files() {
        for word in &words {
            assert!(
                !text.contains(word.as_str()),
                "{} contains {word}",
                path.display()
            );
        }
    }
}

#[test]
fn decisions_never_wait() {
    for (path, text) in rust_files() {
        let pure = ["api", "planner"]
            .iter()
            .any(|folder| path.starts_with(root().join(folder)));
        assert!(!(pure && text.contains(".await")), "{} waits", path.display());
    }
}
