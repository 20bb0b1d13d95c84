//! The cluster's API by the user's own kubeconfig.

use anyhow::{Context as _, Result};
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::args::Global;

/// A cluster and where in it things are.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: kube::Client,
    /// Namespace of jobs.
    pub(crate) namespace: String,
    /// Namespace that the manager runs in.
    pub(crate) system: String,
    /// Address of the manager, when the user gave one.
    pub(crate) server: Option<String>,
}

impl Cluster {
    /// Reads the kubeconfig; nothing is sent yet.
    pub(crate) async fn new(global: &Global) -> Result<Self> {
        let mut config = config(global).await.context(
            "no way to a cluster: set KUBECONFIG, or give --kubeconfig and --context, as kubectl would want it",
        )?;
        // A person sees an error sooner than the end of 15 retries; and creating a job twice would say that it exists.
        config.default_retry = false;
        config.connect_timeout = Some(super::STEP);
        config.headers.push((
            USER_AGENT,
            HeaderValue::from_static(concat!("kruisectl/", env!("CARGO_PKG_VERSION"))),
        ));
        let namespace = global
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let client = kube::Client::try_from(config).context("the kubeconfig cannot be used")?;
        Ok(Self {
            client,
            namespace,
            system: global.system_namespace.clone(),
            server: global.server.clone(),
        })
    }
}

async fn config(global: &Global) -> Result<kube::Config> {
    let options = KubeConfigOptions {
        context: global.context.clone(),
        ..Default::default()
    };
    if let Some(file) = &global.kubeconfig {
        let config = Kubeconfig::read_from(file)?;
        return Ok(kube::Config::from_custom_kubeconfig(config, &options).await?);
    }
    if global.context.is_some() {
        return Ok(kube::Config::from_kubeconfig(&options).await?);
    }
    Ok(kube::Config::infer().await?)
}
