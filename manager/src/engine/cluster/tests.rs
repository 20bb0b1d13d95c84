use kube::core::Status;

use super::*;

fn api_error(code: u16, reason: &str, retry_after: u32) -> kube::Error {
    let status = json!({
        "code": code, "reason": reason, "message": "m", "details": {"retryAfterSeconds": retry_after}
    });
    let status: Status = serde_json::from_value(status).expect("a status");
    kube::Error::Api(Box::new(status))
}

#[test]
fn failures_by_what_to_do_next() {
    assert_eq!(failure(&api_error(409, "Conflict", 0)), ApiFailure::Conflict);
    assert_eq!(failure(&api_error(404, "NotFound", 0)), ApiFailure::Gone);
    assert_eq!(
        failure(&api_error(422, "Invalid", 0)),
        ApiFailure::Refused("m".into())
    );
    assert_eq!(
        failure(&api_error(403, "Forbidden", 0)),
        ApiFailure::Refused("m".into())
    );
    let unsure = |error| match failure(&error) {
        ApiFailure::Unsure { retry_after, .. } => retry_after,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        unsure(api_error(429, "TooManyRequests", 7)),
        Some(std::time::Duration::from_secs(7))
    );
    assert_eq!(unsure(api_error(500, "InternalError", 0)), None);
    let deposed = kube::Error::Service(Box::new(crate::leader::NotLeader { leader: None }));
    assert_eq!(failure(&deposed), ApiFailure::NotLeading);
}

#[test]
fn the_same_news_has_the_same_name() {
    let key = ObjectKey::new("ns", "j".repeat(253));
    let event = |message: &str| {
        let event = JobEvent {
            warning: true,
            reason: "PullImageFailed",
            message: message.to_owned(),
        };
        event_object(&"uid".into(), &key, event, Timestamp::UNIX_EPOCH)
    };
    let name = |event: Event| event.metadata.name.expect("named");
    assert_eq!(name(event("a")), name(event("a")));
    assert_ne!(name(event("a")), name(event("b")));
    assert!(name(event("a")).len() <= 253);
    let involved = event("a").involved_object;
    assert_eq!(involved.api_version.as_deref(), Some("apps.kruise.io/v1beta1"));
    assert_eq!(involved.kind.as_deref(), Some("ImagePullJob"));
}
