//! `kruisectl validate`: what the admission webhooks would say, without a cluster.

mod admit;
mod surroundings;

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use kruise_api::features::FeatureGates;
use serde::Serialize;
use serde_json::Value;

use crate::documents;
use crate::exit::{Code, Usage};
use crate::output;
use surroundings::Surroundings;

/// Arguments of `validate`.
#[derive(Args, Debug)]
pub(crate) struct ValidateArgs {
    /// File of objects in YAML or JSON; may be given several times, and - reads standard input. Pods and Nodes in it stand for the
    /// cluster; objects of other kinds are passed over.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// File of the objects as they are stored: what has the same kind and name is checked as an update.
    #[arg(long, value_name = "FILE")]
    pub(crate) old: Vec<PathBuf>,
    /// Feature gates, as NAME=true, several separated by commas.
    #[arg(long, value_name = "GATES", default_value = "")]
    pub(crate) feature_gates: String,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = VerdictFormat::Text)]
    pub(crate) output: VerdictFormat,
}

/// Form of verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerdictFormat {
    /// For people.
    Text,
    /// JSON; a list when there are several.
    Json,
    /// YAML; a document each.
    Yaml,
}

/// What the webhooks would say of one object. The names are stable: programs read them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    kind: String,
    name: String,
    allowed: bool,
    errors: Vec<Problem>,
    warnings: Vec<String>,
    /// The object as it would be stored; null when it cannot be read.
    defaulted: Option<Value>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    field: String,
    message: String,
}

/// Checks every object of the files.
pub(crate) fn run(args: &ValidateArgs) -> Result<Code> {
    let (text, code) = told(args)?;
    output::put(&text)?;
    Ok(code)
}

/// What `run` prints, and how it ends.
pub(crate) fn told(args: &ValidateArgs) -> Result<(String, Code)> {
    let gates = FeatureGates::parse_known(&args.feature_gates)
        .map_err(|error| Usage(format!("--feature-gates: {error}")))?;
    let objects = documents::read(&args.files)?;
    let old = documents::read(&args.old)?;
    let surroundings = Surroundings::new(&objects, gates, now());
    let verdicts: Vec<Verdict> = objects
        .iter()
        .filter_map(|object| admit::admit(object, same(&old, object), &surroundings))
        .collect();
    documents::at_least_one(&verdicts, "object of a kind that Kruise knows")?;
    let all = verdicts.iter().all(|verdict| verdict.allowed);
    let code = if all { Code::Success } else { Code::Refused };
    Ok((show(&verdicts, args.output)?, code))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the time at which an object would be stored is read here, once"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

/// The stored object of the same kind, namespace and name.
fn same<'a>(stored: &'a [Value], object: &Value) -> Option<&'a Value> {
    let id = |object: &Value| {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        (
            documents::kind(object).to_owned(),
            text("namespace"),
            text("name"),
        )
    };
    stored.iter().find(|stored| id(stored) == id(object))
}

fn show(verdicts: &[Verdict], format: VerdictFormat) -> Result<String> {
    if format == VerdictFormat::Text {
        return Ok(verdicts.iter().map(text).collect());
    }
    let values: Result<Vec<Value>, _> = verdicts.iter().map(serde_json::to_value).collect();
    documents::show(&values?, format == VerdictFormat::Yaml)
}

fn text(verdict: &Verdict) -> String {
    let word = if verdict.allowed { "allowed" } else { "refused" };
    let mut text = format!("{} {}: {word}\n", verdict.kind, verdict.name);
    // Writing to a String does not fail.
    for problem in &verdict.errors {
        let _ = writeln!(text, "  {}: {}", problem.field, problem.message);
    }
    for warning in &verdict.warnings {
        let _ = writeln!(text, "  warning: {warning}");
    }
    text
}

#[cfg(test)]
mod tests;
