//! Hooks: the example under `deploy/examples/traffic`, with and without its controller.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kruise_tests::product::{Product, Set, Witness, push_idle_image};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::ResourceExt as _;
use serde_json::Value;

use super::TWO_MINUTES;

const STATE: &str = "lifecycle.apps.kruise.io/state";
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/examples/traffic");

/// The example's set, with an image that the cluster has.
async fn example(product: &Product, image: &str) -> Result<Set> {
    let text = std::fs::read_to_string(format!("{EXAMPLE}/cloneset.yaml"))?;
    let mut set: Value = serde_norway::from_str(&text)?;
    set["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
    Set::from_manifest(product, set).await
}

/// The example's controller, and what it has said.
struct Controller {
    process: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Drop for Controller {
    fn drop(&mut self) {
        // It may have ended by itself, which its output tells.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Controller {
    fn start(product: &Product) -> Result<Self> {
        let kubectl = product.cluster.tool("kubectl");
        let tools = std::path::Path::new(kubectl.get_program())
            .parent()
            .context("a folder")?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut process = Command::new("sh")
            .args([&format!("{EXAMPLE}/controller.sh"), &product.namespace, "app=web"])
            .envs(product.cluster.tool_env())
            .env("PATH", format!("{}:{path}", tools.display()))
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().context("its output")?;
        let said = Arc::new(Mutex::new(Vec::new()));
        std::thread::spawn({
            let said = Arc::clone(&said);
            move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    said.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                }
            }
        });
        Ok(Self { process, said })
    }

    fn times(&self, word: &str) -> usize {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter().filter(|line| line.starts_with(word)).count()
    }
}

/// Pods in a state.
fn in_state<'a>(pods: &'a [Pod], state: &str) -> Vec<&'a Pod> {
    let is = |pod: &&Pod| pod.labels().get(STATE).is_some_and(|own| own == state);
    pods.iter().filter(is).collect()
}

async fn one_in_state(set: &Set, state: &str) -> Result<()> {
    wait_for(&format!("a pod in {state}"), TWO_MINUTES, async || {
        let pods = set.pods().await?;
        if in_state(&pods, state).len() == 1 {
            return Ok(Seen::Done(()));
        }
        let states: Vec<_> = pods.iter().map(|pod| pod.labels().get(STATE)).collect();
        not_yet(format!("{states:?}"))
    })
    .await
}

#[tokio::test]
async fn a_hook_that_is_not_released_holds_the_pod_and_with_the_example_all_goes_on() -> Result<()> {
    let product = Product::attach("hooks").await?;
    let (old, new) = (
        push_idle_image(&product, "1").await?,
        push_idle_image(&product, "2").await?,
    );
    let set = example(&product, &old).await?;
    set.settled(3, TWO_MINUTES).await?;
    let witness = Witness::begin(&product, "web").await?;
    let before = witness.now()?;
    set.set_image(&new).await?;
    one_in_state(&set, "PreparingUpdate").await?;
    // Nobody releases it: nothing is changed, and the two others are left alone, since one may be out.
    let held = witness.now()?;
    assert!(
        held.values().all(|seen| seen.image == old && seen.restarts == 0),
        "{held:?}"
    );
    let controller = Controller::start(&product)?;
    set.settled(3, TWO_MINUTES).await?;
    let after = witness.now()?;
    for (name, was) in &before {
        assert_eq!((&after[name].uid, &after[name].image), (&was.uid, &new), "{name}");
        assert_eq!(after[name].restarts, 1, "{name}");
    }
    assert!(witness.fewest_ready()? >= 2, "{}", witness.story());
    assert_eq!((controller.times("detach"), controller.times("attach")), (3, 3));
    drop(controller);
    set.scale(2).await?;
    one_in_state(&set, "PreparingDelete").await?;
    assert_eq!(set.pods().await?.len(), 3, "a pod under its hook is not deleted");
    let _controller = Controller::start(&product)?;
    set.settled(2, TWO_MINUTES).await?;
    product.leave().await
}
