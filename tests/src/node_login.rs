//! Ways in which nodes themselves log in at registries: a credential provider plug-in that says what a file says, and a docker configuration.
//!
//! Both are there in every test cluster and open nothing until a test writes what they shall say.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context, Result};
use kruise_api::names::DEFAULT_NAMESPACE;
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// Registry about which the plug-in is asked, as image references name it. A test routes it to a front of its own.
pub const PLUGIN_HOST: &str = "plugin.bed.test";
/// Registry for a test of the node's docker configuration.
pub const DOCKER_HOST: &str = "docker.bed.test";

const PLUGINS: &str = "/var/lib/kruise-plugins";
const DOCKER: &str = "/var/lib/docker-config";
const CONFIG: &str = "credential-provider-config";
/// The plug-in is `cat`: static as plug-ins have to be, because the agent's image holds nothing else.
const PLUGIN: &str = "cat";
const ANSWER: &str = "answer.json";

/// Puts plug-in and configuration in their places and answers the chart's values that mount them.
pub fn prepare(cluster: &Cluster) -> Result<Vec<String>> {
    for node in cluster.nodes() {
        let folder = cluster.node_path(&node, PLUGINS)?;
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let program = folder.join(PLUGIN);
        if !program.exists() {
            // Under another name first: a copy that was cut short would count as there.
            let half = folder.join("half");
            fs::copy("/usr/bin/busybox", &half).context("cannot copy busybox")?;
            fs::set_permissions(&half, fs::Permissions::from_mode(0o755))?;
            fs::rename(&half, &program)?;
        }
    }
    let providers = json!({
        "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig",
        "providers": [{
            "name": PLUGIN, "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "matchImages": [PLUGIN_HOST],
            "defaultCacheDuration": "1h", "args": [format!("/kruise/plugins/{ANSWER}")],
        }],
    });
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DEFAULT_NAMESPACE}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG, "namespace": DEFAULT_NAMESPACE},
            "data": {"CredentialProviderPlugin.yaml": providers.to_string()}},
    ]});
    let file = cluster.layout().dir.join("credential-provider.json");
    fs::write(&file, objects.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    let file = file.display().to_string();
    cluster.kubectl(&["apply", "--server-side", "-f", &file])?;
    Ok(vec![
        "daemon.credentialProvider.enable=true".to_owned(),
        format!("daemon.credentialProvider.configmap={CONFIG}"),
        format!("daemon.credentialProvider.hostPath={PLUGINS}"),
        format!("daemon.dockerConfigLocation={DOCKER}"),
        "daemon.imageLocation=/var/lib/containerd".to_owned(),
    ])
}

/// Lets the plug-in of a node say this from now on, to be kept for an hour.
pub fn plugin_says(cluster: &Cluster, node: &str, user: &str, password: &str) -> Result<()> {
    let answer = json!({
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse",
        "cacheKeyType": "Registry", "cacheDuration": "1h",
        "auth": {PLUGIN_HOST: {"username": user, "password": password}},
    });
    write(cluster, node, &format!("{PLUGINS}/{ANSWER}"), &answer)
}

/// Lets the docker configuration of a node log in like this from now on.
pub fn docker_says(cluster: &Cluster, node: &str, user: &str, password: &str) -> Result<()> {
    let logins = json!({"auths": {DOCKER_HOST: {"username": user, "password": password}}});
    write(cluster, node, &format!("{DOCKER}/config.json"), &logins)
}

/// Lets plug-in and docker configuration of a node say nothing again.
pub fn forget(cluster: &Cluster, node: &str) -> Result<()> {
    for file in [format!("{PLUGINS}/{ANSWER}"), format!("{DOCKER}/config.json")] {
        // Not being there is what is wanted.
        let _ = fs::remove_file(cluster.node_path(node, &file)?);
    }
    Ok(())
}

/// As a renewal does it: a new file in the place of the old one.
fn write(cluster: &Cluster, node: &str, path: &str, content: &Value) -> Result<()> {
    let place = cluster.node_path(node, path)?;
    let beside = place.with_extension("new");
    fs::create_dir_all(place.parent().context("a file lives in a folder")?)?;
    fs::write(&beside, content.to_string())
        .and_then(|()| fs::rename(&beside, &place))
        .with_context(|| format!("cannot write {}", place.display()))
}
