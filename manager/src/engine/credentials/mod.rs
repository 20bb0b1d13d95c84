//! Which credentials of a job's pull secrets fit its image, and in which order they are tried.
//!
//! The rules are the kubelet's: an entry's host may hold globs, its port must match, its path must be a prefix, the more specific entry
//! goes first, and Docker Hub is also known as `index.docker.io`.

mod config;

use k8s_openapi::api::core::v1::Secret;
use kruise_api::reference::ImageRef;
use kruise_proto::dispatch::Credential;

pub(crate) use config::SecretProblem;

/// Key under which Docker's own tools store the login of Docker Hub.
const DOCKER_HUB_KEY: &str = "index.docker.io";

/// One entry of a docker configuration.
struct Entry {
    /// Host, port and path, without scheme and API version.
    key: String,
    credential: Credential,
}

/// Credentials for an image, in the order to be tried, from secrets in the order in which the job names them. None that fit means an anonymous
/// pull, as for a pod.
///
/// # Errors
/// A secret that cannot be read, by its name in the list.
pub(crate) fn matching<'a>(
    image: &ImageRef,
    secrets: impl IntoIterator<Item = (&'a str, &'a Secret)>,
) -> Result<Vec<Credential>, SecretProblem> {
    let mut entries = Vec::new();
    for (name, secret) in secrets {
        entries.extend(config::read(name, secret)?);
    }
    // A stable sort: entries of equal keys stay in the order of the secrets.
    entries.sort_by(|a, b| b.key.cmp(&a.key));
    let (host, path) = (image.host(), format!("/{}", image.repository()));
    let fits = |entry: &Entry| entry_matches(&entry.key, host, &path);
    let mut chosen: Vec<Credential> = entries
        .iter()
        .filter(|entry| fits(entry))
        .map(|entry| entry.credential.clone())
        .collect();
    if chosen.is_empty() && host == "docker.io" {
        chosen = entries
            .into_iter()
            .filter(|entry| entry.key == DOCKER_HUB_KEY)
            .map(|entry| entry.credential)
            .collect();
    }
    Ok(chosen)
}

fn entry_matches(key: &str, host: &str, path: &str) -> bool {
    let (key_host, key_path) = match key.split_once('/') {
        Some((host, path)) => (host, format!("/{path}")),
        None => (key, String::new()),
    };
    host_matches(key_host, host) && path.starts_with(&key_path)
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
mod tests;
