//! The test bed tests itself: what tests of the product rely on, on a real cluster.
#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kruise_tests::audit::{Counters, Mark};
use kruise_tests::bed;
use kruise_tests::disk::SmallDisk;
use kruise_tests::events::Events;
use kruise_tests::net::{Direction, TcpProxy};
use kruise_tests::process::State;
use kruise_tests::registry::{Access, Compression, Fault, Front, ImageSpec, LayerSpec, Match};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kruise_tests::{Cluster, cluster};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A tag of this run: what an earlier one pulled may still be in the content store of a node.
fn run() -> String {
    std::process::id().to_string()
}

/// Pulls on a node and answers whether that worked.
async fn pull(cluster: &Cluster, node: &str, image: &str) -> Result<bool> {
    let (cluster, node, image) = (cluster.clone(), node.to_owned(), image.to_owned());
    tokio::task::spawn_blocking(move || {
        let output = cluster.node_output(&node, &["crictl", "pull", &image])?;
        Ok(output.status.success())
    })
    .await?
}

#[tokio::test]
async fn pods_run_find_services_by_name_and_have_their_nodes_own_folders() -> Result<()> {
    let cluster = bed::shared()?;
    let image = cluster
        .registry()
        .push(&ImageSpec::busybox("bed/busybox", "1"))
        .await?;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await?);
    // A name of this run: the container of an earlier one may take a moment to end.
    let name = format!("bed-pod-{}", run());
    let script = "nslookup kubernetes.default.svc.cluster.local && touch /agent/was-here && sleep 600";
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": "node2", "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": image.reference, "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "agent", "mountPath": "/agent"}],
            }],
            "volumes": [{"name": "agent", "hostPath": {"path": "/var/lib/kruise-daemon", "type": "Directory"}}],
        },
    }))?;
    let file = cluster.node_path("node2", "/var/lib/kruise-daemon/was-here")?;
    let _ = std::fs::remove_file(&file);
    pods.create(&PostParams::default(), &pod).await?;
    wait_for("the pod's file", Duration::from_secs(30), async || {
        if file.exists() {
            Ok(Seen::Done(()))
        } else {
            not_yet(format!("{:?}", pods.get(&name).await?.status))
        }
    })
    .await?;
    assert!(
        !cluster
            .node_path("node1", "/var/lib/kruise-daemon/was-here")?
            .exists()
    );
    wait_for("the pod to run", Duration::from_secs(10), async || {
        let phase = pods.get(&name).await?.status.and_then(|s| s.phase);
        if phase.as_deref() == Some("Running") {
            Ok(Seen::Done(()))
        } else {
            not_yet(format!("{phase:?}"))
        }
    })
    .await?;
    assert!(cluster.kubectl(&["logs", &name])?.contains("10.96.0.1"));
    assert_eq!(
        cluster.kubectl(&["exec", &name, "--", "echo", "hello"])?.trim(),
        "hello"
    );
    let process = cluster.process_of("node2", "default", &name, "main")?;
    assert!(process.pss()? > 0 && process.rss()? >= process.pss()?);
    pods.delete(&name, &DeleteParams::default()).await?;
    std::fs::remove_file(file)?;
    Ok(())
}

#[tokio::test]
async fn components_are_killed_paused_and_started_again() -> Result<()> {
    let cluster = bed::shared()?;
    let mut scheduler = cluster.component("scheduler")?;
    let first = scheduler.process();
    scheduler.pause()?;
    assert_eq!(cluster.component("scheduler")?.state(), State::Paused);
    scheduler.resume()?;
    assert!(scheduler.is_running());
    scheduler.kill9()?;
    assert_eq!(scheduler.state(), State::Gone);
    scheduler.start()?;
    assert!(scheduler.is_running() && scheduler.process() != first);
    scheduler.restart()?;
    assert!(cluster.component("scheduler")?.is_running());
    Ok(())
}

#[tokio::test]
async fn the_front_does_as_it_is_told() -> Result<()> {
    let cluster = bed::shared()?;
    let front = Front::start(&cluster).await?;
    // Each fault has an image of its own: damaged bytes that were kept fail the next pull of the same image.
    let faults = [
        (Match::manifests(), Fault::Status(503)),
        (Match::manifests(), Fault::Status(404)),
        (Match::manifests(), Fault::RetryAfter(429, 1)),
        (Match::manifests(), Fault::ResetAfter(0)),
        (Match::manifests(), Fault::RedirectLoop),
        (Match::manifests(), Fault::Truncate(100)),
        (Match::manifests(), Fault::Corrupt),
        (Match::blobs(), Fault::ResetAfter(100_000)),
        (Match::blobs(), Fault::Truncate(100_000)),
        (Match::blobs(), Fault::Corrupt),
    ];
    for (number, (on, fault)) in faults.into_iter().enumerate() {
        let name = format!("bed/fault-{number}");
        cluster
            .registry()
            .push(&ImageSpec::random(&name, &run(), 1, 1 << 20))
            .await?;
        let image = format!("{}/{name}:{}", front.host(), run());
        let rule = front
            .fault(on.containing(&name).node("node1"), fault.clone())
            .always();
        assert!(!pull(&cluster, "node1", &image).await?, "{fault:?}");
        assert!(rule.applied() > 0, "{fault:?}");
        rule.remove();
    }
    Ok(())
}

#[tokio::test]
async fn the_front_limits_and_logs_pulls() -> Result<()> {
    let cluster = bed::shared()?;
    let layers = [Compression::Gzip, Compression::Zstd, Compression::None];
    let seeds = u64::from(std::process::id()) * 10..;
    let spec = layers.into_iter().zip(seeds).fold(
        ImageSpec::new("bed/front", &run()),
        |image, (compression, seed)| image.layer(LayerSpec::random(1 << 20, seed).compression(compression)),
    );
    let pushed = cluster.registry().push(&spec).await?;
    let front = Front::start(&cluster).await?;
    let image = format!("{}/bed/front:{}", front.host(), run());
    front.limit_each(1 << 20);
    let began = Instant::now();
    assert!(pull(&cluster, "node1", &image).await?);
    let took = began.elapsed();
    assert!(
        took > Duration::from_millis(900),
        "limited to 1 MiB/s, but took {took:?}"
    );
    let log = front.log();
    let whole = |a: &Access| a.node.as_deref() == Some("node1") && a.ended.is_some() && a.fault.is_none();
    assert!(log.iter().all(whole), "{log:?}");
    let blobs: u64 = log.iter().filter(|a| a.is_blob()).map(|a| a.bytes).sum();
    assert_eq!(blobs, pushed.size());
    cluster.crictl("node1", &["rmi", &image]).map(drop)
}

#[tokio::test]
async fn requests_are_counted_from_the_audit_log() -> Result<()> {
    let cluster = bed::shared()?;
    let mark = Mark::now(&cluster)?;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client_as("kruise-audited/1").await?);
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "bed-audited"}}))?;
    maps.create(&PostParams::default(), &map).await?;
    maps.patch(
        "bed-audited",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"a": "b"}})),
    )
    .await?;
    maps.patch(
        "bed-audited",
        &PatchParams::default().dry_run(),
        &Patch::Merge(json!({"data": {"a": "c"}})),
    )
    .await?;
    maps.get("bed-audited").await?;
    maps.list(&Default::default()).await?;
    maps.delete("bed-audited", &DeleteParams::default()).await?;
    let counters = wait_for(
        "the last request in the log",
        Duration::from_secs(5),
        async || {
            let counters = Counters::since(&cluster, mark)?;
            match counters.api_writes("kruise-audited").writes {
                3 => Ok(Seen::Done(counters)),
                other => not_yet(other),
            }
        },
    )
    .await?;
    assert_eq!(counters.lists("kruise-audited")["configmaps"], 1);
    assert_eq!(counters.count(|r| r.agent == "kruise-audited/1"), 6);
    Ok(())
}

#[tokio::test]
async fn links_are_cut_and_narrowed() -> Result<()> {
    let cluster = bed::shared()?;
    let nodes = cluster.nodes();
    let last = nodes.last().expect("a cluster has a node");
    let ping =
        |node: &str| cluster.node_output(node, &["busybox", "ping", "-c", "1", "-W", "1", cluster::API_IP]);
    let alive = |node: &str| ping(node).is_ok_and(|output| output.status.success());
    assert!(alive(last));
    cluster.cut(last)?;
    assert!(!alive(last));
    cluster.heal(last)?;
    wait_for("the link to come back", Duration::from_secs(10), async || {
        if alive(last) {
            Ok(Seen::Done(()))
        } else {
            not_yet("dead")
        }
    })
    .await?;

    let pushed = cluster
        .registry()
        .push(&ImageSpec::random("bed/narrow", &run(), 1, 4 << 20))
        .await?;
    cluster.rate_limit(last, 16)?;
    let began = Instant::now();
    assert!(pull(&cluster, last, &pushed.reference).await?);
    let took = began.elapsed();
    cluster.unlimit(last)?;
    cluster.unlimit(last)?;
    assert!(
        took > Duration::from_millis(1500),
        "4 MiB at 16 Mbit/s took {took:?}"
    );
    cluster.crictl(last, &["rmi", &pushed.reference])?;
    Ok(())
}

#[tokio::test]
async fn the_runtimes_events_and_full_disks_are_seen() -> Result<()> {
    let cluster = bed::shared()?;
    let events = Events::subscribe(&cluster, "node2").await?;
    let pushed = cluster
        .registry()
        .push(&ImageSpec::random("bed/events", &run(), 1, 1 << 20))
        .await?;
    assert!(pull(&cluster, "node2", &pushed.reference).await?);
    events
        .wait("/images/create", "bed/events", Duration::from_secs(5))
        .await?;
    cluster.crictl("node2", &["rmi", &pushed.reference])?;
    events
        .wait("/images/delete", "bed/events", Duration::from_secs(5))
        .await?;

    let disk = SmallDisk::mount(
        &cluster,
        "node2",
        "/var/lib/containerd/io.containerd.content.v1.content/ingest",
        4 << 20,
    )?;
    disk.fill(64 << 10)?;
    assert!(disk.free()? <= 64 << 10);
    assert!(
        !pull(&cluster, "node2", &pushed.reference).await?,
        "there is no room for a layer"
    );
    disk.relieve()?;
    drop(disk);
    assert!(pull(&cluster, "node2", &pushed.reference).await?);
    cluster.crictl("node2", &["rmi", &pushed.reference]).map(drop)
}

#[tokio::test]
async fn the_proxy_delays_holds_and_resets() -> Result<()> {
    let cluster = bed::shared()?;
    // The registry is the server behind it; a node's network namespace is where clients are.
    let proxy = TcpProxy::start(&cluster, cluster::REGISTRY.parse()?)?;
    let netns = cluster::netns_file(&cluster.layout().node_namespace("node1"));
    let address = proxy.address();
    let stream = kruise_tests::net::in_namespace(&netns, || Ok(std::net::TcpStream::connect(address)?))?;
    stream.set_nonblocking(true)?;
    let mut stream = tokio::net::TcpStream::from_std(stream)?;
    let mut ask = async || -> Result<Duration> {
        let began = Instant::now();
        stream
            .write_all(b"GET /v2/ HTTP/1.1\r\nHost: bed\r\n\r\n")
            .await?;
        let mut buffer = [0; 4096];
        let length = tokio::time::timeout(Duration::from_secs(1), stream.read(&mut buffer)).await??;
        assert!(buffer[..length].starts_with(b"HTTP/1.1 200"), "{length}");
        Ok(began.elapsed())
    };
    assert!(ask().await? < Duration::from_millis(200));
    proxy.delay(Duration::from_millis(150));
    assert!(ask().await? >= Duration::from_millis(300));
    proxy.heal();
    proxy.cut(Direction::ToClient);
    assert!(ask().await.is_err(), "the answer is held");
    proxy.heal();
    // The held answer comes now, and then the one to this request.
    assert!(ask().await? < Duration::from_millis(200));
    proxy.reset_all();
    wait_for("the reset", Duration::from_secs(2), async || match ask().await {
        Err(_) => Ok(Seen::Done(())),
        Ok(_) => not_yet("still answered"),
    })
    .await
}

#[tokio::test]
async fn a_volume_made_by_hand_is_bound() -> Result<()> {
    let cluster = bed::shared()?;
    let delete = || {
        cluster.kubectl(&[
            "delete",
            "pvc/bed-claim",
            "pv/bed-volume",
            "--ignore-not-found",
            "--wait=false",
        ])
    };
    delete()?;
    wait_for("the old volume to be gone", Duration::from_secs(20), async || {
        let left = cluster.kubectl(&["get", "pv", "-o", "name"])?;
        if left.contains("bed-volume") {
            not_yet(left)
        } else {
            Ok(Seen::Done(()))
        }
    })
    .await?;
    cluster.make_pv("bed-volume", "1Gi", "node1").await?;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "bed-claim"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "bed-volume",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let claims: Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> =
        Api::default_namespaced(cluster.client().await?);
    claims
        .create(&PostParams::default(), &serde_json::from_value(claim)?)
        .await?;
    wait_for("the claim to be bound", Duration::from_secs(20), async || {
        let phase = claims.get("bed-claim").await?.status.and_then(|s| s.phase);
        if phase.as_deref() == Some("Bound") {
            Ok(Seen::Done(()))
        } else {
            not_yet(format!("{phase:?}"))
        }
    })
    .await?;
    delete().map(drop)
}
