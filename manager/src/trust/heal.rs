//! Keeps the authorities in webhook configurations and CRDs in order, so that the API server trusts our webhooks.
//!
//! Somebody applies a manifest without `caBundle`, restores a backup, or rotates: within seconds each replica sees it and whoever is first
//! writes, with the version that it read as precondition. All replicas write the same, the bundle of the ConfigMap.
//!
//! Objects that cert-manager's injector looks after are left to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use kruise_api::names::TRUST_BUNDLE_KEY;
use kube::api::{ApiResource, DynamicObject, PostParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::kubeapi::Api;
use crate::telemetry::chain;

/// Between two looks. A reset is mended within twice that, requests included.
const PERIOD: Duration = Duration::from_secs(4);
/// Annotation by which cert-manager is told to write the authority.
const INJECTED: &str = "cert-manager.io/inject";

/// Something that carries the authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A MutatingWebhookConfiguration, by name.
    Mutating(String),
    /// A ValidatingWebhookConfiguration, by name.
    Validating(String),
    /// A CustomResourceDefinition with conversion, by name.
    Definition(String),
}

impl Target {
    fn resource(&self) -> (ApiResource, &str) {
        let resource = |group: &str, kind: &str, plural: &str| ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version: format!("{group}/v1"),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        let group = "admissionregistration.k8s.io";
        match self {
            Self::Mutating(name) => {
                let kind = "MutatingWebhookConfiguration";
                (resource(group, kind, "mutatingwebhookconfigurations"), name)
            }
            Self::Validating(name) => {
                let kind = "ValidatingWebhookConfiguration";
                (resource(group, kind, "validatingwebhookconfigurations"), name)
            }
            Self::Definition(name) => {
                let kind = "CustomResourceDefinition";
                let group = "apiextensions.k8s.io";
                (resource(group, kind, "customresourcedefinitions"), name)
            }
        }
    }
}

/// Looks after the targets.
#[derive(Clone, Debug)]
pub struct Healer {
    api: Api,
    namespace: String,
    configmap: String,
    targets: Vec<Target>,
    in_order: Arc<AtomicBool>,
}

impl Healer {
    /// One that has not looked yet.
    #[must_use]
    pub fn new(api: Api, namespace: String, configmap: String, targets: Vec<Target>) -> Self {
        Self {
            api,
            namespace,
            configmap,
            targets,
            in_order: Arc::default(),
        }
    }

    /// Whether everything was in order at some time since the start: before that, no request should be sent to this replica. Later on it
    /// stays ready, for what is out of order concerns all replicas alike.
    #[must_use]
    pub fn was_in_order(&self) -> bool {
        self.in_order.load(Ordering::Relaxed)
    }

    /// Looks again and again until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut last = String::new();
        while !stop.is_cancelled() {
            let problem = self.pass().await;
            // Said once, not every few seconds.
            if !problem.is_empty() && problem != last {
                tracing::warn!(error = problem, "authorities of webhooks");
            }
            last = problem;
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(PERIOD.mul_f64(1.0 + rand::random::<f64>() / 10.0)) => {}
            }
        }
    }

    /// One look at everything. What is wrong, for people; empty when nothing is.
    pub async fn pass(&self) -> String {
        let bundle = match self.bundle().await {
            Ok(bundle) => bundle,
            Err(problem) => return problem,
        };
        let mut problems = Vec::new();
        // A right that is missing will not come by itself: it is said, and does not keep this replica from serving.
        let mut waits = false;
        for target in &self.targets {
            if let Err(error) = self.mend(target, &bundle).await {
                let forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
                waits |= !forbidden;
                problems.push(format!("{target:?}: {}", chain(&error)));
            }
        }
        if !waits {
            self.in_order.store(true, Ordering::Relaxed);
        }
        problems.join("; ")
    }

    async fn bundle(&self) -> Result<Value, String> {
        let maps: kube::Api<ConfigMap> = kube::Api::namespaced(self.api.plain(), &self.namespace);
        let map = maps
            .get_opt(&self.configmap)
            .await
            .map_err(|error| format!("cannot read the trust bundle: {}", chain(&error)))?;
        let text = map.and_then(|map| map.data?.remove(TRUST_BUNDLE_KEY));
        let text = text.filter(|text| !text.trim().is_empty());
        let text = text.ok_or("the trust bundle is empty; the first replica is about to fill it")?;
        Ok(json!(BASE64_STANDARD.encode(text)))
    }

    async fn mend(&self, target: &Target, bundle: &Value) -> Result<(), kube::Error> {
        let (resource, name) = target.resource();
        let objects: kube::Api<DynamicObject> = kube::Api::all_with(self.api.plain(), &resource);
        let Some(mut object) = objects.get_opt(name).await? else {
            // Not installed.
            return Ok(());
        };
        let annotations = object.metadata.annotations.iter().flatten();
        let mut keys = annotations.map(|(key, _)| key);
        if keys.any(|key| key.starts_with(INJECTED)) || !set(&mut object.data, bundle) {
            return Ok(());
        }
        object.metadata.managed_fields = None;
        match objects.replace(name, &PostParams::default(), &object).await {
            Ok(_) => {
                tracing::info!(kind = resource.kind, name, "authority of webhooks written");
                Ok(())
            }
            // Another replica was faster, or somebody changed something else: the next look tells.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Writes the bundle wherever a Service is called. False when it was there already.
fn set(object: &mut Value, bundle: &Value) -> bool {
    let mut changed = false;
    let mut give = |client: &mut Value| {
        if client["service"].is_object() && client["caBundle"] != *bundle {
            client["caBundle"] = bundle.clone();
            changed = true;
        }
    };
    for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
        if let Some(client) = webhook.get_mut("clientConfig") {
            give(client);
        }
    }
    if let Some(client) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
        give(client);
    }
    changed
}

#[cfg(test)]
mod tests;
