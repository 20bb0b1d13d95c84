//! Installing what a cluster needs: Debian packages, the Kubernetes binary, Go tools, the sandbox process.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::{CONTAINERD_2, GO_TOOLS, GoTool, KUBE_PROGRAMS, KUBERNETES, cache_dir};
use crate::cmd;

/// What must be there, and the Debian package that brings it. Presence is judged by the file, so that a
/// machine with another vendor's package of the same program is left as it is.
pub(super) const DEBIAN: [(&str, &str); 13] = [
    ("/usr/bin/containerd", "containerd"),
    ("/usr/sbin/runc", "runc"),
    ("/usr/bin/etcd", "etcd-server"),
    ("/usr/bin/docker-registry", "docker-registry"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("/usr/sbin/iptables", "iptables"),
    ("/usr/sbin/tc", "iproute2"),
    ("/usr/bin/nsenter", "util-linux"),
    ("/usr/bin/busybox", "busybox-static"),
    ("/usr/bin/protoc", "protobuf-compiler"),
    ("/usr/bin/promtool", "prometheus"),
    ("/usr/bin/cc", "gcc"),
    ("/usr/include/signal.h", "libc6-dev"),
];

/// Refuses to start a service after installation; Debian's package scripts ask it.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// What to install.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Also build the newer container runtime.
    pub containerd_2: bool,
}

/// Installs whatever is missing. With everything in place this only looks.
pub fn install(setup: Setup) -> Result<()> {
    debian_packages()?;
    let cache = cache_dir()?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    kube_binary()?;
    for tool in GO_TOOLS
        .iter()
        .chain(CONTAINERD_2.iter().filter(|_| setup.containerd_2))
    {
        go_tool(tool)?;
    }
    pause_binary()
}

fn debian_packages() -> Result<()> {
    let mut missing: Vec<_> = DEBIAN
        .iter()
        .filter(|(file, _)| !Path::new(file).exists())
        .map(|(_, package)| *package)
        .collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        bail!(
            "these Debian packages are missing and only root can install them: {0}\n\
             run `apt-get install --no-install-recommends {0}` as root, or this command as root",
            missing.join(" ")
        );
    }
    eprintln!("installing Debian packages: {}", missing.join(" "));
    let _quiet = NoAutostart::new()?;
    cmd::show(apt().arg("update"))?;
    cmd::show(
        apt()
            .args(["install", "--yes", "--no-install-recommends"])
            .args(&missing),
    )?;
    Ok(())
}

fn apt() -> Command {
    let mut apt = Command::new("apt-get");
    apt.arg("-qq")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("NEEDRESTART_SUSPEND", "1");
    apt
}

/// While it lives, packages install without starting their services. A policy that the machine already
/// has is left alone: it is the administrator's.
struct NoAutostart {
    ours: bool,
}

impl NoAutostart {
    fn new() -> Result<Self> {
        if Path::new(POLICY).exists() {
            return Ok(Self { ours: false });
        }
        fs::write(POLICY, "#!/bin/sh\nexit 101\n").with_context(|| format!("cannot write {POLICY}"))?;
        let this = Self { ours: true };
        fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755)).with_context(|| POLICY.to_owned())?;
        Ok(this)
    }
}

impl Drop for NoAutostart {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = fs::remove_file(POLICY)
        {
            eprintln!("cannot remove {POLICY}: {error}; packages will not start services until it is gone");
        }
    }
}

fn kube_binary() -> Result<()> {
    let target = super::kube_program("kube")?;
    build(
        &target,
        &format!("Kubernetes {KUBERNETES} (the first time takes minutes)"),
        |scratch| {
            let (major, minor) = KUBERNETES
                .split_once('.')
                .and_then(|(major, rest)| Some((major, rest.split_once('.')?.0)))
                .context("the Kubernetes version has three parts")?;
            let set = "-X k8s.io/component-base/version";
            let flags = format!(
                "-ldflags=-s -w {set}.gitVersion=v{KUBERNETES} {set}.gitMajor={major} {set}.gitMinor={minor}"
            );
            let out = scratch.join("kube");
            cmd::show(
                go()?
                    .current_dir(super::sources().join("kube"))
                    .args(["build", "-trimpath", &flags, "-o"])
                    .arg(&out)
                    .arg("."),
            )?;
            Ok(out)
        },
    )?;
    for program in KUBE_PROGRAMS {
        let link = super::kube_program(program)?;
        if fs::read_link(&link).is_err() {
            symlink("kube", &link).with_context(|| format!("cannot link {}", link.display()))?;
        }
    }
    Ok(())
}

fn go_tool(tool: &GoTool) -> Result<()> {
    build(
        &tool.path()?,
        &format!("{} {}", tool.program, tool.version),
        |scratch| {
            cmd::show(
                go()?
                    .env("GOBIN", scratch)
                    .args(["install", "-trimpath", "-ldflags=-s -w"])
                    .arg(format!("{}@v{}", tool.package, tool.version)),
            )?;
            Ok(scratch.join(tool.program))
        },
    )
}

fn pause_binary() -> Result<()> {
    build(&super::pause_program()?, "the sandbox process", |scratch| {
        let out = scratch.join("pause");
        let source = super::sources().join("pause.c");
        cmd::show(
            Command::new("cc")
                .args(["-static", "-Os", "-s", "-o"])
                .arg(&out)
                .arg(source),
        )?;
        Ok(out)
    })
}

/// Builds in a scratch folder beside the target and moves the result into place when it is whole.
fn build(target: &Path, what: &str, make: impl FnOnce(&Path) -> Result<PathBuf>) -> Result<()> {
    if target.exists() {
        return Ok(());
    }
    let folder = target.parent().context("a build lives in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let scratch = tempfile::tempdir_in(folder).context("cannot create a scratch folder")?;
    eprintln!("building {what} ...");
    let begun = Instant::now();
    let made = make(scratch.path()).with_context(|| format!("cannot build {what}"))?;
    fs::rename(&made, target).with_context(|| format!("cannot move {} into place", target.display()))?;
    eprintln!("built {} in {:.0?}", target.display(), begun.elapsed());
    Ok(())
}

fn go() -> Result<Command> {
    let version = Command::new("go").arg("version").output();
    if !version.is_ok_and(|v| v.status.success()) {
        bail!("Go is needed to build the cluster's programs and `go` was not found; see https://go.dev/dl");
    }
    let mut go = Command::new("go");
    go.env("CGO_ENABLED", "0");
    Ok(go)
}
