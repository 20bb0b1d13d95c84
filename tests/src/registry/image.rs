//! Images: layers plus how to run them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::layer::{Built, LayerSpec};

/// An image to build and push.
#[derive(Clone, Debug)]
pub struct ImageSpec {
    pub name: String,
    pub tag: String,
    pub layers: Vec<LayerSpec>,
    pub entrypoint: Vec<String>,
    pub env: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub user: String,
}

impl ImageSpec {
    /// An image without layers. `name` is the repository in the registry.
    #[must_use]
    pub fn new(name: &str, tag: &str) -> Self {
        Self {
            name: name.to_owned(),
            tag: tag.to_owned(),
            layers: Vec::new(),
            entrypoint: Vec::new(),
            env: vec!["PATH=/bin:/usr/bin:/sbin:/usr/sbin".to_owned()],
            labels: BTreeMap::new(),
            user: String::new(),
        }
    }

    /// A shell and small programs: what most test pods run.
    #[must_use]
    pub fn busybox(name: &str, tag: &str) -> Self {
        Self::new(name, tag).layer(LayerSpec::busybox())
    }

    /// So many layers of so many random bytes: what pulls are measured with. The name and the tag seed the
    /// bytes, so two images share no layer.
    #[must_use]
    pub fn random(name: &str, tag: &str, layers: u64, bytes_per_layer: u64) -> Self {
        let seed = format!("{name}:{tag}")
            .bytes()
            .fold(0_u64, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
        (0..layers).fold(Self::new(name, tag), |image, n| {
            image.layer(LayerSpec::random(bytes_per_layer, seed.wrapping_add(n)))
        })
    }

    #[must_use]
    pub fn layer(mut self, layer: LayerSpec) -> Self {
        self.layers.push(layer);
        self
    }

    #[must_use]
    pub fn entrypoint<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push(format!("{name}={value}"));
        self
    }

    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    pub(super) fn config(&self, layers: &[Built]) -> Value {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        json!({
            "architecture": architecture,
            "os": "linux",
            "config": {
                "Env": self.env, "Entrypoint": self.entrypoint, "Labels": self.labels, "User": self.user,
            },
            "rootfs": {"type": "layers", "diff_ids": layers.iter().map(|l| &l.diff_id).collect::<Vec<_>>()},
            "history": [],
        })
    }
}
