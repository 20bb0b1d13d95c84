//! From the command line to the custom resource.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kruise_api::container_recreate_request::run::{self, RunName, RunOptions};
use kruise_api::container_recreate_request::{
    ContainerRecreateRequest, MIN_ACTIVE_DEADLINE_SECONDS, RecreateStrategy,
};

use kruise_planner::letters::spell;

use super::RestartArgs;
use crate::exit::Usage;

/// Requests are of use for so long after their end: for people, and for a run that goes on.
const KEPT_SECONDS: i32 = 24 * 3600;

/// A name for a run that nobody else has.
pub(super) fn run_name() -> String {
    spell(RandomState::new().build_hasher().finish(), 6)
}

/// The request for one pod.
pub(super) fn build(run: &RunName, pod: &Pod, args: &RestartArgs) -> Result<ContainerRecreateRequest, Usage> {
    let seconds = |time: Option<Duration>| time.and_then(|time| i64::try_from(time.as_secs()).ok());
    let deadline_seconds = seconds(Some(args.deadline)).unwrap_or(i64::MAX);
    if deadline_seconds < MIN_ACTIVE_DEADLINE_SECONDS {
        return Err(Usage("--deadline takes 3s at least".to_owned()));
    }
    let min_started = seconds(args.min_started).unwrap_or(0);
    let options = RunOptions {
        containers: args.containers.clone(),
        strategy: RecreateStrategy {
            ordered_recreate: args.ordered,
            termination_grace_period_seconds: seconds(args.grace),
            unready_grace_period_seconds: seconds(args.drain),
            min_started_seconds: i32::try_from(min_started).unwrap_or(i32::MAX),
            ..RecreateStrategy::default()
        },
        deadline_seconds,
        kept_seconds: KEPT_SECONDS,
    };
    Ok(run::request(run, pod, &options))
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
        let request = build(&RunName::of("run1").unwrap(), &pod, &args).unwrap();
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
    fn a_new_name_needs_no_hash() {
        let name = run_name();
        assert_eq!(RunName::of(&name).unwrap().as_str(), name);
        assert_eq!(run_name().len(), 6);
    }
}
