//! From the command line to the custom resource.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kruise_api::container_recreate_request::{
    ContainerRecreateRequest, ContainerRecreateRequestSpec, MIN_ACTIVE_DEADLINE_SECONDS, RecreateContainer,
    RecreateStrategy,
};

use super::RestartArgs;
use crate::exit::Usage;

/// Label of the requests of one run.
pub(super) const RUN_LABEL: &str = "crr.apps.kruise.io/restart-run";
/// Requests are of use for so long after their end: for people, and for a run that goes on.
const KEPT_SECONDS: i32 = 24 * 3600;
/// Longest name of an object.
const MAX_NAME: usize = 253;

/// A name for a run that nobody else has.
pub(super) fn run_name() -> String {
    let letters = b"bcdfghjklmnpqrstvwxz2456789";
    let mut number = RandomState::new().build_hasher().finish();
    let mut name = String::new();
    for _ in 0..6 {
        let index = usize::try_from(number % letters.len() as u64).unwrap_or(0);
        number /= letters.len() as u64;
        name.push(char::from(letters[index]));
    }
    name
}

/// Name of a pod's request: the same each time, so that a run makes none twice.
pub(super) fn name(run: &str, pod: &str) -> String {
    let room = MAX_NAME - run.len() - 1;
    let kept: String = pod.chars().take(room).collect();
    format!("{kept}-{run}")
}

/// The request for one pod.
pub(super) fn build(run: &str, pod: &Pod, args: &RestartArgs) -> Result<ContainerRecreateRequest, Usage> {
    let pod_name = pod.metadata.name.clone().unwrap_or_default();
    let all = || {
        let spec = pod.spec.as_ref();
        let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
        containers
            .iter()
            .map(|container| container.name.clone())
            .collect()
    };
    let names: Vec<String> = if args.containers.is_empty() {
        all()
    } else {
        args.containers.clone()
    };
    let seconds = |time: Option<Duration>| time.and_then(|time| i64::try_from(time.as_secs()).ok());
    let deadline = seconds(Some(args.deadline)).unwrap_or(i64::MAX);
    if deadline < MIN_ACTIVE_DEADLINE_SECONDS {
        return Err(Usage("--deadline takes 3s at least".to_owned()));
    }
    let min_started = seconds(args.min_started).unwrap_or(0);
    let mut request = ContainerRecreateRequest::new(
        &name(run, &pod_name),
        ContainerRecreateRequestSpec {
            pod_name,
            containers: names
                .into_iter()
                .map(|name| RecreateContainer {
                    name,
                    ..RecreateContainer::default()
                })
                .collect(),
            strategy: Some(RecreateStrategy {
                ordered_recreate: args.ordered,
                termination_grace_period_seconds: seconds(args.grace),
                unready_grace_period_seconds: seconds(args.drain),
                min_started_seconds: i32::try_from(min_started).unwrap_or(i32::MAX),
                ..RecreateStrategy::default()
            }),
            active_deadline_seconds: Some(deadline),
            ttl_seconds_after_finished: Some(KEPT_SECONDS),
        },
    );
    request.metadata.labels = Some([(RUN_LABEL.to_owned(), run.to_owned())].into());
    Ok(request)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn everything_lands_in_its_field() {
        let words = [
            "kruisectl",
            "restart",
            "pod/p",
            "-c",
            "web",
            "--ordered",
            "--grace",
            "5s",
            "--drain",
            "10s",
            "--deadline",
            "1m",
        ];
        let Command::Restart(args) = Cli::parse_from(words).command else {
            panic!("another command");
        };
        let mut pod = Pod::default();
        pod.metadata.name = Some("p".to_owned());
        let request = build("run1", &pod, &args).unwrap();
        assert_eq!(request.metadata.name.as_deref(), Some("p-run1"));
        assert_eq!(
            serde_json::to_value(&request.spec).unwrap(),
            serde_json::json!({
                "podName": "p", "containers": [{"name": "web"}], "activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 86400,
                "strategy": {"orderedRecreate": true, "terminationGracePeriodSeconds": 5, "unreadyGracePeriodSeconds": 10},
            })
        );
    }

    #[test]
    fn names_fit() {
        assert!(name("run1", &"p".repeat(253)).len() <= MAX_NAME);
        assert_eq!(run_name().len(), 6);
    }
}
