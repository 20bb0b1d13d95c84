//! Image references, normalised the way container runtimes do it.

use std::fmt;

/// Longest reference that can be valid: 255 for the name, 128 for the tag, 137 for a sha512 digest, and separators.
pub const MAX_LENGTH: usize = 522;

/// Grammar of a reference as a regular expression (RE2), for the CRD's own rule. [`ImageRef::parse`] accepts the same texts but for
/// lengths and the well-known digest sizes.
pub const PATTERN: &str = concat!(
    "^(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])([.]([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*(:[0-9]+)?/)?",
    "[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)*",
    "(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?",
    "(@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$"
);

/// Why a text is no image reference.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReferenceError {
    /// Nothing there.
    #[error("the image reference is empty; give one such as registry.example.com/team/app:1.2")]
    Empty,
    /// Upper-case letters in the repository.
    #[error("{0:?} is no image reference: a repository must be in lower case")]
    UpperCase(String),
    /// Longer than any valid one.
    #[error("an image reference of {0} characters is too long; at most 255 for the name and 128 for the tag")]
    TooLong(usize),
    /// Anything else.
    #[error(
        "{text:?} is no image reference: {part} is not valid; give one such as registry.example.com/team/app:1.2 or app@sha256:…"
    )]
    Invalid {
        /// As written, cut.
        text: String,
        /// Which part.
        part: &'static str,
    },
}

/// A valid reference in canonical form: with host, with `library/` where Docker Hub has it, and with a tag or a digest.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageRef {
    canonical: String,
    host_end: usize,
    name_end: usize,
    is_digest: bool,
}

impl ImageRef {
    /// Reads a reference as people write it. Given a tag and a digest, the tag is dropped, as runtimes do.
    ///
    /// # Errors
    /// See [`ReferenceError`]; the message says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        if text.len() > MAX_LENGTH {
            return Err(ReferenceError::TooLong(text.len()));
        }
        let invalid = |part| ReferenceError::Invalid {
            text: text.chars().take(100).collect(),
            part,
        };
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        let (name, tag) = split_tag(rest);
        if digest.is_some_and(|digest| !valid_digest(digest)) {
            return Err(invalid("the digest"));
        }
        if tag.is_some_and(|tag| !valid_tag(tag)) {
            return Err(invalid("the tag"));
        }
        let (host, path) = split_host(name);
        if !valid_host(host) {
            return Err(invalid("the host"));
        }
        if !valid_path(path) {
            let lowered = valid_path(&path.to_lowercase());
            return Err(if lowered {
                ReferenceError::UpperCase(name.to_owned())
            } else {
                invalid("the repository")
            });
        }
        if host.len() + 1 + path.len() > 255 {
            return Err(ReferenceError::TooLong(text.len()));
        }
        Ok(Self::assemble(host, path, tag, digest))
    }

    fn assemble(host: &str, path: &str, tag: Option<&str>, digest: Option<&str>) -> Self {
        let library = if host == DOCKER_HUB && !path.contains('/') {
            "library/"
        } else {
            ""
        };
        let name = format!("{host}/{library}{path}");
        let (host_end, name_end) = (host.len(), name.len());
        let canonical = match (tag, digest) {
            (_, Some(digest)) => format!("{name}@{digest}"),
            (tag, None) => format!("{name}:{}", tag.unwrap_or("latest")),
        };
        Self {
            canonical,
            host_end,
            name_end,
            is_digest: digest.is_some(),
        }
    }

    /// For example `docker.io/library/nginx:1.25` or `reg:5000/app@sha256:…`.
    #[must_use]
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// Registry with its port.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.canonical[..self.host_end]
    }

    /// Repository without the registry, for example `library/nginx`.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.canonical[self.host_end + 1..self.name_end]
    }

    /// Registry and repository.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.canonical[..self.name_end]
    }

    /// Tag, unless it is a digest reference.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        (!self.is_digest).then(|| &self.canonical[self.name_end + 1..])
    }

    /// Digest with its algorithm, if it is a digest reference.
    #[must_use]
    pub fn digest(&self) -> Option<&str> {
        self.is_digest.then(|| &self.canonical[self.name_end + 1..])
    }

    /// As OpenKruise and people write it: without the parts that are implied.
    #[must_use]
    pub fn familiar(&self) -> &str {
        self.canonical
            .strip_prefix("docker.io/library/")
            .or_else(|| self.canonical.strip_prefix("docker.io/"))
            .unwrap_or(&self.canonical)
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical)
    }
}

impl fmt::Debug for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical)
    }
}

const DOCKER_HUB: &str = "docker.io";

/// A colon behind the last slash starts a tag; one before it belongs to the port of the host.
fn split_tag(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (text, None),
    }
}

/// The first component is a host only if it cannot be a repository on Docker Hub.
fn split_host(name: &str) -> (&str, &str) {
    match name.split_once('/') {
        Some(("index.docker.io", path)) => (DOCKER_HUB, path),
        Some((host, path))
            if host.contains(['.', ':']) || host == "localhost" || host.chars().any(char::is_uppercase) =>
        {
            (host, path)
        }
        _ => (DOCKER_HUB, name),
    }
}

fn valid_host(host: &str) -> bool {
    let (labels, port) = match host.split_once(':') {
        Some((labels, port)) => (labels, Some(port)),
        None => (host, None),
    };
    let label_ok = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    labels.split('.').all(label_ok)
        && port.is_none_or(|port| !port.is_empty() && port.chars().all(|c| c.is_ascii_digit()))
}

fn valid_path(path: &str) -> bool {
    path.split('/').all(valid_component)
}

/// Runs of lower-case letters and digits, joined by `.`, `_`, `__` or any number of `-`.
fn valid_component(component: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ends_ok = component.starts_with(alphanumeric) && component.ends_with(alphanumeric);
    let separators_ok = component
        .split(alphanumeric)
        .filter(|separator| !separator.is_empty())
        .all(|separator| matches!(separator, "." | "_" | "__") || separator.chars().all(|c| c == '-'));
    ends_ok && separators_ok
}

fn valid_tag(tag: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= 128 && tag.starts_with(word) && tag.chars().all(|c| word(c) || c == '.' || c == '-')
}

fn valid_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else {
        return false;
    };
    let hex_ok = hex.len() >= 32 && hex.chars().all(|c| c.is_ascii_hexdigit());
    let length_ok = match algorithm {
        "sha256" => hex.len() == 64,
        "sha384" => hex.len() == 96,
        "sha512" => hex.len() == 128,
        _ => true,
    };
    let part_ok = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.chars().all(|c| c.is_ascii_alphanumeric())
    };
    hex_ok && length_ok && algorithm.split(['-', '_', '+', '.']).all(part_ok)
}

#[cfg(test)]
mod tests;
