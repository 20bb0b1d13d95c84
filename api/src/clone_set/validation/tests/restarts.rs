//! Annotations by which containers are restarted.

use super::*;

#[test]
fn annotations_of_restarts_are_checked_in_both_versions() {
    let object = with(&[(
        "metadata/annotations",
        json!({"apps.kruise.io/restart": "now", "apps.kruise.io/restart-max-unavailable": "0%"}),
    )]);
    let reports = [
        validate(&newer(&object), None, &ALONE),
        validate_v1alpha1(&older(&object), None, &ALONE),
    ];
    for report in reports {
        assert_eq!(
            fields(&report),
            ["metadata.annotations[apps.kruise.io/restart-max-unavailable]"]
        );
        assert!(report.errors[0].message.contains("accepted are"), "{report:?}");
    }
}

#[test]
fn a_change_beside_the_spec_is_refused_for_what_it_sets_and_for_nothing_else() {
    let metadata = |annotations: &[(&str, &str)]| ObjectMeta {
        annotations: Some(
            annotations
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        ),
        ..ObjectMeta::default()
    };
    let bad = metadata(&[("apps.kruise.io/restart-ordered", "yes")]);
    let refused = validate_metadata(&bad, &ObjectMeta::default());
    assert_eq!(
        fields(&refused),
        ["metadata.annotations[apps.kruise.io/restart-ordered]"]
    );
    assert!(
        validate_metadata(&bad, &bad).errors.is_empty(),
        "it was there before"
    );
    let more = metadata(&[("apps.kruise.io/restart-ordered", "yes"), ("a", "b")]);
    assert!(
        validate_metadata(&more, &bad).errors.is_empty(),
        "another one is added"
    );
    assert!(
        validate_metadata(&ObjectMeta::default(), &bad).errors.is_empty(),
        "it is taken away"
    );
}
