//! Objects in files, as YAML or JSON: several documents, lists, and standard input.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize as _;
use serde_json::Value;

use crate::exit::Usage;

/// Every object of the files, in their order. Lists are taken apart, empty documents left out.
pub(crate) fn read(files: &[PathBuf]) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for file in files {
        let text = text(file)?;
        for object in parse(&text).with_context(|| format!("cannot read {}", file.display()))? {
            take(object, &mut objects);
        }
    }
    Ok(objects)
}

fn text(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// YAML holds JSON too.
pub(crate) fn parse(text: &str) -> Result<Vec<Value>> {
    let documents = serde_norway::Deserializer::from_str(text).map(Value::deserialize);
    Ok(documents.collect::<Result<_, _>>()?)
}

fn take(object: Value, objects: &mut Vec<Value>) {
    let kind = kind(&object).to_owned();
    match object {
        Value::Null => {}
        Value::Object(mut list)
            if kind.ends_with("List") && list.get("items").is_some_and(Value::is_array) =>
        {
            let version = list.get("apiVersion").cloned().unwrap_or(Value::Null);
            let Some(Value::Array(items)) = list.remove("items") else {
                return;
            };
            for mut item in items {
                if let Some(item) = item.as_object_mut().filter(|_| kind != "List") {
                    // Items of a typed list may leave out what the list says.
                    item.entry("kind")
                        .or_insert_with(|| kind.trim_end_matches("List").into());
                    item.entry("apiVersion").or_insert_with(|| version.clone());
                }
                take(item, objects);
            }
        }
        other => objects.push(other),
    }
}

/// Kind of an object; empty without one.
pub(crate) fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

/// Group and version of an object, as in `apps.kruise.io/v1beta1`; the core group is empty.
pub(crate) fn group_version(object: &Value) -> (&str, &str) {
    let text = object["apiVersion"].as_str().unwrap_or_default();
    text.split_once('/').unwrap_or(("", text))
}

/// Kind and name of an object, for people.
pub(crate) fn title(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or("without a name");
    match kind(object) {
        "" => format!("object {name}"),
        kind => format!("{kind} {name}"),
    }
}

/// Objects as one text: a document each in YAML, one document or a list of them in JSON.
pub(crate) fn show(objects: &[Value], yaml: bool) -> Result<String> {
    if yaml {
        let texts: Result<Vec<String>, _> = objects.iter().map(serde_norway::to_string).collect();
        return Ok(texts?.join("---\n"));
    }
    let text = match objects {
        [one] => serde_json::to_string_pretty(one)?,
        several => serde_json::to_string_pretty(several)?,
    };
    Ok(text + "\n")
}

/// An error when there is nothing.
pub(crate) fn at_least_one<T>(objects: &[T], what: &str) -> Result<()> {
    if objects.is_empty() {
        return Err(Usage(format!("the files hold no {what}")).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_lists_and_json() {
        let text = "---\nkind: A\n---\n---\nkind: List\nitems:\n- kind: B\n- {kind: C}\n---\n{\"kind\": \"PodList\", \"apiVersion\": \"v1\", \"items\": [{\"metadata\": {\"name\": \"p\"}}]}\n";
        let mut objects = Vec::new();
        for object in parse(text).unwrap() {
            take(object, &mut objects);
        }
        let kinds: Vec<_> = objects.iter().map(kind).collect();
        assert_eq!(kinds, ["A", "B", "C", "Pod"]);
        assert_eq!(group_version(&objects[3]), ("", "v1"));
        assert_eq!(title(&objects[3]), "Pod p");
        assert!(parse("a: [").is_err());
    }

    #[test]
    fn one_is_a_document_and_several_are_a_list() {
        let (a, b) = (json!({"a": 1}), json!({"b": 2}));
        assert_eq!(
            show(std::slice::from_ref(&a), false).unwrap(),
            "{\n  \"a\": 1\n}\n"
        );
        assert!(show(&[a.clone(), b.clone()], false).unwrap().starts_with('['));
        assert_eq!(show(&[a, b], true).unwrap(), "a: 1\n---\nb: 2\n");
    }
}
