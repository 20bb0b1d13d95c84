//! Looking inside: grpcurl against the manager and against an agent, as the README says.

use std::process::Output;

use anyhow::Result;
use kruise_tests::cmd;
use kruise_tests::product::{Forward, Product, viewer_token};
use serde_json::Value;
use std::io::Write as _;

struct Grpcurl {
    forward: Forward,
    bundle: tempfile::NamedTempFile,
    product: Product,
}

impl Grpcurl {
    async fn to(product: &Product, pod: &str) -> Result<Self> {
        let mut bundle = tempfile::NamedTempFile::new()?;
        bundle.write_all(product.trust_bundle().await?.as_bytes())?;
        Ok(Self {
            forward: Forward::to(product, pod)?,
            bundle,
            product: product.clone(),
        })
    }

    fn output(&self, token: Option<&str>, words: &[&str]) -> Result<Output> {
        let mut command = self.product.cluster.tool("grpcurl");
        command
            .args(["-max-time", "20", "-cacert"])
            .arg(self.bundle.path());
        command.args(["-servername", "kruise-manager.kruise-system.svc"]);
        if let Some(token) = token {
            command.args(["-H", &format!("authorization: Bearer {token}")]);
        }
        // Options come before the address, the words behind it.
        let (options, rest): (Vec<&str>, Vec<&str>) = match words {
            ["-d", data, rest @ ..] => (vec!["-d", data], rest.to_vec()),
            rest => (Vec::new(), rest.to_vec()),
        };
        command
            .args(options)
            .arg(format!("127.0.0.1:{}", self.forward.port))
            .args(rest);
        cmd::output(&mut command)
    }

    fn ask(&self, token: &str, words: &[&str]) -> Result<String> {
        let output = self.output(Some(token), words)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{words:?}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(text)
    }
}

#[tokio::test]
async fn every_replica_answers_people_who_may_look() -> Result<()> {
    let product = Product::attach("inspection").await?;
    let token = viewer_token(&product)?;
    for pod in product.pods("controller-manager").await? {
        let grpcurl = Grpcurl::to(&product, &pod.metadata.name.unwrap_or_default()).await?;
        let services = grpcurl.ask(&token, &["list"])?;
        for service in [
            "kruise.dispatch.v1.DispatchService",
            "kruise.inspect.v1.InspectService",
            "grpc.health.v1.Health",
        ] {
            assert!(services.contains(service), "{services}");
        }
        let described = grpcurl.ask(&token, &["describe", "kruise.inspect.v1.InspectService"])?;
        assert!(described.contains("rpc ListAgents"), "{described}");
        let health = grpcurl.ask(&token, &["grpc.health.v1.Health/Check"])?;
        assert!(health.contains("SERVING"), "{health}");
        let agents: Value =
            serde_json::from_str(&grpcurl.ask(&token, &["kruise.inspect.v1.InspectService/ListAgents"])?)?;
        let names: Vec<_> = agents["agents"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|agent| &agent["nodeName"])
            .collect();
        assert_eq!(names, ["node1", "node2", "node3"], "{agents}");
        for agent in agents["agents"].as_array().into_iter().flatten() {
            assert_eq!(agent["syncState"], "SYNC_STATE_SYNCED", "{agent}");
            assert_eq!(agent["runtime"]["name"], "containerd", "{agent}");
        }
    }
    product.leave().await
}

#[tokio::test]
async fn without_a_token_there_is_nothing_to_see() -> Result<()> {
    let product = Product::attach("inspection").await?;
    let leader = product.leader().await?;
    let grpcurl = Grpcurl::to(&product, &leader.pod).await?;
    // A person of this cluster whom nobody gave the right to look.
    let stranger = [
        "create",
        "token",
        "default",
        "-n",
        &product.namespace,
        "--audience",
        "kruise-inspect",
    ];
    let stranger = product.cluster.kubectl(&stranger)?;
    for words in [
        vec!["list"],
        vec!["grpc.health.v1.Health/Check"],
        vec!["kruise.inspect.v1.InspectService/ListAgents"],
        vec!["kruise.inspect.v1.InspectService/ListTasks"],
    ] {
        let output = grpcurl.output(None, &words)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && text.contains("Unauthenticated"),
            "{words:?}: {text}"
        );
    }
    let output = grpcurl.output(
        Some(stranger.trim()),
        &["kruise.inspect.v1.InspectService/ListAgents"],
    )?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("PermissionDenied"), "{text}");
    product.leave().await
}

#[tokio::test]
async fn an_agent_answers_on_its_own_socket_which_is_roots() -> Result<()> {
    let product = Product::attach("inspection").await?;
    for node in product.cluster.nodes() {
        let mode = product
            .cluster
            .node_exec(&node, &["stat", "-c", "%a %u", "/run/kruise/agent.sock"])?;
        assert_eq!(mode.trim(), "600 0");
        let socket = ["grpcurl", "-plaintext", "-unix", "/run/kruise/agent.sock"];
        let services = product
            .cluster
            .node_exec(&node, &[&socket[..], &["list"]].concat())?;
        assert!(services.contains("kruise.node.v1.NodeService"), "{services}");
        let method = "kruise.node.v1.NodeService/GetAgent";
        let agent: Value = serde_json::from_str(
            &product
                .cluster
                .node_exec(&node, &[&socket[..], &[method]].concat())?,
        )?;
        assert_eq!(agent["nodeName"], node.as_str());
        assert_eq!(agent["contact"], "CONTACT_ATTACHED", "{agent}");
    }
    product.leave().await
}
