//! CustomResourceDefinitions for the chart, and a page about their fields.

use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kruise_api::crd;

use super::{Files, cell, page_head};

/// Helm leaves what carries this alone when the chart is uninstalled.
const KEEP: (&str, &str) = ("helm.sh/resource-policy", "keep");

/// The chart installs what lies here.
const CHART: &str = "deploy/chart/files/crds";

pub(super) fn files() -> Result<Files> {
    let mut files = Files::new();
    for mut crd in crd::all() {
        let name = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        let annotations = crd.metadata.annotations.get_or_insert_default();
        annotations.insert(KEEP.0.to_owned(), KEEP.1.to_owned());
        let yaml = serde_norway::to_string(&crd).with_context(|| format!("cannot write {name}"))?;
        let text = format!("# Made by `cargo xtask codegen` from the types of kruise-api.\n{yaml}");
        files.insert(PathBuf::from(CHART).join(name), text.into_bytes());
    }
    Ok(files)
}

pub(super) fn page() -> String {
    let mut page = page_head("Custom resources", "the types of kruise-api");
    for crd in crd::all() {
        page.push_str(&resource(&crd));
    }
    page
}

fn resource(crd: &CustomResourceDefinition) -> String {
    let names = &crd.spec.names;
    let short = names.short_names.clone().unwrap_or_default().join(", ");
    let versions: Vec<_> = crd
        .spec
        .versions
        .iter()
        .map(|version| {
            format!(
                "`{}`{}",
                version.name,
                if version.storage { " (stored)" } else { "" }
            )
        })
        .collect();
    let mut text = format!(
        "## {}\n\n`{}.{}`, short name `{short}`, {}, versions {}.\n\n",
        names.kind,
        names.plural,
        crd.spec.group,
        crd.spec.scope.to_lowercase(),
        versions.join(", ")
    );
    let Some(stored) = crd.spec.versions.iter().find(|version| version.storage) else {
        return text;
    };
    for part in ["spec", "status"] {
        let Some(schema) = part_of(stored, part) else {
            continue;
        };
        text.push_str(&format!(
            "### {part}\n\n| Field | Type | Default | Meaning |\n|---|---|---|---|\n"
        ));
        rows(schema, "", &mut text);
        text.push('\n');
        for rule in schema.x_kubernetes_validations.iter().flatten() {
            text.push_str(&format!("- {}\n", rule.message.as_deref().unwrap_or(&rule.rule)));
        }
        if schema.x_kubernetes_validations.is_some() {
            text.push('\n');
        }
    }
    text.push_str(&columns(stored));
    text
}

fn part_of<'a>(version: &'a CustomResourceDefinitionVersion, part: &str) -> Option<&'a JSONSchemaProps> {
    version
        .schema
        .as_ref()?
        .open_api_v3_schema
        .as_ref()?
        .properties
        .as_ref()?
        .get(part)
}

fn rows(schema: &JSONSchemaProps, prefix: &str, text: &mut String) {
    let required = schema.required.clone().unwrap_or_default();
    for (name, field) in schema.properties.iter().flatten() {
        let path = format!("{prefix}{name}");
        let default = match &field.default {
            Some(default) => format!("`{}`", default.0),
            None if required.contains(name) => "required".to_owned(),
            None => String::new(),
        };
        let meaning = meaning(field);
        text.push_str(&format!(
            "| `{path}` | {} | {} | {} |\n",
            kind(field),
            cell(&default),
            cell(&meaning)
        ));
        rows(field, &format!("{path}."), text);
        if let Some(JSONSchemaPropsOrArray::Schema(item)) = &field.items {
            rows(item, &format!("{path}[]."), text);
        }
    }
}

fn meaning(field: &JSONSchemaProps) -> String {
    let mut text = field.description.clone().unwrap_or_default();
    for rule in field.x_kubernetes_validations.iter().flatten() {
        let message = rule.message.as_deref().unwrap_or(&rule.rule);
        text = format!("{text} Refused otherwise: {message}.");
    }
    text.trim().to_owned()
}

fn kind(field: &JSONSchemaProps) -> String {
    if field.x_kubernetes_int_or_string == Some(true) {
        return "integer or string".to_owned();
    }
    match (field.type_.as_deref(), &field.items) {
        (Some("array"), Some(JSONSchemaPropsOrArray::Schema(item))) => format!("list of {}", kind(item)),
        (Some(kind), _) => field
            .format
            .clone()
            .filter(|_| kind != "object")
            .unwrap_or_else(|| kind.to_owned()),
        (None, _) => "any".to_owned(),
    }
}

fn columns(version: &CustomResourceDefinitionVersion) -> String {
    let mut text = "### Columns of `kubectl get`\n\n| Column | Field | Shown |\n|---|---|---|\n".to_owned();
    for column in version.additional_printer_columns.iter().flatten() {
        let shown = if column.priority.unwrap_or_default() > 0 {
            "with `-o wide`"
        } else {
            "always"
        };
        text.push_str(&format!(
            "| {} | `{}` | {shown} |\n",
            column.name, column.json_path
        ));
    }
    text.push('\n');
    text
}
