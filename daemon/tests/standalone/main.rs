//! `kruise-daemon --standalone` as a program, on a containerd of its own, as on a machine without any cluster.
//!
//! Needs root and a containerd in the path; elsewhere there is nothing to test.

#![expect(
    clippy::print_stderr,
    clippy::panic,
    reason = "says why nothing was tested, or what did not happen"
)]

mod registry;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kruise_proto::node::node_service_client::NodeServiceClient;
use kruise_proto::node::{
    Contact, GetAgentRequest, GetAgentResponse, ListImagesRequest, ListTasksRequest, PullImageRequest,
    PullImageResponse,
};
use kruise_proto::task::{Phase, TaskStatus};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt as _;

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runtime and agent of one machine.
struct Machine {
    agent: Program,
    _containerd: Program,
    socket: PathBuf,
    directory: tempfile::TempDir,
}

fn start(command: &mut Command, log: &Path) -> Program {
    let log = std::fs::File::create(log).expect("a log");
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Program(command.spawn().expect("started"))
}

fn containerd(directory: &Path) -> Program {
    let path = |name: &str| directory.join(name).display().to_string();
    // Snapshots by copying work on every file system. Nothing runs here, so no network is needed.
    let config = format!(
        "version = 2\nroot = {:?}\nstate = {:?}\n[grpc]\naddress = {:?}\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"native\"\n",
        path("root"),
        path("state"),
        path("containerd.sock"),
    );
    std::fs::write(directory.join("config.toml"), config).expect("written");
    start(
        Command::new("containerd").args(["--config", &path("config.toml")]),
        &directory.join("containerd.log"),
    )
}

fn daemon(directory: &Path, socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kruise-daemon"));
    command.arg("--standalone").arg("--node-socket").arg(socket);
    command
        .arg("--socket-file")
        .arg(directory.join("containerd.sock"))
        .env_remove("NODE_NAME");
    command
}

/// None where this cannot be tried.
fn machine() -> Option<Machine> {
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root || Command::new("containerd").arg("--version").output().is_err() {
        eprintln!("not tested: this needs root and a containerd");
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let containerd = containerd(directory.path());
    let socket = directory.path().join("run/agent.sock");
    let agent = start(
        &mut daemon(directory.path(), &socket),
        &directory.path().join("agent.log"),
    );
    Some(Machine {
        agent,
        _containerd: containerd,
        socket,
        directory,
    })
}

async fn within<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not within a minute: {what}")
}

impl Machine {
    async fn client(&self) -> NodeServiceClient<Channel> {
        let endpoint =
            Endpoint::from_shared(format!("unix://{}", self.socket.display())).expect("an address");
        let channel = within("the agent listens", async || endpoint.connect().await.ok()).await;
        NodeServiceClient::new(channel)
    }
}

async fn agent(client: &mut NodeServiceClient<Channel>) -> GetAgentResponse {
    client
        .get_agent(GetAgentRequest {})
        .await
        .expect("an answer")
        .into_inner()
}

async fn pull(client: &mut NodeServiceClient<Channel>, image: String) -> Streaming<PullImageResponse> {
    let request = PullImageRequest {
        image,
        ..PullImageRequest::default()
    };
    client.pull_image(request).await.expect("taken").into_inner()
}

/// All states, and how the stream ended.
async fn all(mut stream: Streaming<PullImageResponse>) -> (Vec<TaskStatus>, Result<(), Status>) {
    let mut states = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(response)) => states.extend(response.task),
            Ok(None) => return (states, Ok(())),
            Err(status) => return (states, Err(status)),
        }
    }
}

#[tokio::test]
async fn one_machine_without_a_cluster() {
    let Some(mut machine) = machine() else { return };
    let registry = registry::serve().await;
    let mut client = machine.client().await;
    within("containerd is found", async || agent(&mut client).await.runtime).await;
    let seen = agent(&mut client).await;
    assert_eq!(seen.contact(), Contact::Standalone);
    assert!(!seen.node_name.is_empty() && seen.manager.is_empty(), "{seen:?}");
    let mode = std::fs::metadata(&machine.socket)
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let app = format!("{registry}/app:1");
    let (states, ended) = all(pull(&mut client, app.clone()).await).await;
    let last = states.last().expect("told").clone();
    assert!(ended.is_ok() && last.phase() == Phase::Succeeded, "{last:?}");
    let bytes: Vec<_> = states
        .iter()
        .filter_map(|state| state.progress)
        .map(|progress| (progress.bytes_done, progress.bytes_total))
        .collect();
    assert!(bytes.is_sorted_by_key(|(done, _)| *done), "{bytes:?}");
    assert!(
        bytes.iter().any(|(done, total)| *done > 0 && done < total),
        "seen on the way: {bytes:?}"
    );
    assert!(
        bytes
            .last()
            .is_some_and(|(done, total)| done == total && *total > 5 << 20),
        "{bytes:?}"
    );

    let images = client
        .list_images(ListImagesRequest {})
        .await
        .expect("an answer")
        .into_inner()
        .images;
    assert!(
        images
            .iter()
            .any(|image| image.repo_tags.contains(&app) && image.size_bytes > 5 << 20),
        "{images:?}"
    );
    let (states, _) = all(pull(&mut client, app).await).await;
    assert!(states.last().expect("told").already_present);

    let (_, ended) = all(pull(&mut client, format!("{registry}/app:nowhere")).await).await;
    let status = ended.expect_err("there is none");
    let info = status.get_details_error_info().expect("details");
    assert_eq!(
        (status.code(), info.metadata["reason"].as_str()),
        (Code::NotFound, "NotFound"),
        "{status:?}"
    );

    leave(&mut client, format!("{registry}/app:2")).await;
    another_agent_is_told_who_listens(&machine);
    stops_on_a_signal(&mut machine);
}

/// A caller that goes away leaves neither task nor image behind.
async fn leave(client: &mut NodeServiceClient<Channel>, image: String) {
    let mut stream = pull(client, image.clone()).await;
    loop {
        let task = stream
            .message()
            .await
            .expect("open")
            .expect("more")
            .task
            .expect("a task");
        if task
            .progress
            .is_some_and(|progress| progress.bytes_done > 1 << 20)
        {
            break;
        }
    }
    drop(stream);
    within("the task is gone", async || {
        let tasks = client
            .list_tasks(ListTasksRequest {})
            .await
            .expect("an answer")
            .into_inner()
            .tasks;
        tasks.is_empty().then_some(())
    })
    .await;
    let images = client
        .list_images(ListImagesRequest {})
        .await
        .expect("an answer")
        .into_inner()
        .images;
    assert!(
        !images.iter().any(|found| found.repo_tags.contains(&image)),
        "{images:?}"
    );
}

fn another_agent_is_told_who_listens(machine: &Machine) {
    let other = daemon(machine.directory.path(), &machine.socket)
        .output()
        .expect("ran");
    assert!(!other.status.success());
    let log = [other.stdout, other.stderr].concat();
    let log = String::from_utf8_lossy(&log);
    assert!(log.contains("another agent listens"), "{log}");
}

fn stops_on_a_signal(machine: &mut Machine) {
    let pid = machine.agent.0.id().to_string();
    let sent = Command::new("kill")
        .args(["-TERM", &pid])
        .status()
        .expect("a kill");
    assert!(sent.success());
    let status = machine.agent.0.wait().expect("it ended");
    let log = std::fs::read_to_string(machine.directory.path().join("agent.log")).unwrap_or_default();
    assert!(status.success(), "{status}: {log}");
}
