//! Objects of any shape, written while no rule of a CRD and no webhook is in the way: no manager panics, each object is refused or told which field
//! is wrong, and jobs of others are done as ever.

pub(crate) mod rules;
mod shapes;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use kruise_tests::cluster::REGISTRY;
use kruise_tests::product::{Job, Product};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use serde_json::json;

use self::rules::Rules;
use self::shapes::{Bad, Kind, kinds, objects};
use crate::managers;

/// As many as were promised.
const WANTED: usize = 500;
const AT_ONCE: usize = 8;
const MANAGED: &str = "app.kubernetes.io/part-of=bad-objects";

fn api(product: &Product, kind: &Kind) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "apps.kruise.io".to_owned(),
        version: "v1beta1".to_owned(),
        api_version: "apps.kruise.io/v1beta1".to_owned(),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
    };
    if kind.cluster {
        Api::all_with(product.client.clone(), &resource)
    } else {
        Api::namespaced_with(product.client.clone(), &product.namespace, &resource)
    }
}

/// Time that a job takes whose image is on every node already.
async fn healthy(product: &Product, name: &str) -> Result<Duration> {
    let began = Instant::now();
    let image = format!("{REGISTRY}/pause:3.10");
    let job = Job::create(product, name, &image, json!({})).await?;
    let status = job.complete(Duration::from_secs(60)).await?;
    anyhow::ensure!((status.succeeded, status.failed) == (3, 0), "{status:?}");
    Ok(began.elapsed())
}

#[tokio::test]
async fn objects_past_admission_harm_nobody_and_are_told_which_field_is_wrong() -> Result<()> {
    let product = Product::attach("bad-objects").await?;
    let leader = managers::fresh(&product).await?;
    let mut before = Duration::ZERO;
    for turn in 0..3 {
        before = before.max(healthy(&product, &format!("before-{turn}")).await?);
    }
    let kinds = kinds();
    let rules = Rules::take_away(&product.client, &kinds).await?;
    let result = write_and_look(&product, &kinds).await;
    for kind in &kinds {
        let all = ListParams::default().labels(MANAGED);
        api(&product, kind)
            .delete_collection(&DeleteParams::default(), &all)
            .await?;
    }
    rules.put_back().await?;
    println!("{}; healthy jobs took {before:.1?} at most before", result?);
    let now = managers::fresh(&product).await?;
    anyhow::ensure!(now == leader, "{leader:?} was replaced by {now:?}");
    let logs = product.logs(&leader.pod)?;
    anyhow::ensure!(!logs.contains("panicked"), "{logs}");
    product.leave().await
}

async fn write_and_look(product: &Product, kinds: &[Kind]) -> Result<String> {
    let bad = objects(kinds);
    anyhow::ensure!(bad.len() >= WANTED, "{} objects", bad.len());
    // The API server takes a moment to let go of the rules.
    wait_for("the rules to be gone", Duration::from_secs(30), async || {
        for index in 0..kinds.len() {
            let refused = |bad: &&Bad| bad.kind == index && bad.names.is_some();
            let bad = bad.iter().find(refused).context("each kind has some")?;
            let object = serde_json::from_value(bad.object.clone())?;
            let dry = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            api(product, &kinds[bad.kind]).create(&dry, &object).await?;
        }
        Ok(Seen::Done(()))
    })
    .await?;
    let writes = bad.iter().map(|bad| async move {
        let object = serde_json::from_value(bad.object.clone())?;
        let made = api(product, &kinds[bad.kind])
            .create(&PostParams::default(), &object)
            .await;
        anyhow::Ok((bad, made.is_ok()))
    });
    let written: Vec<(&Bad, bool)> = futures::stream::iter(writes)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let accepted = written.iter().filter(|(_, taken)| *taken).count();
    let mut during = Duration::ZERO;
    for turn in 0..3 {
        during = during.max(healthy(product, &format!("during-{turn}")).await?);
    }
    let mut told = 0;
    let mut wanted: Vec<&Bad> = written
        .into_iter()
        .filter(|(bad, taken)| *taken && bad.names.is_some())
        .map(|(bad, _)| bad)
        .collect();
    wait_for(
        "every object to be told what is wrong with it",
        Duration::from_secs(90),
        async || {
            let mut statuses = BTreeMap::new();
            for kind in kinds {
                let all = ListParams::default().labels(MANAGED);
                for object in api(product, kind).list(&all).await? {
                    statuses.insert(object.name_any(), object.data["status"].to_string());
                }
            }
            let before = wanted.len();
            wanted.retain(|bad| {
                let names = bad.names.as_deref().unwrap_or_default();
                !statuses
                    .get(&bad.name)
                    .is_some_and(|status| status.contains("False") && status.contains(names))
            });
            told += before - wanted.len();
            match wanted.first() {
                None => Ok(Seen::Done(())),
                Some(bad) => not_yet(format!(
                    "{} of {} are left, such as {} without {:?} in {:?}",
                    wanted.len(),
                    wanted.len() + told,
                    kinds[bad.kind].kind,
                    bad.names,
                    statuses.get(&bad.name)
                )),
            }
        },
    )
    .await?;
    Ok(format!(
        "{} objects, {accepted} of them taken, {told} told which field is wrong; healthy jobs took {during:.1?} at most",
        bad.len()
    ))
}
