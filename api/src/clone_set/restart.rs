//! Annotations of a set that have the containers of all its pods restarted in place.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::limit::{Rounding, scaled};
use super::names;
use crate::admission::is_label_value;
use crate::container_recreate_request::run::RunName;

/// Longest value of the annotation that starts a run.
pub const MAX_RUN: usize = 63;

/// What the annotations of a set ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartWish {
    /// The value that started the run, as written.
    pub value: String,
    /// Name of the run.
    pub run: RunName,
    /// Most pods that may be unavailable.
    pub max_unavailable: IntOrString,
    /// Containers; all when there are none.
    pub containers: Vec<String>,
    /// The next container of a pod only when the one before is ready again.
    pub ordered: bool,
}

/// An annotation that cannot be acted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAnnotation {
    /// Its key.
    pub key: &'static str,
    /// What is wrong, and what is accepted.
    pub message: String,
}

impl RestartWish {
    /// Reads the annotations. None when no run is asked for.
    ///
    /// # Errors
    /// All that is wrong, also while no run is asked for.
    pub fn of(metadata: &ObjectMeta) -> Result<Option<Self>, Vec<BadAnnotation>> {
        let text = |key: &str| Some(metadata.annotations.as_ref()?.get(key)?.trim());
        let mut problems = Vec::new();
        let mut complain = |key, message| problems.push(BadAnnotation { key, message });
        let value = text(names::RESTART).unwrap_or_default();
        if value.len() > MAX_RUN || value.chars().any(char::is_control) {
            let message = format!(
                "has {} bytes; accepted are up to {MAX_RUN}, for example the present time",
                value.len()
            );
            complain(names::RESTART, message);
        }
        let max_unavailable = limit(text(names::RESTART_MAX_UNAVAILABLE)).unwrap_or_else(|message| {
            complain(names::RESTART_MAX_UNAVAILABLE, message);
            IntOrString::Int(1)
        });
        let containers = containers(text(names::RESTART_CONTAINERS)).unwrap_or_else(|message| {
            complain(names::RESTART_CONTAINERS, message);
            Vec::new()
        });
        let ordered = match text(names::RESTART_ORDERED) {
            Some("true") => true,
            None | Some("" | "false") => false,
            Some(other) => {
                let message = format!("is {other:?}; accepted are \"true\" and \"false\"");
                complain(names::RESTART_ORDERED, message);
                false
            }
        };
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(RunName::of(value).map(|run| Self {
            value: value.to_owned(),
            run,
            max_unavailable,
            containers,
            ordered,
        }))
    }

    /// Most pods of so many that may be unavailable.
    #[must_use]
    pub fn limit(&self, replicas: i32) -> i64 {
        scaled(&self.max_unavailable, replicas, Rounding::Up)
            .unwrap_or(1)
            .max(1)
    }
}

/// A number from 1 on, or a percentage above 0.
fn limit(text: Option<&str>) -> Result<IntOrString, String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(IntOrString::Int(1));
    };
    let value = match text.parse() {
        Ok(number) => IntOrString::Int(number),
        Err(_) => IntOrString::String(text.to_owned()),
    };
    match scaled(&value, 100, Rounding::Up) {
        Ok(number) if number > 0 => Ok(value),
        _ => Err(format!(
            "is {text:?}; accepted are whole numbers from 1 on and percentages above 0 such as 20%"
        )),
    }
}

fn containers(text: Option<&str>) -> Result<Vec<String>, String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(Vec::new());
    };
    let mut names: Vec<String> = Vec::new();
    for name in text.split(',').map(str::trim) {
        // The name of a container is a DNS label, which is what a label's value with these letters is.
        let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = !name.is_empty() && is_label_value(name) && name.bytes().all(letters);
        if !is_name || names.iter().any(|known| known == name) {
            return Err(format!(
                "is {text:?}; accepted are different names of containers with commas between, such as app,sidecar"
            ));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<RestartWish>, Vec<&'static str>> {
        let annotations = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let metadata = ObjectMeta {
            annotations: Some(annotations.collect()),
            ..ObjectMeta::default()
        };
        RestartWish::of(&metadata)
            .map_err(|problems| problems.into_iter().map(|problem| problem.key).collect())
    }

    #[test]
    fn what_is_accepted() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[(names::RESTART, "")]), Ok(None));
        let wish = read(&[(names::RESTART, "2026-12-01T12:00:00Z")])
            .expect("good")
            .expect("a run");
        assert_eq!(
            (wish.limit(10), wish.ordered, wish.containers.len()),
            (1, false, 0)
        );
        let wish = read(&[
            (names::RESTART, "a"),
            (names::RESTART_MAX_UNAVAILABLE, "25%"),
            (names::RESTART_CONTAINERS, "app, sidecar"),
            (names::RESTART_ORDERED, "true"),
        ]);
        let wish = wish.expect("good").expect("a run");
        assert_eq!(wish.limit(10), 3, "rounded up");
        assert_eq!(wish.limit(0), 1);
        assert_eq!(
            (wish.containers.join("+"), wish.ordered),
            ("app+sidecar".to_owned(), true)
        );
    }

    #[test]
    fn what_is_refused_names_its_annotation() {
        for (key, value) in [
            (names::RESTART, "a".repeat(64).as_str()),
            (names::RESTART, "a\nb"),
            (names::RESTART_MAX_UNAVAILABLE, "0"),
            (names::RESTART_MAX_UNAVAILABLE, "-1"),
            (names::RESTART_MAX_UNAVAILABLE, "0%"),
            (names::RESTART_MAX_UNAVAILABLE, "some"),
            (names::RESTART_CONTAINERS, "a,,b"),
            (names::RESTART_CONTAINERS, "a,a"),
            (names::RESTART_CONTAINERS, "A"),
            (names::RESTART_ORDERED, "yes"),
        ] {
            assert_eq!(read(&[(key, value)]), Err(vec![key]), "{value}");
        }
    }
}
