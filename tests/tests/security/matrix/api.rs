//! What an agent's tokens open at the API server: nothing. The one that the agent has is not for it at all; the one that root on the node could ask
//! for in the name of the kubelet is of an account without rights.

use anyhow::{Context, Result};
use http::header::{HeaderValue, USER_AGENT};
use http::{Method, Request};
use kruise_tests::cluster::TEST_AGENT;
use kruise_tests::product::Product;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use super::cells::Tokens;

/// The same cluster with a token and no certificate.
async fn client(product: &Product, token: &str) -> Result<Client> {
    let mut config = Kubeconfig::read_from(product.cluster.kubeconfig())?;
    let user = config
        .auth_infos
        .first_mut()
        .and_then(|user| user.auth_info.as_mut());
    let user = user.context("a kubeconfig has a user")?;
    *user = serde_json::from_value(json!({ "token": token }))?;
    let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(TEST_AGENT)));
    Ok(Client::try_from(config)?)
}

/// Reads and writes of all that would be worth something to a thief.
fn requests(product: &Product) -> Vec<(Method, String)> {
    let system = "/api/v1/namespaces/kruise-system";
    let tenant = format!("/api/v1/namespaces/{}", product.namespace);
    let jobs = format!(
        "/apis/apps.kruise.io/v1beta1/namespaces/{}/imagepulljobs",
        product.namespace
    );
    let patch = Method::PATCH;
    vec![
        (Method::GET, "/api/v1/secrets".into()),
        (Method::GET, format!("{system}/secrets/kruise-webhook-certs")),
        (Method::GET, format!("{tenant}/secrets")),
        (Method::GET, format!("{tenant}/configmaps")),
        (Method::GET, "/api/v1/nodes".into()),
        (Method::GET, "/api/v1/nodes/node2".into()),
        (Method::GET, format!("{system}/pods")),
        (Method::GET, jobs.clone()),
        (Method::GET, format!("{system}/serviceaccounts/kruise-daemon")),
        (Method::POST, jobs.clone()),
        (
            Method::POST,
            format!("{system}/serviceaccounts/kruise-manager/token"),
        ),
        (Method::POST, format!("{tenant}/pods")),
        (Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews".into()),
        (patch.clone(), format!("{jobs}/any/status")),
        (patch.clone(), "/api/v1/nodes/node1".into()),
        (patch, format!("{system}/pods/any/status")),
        (
            Method::PUT,
            "/apis/coordination.k8s.io/v1/namespaces/kruise-system/leases/kruise-manager".into(),
        ),
        (Method::DELETE, format!("{system}/pods/any")),
    ]
}

/// Tries all of it with both tokens, and answers how many requests there were.
pub(super) async fn agents_rights(product: &Product, tokens: &Tokens) -> Result<usize> {
    let mut count = 0;
    for (whose, token, expected) in [
        ("for the manager", &tokens.of_node1, 401),
        ("for the API server", &tokens.of_node1_for_api, 403),
    ] {
        let client = client(product, token).await?;
        for (method, path) in requests(product) {
            let kind = if method == Method::PATCH {
                "application/merge-patch+json"
            } else {
                "application/json"
            };
            let request = Request::builder()
                .method(method.clone())
                .uri(&path)
                .header(http::header::CONTENT_TYPE, kind)
                .body(b"{}".to_vec())?;
            match client.request_text(request).await {
                Err(kube::Error::Api(status)) => {
                    assert_eq!(status.code, expected, "an agent's token {whose}: {method} {path}");
                }
                other => anyhow::bail!("an agent's token {whose}: {method} {path}: {other:?}"),
            }
            count += 1;
        }
    }
    Ok(count)
}
