//! Runs: the requests that are made one after the other to restart all pods of a workload.
//!
//! The names of the requests follow from the run and the pods, so that whoever makes one twice finds it there.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::{
    ContainerRecreateRequest, ContainerRecreateRequestSpec, RecreateContainer, RecreateStrategy, keys,
};

/// Longest name of an object.
const MAX_NAME: usize = 253;
/// Longest value of a label.
const MAX_LABEL: usize = 63;
/// A dash and the hash of what was cut off or replaced.
const TAIL: usize = 17;

/// Name of a run, as the label of its requests and the end of their names carry it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunName(String);

impl RunName {
    /// From what somebody wrote. A text that may end the name of an object stays as it is; of any other, a time for example, a readable part and
    /// a hash are left. None for an empty text.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if text.len() <= MAX_LABEL
            && text.bytes().all(plain)
            && !text.starts_with('-')
            && !text.ends_with('-')
        {
            return Some(Self(text.to_owned()));
        }
        let readable: String = text
            .to_lowercase()
            .chars()
            .map(|letter| {
                if letter.is_ascii_alphanumeric() {
                    letter
                } else {
                    '-'
                }
            })
            .take(MAX_LABEL - TAIL)
            .collect();
        let readable = readable.trim_matches('-');
        let hash = fnv64(text);
        Some(Self(if readable.is_empty() {
            format!("{hash:016x}")
        } else {
            format!("{readable}-{hash:016x}")
        }))
    }

    /// As the label has it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Name of the request for a pod: the same each time, and another for each pod.
    #[must_use]
    pub fn request_for(&self, pod: &str) -> String {
        let room = MAX_NAME - self.0.len() - 1;
        if pod.len() <= room {
            return format!("{pod}-{}", self.0);
        }
        let kept: String = pod.chars().take(room - TAIL).collect();
        format!("{kept}-{:016x}-{}", fnv64(pod), self.0)
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn fnv64(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What the requests of a run have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Containers in the order in which they are stopped; all when there are none.
    pub containers: Vec<String>,
    /// How each pod is restarted.
    pub strategy: RecreateStrategy,
    /// Seconds after which the request of a pod ends.
    pub deadline_seconds: i64,
    /// Seconds for which a request is kept after its end.
    pub kept_seconds: i32,
}

/// The request of a run for one pod.
#[must_use]
pub fn request(run: &RunName, pod: &Pod, options: &RunOptions) -> ContainerRecreateRequest {
    let pod_name = pod.name_any();
    let names = if options.containers.is_empty() {
        let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice());
        let containers = containers.unwrap_or_default().iter();
        containers.map(|container| container.name.clone()).collect()
    } else {
        options.containers.clone()
    };
    let containers = names.into_iter().map(|name| RecreateContainer {
        name,
        ..RecreateContainer::default()
    });
    let mut request = ContainerRecreateRequest::new(
        &run.request_for(&pod_name),
        ContainerRecreateRequestSpec {
            pod_name,
            containers: containers.collect(),
            strategy: Some(options.strategy.clone()),
            active_deadline_seconds: Some(options.deadline_seconds),
            ttl_seconds_after_finished: Some(options.kept_seconds),
        },
    );
    request.metadata.labels = Some([(keys::RESTART_RUN.to_owned(), run.0.clone())].into());
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{is_label_value, is_subdomain};

    #[test]
    fn names_of_runs() {
        for same in ["abc123", "2026-12-01", "a", &"a".repeat(63)] {
            assert_eq!(RunName::of(same).expect("a name").as_str(), same);
        }
        assert_eq!(RunName::of(""), None);
        let mut seen = std::collections::BTreeSet::new();
        for other in [
            "2026-12-01T12:00:00Z",
            "2026-12-01T12:00:00z",
            "A",
            "-",
            "--",
            "a-",
            "\u{e4}\u{f6}\u{fc}",
            &"a".repeat(64),
            &"A.".repeat(400),
        ] {
            let name = RunName::of(other).expect("a name");
            assert!(is_label_value(name.as_str()), "{name}");
            assert!(is_subdomain(&name.request_for("web-1")), "{name}");
            assert!(seen.insert(name), "{other}");
        }
    }

    #[test]
    fn names_of_requests_fit_and_differ() {
        let run = RunName::of(&"r".repeat(63)).expect("a name");
        assert_eq!(
            RunName::of("run").expect("a name").request_for("web-1"),
            "web-1-run"
        );
        let (one, two) = (format!("{}1", "p".repeat(252)), format!("{}2", "p".repeat(252)));
        let names = [run.request_for(&one), run.request_for(&two)];
        assert!(
            names
                .iter()
                .all(|name| name.len() <= MAX_NAME && is_subdomain(name))
        );
        assert_ne!(names[0], names[1]);
    }

    #[test]
    fn all_containers_unless_some_are_named() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p"}, "spec": {"containers": [{"name": "b"}, {"name": "a"}]},
        }))
        .expect("a pod");
        let run = RunName::of("r").expect("a name");
        let names = |containers: &[&str]| {
            let options = RunOptions {
                containers: containers.iter().map(|name| (*name).to_owned()).collect(),
                ..RunOptions::default()
            };
            let made = request(&run, &pod, &options);
            assert_eq!(made.metadata.labels.expect("labels")[keys::RESTART_RUN], "r");
            let containers = made.spec.containers.into_iter();
            containers.map(|container| container.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), ["b", "a"]);
        assert_eq!(names(&["a"]), ["a"]);
    }
}
