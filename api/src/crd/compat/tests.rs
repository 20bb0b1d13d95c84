mod objects;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};

use super::*;
use crate::crd;

/// Ours and theirs, of each kind that is served.
fn pairs() -> [(CustomResourceDefinition, Theirs); 5] {
    [
        (
            crd::clone_set(),
            include_str!("../../../fixtures/openkruise/clonesets.txt"),
        ),
        (
            crd::container_recreate_request(),
            include_str!("../../../fixtures/openkruise/containerrecreaterequests.txt"),
        ),
        (
            crd::image_list_pull_job(),
            include_str!("../../../fixtures/openkruise/imagelistpulljobs.txt"),
        ),
        (
            crd::image_pull_job(),
            include_str!("../../../fixtures/openkruise/imagepulljobs.txt"),
        ),
        (
            crd::node_image(),
            include_str!("../../../fixtures/openkruise/nodeimages.txt"),
        ),
    ]
    .map(|(crd, text)| (crd, read(text).expect("readable")))
}

#[test]
fn every_field_of_openkruise_is_there_with_the_same_type() {
    for (ours, theirs) in pairs() {
        let found = compare(&theirs, &ours);
        assert_eq!(found.len(), 2, "{}", theirs.kind);
        for version in found {
            let name = format!("{} {}", theirs.kind, version.version);
            assert!(version.same.len() > 30, "{name}: {} fields", version.same.len());
            assert_eq!(version.missing, Vec::<String>::new(), "{name}");
            assert_eq!(version.changed, [], "{name}");
            assert_eq!(version.stricter, Vec::<String>::new(), "{name}");
        }
    }
}

#[test]
fn names_versions_and_subresources_are_the_same() {
    for (ours, theirs) in pairs() {
        let names = &ours.spec.names;
        assert_eq!((&names.kind, &names.plural), (&theirs.kind, &theirs.plural));
        assert_eq!(ours.spec.scope, theirs.scope, "{}", theirs.kind);
        let short = names.short_names.clone().unwrap_or_default();
        for name in &theirs.short_names {
            assert!(short.contains(name), "{}: {short:?}", theirs.kind);
        }
        assert_eq!(ours.spec.versions.len(), theirs.versions.len());
        for (ours, wanted) in ours.spec.versions.iter().zip(&theirs.versions) {
            assert_eq!((&ours.name, ours.storage), (&wanted.name, wanted.stored));
            let own = ours.subresources.as_ref().expect("subresources");
            assert!(ours.served && own.status.is_some(), "{}", theirs.kind);
            let scale = own.scale.as_ref().map(|scale| {
                let selector = scale.label_selector_path.clone().unwrap_or_default();
                [
                    scale.spec_replicas_path.clone(),
                    scale.status_replicas_path.clone(),
                    selector,
                ]
            });
            assert_eq!(scale, wanted.scale, "{}", theirs.kind);
        }
    }
}

/// Scripts split lines at columns, so ours come behind theirs.
#[test]
fn columns_begin_with_openkruises() {
    let shown = |version: &CustomResourceDefinitionVersion, wide: bool| -> Vec<Column> {
        let columns = version.additional_printer_columns.iter().flatten();
        columns
            .map(|column| Column {
                name: column.name.clone(),
                kind: column.type_.clone(),
                path: column.json_path.clone(),
                wide: column.priority.is_some_and(|priority| priority > 0),
            })
            .filter(|column| column.wide == wide)
            .collect()
    };
    for (ours, theirs) in pairs() {
        for (ours, wanted) in ours.spec.versions.iter().zip(&theirs.versions) {
            for wide in [false, true] {
                let wanted = wanted.columns.iter().filter(|column| column.wide == wide);
                let wanted: Vec<Column> = wanted.cloned().collect();
                let mut here = shown(ours, wide);
                if wide {
                    here.truncate(wanted.len());
                }
                assert_eq!(here, wanted, "{} {}", theirs.kind, ours.name);
            }
        }
    }
}

#[test]
fn a_difference_is_noticed() {
    let text = "kind NodeImage\nversion v1beta1 stored\nspec object required\nspec.images string\nspec.more map\nversion v2\nspec object\n";
    let theirs = read(text).expect("readable");
    let found = compare(&theirs, &crd::node_image());
    assert_eq!(found[0].missing, ["spec.more"]);
    let changed = ("spec.images".to_owned(), "string".to_owned(), "map".to_owned());
    assert_eq!(found[0].changed, [changed]);
    assert!(found[0].extra.contains(&"status".to_owned()));
    assert_eq!((found[1].missing.len(), found[1].same.len()), (1, 0));
}

#[test]
fn what_is_not_understood_is_told_with_its_line() {
    for (text, line) in [
        ("kind", 1),
        ("spec object", 1),
        ("version v1\n\nspec object must", 3),
        ("version v1 kept", 1),
    ] {
        assert_eq!(read(text).expect_err(text).line, line, "{text}");
    }
}
