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
