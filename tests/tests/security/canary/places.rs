//! Where secrets could be left lying about, and whether they are.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kruise_tests::cmd;
use kruise_tests::product::{NAMESPACE, Product, container_pid};

/// Folders of a node that are searched. The runtime's own are not ours to answer for.
const FOLDERS: [&str; 3] = ["/run", "/var/lib", "/var/log"];
const NOT_OURS: [&str; 2] = ["containerd", "cni"];
/// Nothing that is of interest is larger; images are.
const LARGEST: u64 = 256 << 20;

/// What was looked at and what was found.
#[derive(Default)]
pub(super) struct Report {
    places: usize,
    bytes: usize,
    /// Place and needle.
    pub(super) hits: Vec<(String, String)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} places, {} KiB searched, {} hits",
            self.places,
            self.bytes >> 10,
            self.hits.len()
        )?;
        self.hits
            .iter()
            .try_for_each(|(place, needle)| write!(f, "\n{place}: {needle}"))
    }
}

impl Report {
    fn look(&mut self, place: &str, bytes: &[u8], needles: &[String]) {
        self.places += 1;
        self.bytes += bytes.len();
        for needle in needles {
            if contains(bytes, needle.as_bytes()) {
                self.hits.push((place.to_owned(), needle.clone()));
            }
        }
    }
}

/// Whether some bytes are among others.
fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == needle[0]) {
        if rest[at..].starts_with(needle) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

pub(super) async fn search(product: &Product, needles: &[String]) -> Result<Report> {
    let mut report = Report::default();
    let agents = product.pods("daemon").await?;
    let mut in_logs = needles.to_vec();
    for pod in &agents {
        in_logs.push(signature_of(product, pod)?);
    }
    let pods: Vec<Pod> = [product.pods("controller-manager").await?, agents].concat();
    for pod in &pods {
        let name = pod.metadata.name.clone().unwrap_or_default();
        report.look(
            &format!("log of {name}"),
            product.logs(&name)?.as_bytes(),
            &in_logs,
        );
        let port = if name.contains("manager") { 8080 } else { 10221 };
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}:{port}/proxy/metrics");
        let metrics = product.cluster.kubectl(&["get", "--raw", &path])?;
        anyhow::ensure!(metrics.contains("kruise_"), "no metrics of {name}");
        report.look(&format!("metrics of {name}"), metrics.as_bytes(), needles);
        let process = format!("/proc/{}", pid(product, pod)?);
        for file in ["environ", "cmdline"] {
            report.look(
                &format!("{file} of {name}"),
                &fs::read(format!("{process}/{file}"))?,
                needles,
            );
        }
    }
    for kinds in [
        "events",
        "imagepulljobs",
        "leases",
        "configmaps",
        "pods",
        "daemonsets",
        "deployments",
    ] {
        let objects = product.cluster.kubectl(&["get", kinds, "-A", "-o", "json"])?;
        report.look(kinds, objects.as_bytes(), needles);
    }
    for node in product.cluster.nodes() {
        for folder in FOLDERS {
            folder_of(&mut report, &product.cluster.node_path(&node, folder)?, needles);
        }
    }
    sanity(product, needles)?;
    Ok(report)
}

/// The part of an agent's own token that makes it worth something.
fn signature_of(product: &Product, pod: &Pod) -> Result<String> {
    let file = format!("/proc/{}/root/var/run/kruise/token/token", pid(product, pod)?);
    let token = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    let signature = token.trim().rsplit('.').next().unwrap_or_default();
    anyhow::ensure!(signature.len() > 60, "{file} holds no token");
    Ok(signature.to_owned())
}

/// Every file below a folder, where it can be read.
fn folder_of(report: &mut Report, folder: &Path, needles: &[String]) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        let skip = NOT_OURS
            .iter()
            .any(|name| entry.file_name().to_string_lossy().contains(name));
        if kind.is_dir() && !skip {
            folder_of(report, &path, needles);
        } else if kind.is_file() && entry.metadata().is_ok_and(|meta| meta.len() < LARGEST) {
            // Files come and go while we look.
            if let Ok(bytes) = fs::read(&path) {
                report.look(&path.display().to_string(), &bytes, needles);
            }
        }
    }
}

/// That the search finds what is there: in the secret itself.
fn sanity(product: &Product, needles: &[String]) -> Result<()> {
    let mut report = Report::default();
    let text = format!("{{\"password\": \"{}\"}}", needles[1]);
    report.look("a copy", text.as_bytes(), needles);
    anyhow::ensure!(
        report.hits.len() == 1,
        "the search finds nothing in {}",
        product.namespace
    );
    Ok(())
}

fn pid(product: &Product, pod: &Pod) -> Result<i32> {
    let name = pod.metadata.name.as_deref().context("name")?;
    let node = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .context("node")?;
    let container = if name.contains("manager") {
        "manager"
    } else {
        "daemon"
    };
    container_pid(product, node, name, container)
}

/// That nobody of the same user can look into the memory of our processes, and that no core file would be written: the kernel gives the files of
/// such a process to root, and asks for more than the same user before anything is read from it.
pub(super) async fn processes_are_closed(product: &Product) -> Result<()> {
    // A process of root without any capability may look into another such process, unless that one is closed.
    let mut open = Command::new("setpriv")
        .args([
            "--inh-caps=-all",
            "--bounding-set=-all",
            "--no-new-privs",
            "sleep",
            "60",
        ])
        .spawn()
        .context("cannot run setpriv")?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    let control = can_read(i32::try_from(open.id())?);
    let _ = open.kill();
    let _ = open.wait();
    anyhow::ensure!(
        control?,
        "the reader without capabilities can read nothing at all"
    );
    for part in ["controller-manager", "daemon"] {
        for pod in product.pods(part).await? {
            let pid = pid(product, &pod)?;
            let owner = fs::metadata(PathBuf::from(format!("/proc/{pid}/environ")))?.uid();
            anyhow::ensure!(owner == 0, "files of process {pid} belong to user {owner}");
            anyhow::ensure!(
                !can_read(pid)?,
                "process {pid} of {part} is open to others of its user"
            );
        }
    }
    Ok(())
}

/// Whether root without capabilities can read a process' environment.
fn can_read(pid: i32) -> Result<bool> {
    let output = cmd::output(
        Command::new("setpriv")
            .args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "cat"])
            .arg(format!("/proc/{pid}/environ")),
    )?;
    Ok(output.status.success())
}
