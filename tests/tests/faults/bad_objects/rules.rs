//! What keeps bad objects out: taken away, and put back.

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kruise_api::names::{MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS};
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::shapes::Kind;

/// What keeps bad objects out, to be put back.
pub(crate) struct Rules {
    client: Client,
    crds: Vec<CustomResourceDefinition>,
    mutating: MutatingWebhookConfiguration,
    validating: ValidatingWebhookConfiguration,
}

impl Rules {
    pub(crate) async fn take_away(client: &Client, kinds: &[Kind]) -> Result<Self> {
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        let mut rules = Self {
            client: client.clone(),
            crds: Vec::new(),
            mutating: mutating.get(MUTATING_WEBHOOKS).await?,
            validating: validating.get(VALIDATING_WEBHOOKS).await?,
        };
        mutating
            .delete(MUTATING_WEBHOOKS, &DeleteParams::default())
            .await?;
        validating
            .delete(VALIDATING_WEBHOOKS, &DeleteParams::default())
            .await?;
        for kind in kinds {
            let name = format!("{}.apps.kruise.io", kind.plural);
            let strict = definitions.get(&name).await?;
            let mut open = serde_json::to_value(&strict)?;
            for version in open["spec"]["versions"].as_array_mut().context("versions")? {
                version["schema"]["openAPIV3Schema"] =
                    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
                // The API server reads numbers at the paths of a scale subresource, and refuses others.
                if let Some(subresources) = version["subresources"].as_object_mut() {
                    subresources.remove("scale");
                }
            }
            rules.crds.push(strict);
            let open = serde_json::from_value(open)?;
            definitions.replace(&name, &PostParams::default(), &open).await?;
        }
        Ok(rules)
    }

    pub(crate) async fn put_back(self) -> Result<()> {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for strict in self.crds {
            let name = strict.name_any();
            let mut now = definitions.get(&name).await?;
            now.spec = strict.spec;
            definitions.replace(&name, &PostParams::default(), &now).await?;
        }
        let (mut mutating, mut validating) = (self.mutating, self.validating);
        for metadata in [&mut mutating.metadata, &mut validating.metadata] {
            metadata.resource_version = None;
            metadata.uid = None;
        }
        Api::all(self.client.clone())
            .create(&PostParams::default(), &mutating)
            .await?;
        Api::all(self.client)
            .create(&PostParams::default(), &validating)
            .await?;
        Ok(())
    }
}
