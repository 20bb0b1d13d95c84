//! An authorised connection to the manager's inspection service.

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kruise_api::names;
use kruise_proto::inspect::inspect_service_client::InspectServiceClient;
use kube::Api;
use tonic::codegen::InterceptedService;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use super::{Cluster, tunnel};

/// Client of the inspection service.
pub(crate) type Inspect = InspectServiceClient<InterceptedService<Channel, Bearer>>;

/// A token is wanted for as long as a person may look; the stream is opened again before that.
const TOKEN_SECONDS: i64 = 3600;

/// Puts the token on each request.
#[derive(Clone)]
pub(crate) struct Bearer(MetadataValue<Ascii>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// Finds out whom to trust and who to be, and connects to the leader.
pub(crate) async fn open(cluster: &Cluster) -> Result<Inspect> {
    connect(cluster, tunnel::Connector::new(cluster)).await
}

/// The same with one replica, whether it leads or not.
pub(crate) async fn open_pod(cluster: &Cluster, pod: &str) -> Result<Inspect> {
    connect(cluster, tunnel::Connector::to_pod(cluster, pod)).await
}

async fn connect(cluster: &Cluster, connector: tunnel::Connector) -> Result<Inspect> {
    let (trust, bearer) = tokio::try_join!(trust_bundle(cluster), token(cluster))?;
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(trust))
        .domain_name(names::MANAGER_SERVER_NAME);
    let endpoint = Endpoint::from_static("https://kruise-manager.kruise-system.svc")
        .tls_config(tls)
        .context("the trust bundle is not usable")?
        .connect_timeout(super::STEP)
        // A dead tunnel is noticed, also while nothing happens on any node.
        .http2_keep_alive_interval(super::STEP)
        .keep_alive_timeout(super::STEP)
        .keep_alive_while_idle(true);
    let channel = endpoint
        .connect_with_connector(connector)
        .await
        .map_err(|error| anyhow!(error))
        .with_context(|| unreachable(cluster))?;
    Ok(InspectServiceClient::with_interceptor(channel, bearer))
}

fn unreachable(cluster: &Cluster) -> String {
    let system = &cluster.system;
    match &cluster.server {
        Some(server) => format!("the manager cannot be reached at {server}"),
        None => format!("the manager cannot be reached; look at `kubectl -n {system} get pods`"),
    }
}

async fn trust_bundle(cluster: &Cluster) -> Result<String> {
    let system = &cluster.system;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), system);
    let map = maps.get_opt(names::TRUST_CONFIGMAP).await.with_context(|| {
        format!(
            "cannot read ConfigMap {system}/{}; the Role kruisectl there has the rights",
            names::TRUST_CONFIGMAP
        )
    })?;
    let Some(map) = map else {
        bail!(
            "Kruise is not in namespace {system} (no ConfigMap {}): install the chart, or name its namespace by --system-namespace",
            names::TRUST_CONFIGMAP
        );
    };
    let bundle = map
        .data
        .and_then(|mut data| data.remove(names::TRUST_BUNDLE_KEY))
        .filter(|text| !text.is_empty());
    bundle.with_context(|| {
        format!("the manager has not made its certificates yet; look at `kubectl -n {system} get pods` and try again")
    })
}

async fn token(cluster: &Cluster) -> Result<Bearer> {
    let system = &cluster.system;
    let account = names::VIEWER_SERVICE_ACCOUNT;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), system);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![names::INSPECT_AUDIENCE.to_owned()],
            expiration_seconds: Some(TOKEN_SECONDS),
            ..Default::default()
        },
        ..Default::default()
    };
    let answer = accounts.create_token_request(account, &Default::default(), &request).await.with_context(|| {
        format!("no token for ServiceAccount {system}/{account}; the Role kruisectl there has the right to ask for one")
    })?;
    let token = answer.status.map(|status| status.token).unwrap_or_default();
    let mut value =
        MetadataValue::try_from(format!("Bearer {token}")).context("the API server's token is not text")?;
    value.set_sensitive(true);
    Ok(Bearer(value))
}
