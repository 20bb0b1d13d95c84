//! From the command line to the custom resource.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kruise_api::image_pull_job::{
    CompletionPolicy, ImagePullJob, ImagePullJobSpec, NodeSelector, PullPolicy,
};
use kruise_api::reference::ImageRef;

use super::selector;
use crate::args::{PullArgs, Ttl};
use crate::exit::Usage;

/// A job that nobody needs any more goes by itself.
const DEFAULT_TTL: Ttl = Ttl::After(Duration::from_secs(24 * 3600));

/// The job that was asked for, without its namespace.
pub(super) fn build(args: &PullArgs) -> Result<ImagePullJob, Usage> {
    let reference = ImageRef::parse(&args.image).map_err(|error| Usage(error.to_string()))?;
    let selector = match &args.selector {
        Some(labels) => Some(selector::parse(labels).map_err(Usage)?),
        None if args.nodes.is_empty() => None,
        None => Some(NodeSelector {
            names: Some(args.nodes.clone()),
            ..Default::default()
        }),
    };
    let mut pull_policy = PullPolicy::default();
    // One attempt may not be longer than the whole job; the API server refuses that.
    let default = Duration::from_secs(pull_policy.timeout().into());
    let shorter = args.deadline.filter(|deadline| *deadline < default);
    if let Some(timeout) = args.timeout.or(shorter) {
        pull_policy.timeout_seconds = Some(whole_seconds(timeout, "--timeout", 1)?);
    }
    if let Some(limit) = args.backoff_limit {
        pull_policy.backoff_limit = Some(limit.into());
    }
    let mut completion_policy = CompletionPolicy::default();
    if let Some(deadline) = args.deadline {
        completion_policy.active_deadline_seconds = Some(whole_seconds(deadline, "--deadline", 1)?.into());
    }
    if let Ttl::After(ttl) = args.ttl.unwrap_or(DEFAULT_TTL) {
        completion_policy.ttl_seconds_after_finished = Some(whole_seconds(ttl, "--ttl", 0)?);
    }
    let parallelism = i32::try_from(args.parallelism.unwrap_or(1))
        .map_err(|_| Usage("--parallelism is too large".to_owned()))?;
    let mut job = ImagePullJob::new(
        "",
        ImagePullJobSpec {
            image: args.image.clone(),
            pull_secrets: args.pull_secrets.clone(),
            selector,
            parallelism: Some(IntOrString::Int(parallelism)),
            pull_policy,
            completion_policy,
            image_pull_policy: if args.always { "Always" } else { "IfNotPresent" }.to_owned(),
            ..Default::default()
        },
    );
    job.metadata.name = args.name.clone();
    job.metadata.generate_name = args.name.is_none().then(|| prefix(&reference));
    Ok(job)
}

fn whole_seconds(time: Duration, flag: &str, least: i32) -> Result<i32, Usage> {
    let seconds = i32::try_from(time.as_secs())
        .ok()
        .filter(|seconds| *seconds >= least);
    seconds.ok_or_else(|| {
        Usage(format!(
            "{flag} takes whole seconds from {least} on, at most 68 years"
        ))
    })
}

/// A name that tells people what is pulled; the API server adds five letters.
fn prefix(reference: &ImageRef) -> String {
    let short = reference.repository().rsplit('/').next().unwrap_or_default();
    let tag = reference.tag().map(|tag| format!("-{tag}")).unwrap_or_default();
    let name = format!("pull-{short}{tag}").to_ascii_lowercase();
    let mut plain = String::new();
    for c in name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(50)
    {
        if c != '-' || !plain.ends_with('-') {
            plain.push(c);
        }
    }
    format!("{}-", plain.trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn job(words: &[&str]) -> Result<ImagePullJob, Usage> {
        let words = ["kruisectl", "pull"].iter().chain(words);
        match Cli::parse_from(words).command {
            Command::Pull(args) => build(&args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everything_lands_in_its_field() {
        let job = job(&[
            "registry.example.com/team/app:1.2",
            "--nodes",
            "a,b",
            "-p",
            "7",
            "--timeout",
            "5m",
            "--backoff-limit",
            "1",
            "--deadline",
            "1h",
            "--ttl",
            "0",
            "--name",
            "x",
            "--pull-secret",
            "s",
            "--always",
        ])
        .unwrap();
        assert_eq!(job.metadata.name.as_deref(), Some("x"));
        let spec = serde_json::to_value(&job.spec).unwrap();
        assert_eq!(
            spec,
            serde_json::json!({
                "image": "registry.example.com/team/app:1.2",
                "pullSecrets": ["s"],
                "selector": {"names": ["a", "b"]},
                "parallelism": 7,
                "pullPolicy": {"timeoutSeconds": 300, "backoffLimit": 1},
                "completionPolicy": {"type": "Always", "activeDeadlineSeconds": 3600, "ttlSecondsAfterFinished": 0},
                "imagePullPolicy": "Always",
            })
        );
    }

    #[test]
    fn left_out_means_all_nodes_one_at_a_time_and_a_day() {
        let job = job(&["app"]).unwrap();
        assert_eq!(job.metadata.generate_name.as_deref(), Some("pull-app-latest-"));
        assert_eq!(job.spec.selector, None);
        assert_eq!(job.spec.parallelism, Some(IntOrString::Int(1)));
        assert_eq!(
            job.spec.completion_policy.ttl_seconds_after_finished,
            Some(86_400)
        );
    }

    #[test]
    fn names_are_made_of_what_names_may_have() {
        let name = |image: &str| job(&[image]).unwrap().metadata.generate_name.unwrap();
        assert_eq!(name("r.example.com:5000/a/b__c:V1.2_x"), "pull-b-c-v1-2-x-");
        assert_eq!(name(&format!("app@sha256:{}", "0".repeat(64))), "pull-app-");
        assert!(name(&format!("{}:1", "a".repeat(200))).len() <= 51);
    }

    #[test]
    fn wrong_use_is_refused_before_the_cluster_is_asked() {
        for words in [&["App"][..], &["app", "--timeout", "0"], &["app", "-l", "a b"]] {
            assert!(job(words).is_err(), "{words:?}");
        }
    }
}
