//! Pulls as spans of what they are a part of.

use jiff::{SignedDuration, Timestamp};
use kruise_api::ids::NodeName;
use kruise_planner::task::Phase;
use kruise_proto::convert::{from_duration, phase_from_number, reason_from_number};
use kruise_proto::task::TaskStatus;

use crate::telemetry::{Parent, Place, Span};

/// The span of a pull that has ended; none if nobody traces it. It ends when the leader hears of it and took what the agent measured: the clocks of
/// two machines are never compared.
pub(super) fn of_pull(node: &NodeName, status: &TaskStatus, heard: Timestamp) -> Option<Span> {
    let parent = Parent::parse(&status.traceparent)?;
    let phase = phase_from_number(status.phase);
    if !phase.is_final() {
        return None;
    }
    let took = status
        .pull_time
        .as_ref()
        .and_then(from_duration)
        .unwrap_or_default();
    let took = SignedDuration::try_from(took).unwrap_or_default();
    let failed = (phase == Phase::Failed).then(|| {
        let reason = reason_from_number(status.reason).map(|reason| reason.to_string());
        format!("{}: {}", reason.unwrap_or_default(), status.message)
    });
    Some(Span {
        parent,
        place: Place::Below(status.task_id.clone()),
        name: "pull image".into(),
        start: heard.saturating_sub(took).unwrap_or(heard),
        end: heard,
        about: vec![
            ("k8s.node.name", node.to_string()),
            ("container.image.name", status.image.clone()),
            ("kruise.bytes_fetched", status.bytes_fetched.to_string()),
            ("kruise.attempts", status.attempts.to_string()),
            ("kruise.already_present", status.already_present.to_string()),
        ],
        error: failed,
    })
}

#[cfg(test)]
mod tests {
    use kruise_proto::convert::to_duration;
    use kruise_proto::task;

    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn status(phase: task::Phase) -> TaskStatus {
        TaskStatus {
            task_id: "t".to_owned(),
            phase: phase.into(),
            image: "docker.io/library/nginx:1".to_owned(),
            message: "no such tag".to_owned(),
            reason: task::Reason::NotFound.into(),
            pull_time: Some(to_duration(std::time::Duration::from_millis(2500))),
            traceparent: TRACE.to_owned(),
            ..TaskStatus::default()
        }
    }

    #[test]
    fn a_pull_is_as_long_as_its_agent_says_and_ends_when_it_is_heard_of() {
        let (node, heard) = (NodeName::from("n"), Timestamp::from_second(1000).expect("a time"));
        let span = of_pull(&node, &status(task::Phase::Succeeded), heard).expect("a span");
        assert_eq!(
            span.start,
            heard
                .saturating_sub(SignedDuration::from_millis(2500))
                .expect("a time")
        );
        assert_eq!((span.end, span.error), (heard, None));
        let failed = of_pull(&node, &status(task::Phase::Failed), heard).expect("a span");
        assert_eq!(failed.error.as_deref(), Some("NotFound: no such tag"));
    }

    #[test]
    fn what_goes_on_or_is_not_traced_is_no_span() {
        let (node, heard) = (NodeName::from("n"), Timestamp::UNIX_EPOCH);
        assert!(of_pull(&node, &status(task::Phase::Pulling), heard).is_none());
        let untraced = TaskStatus {
            traceparent: String::new(),
            ..status(task::Phase::Succeeded)
        };
        assert!(of_pull(&node, &untraced, heard).is_none());
    }
}
