//! Which pods of a run are next, so that never more are down than may be.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use kruise_api::container_recreate_request::{ContainerRecreateRequest, keys};
use kruise_planner::restart::bulk::{self, Came, Candidate, Turn};
use serde_json::Value;

/// How one pod of a run stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Standing {
    /// Its turn has not come.
    Waits,
    /// Its request runs.
    Runs(String),
    /// Restarted, but not ready as a whole.
    Unready,
    /// Restarted; with the longest time that one of its containers was down, where that is known.
    Done(Option<f64>),
    /// It was not restarted.
    Failed(String),
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waits => f.write_str("waits for its turn"),
            Self::Runs(how) => f.write_str(how),
            Self::Unready => f.write_str("restarted, not ready yet"),
            Self::Done(Some(seconds)) => write!(f, "restarted, down {seconds:.1} s"),
            Self::Done(None) => f.write_str("restarted"),
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

/// A run at one moment.
pub(super) struct Run<'a> {
    pods: &'a [Pod],
    standings: BTreeMap<&'a str, Standing>,
    max_unavailable: usize,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        pods: &'a [Pod],
        requests: &[ContainerRecreateRequest],
        max_unavailable: usize,
    ) -> Self {
        let standings = pods
            .iter()
            .map(|pod| {
                let request = requests
                    .iter()
                    .find(|request| request.spec.pod_name == name_of(pod));
                (name_of(pod), standing(pod, request))
            })
            .collect();
        Self {
            pods,
            standings,
            max_unavailable,
        }
    }

    pub(super) fn standings(&self) -> impl Iterator<Item = (&'a str, &Standing)> {
        self.standings.iter().map(|(name, standing)| (*name, standing))
    }

    pub(super) fn done(&self) -> usize {
        self.standings
            .values()
            .filter(|standing| matches!(standing, Standing::Done(_)))
            .count()
    }

    pub(super) fn first(&self) -> &'a str {
        self.pods.first().map(name_of).unwrap_or_default()
    }

    /// Whether no pod waits or is being restarted.
    pub(super) fn is_over(&self) -> bool {
        self.standings
            .values()
            .all(|standing| matches!(standing, Standing::Done(_) | Standing::Failed(_)))
    }

    /// Whether no pod is being restarted.
    pub(super) fn is_idle(&self) -> bool {
        !self
            .standings
            .values()
            .any(|standing| matches!(standing, Standing::Runs(_)))
    }

    /// Pods to begin with now.
    pub(super) fn next(&self) -> Vec<&'a Pod> {
        let candidate = |pod: &'a Pod| Candidate {
            name: name_of(pod),
            available: is_ready(pod),
            turn: match self.standings.get(name_of(pod)) {
                Some(Standing::Waits) => Turn::Waits,
                Some(Standing::Runs(_)) => Turn::Runs,
                _ => Turn::Over,
            },
        };
        let candidates: Vec<Candidate<'a>> = self.pods.iter().map(candidate).collect();
        bulk::next(&candidates, self.max_unavailable)
            .into_iter()
            .filter_map(|name| self.pods.iter().find(|pod| name_of(pod) == name))
            .collect()
    }

    /// Pods that were restarted, the longest time down, and the sum.
    pub(super) fn downtime(&self) -> (u32, f64, f64) {
        let mut total = (0, 0.0_f64, 0.0_f64);
        for standing in self.standings.values() {
            if let Standing::Done(seconds) = standing {
                let seconds = seconds.unwrap_or_default();
                total = (total.0 + 1, total.1.max(seconds), total.2 + seconds);
            }
        }
        total
    }
}

fn name_of(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn standing(pod: &Pod, request: Option<&ContainerRecreateRequest>) -> Standing {
    let Some(request) = request else {
        return Standing::Waits;
    };
    match Came::of(request) {
        Came::Runs(how) => Standing::Runs(how),
        Came::Failed(why) => Standing::Failed(why),
        Came::Succeeded if !is_ready(pod) => Standing::Unready,
        Came::Succeeded => Standing::Done(down_seconds(request)),
    }
}

fn down_seconds(request: &ContainerRecreateRequest) -> Option<f64> {
    let text = request.metadata.annotations.as_ref()?.get(keys::RESTART_REPORT)?;
    let report: Vec<Value> = serde_json::from_str(text).ok()?;
    report
        .iter()
        .filter_map(|container| container["downSeconds"].as_f64())
        .reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, ready: bool) -> Pod {
        let status = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        }))
        .unwrap()
    }

    fn request(pod: &str, phase: Option<&str>) -> ContainerRecreateRequest {
        let status = match phase {
            None => Value::Null,
            Some("Recreating") => json!({"phase": "Recreating"}),
            Some(end) => json!({"phase": "Completed", "completionTime": "2026-11-30T16:58:18Z",
                "containerRecreateStates": [{"name": "web", "phase": end, "message": "x"}]}),
        };
        serde_json::from_value(json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ContainerRecreateRequest",
            "metadata": {"name": pod, "annotations": {keys::RESTART_REPORT: r#"[{"name":"web","downSeconds":1.5}]"#}},
            "spec": {"podName": pod, "containers": [{"name": "web"}]},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_that_is_restarted_and_not_ready_holds_the_others_up() {
        let next = |pods: &[Pod], requests: &[ContainerRecreateRequest]| -> Vec<String> {
            let run = Run::new(pods, requests, 1);
            run.next().iter().map(|pod| name_of(pod).to_owned()).collect()
        };
        let pods = [pod("a", true), pod("b", false), pod("c", true)];
        assert_eq!(next(&pods, &[]), ["b"]);
        assert_eq!(next(&pods, &[request("b", Some("Succeeded"))]), [] as [&str; 0]);
        assert_eq!(next(&pods[..1], &[request("a", None)]), [] as [&str; 0]);
    }

    #[test]
    fn how_pods_stand() {
        let pods = [pod("a", true)];
        let of = |phase| {
            let requests = [request("a", phase)];
            let run = Run::new(&pods, &requests, 1);
            let standing = run.standings().next().unwrap().1.clone();
            (standing.to_string(), run.is_over(), run.is_idle())
        };
        assert_eq!(
            of(Some("Succeeded")),
            ("restarted, down 1.5 s".to_owned(), true, true)
        );
        assert_eq!(of(Some("Failed")), ("failed: web: x".to_owned(), true, true));
        assert_eq!(
            of(Some("Recreating")),
            ("being restarted".to_owned(), false, false)
        );
    }
}
