//! A set that OpenKruise leaves in the middle of an update, its revisions and pods as OpenKruise writes them: the update goes on where it was.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kruise_api::clone_set::CloneSet;
use kruise_tests::cluster::REGISTRY;
use kruise_tests::product::{Product, Set, Witness, push_idle_image};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::managers;
use crate::managers_away::{no_manager, scale};

const PODS: [&str; 3] = ["b7k2p", "m4x9w", "zq5tn"];
const A_MINUTE: Duration = Duration::from_secs(60);

/// The set as it was left.
struct Left<'a> {
    product: &'a Product,
    set: CloneSet,
    revisions: Api<ControllerRevision>,
    pods: Api<Pod>,
    sets: Api<CloneSet>,
    /// Hashes of the old and the new revision, and their images.
    old: (String, String),
    new: (String, String),
}

#[tokio::test]
async fn an_update_that_openkruise_began_goes_on() -> Result<()> {
    let product = Product::attach("taken-over").await?;
    managers::fresh(&product).await?;
    let old = push_idle_image(&product, "1").await?;
    push_idle_image(&product, "2").await?;
    let new = format!("{REGISTRY}/{}:2", product.namespace);
    let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1});
    let spec = json!({"replicas": 0, "updateStrategy": {"rollingUpdate": rolling}});
    let set = Set::create(&product, "web", &old, spec).await?;
    let hash = |revision: &str| revision.rsplit('-').next().unwrap_or_default().to_owned();
    let first = set.settled(0, A_MINUTE).await?.update_revision;
    set.set_image(&new).await?;
    let second = set
        .when("another revision", A_MINUTE, |status| {
            status.update_revision != first
        })
        .await?
        .update_revision;
    scale(&product, 0)?;
    let left = async {
        no_manager(&product).await?;
        let left = Left {
            set: set.get().await?,
            revisions: Api::namespaced(product.client.clone(), &product.namespace),
            pods: Api::namespaced(product.client.clone(), &product.namespace),
            sets: Api::namespaced(product.client.clone(), &product.namespace),
            old: (hash(&first), old.clone()),
            new: (hash(&second), new.clone()),
            product: &product,
        };
        left.make().await?;
        anyhow::Ok(Witness::begin(&product, "web").await?)
    };
    let left = left.await;
    scale(&product, 2)?;
    let witness = left?;
    let before = witness.now()?;
    set.settled(3, Duration::from_secs(180)).await?;
    let after = witness.now()?;
    ensure!(before.keys().eq(after.keys()), "{}", witness.story());
    for (name, is) in &after {
        assert_eq!(is.uid, before[name].uid, "{name} is the same pod");
        assert_eq!((is.image.as_str(), is.restarts), (new.as_str(), 1), "{name}");
    }
    assert!(witness.fewest_ready()? >= 2, "{}", witness.story());
    let revisions: Api<ControllerRevision> = Api::namespaced(product.client.clone(), &product.namespace);
    let mut names: Vec<_> = revisions.list(&ListParams::default()).await?.items;
    names.sort_by_key(|revision| revision.revision);
    let names: Vec<_> = names
        .into_iter()
        .filter_map(|revision| revision.metadata.name)
        .collect();
    assert_eq!(
        names,
        [first, second],
        "the bytes are known again, so no revision is made"
    );
    managers::fresh(&product).await?;
    product.leave().await
}

impl Left<'_> {
    async fn make(&self) -> Result<()> {
        self.revision(1, &self.old).await?;
        self.revision(2, &self.new).await?;
        for id in PODS {
            self.pod(id).await?;
        }
        self.begin_update(PODS[0]).await?;
        self.status().await
    }

    fn owner(&self) -> Value {
        json!([{"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": self.set.metadata.uid,
            "controller": true, "blockOwnerDeletion": true}])
    }

    fn template(&self, image: &str) -> Value {
        let mut template = self.set.spec.template.clone();
        template["spec"]["containers"][0]["image"] = json!(image);
        template
    }

    /// In place of ours of that name: Go's form of the template, and OpenKruise's labels and annotations.
    async fn revision(&self, number: i64, (hash, image): &(String, String)) -> Result<()> {
        let mut template = self.template(image);
        template["$patch"] = json!("replace");
        template["metadata"]["creationTimestamp"] = Value::Null;
        let spec = &mut template["spec"];
        for (field, value) in [
            ("dnsPolicy", json!("ClusterFirst")),
            ("restartPolicy", json!("Always")),
            ("schedulerName", json!("default-scheduler")),
            ("securityContext", json!({})),
        ] {
            if !spec[field].is_null() || field == "securityContext" {
                spec[field] = value;
            }
        }
        spec["containers"][0]["resources"] = json!({});
        let name = format!("web-{hash}");
        self.revisions.delete(&name, &DeleteParams::default()).await?;
        let object = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": {"name": name, "labels": {"app": "web", "controller.kubernetes.io/hash": hash},
                "annotations": {"kruise.io/cloneset-volumeclaimtemplate-hash": ""}, "ownerReferences": self.owner()},
            "data": {"spec": {"template": template}}, "revision": number,
        });
        let object = serde_json::from_value(object)?;
        self.revisions.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    /// A pod of the old revision, ready.
    async fn pod(&self, id: &str) -> Result<()> {
        let name = format!("web-{id}");
        let (hash, image) = &self.old;
        let mut pod = self.template(image);
        pod["metadata"] = json!({
            "name": name, "generateName": "web-", "ownerReferences": self.owner(),
            "labels": {"app": "web", "apps.kruise.io/cloneset-instance-id": id, "controller-revision-hash": hash,
                "pod-template-hash": hash, "lifecycle.apps.kruise.io/state": "Normal"},
            "annotations": {"lifecycle.apps.kruise.io/timestamp": "2026-11-30T16:57:33Z"},
        });
        pod["spec"]["readinessGates"] =
            json!([{"conditionType": "InPlaceUpdateReady"}, {"conditionType": "KruisePodReady"}]);
        self.pods
            .create(&PostParams::default(), &serde_json::from_value(pod)?)
            .await?;
        let gates = ["InPlaceUpdateReady", "KruisePodReady"];
        let conditions = gates.map(
            |gate| json!({"type": gate, "status": "True", "lastTransitionTime": "2026-11-30T16:57:33Z"}),
        );
        self.patch_status(&name, json!({"conditions": conditions}))
            .await?;
        wait_for("the pod to be ready", A_MINUTE, async || {
            let pod = self.pods.get(&name).await?;
            let conditions = pod
                .status
                .and_then(|status| status.conditions)
                .unwrap_or_default();
            let ready = |condition: &k8s_openapi::api::core::v1::PodCondition| {
                condition.type_ == "Ready" && condition.status == "True"
            };
            if conditions.iter().any(ready) {
                return Ok(Seen::Done(()));
            }
            not_yet(format!("{conditions:?}"))
        })
        .await
    }

    async fn patch_status(&self, name: &str, status: Value) -> Result<()> {
        let patch = Patch::Strategic(json!({ "status": status }));
        self.pods
            .patch_status(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// What OpenKruise writes when it changes a pod in place: first not ready, then the new image with the state of the update.
    async fn begin_update(&self, id: &str) -> Result<()> {
        let name = format!("web-{id}");
        let pod = self.pods.get(&name).await?;
        let statuses = pod.status.and_then(|status| status.container_statuses);
        let main = statuses
            .and_then(|all| all.into_iter().next())
            .context("a container")?;
        let gate = json!({"type": "InPlaceUpdateReady", "status": "False", "reason": "StartInPlaceUpdate",
            "lastTransitionTime": "2026-11-30T16:58:05Z"});
        self.patch_status(&name, json!({"conditions": [gate]})).await?;
        let (hash, image) = &self.new;
        let state = json!({
            "revision": format!("web-{hash}"), "updateTimestamp": "2026-11-30T16:58:05Z",
            "lastContainerStatuses": {"main": {"imageID": main.image_id}}, "updateImages": true,
            "containerBatchesRecord": [{"timestamp": "2026-11-30T16:58:05Z", "containers": ["main"]}],
        });
        let patch = json!({
            "metadata": {
                "labels": {"controller-revision-hash": hash, "pod-template-hash": hash, "lifecycle.apps.kruise.io/state": "Updating"},
                "annotations": {"apps.kruise.io/inplace-update-state": state.to_string()},
            },
            "spec": {"containers": [{"name": "main", "image": image}]},
        });
        self.pods
            .patch(&name, &PatchParams::default(), &Patch::Strategic(patch))
            .await?;
        Ok(())
    }

    /// Wanted and seen as in the middle of the update.
    async fn status(&self) -> Result<()> {
        let status = json!({"status": {
            "observedGeneration": self.set.metadata.generation, "replicas": 3, "readyReplicas": 2, "availableReplicas": 2,
            "updatedReplicas": 1, "updatedReadyReplicas": 0, "updatedAvailableReplicas": 0, "expectedUpdatedReplicas": 3,
            "currentRevision": format!("web-{}", self.old.0), "updateRevision": format!("web-{}", self.new.0),
            "labelSelector": "app=web",
        }});
        self.sets
            .patch_status("web", &PatchParams::default(), &Patch::Merge(status))
            .await?;
        // The subresource has no webhook, which nobody serves now.
        let three = json!({"spec": {"replicas": 3}});
        self.sets
            .patch_scale("web", &PatchParams::default(), &Patch::Merge(three))
            .await?;
        ensure!(
            self.product.pods("controller-manager").await?.is_empty(),
            "a manager is there"
        );
        Ok(())
    }
}
