//! Reads the objects, does the steps that are due, and loads what is to be served.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use super::material::{self, Pair, Policy};
use super::objects::{Change, MakeError, Objects};
use super::plan::{Role, Step, plan};
use super::{Serving, server_names};
use crate::kubeapi::Api;
use crate::leader::Leadership;
use crate::telemetry::ServeMetrics;

/// Between two looks at the objects. Shorter for certificates that live for minutes only, which tests have.
const PERIOD: Duration = Duration::from_secs(30);
/// Between two tries while there is nothing to serve with.
const RETRY: Duration = Duration::from_secs(2);
/// The longest chain is a rotation that found everything else undone too; more is a quarrel with somebody.
const STEPS: usize = 12;

/// Where the objects are.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of both.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Name of the ConfigMap.
    pub configmap: String,
    /// How long things live.
    pub policy: Policy,
}

/// The trust store could not be brought in order.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The chart makes both objects; without them there is no right to make any.
    #[error(
        "{kind} {namespace}/{name} does not exist; the chart installs it empty, and so may you: kubectl -n {namespace} create {command}"
    )]
    Missing {
        /// Kind of the object.
        kind: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What makes it.
        command: String,
    },
    /// The API server refused or did not answer.
    #[error("cannot {verb} {what}")]
    Api {
        /// `read` or `write`.
        verb: &'static str,
        /// Kind and name.
        what: String,
        /// Its words.
        #[source]
        source: Box<kube::Error>,
    },
    /// No certificate could be made.
    #[error("cannot make a certificate")]
    Make(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Somebody else's certificates.
    #[error(
        "Secret {namespace}/{name} has ca.crt but no ca.key, so its certificates belong to somebody else, and tls.crt and tls.key are missing, ended, or not signed by ca.crt"
    )]
    ForeignBroken {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
    /// What is stored cannot be served.
    #[error("the serving certificate cannot be used")]
    Unusable(#[source] rustls::Error),
    /// Replicas, or somebody else, keep changing the objects.
    #[error("the trust store did not come to rest")]
    Restless,
}

/// Keeps the trust store in order.
#[derive(Debug)]
pub struct Store {
    settings: Settings,
    names: Vec<String>,
    api: Api,
    leadership: Leadership,
    serving: Serving,
    metrics: ServeMetrics,
    loaded: Option<Pair>,
}

impl Store {
    /// A store that has not looked yet.
    #[must_use]
    pub fn new(
        settings: Settings,
        api: Api,
        leadership: Leadership,
        serving: Serving,
        metrics: ServeMetrics,
    ) -> Self {
        let names = server_names(&settings.namespace);
        Self {
            settings,
            names,
            api,
            leadership,
            serving,
            metrics,
            loaded: None,
        }
    }

    /// Looks again and again until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if let Err(error) = self.pass().await {
                tracing::error!(error = %crate::telemetry::chain(&error), "trust store");
            }
            let calm = PERIOD.min(self.settings.policy.leaf / 6);
            let period = if self.serving.is_ready() { calm } else { RETRY };
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(period.mul_f64(1.0 + rand::random::<f64>() / 10.0)) => {}
            }
        }
    }

    /// Does what is due and loads the certificate.
    ///
    /// # Errors
    /// See [`TrustError`]; whatever was loaded before is served on.
    pub async fn pass(&mut self) -> Result<(), TrustError> {
        for _ in 0..STEPS {
            let objects = self.read().await?;
            let now = self.api.now();
            let role = if self.leadership.check().is_ok() {
                Role::Leader
            } else {
                Role::Replica
            };
            let facts = objects.facts(&self.names);
            // Whatever else is due, and whether or not it can be done: what is good is served.
            if facts
                .leaf
                .as_ref()
                .is_some_and(|leaf| leaf.fits && !leaf.life.is_over(now))
            {
                self.load(objects.leaf())?;
            }
            let policy = &self.settings.policy;
            let step = plan(&facts, role, policy.overlap, now);
            if step == Step::ForeignBroken {
                let Settings {
                    namespace, secret, ..
                } = self.settings.clone();
                return Err(TrustError::ForeignBroken {
                    namespace,
                    name: secret,
                });
            }
            match objects.after(&step, &self.names, policy, now).map_err(made)? {
                None => return Ok(()),
                Some(change) => self.write(change, &step).await?,
            }
        }
        Err(TrustError::Restless)
    }

    async fn read(&self) -> Result<Objects, TrustError> {
        let Settings {
            namespace,
            secret,
            configmap,
            ..
        } = &self.settings;
        let missing = |kind, name: &str, command: String| TrustError::Missing {
            kind,
            namespace: namespace.clone(),
            name: name.to_owned(),
            command,
        };
        let secrets: kube::Api<Secret> = kube::Api::namespaced(self.api.plain(), namespace);
        let found = secrets
            .get_opt(secret)
            .await
            .map_err(|error| failed("read", "Secret", secret, error))?;
        let object = found.ok_or_else(|| missing("Secret", secret, format!("secret generic {secret}")))?;
        let maps: kube::Api<ConfigMap> = kube::Api::namespaced(self.api.plain(), namespace);
        let found = maps
            .get_opt(configmap)
            .await
            .map_err(|error| failed("read", "ConfigMap", configmap, error))?;
        let bundle =
            found.ok_or_else(|| missing("ConfigMap", configmap, format!("configmap {configmap}")))?;
        Ok(Objects {
            secret: object,
            bundle,
        })
    }

    /// Writes one object with the version that was read. Somebody faster is no error: the next look tells what is left to do.
    async fn write(&self, change: Change, step: &Step) -> Result<(), TrustError> {
        let Settings {
            namespace,
            secret,
            configmap,
            ..
        } = &self.settings;
        let params = PostParams::default();
        let (kind, name, result) = match change {
            Change::Secret(object) => {
                let secrets: kube::Api<Secret> = kube::Api::namespaced(self.api.plain(), namespace);
                (
                    "Secret",
                    secret,
                    secrets.replace(secret, &params, &object).await.map(drop),
                )
            }
            Change::Bundle(object) => {
                let maps: kube::Api<ConfigMap> = kube::Api::namespaced(self.api.plain(), namespace);
                (
                    "ConfigMap",
                    configmap,
                    maps.replace(configmap, &params, &object).await.map(drop),
                )
            }
        };
        match result {
            Ok(()) => {
                tracing::info!(kind, name, step = describe(step), "trust store");
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                tracing::debug!(kind, name, "another replica was faster");
                Ok(())
            }
            Err(error) => Err(failed("write", kind, name, error)),
        }
    }

    fn load(&mut self, leaf: Option<Pair>) -> Result<(), TrustError> {
        if leaf == self.loaded {
            return Ok(());
        }
        let Some(pair) = leaf else { return Ok(()) };
        self.serving
            .replace(material::certified_key(&pair).map_err(TrustError::Unusable)?);
        if let Some(facts) = material::facts_of(&pair.certificate) {
            self.metrics.certificate_end.set(facts.life.until.as_second());
            tracing::info!(until = %facts.life.until, "serving certificate loaded");
        }
        self.loaded = Some(pair);
        Ok(())
    }
}

fn failed(verb: &'static str, kind: &str, name: &str, error: kube::Error) -> TrustError {
    TrustError::Api {
        verb,
        what: format!("{kind} {name}"),
        source: Box::new(error),
    }
}

fn made(error: MakeError) -> TrustError {
    TrustError::Make(Box::new(error))
}

fn describe(step: &Step) -> &'static str {
    match step {
        Step::Nothing | Step::ForeignBroken => "nothing",
        Step::MakeAuthority => "new authority and serving certificate",
        Step::MakeLeaf => "new serving certificate",
        Step::MakeNext => "next authority made",
        Step::StampNext => "next authority is in the bundle",
        Step::Promote => "next authority signs from now on",
        Step::DropOld => "former authority forgotten",
        Step::WriteBundle(_) => "trust bundle written",
    }
}

#[cfg(test)]
mod tests;
