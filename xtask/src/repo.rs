//! Where the repository is, and how cargo is called in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use kruise_tests::cmd;

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(PathBuf::new, Path::to_path_buf)
}

/// The cargo that runs us, in the repository, without what it says to the programs that it runs: some build scripts ask to be run again when that
/// changes, and ring, with all that uses it, would be built anew at each change between `cargo` and `cargo xtask`.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let about_us = [
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_CRATE_",
        "CARGO_BIN_",
        "CARGO_PRIMARY_",
    ];
    for (name, _) in std::env::vars_os() {
        let plain = name.to_string_lossy();
        if about_us.iter().any(|prefix| plain.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.current_dir(root());
    command
}

/// Cargo on the whole workspace with all features. Whatever is built for this machine is built so, because cargo chooses the features of a
/// library by what is asked for in one go, and would build it again for each other choice.
pub(crate) fn workspace(what: &str) -> Command {
    let mut command = cargo();
    command.args([what, "--workspace", "--all-features"]);
    command
}

/// Builds programs for this machine, unoptimised, and answers the folder that they are in.
pub(crate) fn build(programs: &[&str]) -> Result<PathBuf> {
    let mut build = workspace("build");
    build.arg("--quiet");
    for program in programs {
        build.args(["--bin", program]);
    }
    cmd::show(&mut build)?;
    Ok(target()?.join("debug"))
}

/// Cargo's folder for builds. We run from it, whatever the user set it to.
pub(crate) fn target() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("CARGO_TARGET_DIR") {
        return Ok(root().join(folder));
    }
    Ok(root().join("target"))
}

/// The name of this machine's target, such as `x86_64-unknown-linux-gnu`.
pub(crate) fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = cmd::run(Command::new(rustc).arg("-vV").current_dir(root()))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say what it builds for")?.to_owned())
}
