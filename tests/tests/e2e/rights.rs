//! An agent has no rights and watches nothing; the manager has few.

use anyhow::Result;
use k8s_openapi::api::core::v1::ServiceAccount;
use kruise_tests::product::{NAMESPACE, Product};
use kube::api::{Api, PostParams};
use serde_json::json;

/// What `kubectl auth can-i --list` says, without blanks that depend on the widths of columns.
fn rights(product: &Product, namespace: &str, account: &str) -> Result<Vec<String>> {
    let who = format!("--as=system:serviceaccount:{namespace}:{account}");
    let groups = [
        "--as-group=system:serviceaccounts",
        "--as-group=system:authenticated",
    ];
    let listed = product.cluster.kubectl(&[
        "auth", "can-i", "--list", &who, groups[0], groups[1], "-n", namespace,
    ])?;
    let mut lines: Vec<String> = listed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    lines.sort_unstable();
    Ok(lines)
}

#[tokio::test]
async fn an_agent_has_no_more_rights_than_a_new_account() -> Result<()> {
    let product = Product::attach("rights").await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(product.client.clone(), &product.namespace);
    let nobody = serde_json::from_value(json!({"metadata": {"name": "nobody"}}))?;
    accounts.create(&PostParams::default(), &nobody).await?;
    let of_nobody = rights(&product, &product.namespace, "nobody")?;
    assert!(!of_nobody.is_empty());
    assert_eq!(rights(&product, NAMESPACE, "kruise-daemon")?, of_nobody);
    product.leave().await
}

#[tokio::test]
async fn an_agents_pod_has_no_token_for_the_api() -> Result<()> {
    let product = Product::attach("rights").await?;
    for pod in product.pods("daemon").await? {
        let spec = pod.spec.unwrap_or_default();
        assert_eq!(spec.automount_service_account_token, Some(false));
        assert_ne!(spec.host_network, Some(true));
        let text = serde_json::to_string(&spec.volumes)?;
        assert_eq!(text.matches("serviceAccountToken").count(), 1, "{text}");
        assert!(text.contains("\"audience\":\"kruise-manager\""), "{text}");
    }
    product.leave().await
}

#[tokio::test]
async fn the_manager_can_neither_list_nor_watch_secrets() -> Result<()> {
    let product = Product::attach("rights").await?;
    let who = format!("--as=system:serviceaccount:{NAMESPACE}:kruise-manager");
    for verb in ["list", "watch", "create", "delete"] {
        let answer = product
            .cluster
            .kubectl(&["auth", "can-i", verb, "secrets", "-A", &who]);
        assert!(answer.is_err(), "the manager may {verb} secrets");
    }
    product.leave().await
}
