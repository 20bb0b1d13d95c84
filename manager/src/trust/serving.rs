//! The certificate in use. Every handshake takes the one of that moment, so that a change needs no restart.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Holds the serving certificate. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    current: Arc<ArcSwapOption<CertifiedKey>>,
}

impl Serving {
    /// Whether there is a certificate to serve with.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.current.load().is_some()
    }

    /// Uses this one from the next handshake on.
    pub(super) fn replace(&self, key: CertifiedKey) {
        self.current.store(Some(Arc::new(key)));
    }

    /// TLS 1.2 and 1.3 with the current certificate, for these protocols (`h2`, `http/1.1`). Clients show no certificate: who they are
    /// is told by their tokens.
    ///
    /// # Panics
    /// Never: the provider supports both versions.
    #[must_use]
    pub fn server_config(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has the default versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        // Nobody resumes a session: agents stay for hours, and come back to another process.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

/// A certificate for `name` from a fresh authority, and that authority's certificate.
#[cfg(test)]
pub(crate) fn renew_for_tests(serving: &Serving, name: &str) -> String {
    use super::material::{Policy, certified_key, make_authority, make_leaf};
    let policy = Policy::default();
    let wall = i64::try_from(crate::clock::wall_unix_ms()).expect("in range");
    let now = jiff::Timestamp::from_millisecond(wall).expect("in range");
    let authority = make_authority(&policy, now).expect("made");
    let leaf = make_leaf(&authority, &[name.to_owned()], &policy, now).expect("made");
    serving.replace(certified_key(&leaf).expect("fits"));
    authority.certificate
}
