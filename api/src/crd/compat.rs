//! How our CRDs compare with OpenKruise's, field by field.
//!
//! What theirs say lies in `api/fixtures/openkruise`, one field a line: its path, its type, and whether it must be there.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use thiserror::Error;

/// A field without a type holds anything.
const ANY: &str = "any";

/// What a schema says of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Such as `string`, `integer/int32`, `map` or `int-or-string`.
    pub kind: String,
    /// Whether the object that the field belongs to is refused without it.
    pub required: bool,
}

/// Fields by path: `[]` stands for the items of a list, `{}` for the values of a map.
pub type Fields = BTreeMap<String, Field>;

/// A kind as OpenKruise describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Theirs {
    /// Such as `CloneSet`.
    pub kind: String,
    /// Such as `clonesets`.
    pub plural: String,
    /// `Namespaced` or `Cluster`.
    pub scope: String,
    /// Short names of `kubectl`.
    pub short_names: Vec<String>,
    /// All of them are served and have a status of their own.
    pub versions: Vec<TheirVersion>,
}

/// One version of such a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TheirVersion {
    /// Such as `v1beta1`.
    pub name: String,
    /// Whether objects are stored in it.
    pub stored: bool,
    /// Where the scale subresource finds wanted and present replicas and the selector.
    pub scale: Option<[String; 3]>,
    /// Columns of `kubectl get`, in order.
    pub columns: Vec<Column>,
    /// Below `spec` and `status`.
    pub fields: Fields,
}

/// A column of `kubectl get`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its head.
    pub name: String,
    /// Type of what it shows.
    pub kind: String,
    /// Where that comes from.
    pub path: String,
    /// Shown with `-o wide` only.
    pub wide: bool,
}

/// A line that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {text:?} says nothing that is known here")]
pub struct Unreadable {
    /// Counted from 1.
    pub line: usize,
    /// The line.
    pub text: String,
}

/// How one version compares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The version.
    pub version: String,
    /// In both, with the same type.
    pub same: Vec<String>,
    /// Here only.
    pub extra: Vec<String>,
    /// There only.
    pub missing: Vec<String>,
    /// In both, with different types: path, type there, type here.
    pub changed: Vec<(String, String, String)>,
    /// In both, but refused without it here only.
    pub stricter: Vec<String>,
}

/// Reads what OpenKruise says of a kind.
///
/// # Errors
/// The first line that is not understood.
pub fn read(text: &str) -> Result<Theirs, Unreadable> {
    let mut theirs = Theirs::default();
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split(' ').collect();
        take(&mut theirs, &words).ok_or_else(|| Unreadable {
            line: index + 1,
            text: line.to_owned(),
        })?;
    }
    Ok(theirs)
}

/// One line. None when it says nothing that is known here, or comes before what it belongs to.
fn take(theirs: &mut Theirs, words: &[&str]) -> Option<()> {
    let owned = |word: &str| word.to_owned();
    match *words {
        ["kind", kind] => theirs.kind = owned(kind),
        ["plural", plural] => theirs.plural = owned(plural),
        ["scope", scope] => theirs.scope = owned(scope),
        ["short", name] => theirs.short_names.push(owned(name)),
        ["version", name, ref stored @ ..] => theirs.versions.push(TheirVersion {
            name: owned(name),
            stored: flag(stored, "stored")?,
            ..TheirVersion::default()
        }),
        ["scale", wanted, present, selector] => {
            theirs.versions.last_mut()?.scale = Some([wanted, present, selector].map(owned));
        }
        ["column", name, kind, path, ref wide @ ..] => theirs.versions.last_mut()?.columns.push(Column {
            name: owned(name),
            kind: owned(kind),
            path: owned(path),
            wide: flag(wide, "wide")?,
        }),
        [path, kind, ref required @ ..] if path.starts_with("spec") || path.starts_with("status") => {
            let field = Field {
                kind: owned(kind),
                required: flag(required, "required")?,
            };
            theirs.versions.last_mut()?.fields.insert(owned(path), field);
        }
        _ => return None,
    }
    Some(())
}

/// The last word of a line, which may be left out.
fn flag(words: &[&str], wanted: &str) -> Option<bool> {
    match *words {
        [] => Some(false),
        [word] if word == wanted => Some(true),
        _ => None,
    }
}

/// All fields below `spec` and `status`. apiVersion, kind and metadata belong to every object; the API server knows them without being told.
#[must_use]
pub fn fields(version: &CustomResourceDefinitionVersion) -> Fields {
    let mut found = Fields::new();
    let root = version
        .schema
        .as_ref()
        .and_then(|schema| schema.open_api_v3_schema.as_ref());
    let Some(root) = root else { return found };
    for part in ["spec", "status"] {
        if let Some(schema) = root.properties.as_ref().and_then(|parts| parts.get(part)) {
            // Every client writes a spec, so whether it must be there is not compared.
            walk(schema, part, false, &mut found);
        }
    }
    found
}

fn walk(schema: &JSONSchemaProps, path: &str, required: bool, found: &mut Fields) {
    let kind = kind(schema);
    found.insert(path.to_owned(), Field { kind, required });
    let needed = schema.required.as_deref().unwrap_or_default();
    for (name, property) in schema.properties.iter().flatten() {
        let required = needed.contains(name);
        walk(property, &format!("{path}.{name}"), required, found);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
        walk(item, &format!("{path}[]"), false, found);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &schema.additional_properties {
        walk(value, &format!("{path}{{}}"), false, found);
    }
}

fn kind(schema: &JSONSchemaProps) -> String {
    if schema.x_kubernetes_int_or_string == Some(true) {
        return "int-or-string".to_owned();
    }
    match (
        schema.type_.as_deref(),
        &schema.additional_properties,
        &schema.format,
    ) {
        (None, ..) => ANY.to_owned(),
        (Some("object"), Some(JSONSchemaPropsOrBool::Schema(_)), _) => "map".to_owned(),
        (Some(kind), _, Some(format)) => format!("{kind}/{format}"),
        (Some(kind), _, None) => kind.to_owned(),
    }
}

/// Ours against theirs, version by version in their order. A version that we lack misses every field.
#[must_use]
pub fn compare(theirs: &Theirs, ours: &CustomResourceDefinition) -> Vec<Comparison> {
    let of = |name: &str| ours.spec.versions.iter().find(|version| version.name == name);
    theirs
        .versions
        .iter()
        .map(|version| one(version, &of(&version.name).map(fields).unwrap_or_default()))
        .collect()
}

fn one(theirs: &TheirVersion, ours: &Fields) -> Comparison {
    let mut found = Comparison {
        version: theirs.name.clone(),
        ..Comparison::default()
    };
    for (path, wanted) in &theirs.fields {
        let Some(field) = ours.get(path) else {
            found.missing.push(path.clone());
            continue;
        };
        if field.kind == wanted.kind || wanted.kind == ANY {
            found.same.push(path.clone());
        } else {
            let kinds = (path.clone(), wanted.kind.clone(), field.kind.clone());
            found.changed.push(kinds);
        }
        if field.required && !wanted.required {
            found.stricter.push(path.clone());
        }
    }
    let extra = ours.keys().filter(|path| !theirs.fields.contains_key(*path));
    found.extra = extra.cloned().collect();
    found
}

#[cfg(test)]
mod tests;
