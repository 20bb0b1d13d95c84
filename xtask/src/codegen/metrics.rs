//! The page of metrics, from the places in the code that register them: name, help, unit, and the type and labels of the field.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use regex::Regex;

use super::{cell, page_head};

/// One family.
#[derive(Debug, PartialEq, Eq)]
struct Family {
    name: String,
    kind: String,
    labels: Vec<String>,
    help: String,
}

pub(super) fn page(root: &Path) -> Result<String> {
    let mut page = page_head("Metrics", "the code that registers them");
    page.push_str(
        "Prometheus format. Of a histogram there are `_bucket`, `_sum` and `_count`. No label holds a name of an image, a pod or a person.\n",
    );
    for (title, folder) in [
        ("Manager, `:8080/metrics`", "manager/src"),
        ("Agent, `:10221/metrics`", "daemon/src"),
    ] {
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        for file in rust_files(&root.join(folder))? {
            let text =
                fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            families.extend(
                families_of(&text)?
                    .into_iter()
                    .map(|family| (family.name.clone(), family)),
            );
        }
        ensure!(!families.is_empty(), "no metrics below {folder}");
        page.push_str(&format!(
            "\n## {title}\n\n| Metric | Type | Labels | |\n|---|---|---|---|\n"
        ));
        for family in families.values() {
            let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            page.push_str(&format!(
                "| `{}` | {} | {} | {} |\n",
                family.name,
                family.kind,
                labels.join(", "),
                cell(&family.help)
            ));
        }
    }
    Ok(page)
}

/// All but tests, sorted.
fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn families_of(text: &str) -> Result<Vec<Family>> {
    // Tests at the end of a file register what is no metric of the program.
    let text = text
        .split_once("#[cfg(test)]\nmod tests {")
        .map_or(text, |(code, _)| code);
    let call = Regex::new(
        r#"\.register(?:_with_unit)?\(\s*"([a-z_]+)",\s*"((?:[^"\\]|\\.)*)",\s*(?:Unit::([A-Za-z]+),\s*)?([\w.]+?)(?:\.clone\(\))?,?\s*\)"#,
    )?;
    call.captures_iter(text)
        .map(|found| {
            let field = found[4].rsplit('.').next().unwrap_or_default();
            let (kind, labels) = kind_of(text, field)?;
            let unit = found
                .get(3)
                .map_or_else(String::new, |unit| format!("_{}", unit.as_str().to_lowercase()));
            let suffix = match kind.as_str() {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            Ok(Family {
                name: format!("{}{unit}{suffix}", &found[1]),
                kind,
                labels,
                help: found[2].to_owned(),
            })
        })
        .collect()
}

/// Type and labels of a field or variable of that name.
fn kind_of(text: &str, field: &str) -> Result<(String, Vec<String>)> {
    let plain = r"(Counter|Gauge|Histogram)";
    let field_is = Regex::new(&format!(
        r"\b{field}: (?:Family<\s*(\w+),\s*{plain}|{plain})|let {field} = (?:Family::<(\w+), {plain}|[\w:]*\b(Info)\b)"
    ))?;
    let found = field_is
        .captures(text)
        .with_context(|| format!("no type of {field}"))?;
    let part = |index: usize| found.get(index).map(|part| part.as_str());
    let kind = [2, 3, 5, 6]
        .into_iter()
        .find_map(part)
        .context("some type matched")?;
    let labels = match part(1).or(part(4)) {
        Some(labels) => labels_of(text, labels)?,
        None => Vec::new(),
    };
    Ok((kind.to_lowercase(), labels))
}

fn labels_of(text: &str, name: &str) -> Result<Vec<String>> {
    let body = Regex::new(&format!(r"struct {name} \{{([^}}]*)\}}"))?;
    let body = body.captures(text).with_context(|| format!("no struct {name}"))?;
    let field = Regex::new(r"(?m)^\s*(?:pub(?:\([a-z]+\))? )?(?:r#)?(\w+):")?;
    Ok(field
        .captures_iter(&body[1])
        .map(|field| field[1].to_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_labels_unit_and_suffix_are_found() {
        let text = r#"
struct Why {
    /// As told.
    pub reason: &'static str,
    code: u16,
}
struct All {
    requests: Family<Why, Counter>,
    pub(crate) last: Gauge<f64, AtomicU64>,
    time: Histogram,
}
    let build = Family::<Why, Gauge>::default();
    registry.register("a_build_info", "Version", build);
    registry.register(
        "a_requests",
        "Requests | all",
        self.requests.clone(),
    );
    registry.register_with_unit("a_last", "Since", Unit::Seconds, self.last.clone());
    registry.register("a_time_seconds", "Time", self.time.clone());
#[cfg(test)]
mod tests {
    registry.register("no_metric", "x", extra);
}
"#;
        let found = families_of(text).expect("all have types");
        let lines: Vec<_> = found
            .iter()
            .map(|family| format!("{} {} {}", family.name, family.kind, family.labels.join(",")))
            .collect();
        assert_eq!(
            lines,
            [
                "a_build_info gauge reason,code",
                "a_requests_total counter reason,code",
                "a_last_seconds gauge ",
                "a_time_seconds histogram "
            ]
        );
    }
}
