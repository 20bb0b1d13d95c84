//! Docker configurations in secrets.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use k8s_openapi::api::core::v1::Secret;
use kruise_proto::dispatch::Credential;
use serde::Deserialize;

use super::Entry;

/// Tools write `auth` with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

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

// No Debug: these hold passwords.
#[derive(Deserialize)]
struct ConfigJson {
    #[serde(default)]
    auths: BTreeMap<String, AuthJson>,
}

#[derive(Deserialize)]
struct AuthJson {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
    #[serde(default, alias = "identityToken")]
    identitytoken: String,
    #[serde(default, alias = "registryToken")]
    registrytoken: String,
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
    let malformed = || SecretProblem::Malformed {
        name: name.to_owned(),
        key,
    };
    let auths = if key == ".dockercfg" {
        serde_json::from_slice(bytes).map_err(|_| malformed())?
    } else {
        serde_json::from_slice::<ConfigJson>(bytes)
            .map_err(|_| malformed())?
            .auths
    };
    auths
        .into_iter()
        .map(|(server, auth)| {
            let credential = credential(auth).ok_or_else(malformed)?;
            Ok(Entry {
                key: entry_key(&server),
                credential,
            })
        })
        .collect()
}

/// User name and password may come in the clear or as one text in base64; the text wins, as for the kubelet.
fn credential(auth: AuthJson) -> Option<Credential> {
    let AuthJson {
        mut username,
        mut password,
        auth,
        identitytoken,
        registrytoken,
    } = auth;
    if !auth.is_empty() {
        let text = String::from_utf8(BASE64.decode(auth.trim()).ok()?).ok()?;
        let (user, pass) = text.split_once(':')?;
        username = user.to_owned();
        pass.trim_end_matches('\0').clone_into(&mut password);
    }
    Some(Credential {
        username,
        password,
        identity_token: identitytoken,
        registry_token: registrytoken,
    })
}

/// `https://index.docker.io/v1/` is `index.docker.io`.
fn entry_key(server: &str) -> String {
    let server = server
        .strip_prefix("https://")
        .or_else(|| server.strip_prefix("http://"))
        .unwrap_or(server);
    let (host, path) = server.split_once('/').unwrap_or((server, ""));
    let path = path
        .strip_prefix("v1/")
        .or_else(|| path.strip_prefix("v2/"))
        .unwrap_or(path);
    if path.is_empty() {
        host.to_owned()
    } else {
        format!("{host}/{path}")
    }
}
