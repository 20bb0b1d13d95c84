//! The kubelet's `CredentialProviderConfig`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// Largest file that is read.
const MAX_SIZE: u64 = 1 << 20;
/// Forms of the file that the kubelet reads.
const CONFIG_VERSIONS: [&str; 3] = [
    "kubelet.config.k8s.io/v1",
    "kubelet.config.k8s.io/v1beta1",
    "kubelet.config.k8s.io/v1alpha1",
];
/// What plug-ins speak.
const PLUGIN_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];

/// Why the plug-ins cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// One flag without the other.
    #[error(
        "give both --image-credential-provider-config and --image-credential-provider-bin-dir, or neither"
    )]
    Half,
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Neither YAML nor JSON of the right shape.
    #[error("{path} is not a CredentialProviderConfig: {problem}")]
    Form {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Config {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    pub(super) providers: Vec<Provider>,
}

/// One plug-in.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Provider {
    pub(super) name: String,
    #[serde(default)]
    pub(super) match_images: Vec<String>,
    /// Of answers that name no time of their own.
    #[serde(deserialize_with = "go_duration")]
    pub(super) default_cache_duration: Duration,
    #[serde(default)]
    pub(super) api_version: String,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) env: Vec<Variable>,
    /// Needs tokens of pods, and the agent pulls for none.
    #[serde(default)]
    token_attributes: Option<serde_json::Value>,
}

/// A variable of a plug-in's environment.
#[derive(Clone, Deserialize)]
pub(super) struct Variable {
    pub(super) name: String,
    #[serde(default)]
    pub(super) value: String,
}

impl std::fmt::Debug for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A value may be a secret.
        write!(f, "{}=…", self.name)
    }
}

impl Config {
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::Read {
            path: path.to_owned(),
            source,
        };
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(MAX_SIZE).read_to_string(&mut text))
            .map_err(failed)?;
        Self::parse(&text).map_err(|problem| ConfigError::Form {
            path: path.to_owned(),
            problem,
        })
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let config: Self = serde_norway::from_str(text).map_err(|error| error.to_string())?;
        if config.kind != "CredentialProviderConfig"
            || !CONFIG_VERSIONS.contains(&config.api_version.as_str())
        {
            return Err(format!(
                "apiVersion {:?} and kind {:?}; wanted are kubelet.config.k8s.io/v1 and CredentialProviderConfig",
                config.api_version, config.kind
            ));
        }
        if config.providers.is_empty() {
            return Err("it names no providers".to_owned());
        }
        for (at, provider) in config.providers.iter().enumerate() {
            provider
                .check()
                .map_err(|problem| format!("providers[{at}] ({:?}): {problem}", provider.name))?;
            if config.providers[..at]
                .iter()
                .any(|other| other.name == provider.name)
            {
                return Err(format!("two providers are named {:?}", provider.name));
            }
        }
        Ok(config)
    }
}

impl Provider {
    fn check(&self) -> Result<(), String> {
        let name = &self.name;
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\\', ' ']) {
            return Err("name must be that of a program in the plug-ins' folder".to_owned());
        }
        if !PLUGIN_VERSIONS.contains(&self.api_version.as_str()) {
            return Err(format!(
                "apiVersion {:?}; wanted is {}",
                self.api_version, PLUGIN_VERSIONS[0]
            ));
        }
        if self.match_images.is_empty() {
            return Err("matchImages is empty, so it would never be asked".to_owned());
        }
        if self.token_attributes.is_some() {
            return Err(
                "tokenAttributes: the agent pulls for no pod, so there is no token to hand on".to_owned(),
            );
        }
        Ok(())
    }
}

fn go_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text)
        .ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no time such as 12h or 5m0s")))
}

/// A duration as Go writes it, not below zero.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let duration = text.parse::<jiff::SignedDuration>().ok()?;
    Duration::try_from(duration).ok()
}
