//! The page that compares our CRDs with OpenKruise's, field by field.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kruise_api::crd::{self, compat};

use super::page_head;

/// One file per kind, by its plural.
const FOLDER: &str = "api/fixtures/openkruise";

pub(super) fn page(root: &Path) -> Result<String> {
    let mut page = page_head(
        "Compatibility with OpenKruise's CRDs",
        "the types of kruise-api and `api/fixtures/openkruise`",
    );
    page.push_str(
        "Fields of OpenKruise's CRDs (July 2026) and of ours, below `spec` and `status`. *Same*: in both, with the same type. *Extra*: here \
         only. *Missing*: there only. *Other type*: in both, with different types. *Stricter*: refused without it here only. \
         Tests hold the last three at 0, names, scopes, subresources and the first columns of `kubectl get` at what they are there, and have \
         objects that a running OpenKruise stored read, written and admitted without loss.\n\n\
         | Kind | Version | Same | Extra | Missing | Other type | Stricter |\n|---|---|---|---|---|---|---|\n",
    );
    let mut extras = String::new();
    for ours in crd::all() {
        let theirs = theirs(root, &ours)?;
        extras.push_str(&format!("\n### {}\n\n", theirs.kind));
        for version in compat::compare(&theirs, &ours) {
            page.push_str(&format!(
                "| {} | {} | {} | {} | {} | {} | {} |\n",
                theirs.kind,
                version.version,
                version.same.len(),
                version.extra.len(),
                version.missing.len(),
                version.changed.len(),
                version.stricter.len()
            ));
            extras.push_str(&format!("- {}: {}\n", version.version, listed(&version.extra)));
        }
    }
    page.push_str(
        "\n## Extra fields\n\nA client of OpenKruise neither sends nor needs them. The fields of [each kind](crds.md) say what they are for.\n",
    );
    Ok(page + &extras)
}

fn theirs(root: &Path, ours: &CustomResourceDefinition) -> Result<compat::Theirs> {
    let file = root.join(FOLDER).join(format!("{}.txt", ours.spec.names.plural));
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    compat::read(&text).with_context(|| format!("{} is not readable", file.display()))
}

fn listed(paths: &[String]) -> String {
    if paths.is_empty() {
        return "none".to_owned();
    }
    let words: Vec<_> = paths.iter().map(|path| format!("`{path}`")).collect();
    words.join(", ")
}
