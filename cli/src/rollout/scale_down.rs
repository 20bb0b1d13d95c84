//! `kruisectl scale-down`: fewer pods, and these are the ones that go.

use anyhow::{Context as _, Result, bail};
use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use kruise_api::clone_set::CloneSet;
use kube::Api;
use serde_json::json;

use super::{Target, is_controlled};
use crate::args::Global;
use crate::exit::{Code, Usage};
use crate::output;

/// Arguments of `scale-down`.
#[derive(Args, Debug)]
pub(crate) struct ScaleDownArgs {
    /// CloneSet, as clone/NAME.
    set: String,
    /// Pods to delete. The set gets smaller by as many, so that nothing takes their place.
    #[arg(long, value_name = "A,B", value_delimiter = ',', required = true)]
    pods: Vec<String>,
}

pub(crate) async fn run(global: &Global, args: ScaleDownArgs) -> Result<Code> {
    let target = Target::new(global, &args.set).await?;
    output::put(&scaled(&target, args.pods).await?)?;
    Ok(Code::Success)
}

/// Lowers the number and names the pods, in one write.
pub(super) async fn scaled(target: &Target, mut pods: Vec<String>) -> Result<String> {
    pods.sort();
    pods.dedup();
    if pods.iter().any(String::is_empty) {
        return Err(Usage("--pods: give names of pods, separated by commas".to_owned()).into());
    }
    let set = target.get().await?;
    for name in &pods {
        check(target, &set, name).await?;
    }
    let (from, to) = target.change(|set| lowered(set, &pods)).await?;
    Ok(format!(
        "clone/{} from {from} to {to} pods; {} to be deleted\n",
        target.name,
        pods.join(", ")
    ))
}

/// A pod that is not the set's, or leaves already, would make the set smaller by one too many.
async fn check(target: &Target, set: &CloneSet, name: &str) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(target.cluster.client.clone(), &target.cluster.namespace);
    let pod = api.get(name).await.with_context(|| format!("pod {name}"))?;
    if !is_controlled(&pod.metadata, set) {
        bail!("pod {name} is not of {}", target.title());
    }
    if pod.metadata.deletion_timestamp.is_some() {
        bail!("pod {name} is being deleted already");
    }
    Ok(())
}

fn lowered(set: &CloneSet, pods: &[String]) -> Result<(serde_json::Value, (i32, i32))> {
    let named = &set.spec.scale_strategy.pods_to_delete;
    if let Some(twice) = pods.iter().find(|pod| named.contains(pod)) {
        bail!("pod {twice} is in scaleStrategy.podsToDelete already");
    }
    let from = set.spec.wanted();
    let fewer = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    let to = from.checked_sub(fewer).filter(|to| *to >= 0);
    let to = to.with_context(|| format!("the set wants {from} pods, so {fewer} cannot go"))?;
    let all: Vec<&String> = named.iter().chain(pods).collect();
    let spec = json!({"replicas": to, "scaleStrategy": {"podsToDelete": all}});
    Ok((spec, (from, to)))
}
