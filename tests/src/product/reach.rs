//! Reaching the manager's gRPC port from outside the cluster, as people do: by port-forward, with a token.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use kruise_api::names;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use super::{NAMESPACE, Product};

/// `kubectl port-forward` to a pod's gRPC port, ended when dropped.
#[derive(Debug)]
pub struct Forward {
    child: Child,
    /// On loopback.
    pub port: u16,
}

impl Forward {
    /// Forwards a free local port to the gRPC port of a manager's pod.
    pub fn to(product: &Product, pod: &str) -> Result<Self> {
        let target = format!(":{}", names::MANAGER_GRPC_PORT);
        let mut child = product
            .cluster
            .tool("kubectl")
            .args(["port-forward", "-n", NAMESPACE, &format!("pod/{pod}"), &target])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run kubectl port-forward")?;
        let output = child.stdout.take().context("the output was asked for")?;
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line)?;
        // It writes a line per connection; without a reader that write would end it.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        // "Forwarding from 127.0.0.1:40123 -> 9877"
        let port = line
            .split(" -> ")
            .next()
            .and_then(|left| left.rsplit(':').next()?.parse().ok());
        let Some(port) = port else {
            let _ = child.kill();
            anyhow::bail!("kubectl port-forward said {line:?}");
        };
        Ok(Self { child, port })
    }

    /// A TLS channel that trusts the product's certificates and nothing else.
    pub async fn channel(&self, bundle: &str) -> Result<Channel> {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(bundle))
            .domain_name(names::MANAGER_SERVER_NAME);
        let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", self.port))?
            .tls_config(tls)?
            .connect_timeout(Duration::from_secs(10));
        endpoint
            .connect()
            .await
            .context("cannot connect through the port-forward")
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A token as people ask for it: for the viewer's account, for inspection only.
pub fn viewer_token(product: &Product) -> Result<String> {
    let account = names::VIEWER_SERVICE_ACCOUNT;
    let audience = names::INSPECT_AUDIENCE;
    let token = product.cluster.kubectl(&[
        "create",
        "token",
        account,
        "-n",
        NAMESPACE,
        "--audience",
        audience,
    ])?;
    Ok(token.trim().to_owned())
}
