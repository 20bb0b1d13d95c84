//! The trust store: our own certificate authority, the serving certificate, and the bundle that agents mount.
//!
//! # Where things are
//! A Secret holds the authority and the serving certificate with their keys; a ConfigMap holds the certificates that agents trust.
//! The chart makes both empty, so that the manager needs `get` and `update` on these two names and nothing else.
//!
//! # Flow
//! [`plan`] looks at both and names the one step that is due; [`material`] makes certificates; [`store`] reads, writes with the
//! version it read as precondition, and begins again when another replica was faster. Every 30 s each replica looks again, for there is
//! no right to watch them.
//!
//! # Guarantees
//! Any replica fills empty objects and mends what cannot serve at all; only the leader renews and rotates. A new authority is in the
//! bundle for the overlap time before it signs anything, and an old one stays in it until the last certificate that it signed has ended.
//!
//! # Certificates of others
//! A Secret with `ca.crt`, `tls.crt` and `tls.key` but no `ca.key` belongs to somebody else, such as cert-manager: it is served as it is
//! and never changed.

mod heal;
mod material;
mod objects;
mod plan;
mod serving;
mod store;

pub use heal::{Healer, Target};
pub use material::Policy;
pub use serving::Serving;
#[cfg(test)]
pub(crate) use serving::renew_for_tests;
pub use store::{Settings, Store, TrustError};

/// Names that the serving certificate is good for, in a namespace. The first is the one that agents ask for whatever they dial.
#[must_use]
pub fn server_names(namespace: &str) -> Vec<String> {
    use kruise_api::names::{MANAGER_SERVER_NAME, MANAGER_SERVICE, WEBHOOK_SERVICE};
    let mut names = vec![
        MANAGER_SERVER_NAME.to_owned(),
        format!("{MANAGER_SERVICE}.{namespace}.svc"),
        format!("{MANAGER_SERVICE}.{namespace}.svc.cluster.local"),
        format!("{WEBHOOK_SERVICE}.{namespace}.svc"),
        format!("{WEBHOOK_SERVICE}.{namespace}.svc.cluster.local"),
        "localhost".to_owned(),
    ];
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_the_usual_namespace_are_not_doubled() {
        let names = super::server_names("kruise-system");
        assert_eq!(names.len(), 5);
        assert_eq!(names[0], "kruise-manager.kruise-system.svc");
        assert_eq!(super::server_names("other").len(), 6);
    }
}
