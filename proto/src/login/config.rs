//! Reads docker configurations.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;

use super::Entry;
use crate::dispatch::Credential;

/// Tools write `auth` with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Not JSON, or JSON of another shape. Says nothing of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a docker configuration")]
pub struct Malformed;

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

/// Entries of a `config.json` or `.dockerconfigjson`.
///
/// # Errors
/// It is none.
pub fn read_docker_config(text: &[u8]) -> Result<Vec<Entry>, Malformed> {
    let config: ConfigJson = serde_json::from_slice(text).map_err(|_| Malformed)?;
    entries(config.auths)
}

/// Entries of a `.dockercfg`, the older form.
///
/// # Errors
/// It is none.
pub fn read_dockercfg(text: &[u8]) -> Result<Vec<Entry>, Malformed> {
    entries(serde_json::from_slice(text).map_err(|_| Malformed)?)
}

fn entries(auths: BTreeMap<String, AuthJson>) -> Result<Vec<Entry>, Malformed> {
    let entry = |(server, auth): (String, AuthJson)| {
        Ok(Entry {
            key: entry_key(&server),
            credential: credential(auth).ok_or(Malformed)?,
        })
    };
    auths.into_iter().map(entry).collect()
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
#[must_use]
pub fn entry_key(server: &str) -> String {
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
