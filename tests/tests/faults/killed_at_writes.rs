//! A manager that ends right before or right after one of its writes, at the real API server with real kubelets: whoever comes next finishes the rollout,
//! no pod is changed twice, none too many is made or taken away, and hooks are asked as they must.
//!
//! The managers of the cluster are away meanwhile. One of this test's own leads in their place, built to end where it is told.

use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kruise_tests::audit::{Counters, Mark};
use kruise_tests::cluster::REGISTRY;
use kruise_tests::product::{NAMESPACE, Product, Set, Witness, push_idle_image};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::bad_objects::rules::Rules;
use crate::managers_away::{no_manager, scale};
use crate::{managers, rounds};

const PATIENCE: Duration = Duration::from_secs(120);
const STATE: &str = "lifecycle.apps.kruise.io/state";
/// Held by the hooks of the test's sets.
const HOOK: &str = "example.com/hook";
/// Resources whose writes a manager counts until it ends.
const COUNTED: [&str; 5] = [
    "clonesets",
    "pods",
    "controllerrevisions",
    "persistentvolumeclaims",
    "imagepulljobs",
];

/// A way to update, with what must hold at every moment.
struct Way {
    name: &'static str,
    strategy: fn() -> Value,
    /// Pods that may be missing, and that may be too many.
    missing: usize,
    surplus: usize,
    in_place: bool,
    /// Boundaries that are tried in the normal run.
    tries: usize,
}

const WAYS: [Way; 3] = [
    Way {
        name: "in-place",
        strategy: || json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1}),
        missing: 1,
        surplus: 0,
        in_place: true,
        tries: 4,
    },
    Way {
        name: "recreate",
        strategy: || json!({"podUpdatePolicy": "ReCreate", "maxUnavailable": 1}),
        missing: 1,
        surplus: 0,
        in_place: false,
        tries: 2,
    },
    Way {
        name: "surge",
        strategy: || json!({"podUpdatePolicy": "ReCreate", "maxUnavailable": 0, "maxSurge": 1}),
        missing: 0,
        surplus: 1,
        in_place: false,
        tries: 2,
    },
];

/// A manager of the test's own. Killed when dropped.
struct Own {
    child: Child,
}

impl Drop for Own {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Everything that a manager is started with.
struct Start<'a> {
    folder: &'a tempfile::TempDir,
}

impl Start<'_> {
    fn prepare<'a>(product: &Product, folder: &'a tempfile::TempDir) -> Result<Start<'a>> {
        let words = [
            "create",
            "token",
            "kruise-manager",
            "-n",
            NAMESPACE,
            "--duration",
            "6h",
        ];
        let token = product.cluster.kubectl(&words)?;
        let server = format!("https://127.0.0.1:{}", product.cluster.description().api_port);
        let authority = product.cluster.layout().pki("ca.crt");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "own",
            "clusters": [{"name": "own", "cluster": {"server": server, "certificate-authority": authority}}],
            "users": [{"name": "own", "user": {"token": token.trim()}}],
            "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}],
        });
        std::fs::write(folder.path().join("config"), config.to_string())?;
        Ok(Start { folder })
    }

    fn manager(&self, crash: Option<&str>) -> Result<Own> {
        let programs = std::env::current_exe()?;
        let programs = programs.ancestors().nth(2).context("a folder of programs")?;
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.folder.path().join("log"))?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new(programs.join("kruise-manager"))
            .args([
                &format!("--grpc-addr=127.0.0.1:{port}"),
                "--metrics-addr=0",
                "--health-probe-addr=0",
                "--port=0",
                "--enable-leader-election=false",
                "--feature-gates=InPlacePullGate=false",
            ])
            .env_clear()
            .env("KUBECONFIG", self.folder.path().join("config"))
            .envs([
                ("POD_NAME", "own"),
                ("POD_NAMESPACE", NAMESPACE),
                ("POD_IP", "127.0.0.1"),
            ])
            .env("KRUISE_CRASH", crash.unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("kruise-manager with failpoints; `cargo xtask test` builds it")?;
        Ok(Own { child })
    }
}

impl Own {
    /// Waits until it ends by itself; none if the rollout is over before.
    async fn ends(&mut self, set: &Set, pods: i32) -> Result<Option<ExitStatus>> {
        wait_for("the manager to end at a write", PATIENCE, async || {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Seen::Done(Some(status)));
            }
            let seen = set.get().await?;
            let status = seen.status.unwrap_or_default();
            let over = status.observed_generation == seen.metadata.generation
                && status.updated_available_replicas == pods
                && status.replicas == pods;
            if over {
                return Ok(Seen::Done(None));
            }
            not_yet(serde_json::to_string(&status)?)
        })
        .await
    }
}

/// Somebody who lets pods go on, as hooks ask for.
fn hooks(product: &Product) -> JoinHandle<Result<()>> {
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), &product.namespace);
    tokio::spawn(async move {
        let mut look = tokio::time::interval(Duration::from_millis(100));
        loop {
            look.tick().await;
            for pod in pods.list(&ListParams::default()).await?.items {
                let value = match pod.labels().get(STATE).map(String::as_str) {
                    Some("PreparingUpdate" | "PreparingDelete") => Value::Null,
                    Some("Updated" | "PreparingNormal") => json!("true"),
                    _ => continue,
                };
                if pod.labels().contains_key(HOOK) == value.is_null() {
                    let patch = json!({"metadata": {"labels": {HOOK: value}}});
                    // One that is gone meanwhile needs nothing.
                    let _ = pods
                        .patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch))
                        .await;
                }
            }
        }
    })
}

#[tokio::test]
async fn a_manager_that_ends_at_any_write_is_made_up_for() -> Result<()> {
    let product = Product::attach("at-writes").await?;
    managers::fresh(&product).await?;
    let rules = Rules::take_away(&product.client, &[]).await?;
    scale(&product, 0)?;
    let result = async {
        no_manager(&product).await?;
        let folder = tempfile::tempdir()?;
        let start = Start::prepare(&product, &folder)?;
        for way in &WAYS {
            let told = one_way(&product, &start, way).await;
            let log = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            println!("{}", told.with_context(log)?);
        }
        anyhow::Ok(())
    };
    let result = result.await;
    scale(&product, 2)?;
    rules.put_back().await?;
    result?;
    managers::fresh(&product).await?;
    product.leave().await
}

async fn one_way(product: &Product, start: &Start<'_>, way: &Way) -> Result<String> {
    let pods = rounds(2, 20);
    let replicas = i32::try_from(pods)?;
    let first = push_idle_image(product, &format!("{}-0", way.name)).await?;
    let held = json!({"labelsHandler": {HOOK: "true"}});
    let manifest = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "metadata": {"name": way.name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": way.name}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": (way.strategy)()},
            "lifecycle": {"inPlaceUpdate": held, "preDelete": held},
            "template": {
                "metadata": {"labels": {"app": way.name, HOOK: "true"}},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [
                    {"name": "main", "image": first, "imagePullPolicy": "IfNotPresent"},
                ]},
            },
        },
    });
    let mut manager = start.manager(None)?;
    let set = Set::from_manifest(product, manifest).await?;
    let hooks = hooks(product);
    set.settled(replicas, PATIENCE).await?;
    // One rollout that nothing happens to tells how many writes there are.
    let mark = Mark::now(&product.cluster)?;
    update(product, &set, way, 1).await?;
    set.settled(replicas, PATIENCE).await?;
    let writes = writes(product, mark)?;
    let tries = rounds(way.tries, 2 * writes);
    let mut ends = 0;
    for number in 0..tries {
        drop(manager);
        // From the first write to the last, by turns before and after.
        let at = 1 + number * (writes - 1) / (tries - 1).max(1);
        let when = if number % 2 == 0 { "before" } else { "after" };
        let witness = Witness::begin(product, way.name).await?;
        let before = witness.now()?;
        let image = update(product, &set, way, number + 2).await?;
        let mut doomed = start.manager(Some(&format!("{when}:{at}")))?;
        let ended = doomed.ends(&set, replicas).await?;
        drop(doomed);
        manager = start.manager(None)?;
        set.settled(replicas, PATIENCE).await?;
        ends += usize::from(ended.is_some());
        let told = format!("{} {when} write {at} of {writes}: {ended:?}", way.name);
        judge(way, &image, pods, &before, &witness).with_context(|| told)?;
    }
    let revisions: Api<ControllerRevision> = Api::namespaced(product.client.clone(), &product.namespace);
    let of_set = ListParams::default().labels(&format!("app={}", way.name));
    let made = revisions.list(&of_set).await?.items.len();
    ensure!(made <= tries + 2, "{made} revisions of {} templates", tries + 2);
    // Writes of a status come together by chance, so the last may not be there.
    ensure!(ends + 1 >= tries && ends > 0, "it ended {ends} times of {tries}");
    hooks.abort();
    drop(manager);
    Ok(format!("{}: ended at {ends} of {writes} writes", way.name))
}

async fn update(product: &Product, set: &Set, way: &Way, number: usize) -> Result<String> {
    let tag = format!("{}-{number}", way.name);
    push_idle_image(product, &tag).await?;
    let image = format!("{REGISTRY}/{}:{tag}", product.namespace);
    set.set_image(&image).await?;
    Ok(image)
}

fn writes(product: &Product, mark: Mark) -> Result<usize> {
    let counters = Counters::since(&product.cluster, mark)?;
    Ok(counters.count(|request| {
        let resource = request.resource.rsplit("io/").next().unwrap_or_default();
        let resource = resource.rsplit("apps/").next().unwrap_or_default();
        let resource = resource.split('/').next().unwrap_or_default();
        request.agent.starts_with("kruise-manager") && !request.is_read() && COUNTED.contains(&resource)
    }))
}

fn judge(
    way: &Way,
    image: &str,
    pods: usize,
    before: &std::collections::BTreeMap<String, kruise_tests::product::Seen>,
    witness: &Witness,
) -> Result<()> {
    let after = witness.now()?;
    let after: Vec<_> = after.iter().filter(|(_, seen)| !seen.leaving).collect();
    ensure!(after.len() == pods, "{} pods: {}", after.len(), witness.story());
    for (name, is) in after {
        ensure!(is.image == image && is.ready, "{name} is {is:?}");
        if way.in_place {
            let was = before.get(name).with_context(|| format!("{name} is new"))?;
            ensure!(
                (&is.uid, &is.node) == (&was.uid, &was.node),
                "{name} is another pod"
            );
            ensure!(is.restarts == was.restarts + 1, "{name}: {was:?} became {is:?}");
        }
    }
    let (fewest, most) = (witness.fewest_ready()?, witness.most()?);
    ensure!(
        fewest + way.missing >= pods,
        "{fewest} were ready: {}",
        witness.story()
    );
    ensure!(
        most <= pods + way.surplus,
        "{most} were there: {}",
        witness.story()
    );
    Ok(())
}
