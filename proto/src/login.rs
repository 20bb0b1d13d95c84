//! Docker configurations: which of their entries fit an image, and in which order they are tried.
//!
//! The rules are the kubelet's: an entry's host may hold globs, its port must match, its path must be a prefix, the more specific entry
//! goes first, and Docker Hub is also known as `index.docker.io`.

mod config;

use kruise_api::reference::ImageRef;

use crate::dispatch::Credential;

pub use config::{Malformed, entry_key, read_docker_config, read_dockercfg};

/// Key under which Docker's own tools store the login of Docker Hub.
const DOCKER_HUB_KEY: &str = "index.docker.io";

/// One entry of a docker configuration.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Host, port and path, without scheme and API version.
    pub key: String,
    /// Its `Debug` shows nothing.
    pub credential: Credential,
}

/// Credentials for an image, in the order to be tried. Entries of equal keys stay in their order.
#[must_use]
pub fn matching(image: &ImageRef, mut entries: Vec<Entry>) -> Vec<Credential> {
    entries.sort_by(|a, b| b.key.cmp(&a.key));
    let chosen: Vec<Credential> = entries
        .iter()
        .filter(|entry| key_matches(&entry.key, image))
        .map(|entry| entry.credential.clone())
        .collect();
    if !chosen.is_empty() || image.host() != "docker.io" {
        return chosen;
    }
    entries
        .into_iter()
        .filter(|entry| entry.key == DOCKER_HUB_KEY)
        .map(|entry| entry.credential)
        .collect()
}

/// Whether a key such as `*.example.com:5000/team` is one for this image.
#[must_use]
pub fn key_matches(key: &str, image: &ImageRef) -> bool {
    let (key_host, key_path) = match key.split_once('/') {
        Some((host, path)) => (host, format!("/{path}")),
        None => (key, String::new()),
    };
    host_matches(key_host, image.host()) && format!("/{}", image.repository()).starts_with(&key_path)
}

/// Ports must be equal, and hosts must have as many parts as the pattern, each of which may be a glob.
fn host_matches(pattern: &str, host: &str) -> bool {
    let split = |text: &str| match text.rsplit_once(':') {
        Some((host, port)) => (host.to_owned(), Some(port.to_owned())),
        None => (text.to_owned(), None),
    };
    let ((pattern, pattern_port), (host, port)) = (split(pattern), split(host));
    if pattern_port != port || pattern.split('.').count() != host.split('.').count() {
        return false;
    }
    pattern
        .split('.')
        .zip(host.split('.'))
        .all(|(glob, text)| glob_matches(glob.as_bytes(), text.as_bytes()))
}

/// `*` is any run of characters and `?` is one. Iterative, so that no pattern takes more than its length times the text's.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut at_glob, mut at_text) = (0, 0);
    let mut star = None;
    while at_text < text.len() {
        match glob.get(at_glob) {
            Some(b'*') => {
                star = Some((at_glob, at_text));
                at_glob += 1;
            }
            Some(wanted) if *wanted == b'?' || *wanted == text[at_text] => {
                at_glob += 1;
                at_text += 1;
            }
            _ => {
                let Some((glob_star, text_star)) = star else {
                    return false;
                };
                star = Some((glob_star, text_star + 1));
                at_glob = glob_star + 1;
                at_text = text_star + 1;
            }
        }
    }
    glob[at_glob..].iter().all(|rest| *rest == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(image: &str, config: &str) -> Vec<String> {
        let image = ImageRef::parse(image).expect("a valid image");
        let entries = read_docker_config(config.as_bytes()).expect("a configuration");
        let found = matching(&image, entries);
        found.into_iter().map(|credential| credential.username).collect()
    }

    #[test]
    fn keys() {
        for (key, image, fits) in [
            ("reg.example.com", "reg.example.com/team/app:1", true),
            ("reg.example.com/team", "reg.example.com/team/app:1", true),
            ("reg.example.com/other", "reg.example.com/team/app:1", false),
            ("reg.example.com:5000", "reg.example.com/team/app:1", false),
            ("*.example.com", "a.b.example.com/team/app:1", false),
            (
                "*.dkr.ecr.*.amazonaws.com",
                "1.dkr.ecr.eu.amazonaws.com/app:1",
                true,
            ),
            ("r?g.ex*.com", "reg.example.com/team/app:1", true),
        ] {
            let image = ImageRef::parse(image).expect("a valid image");
            assert_eq!(key_matches(key, &image), fits, "{key} {image}");
        }
    }

    #[test]
    fn the_more_specific_entry_goes_first() {
        let config = r#"{"auths":{
            "https://reg.io/v2/": {"username": "host", "password": "p"},
            "reg.io/team": {"auth": "dGVhbTpw"},
            "https://index.docker.io/v1/": {"username": "hub", "password": "p"}}}"#;
        assert_eq!(users("reg.io/team/app:1", config), ["team", "host"]);
        assert_eq!(users("nginx:1", config), ["hub"]);
        assert_eq!(users("other.io/app:1", config), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_configuration_says_nothing_of_its_content() {
        for text in [
            "hunter2",
            r#"{"auths":{"a":{"auth":"hunter2!"}}}"#,
            r#"{"auths":[]}"#,
        ] {
            let error = read_docker_config(text.as_bytes()).expect_err("no configuration");
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
        assert_eq!(read_docker_config(b"{}").expect("no entries").len(), 0);
        assert_eq!(
            read_dockercfg(br#"{"reg.io":{"username":"u"}}"#)
                .expect("one")
                .len(),
            1
        );
    }

    #[test]
    fn globs_end_soon() {
        let glob = "*a".repeat(200);
        let text = "a".repeat(2_000) + "b";
        assert!(!glob_matches(glob.as_bytes(), text.as_bytes()));
    }
}
