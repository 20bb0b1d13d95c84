//! What the leader's certificate is checked against.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kruise_api::names;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Gives the trust bundle of the moment.
pub trait Roots: Send + Sync + std::fmt::Debug + 'static {
    /// The certificates, or why there are none.
    fn roots(&self) -> BoxFuture<'_, Result<Arc<RootCertStore>, String>>;
}

/// The bundle that agents mount, read when it is needed: a follower dials the leader once, not per call.
#[derive(Clone, Debug)]
pub struct ConfigMapRoots {
    api: crate::kubeapi::Api,
    namespace: String,
    name: String,
}

impl ConfigMapRoots {
    /// The ConfigMap of this name.
    #[must_use]
    pub fn new(api: crate::kubeapi::Api, namespace: String, name: String) -> Self {
        Self { api, namespace, name }
    }
}

impl Roots for ConfigMapRoots {
    fn roots(&self) -> BoxFuture<'_, Result<Arc<RootCertStore>, String>> {
        async move {
            let maps: kube::Api<ConfigMap> = kube::Api::namespaced(self.api.reader(), &self.namespace);
            let map = maps.get(&self.name).await.map_err(|error| error.to_string())?;
            let bundle = map
                .data
                .unwrap_or_default()
                .remove(names::TRUST_BUNDLE_KEY)
                .unwrap_or_default();
            parse(&bundle)
                .ok_or_else(|| format!("ConfigMap {}/{} has no certificates", self.namespace, self.name))
        }
        .boxed()
    }
}

fn parse(bundle: &str) -> Option<Arc<RootCertStore>> {
    let mut store = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(bundle.as_bytes()).filter_map(Result::ok);
    store.add_parsable_certificates(certificates);
    (!store.is_empty()).then(|| Arc::new(store))
}
