//! `--check`: looks at something for a hook of the chart, and ends.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use kruise_api::crd;
use kruise_api::names::{GROUP, MANAGER_GRPC_PORT, MANAGER_SERVICE, TRUST_BUNDLE_KEY, WEBHOOK_SERVICE};
use kube::api::{ApiResource, DynamicObject, ListParams};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::args::{Check, PodInfo};

/// Where agents mount the trust bundle, and the pod of `helm test` as well.
const BUNDLE_FOLDER: &str = "/var/run/kruise/ca";
/// For one connection with all that is asked on it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Objects per page.
const PAGE: u32 = 500;

/// Looks, and answers what was seen. The second part tells whether all is well.
///
/// # Errors
/// When it could not be looked at.
pub async fn run(check: Check, pod: &PodInfo) -> anyhow::Result<(String, bool)> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    match check {
        Check::Connection => connection(pod).await.map(|text| (text, true)),
        Check::Uninstall => {
            let config = kube::Config::infer().await.context("no API server to ask")?;
            let client = kube::Client::try_from(config)?;
            let left = left_alone(&client).await?;
            Ok((uninstall_text(&left), left.is_empty()))
        }
    }
}

/// Objects of one kind.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    kind: String,
    count: usize,
    first: String,
}

async fn left_alone(client: &kube::Client) -> anyhow::Result<Vec<Left>> {
    let mut left = Vec::new();
    for definition in crd::all() {
        let names = definition.spec.names;
        let resource = ApiResource {
            group: GROUP.to_owned(),
            version: "v1beta1".to_owned(),
            api_version: format!("{GROUP}/v1beta1"),
            kind: names.kind.clone(),
            plural: names.plural,
        };
        let objects: kube::Api<DynamicObject> = kube::Api::all_with(client.clone(), &resource);
        let mut page = ListParams::default().limit(PAGE);
        let mut found: Vec<String> = Vec::new();
        loop {
            let list = match objects.list(&page).await {
                Ok(list) => list,
                // The definition is not installed, or is gone already.
                Err(kube::Error::Api(status)) if status.code == 404 => break,
                Err(error) => return Err(error).with_context(|| format!("cannot list {}", names.kind)),
            };
            let needed = list
                .items
                .iter()
                .filter(|object| needs_manager(&names.kind, &object.data));
            found.extend(needed.map(name_of));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
        if let Some(first) = found.first() {
            left.push(Left {
                kind: names.kind,
                count: found.len(),
                first: first.clone(),
            });
        }
    }
    Ok(left)
}

fn name_of(object: &DynamicObject) -> String {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    match &object.metadata.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// Workloads always do, work until it has ended, records never.
fn needs_manager(kind: &str, object: &Value) -> bool {
    match kind {
        "CloneSet" => true,
        "NodeImage" => false,
        _ => object["status"]["completionTime"].is_null(),
    }
}

fn uninstall_text(left: &[Left]) -> String {
    if left.is_empty() {
        return "nothing depends on the manager\n".to_owned();
    }
    let mut text = "nobody would look after these any more:\n".to_owned();
    for Left { kind, count, first } in left {
        text.push_str(&format!("  {kind}: {count}, such as {first}\n"));
    }
    text.push_str(
        "delete them and uninstall again, or uninstall all the same with: helm uninstall RELEASE --no-hooks\n\
         to keep the release: helm rollback RELEASE REVISION, with the last one that `helm history RELEASE` tells; without \
         that, helm takes no upgrade of what it was asked to uninstall\n",
    );
    text
}

async fn connection(pod: &PodInfo) -> anyhow::Result<String> {
    let file = format!("{BUNDLE_FOLDER}/{TRUST_BUNDLE_KEY}");
    let bundle = std::fs::read(&file).with_context(|| format!("cannot read {file}"))?;
    let service = |name: &str| format!("{name}.{}.svc", pod.namespace);
    let mut text = String::new();
    let host = service(MANAGER_SERVICE);
    within(&host, dial(&host, MANAGER_GRPC_PORT, &bundle, "h2")).await?;
    text.push_str(&format!(
        "{host}:{MANAGER_GRPC_PORT}: TLS with a certificate that agents trust\n"
    ));
    let host = service(WEBHOOK_SERVICE);
    if tokio::net::lookup_host((host.as_str(), 443)).await.is_err() {
        text.push_str(&format!("{host}: no such Service, webhooks are off\n"));
        return Ok(text);
    }
    within(&host, async {
        let stream = dial(&host, 443, &bundle, "http/1.1").await?;
        ask(stream, &host).await
    })
    .await?;
    text.push_str(&format!("{host}:443: webhooks answer, and deny what cannot be\n"));
    Ok(text)
}

async fn within<T>(host: &str, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::time::timeout(PATIENCE, work)
        .await
        .map_err(|_| anyhow::anyhow!("no answer within {PATIENCE:?}"))
        .flatten()
        .with_context(|| host.to_owned())
}

async fn dial(host: &str, port: u16, bundle: &[u8], protocol: &str) -> anyhow::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        roots.add(certificate.context("the trust bundle is broken")?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from(host.to_owned())?;
    let stream = TcpStream::connect((host, port)).await.context("no connection")?;
    let tls = TlsConnector::from(Arc::new(config));
    tls.connect(name, stream).await.context("no TLS")
}

/// A job that cannot be must be denied.
async fn ask(stream: TlsStream<TcpStream>, host: &str) -> anyhow::Result<()> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "helm-test", "operation": "CREATE", "object": {"metadata": {"name": "helm-test"}, "spec": {"image": "NO IMAGE"}}}});
    let request = Request::post("/validate-apps-kruise-io-imagepulljob")
        .header(header::HOST, host)
        .body(Full::new(Bytes::from(review.to_string())))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    connection.abort();
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    if answer["response"]["allowed"] != json!(false) {
        bail!("odd answer, {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_and_unfinished_work_hold_an_uninstall_up() {
        let ended = json!({"status": {"completionTime": "2026-01-01T00:00:00Z"}});
        assert!(needs_manager("CloneSet", &ended));
        assert!(needs_manager("ImagePullJob", &json!({})));
        assert!(!needs_manager("ImagePullJob", &ended));
        assert!(!needs_manager("NodeImage", &json!({})));
        let left = [Left {
            kind: "CloneSet".into(),
            count: 2,
            first: "shop/web".into(),
        }];
        let text = uninstall_text(&left);
        assert!(
            text.contains("CloneSet: 2, such as shop/web") && text.contains("--no-hooks"),
            "{text}"
        );
        assert!(text.contains("helm rollback RELEASE REVISION"), "{text}");
        assert!(uninstall_text(&[]).starts_with("nothing"));
    }
}
