//! Settings from a file and from the environment, put in front of the command line as flags: the last value of a flag wins.

use std::ffi::OsString;

use clap::Command;
use kruise_api::nearest::nearest;
use serde_json::{Map, Value};

/// In front of a flag's name in capitals. Not the program's name: the kubelet makes variables such as KRUISE_MANAGER_PORT from Services.
const PREFIX: &str = "KRUISE_FLAG_";
/// OpenKruise's variable for the port of webhooks.
const WEBHOOK_PORT: &str = "WEBHOOK_PORT";
/// Flags that make no sense anywhere but on the command line.
const ALONE: [&str; 5] = ["config", "check", "help", "print-config", "version"];

/// The program's name, what the file says, what the environment says, and what the command line says.
///
/// # Errors
/// A file that cannot be read, or a name in it that is no flag.
pub(super) fn lay<I>(
    command: &Command,
    arguments: I,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<Vec<OsString>, String>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let mut given = arguments.into_iter().map(Into::into);
    let mut all: Vec<OsString> = given.next().into_iter().collect();
    let given: Vec<OsString> = given.collect();
    let names: Vec<String> = command
        .get_arguments()
        .filter_map(|flag| flag.get_long())
        .filter(|name| !ALONE.contains(name))
        .map(str::to_owned)
        .collect();
    let file = config_of(&given).or_else(|| environment(&variable("config")).filter(|file| !file.is_empty()));
    if let Some(file) = file {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("--config {file}: {error}"))?;
        let flags = of_file(&text, &names).map_err(|error| format!("--config {file}: {error}"))?;
        all.extend(flags.into_iter().map(OsString::from));
    }
    let webhook_port = environment(WEBHOOK_PORT).filter(|port| !port.is_empty());
    all.extend(webhook_port.map(|port| format!("--port={port}").into()));
    for name in &names {
        if let Some(value) = environment(&variable(name)) {
            all.push(format!("--{name}={value}").into());
        }
    }
    all.extend(given);
    Ok(all)
}

fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase().replace('-', "_"))
}

/// The last `--config FILE` or `--config=FILE`.
fn config_of(given: &[OsString]) -> Option<String> {
    let mut file = None;
    let mut words = given.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        if word == "--config" {
            file = words.next().map(std::borrow::Cow::into_owned);
        } else if let Some(value) = word.strip_prefix("--config=") {
            file = Some(value.to_owned());
        }
    }
    file
}

/// Reads `name: value` lines, and the lists and maps that YAML has for values that are written with commas on the command line.
fn of_file(text: &str, names: &[String]) -> Result<Vec<String>, String> {
    let settings: Option<Map<String, Value>> =
        serde_norway::from_str(text).map_err(|error| format!("not a map of flags: {error}"))?;
    let mut flags = Vec::new();
    for (name, value) in settings.unwrap_or_default() {
        if !names.contains(&name) {
            let nearest = nearest(&name, names.iter().map(String::as_str));
            let hint = nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"));
            return Err(format!("{name:?} is no flag{hint}"));
        }
        flags.push(format!("--{name}={}", value_of(&name, &value)?));
    }
    Ok(flags)
}

fn value_of(name: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Array(items) => {
            let items: Result<Vec<_>, _> = items.iter().map(|item| value_of(name, item)).collect();
            Ok(items?.join(","))
        }
        Value::Object(fields) => {
            let fields: Result<Vec<_>, _> = fields
                .iter()
                .map(|(key, value)| Ok(format!("{key}={}", value_of(name, value)?)))
                .collect::<Result<_, String>>();
            Ok(fields?.join(","))
        }
        Value::Null => Err(format!("{name} has no value")),
    }
}
