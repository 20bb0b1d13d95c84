//! How the node itself logs in at registries: credential provider plug-ins, configured as for the kubelet, and the node's docker
//! configuration. Nothing of it is logged, and nothing but the plug-ins' answers is kept, for as long as they allow.

mod config;
mod plugin;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kruise_api::reference::ImageRef;
use kruise_proto::dispatch::Credential;
use kruise_proto::login;

use self::config::Config;
pub use self::config::ConfigError;
use self::plugin::Plugin;
use crate::clock::Clock;

/// Where the kubelet looks for a docker configuration, the first that is there counts.
const DOCKER_CONFIGS: [&str; 2] = ["/var/lib/kubelet/config.json", "/.docker/config.json"];
/// Largest configuration that is read.
const MAX_CONFIG: u64 = 1 << 20;

/// All ways of the node to log in. Cheap to clone.
#[derive(Clone)]
pub struct Keychain(Arc<Inner>);

struct Inner {
    plugins: Vec<Plugin>,
    docker_configs: Vec<PathBuf>,
}

impl fmt::Debug for Keychain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keychain({} plug-ins)", self.0.plugins.len())
    }
}

impl Keychain {
    /// One that holds nothing.
    #[must_use]
    pub fn empty() -> Self {
        Self::of(Vec::new(), Vec::new())
    }

    /// Reads the configuration of the plug-ins, which lie in `bin_dir`; without one there are none. The node's docker configuration
    /// is looked for where the kubelet does.
    ///
    /// # Errors
    /// The file cannot be read, or is not what the kubelet would take; or only one of the two was given.
    pub fn open(config: Option<&Path>, bin_dir: Option<&Path>) -> Result<Self, ConfigError> {
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker/config.json"));
        let docker_configs = DOCKER_CONFIGS.iter().map(PathBuf::from).chain(home).collect();
        let plugins = match (config, bin_dir) {
            (None, None) => Vec::new(),
            (Some(config), Some(bin_dir)) => {
                let config = Config::read(config)?;
                let plugin = |provider| Plugin::new(provider, bin_dir, Clock::boot());
                config.providers.into_iter().map(plugin).collect()
            }
            _ => return Err(ConfigError::Half),
        };
        Ok(Self::of(plugins, docker_configs))
    }

    fn of(plugins: Vec<Plugin>, docker_configs: Vec<PathBuf>) -> Self {
        Self(Arc::new(Inner {
            plugins,
            docker_configs,
        }))
    }

    /// What the node would log in with, in the order to be tried. A plug-in that fails gives none, and the log says so.
    pub(crate) async fn credentials(&self, image: &ImageRef) -> Vec<Credential> {
        let mut found = Vec::new();
        for plugin in self.0.plugins.iter().filter(|plugin| plugin.is_for(image)) {
            match plugin.credentials(image).await {
                Ok(credentials) => found.extend(credentials),
                Err(error) => {
                    tracing::warn!(plugin = plugin.name(), image = image.name(), %error, "credential provider gave nothing");
                }
            }
        }
        found.extend(self.of_docker_config(image).await);
        found
    }

    /// Forgets what plug-ins said for an image: the registry did not let it in.
    pub(crate) fn forget(&self, image: &ImageRef) {
        for plugin in self.0.plugins.iter().filter(|plugin| plugin.is_for(image)) {
            plugin.forget(image);
        }
    }

    async fn of_docker_config(&self, image: &ImageRef) -> Vec<Credential> {
        for path in &self.0.docker_configs {
            let Ok(about) = tokio::fs::metadata(path).await else {
                continue;
            };
            if !about.is_file() || about.len() > MAX_CONFIG {
                continue;
            }
            let text = tokio::fs::read(path).await.unwrap_or_default();
            match login::read_docker_config(&text) {
                Ok(entries) => return login::matching(image, entries),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "docker configuration of the node not used");
                }
            }
        }
        Vec::new()
    }
}
