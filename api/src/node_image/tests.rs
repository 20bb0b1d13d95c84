use super::{ImageTag, NodeImage, belongs_to_jobs, reference};

#[test]
fn a_node_image_as_openkruise_wrote_it_survives_a_round_trip() {
    let text = include_str!("../../fixtures/nodeimage-v1beta1.yaml");
    let stored: serde_json::Value = serde_norway::from_str(text).expect("readable");
    let image: NodeImage = serde_json::from_value(stored.clone()).expect("readable");
    let tag = &image.spec.images["nginx"].tags[0];
    assert!(belongs_to_jobs(tag));
    let status = &image.status.as_ref().expect("has one").image_statuses["nginx"].tags[0];
    assert_eq!((status.version, status.progress), (0, 100));
    let again = serde_json::to_value(&image).expect("writable");
    assert_eq!(again["spec"], stored["spec"]);
}

/// Otherwise a read and a write through v1alpha1 would lose it.
#[test]
fn row_01_the_mode_of_a_secret_is_kept_in_both_versions() {
    let crd = serde_json::to_value(crate::crd::node_image()).expect("writable");
    for version in crd["spec"]["versions"].as_array().expect("versions") {
        let images = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["images"];
        let secret = &images["additionalProperties"]["properties"]["pullSecrets"]["items"];
        assert_eq!(
            secret["properties"]["mode"]["type"], "string",
            "{}",
            version["name"]
        );
    }
}

#[test]
fn owners_of_another_kind_make_a_request_of_its_own() {
    let tag = |owners: &str| -> ImageTag {
        serde_json::from_str(&format!(r#"{{"tag":"1","ownerReferences":{owners}}}"#)).expect("readable")
    };
    assert!(!belongs_to_jobs(&tag("[]")));
    assert!(!belongs_to_jobs(&tag(
        r#"[{"apiVersion":"v1","kind":"Pod","name":"p"}]"#
    )));
    assert!(belongs_to_jobs(&tag(
        r#"[{"apiVersion":"apps.kruise.io/v1alpha1","kind":"ImagePullJob","name":"p"}]"#
    )));
}

#[test]
fn a_digest_is_joined_as_such() {
    assert_eq!(reference("nginx", "1.9"), "nginx:1.9");
    assert_eq!(reference("r:5000/a", "sha256:0f"), "r:5000/a@sha256:0f");
}
