//! Docker configurations in secrets.

use k8s_openapi::api::core::v1::Secret;
use kruise_proto::login::{self, Entry};

/// A secret that is of no use. Says nothing of its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SecretProblem {
    /// Of a type that holds no logins.
    #[error(
        "secret {name:?} has type {kind:?}; accepted are kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg"
    )]
    Kind { name: String, kind: String },
    /// The key that the type stands for is not there.
    #[error("secret {name:?} has no key {key:?}")]
    NoKey { name: String, key: &'static str },
    /// Not JSON, or JSON of another shape.
    #[error("key {key:?} of secret {name:?} is not a docker configuration")]
    Malformed { name: String, key: &'static str },
}

/// All entries of a secret.
pub(super) fn read(name: &str, secret: &Secret) -> Result<Vec<Entry>, SecretProblem> {
    let key = match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => ".dockerconfigjson",
        Some("kubernetes.io/dockercfg") => ".dockercfg",
        other => {
            let kind = other.unwrap_or("Opaque").to_owned();
            return Err(SecretProblem::Kind {
                name: name.to_owned(),
                kind,
            });
        }
    };
    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
    let bytes = &bytes
        .ok_or_else(|| SecretProblem::NoKey {
            name: name.to_owned(),
            key,
        })?
        .0;
    let read = if key == ".dockercfg" {
        login::read_dockercfg(bytes)
    } else {
        login::read_docker_config(bytes)
    };
    read.map_err(|login::Malformed| SecretProblem::Malformed {
        name: name.to_owned(),
        key,
    })
}
