//! CloneSets: what is filled in, and what they must be, in both versions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kruise_api::admission::Denied;
use kruise_api::clone_set::defaults::{TemplateDefaults, fill, fill_v1alpha1};
use kruise_api::clone_set::validation::{
    Context, FieldError, Report, check_delete, validate, validate_metadata, validate_v1alpha1,
};
use kruise_api::clone_set::{CloneSet, v1alpha1};
use kruise_api::strict;
use kruise_planner::inplace::{Decision, Options, decide};
use serde_json::Value;

use super::Deps;
use super::review::{Allowed, Judged, Request, encode};

/// Errors that are told at once.
const MOST_ERRORS: usize = 10;

/// The set with its defaults.
pub(super) fn default(deps: &Deps, request: &Request) -> Judged {
    let stored = request
        .old_object
        .pointer("/spec/template")
        .filter(|template| !template.is_null());
    let template = &request.object["spec"]["template"];
    let template = TemplateDefaults::of(&deps.gates, stored, template);
    let (before, after) = if is_older(request) {
        let mut set: v1alpha1::CloneSet = request.object()?;
        let before = encode(&set)?;
        fill_v1alpha1(&mut set, template);
        (before, encode(&set)?)
    } else {
        let mut set: CloneSet = request.object()?;
        let before = encode(&set)?;
        fill(&mut set, template);
        (before, encode(&set)?)
    };
    Ok(Allowed::changed(&request.object, &before, &after))
}

/// Whether the set may be stored, or deleted.
pub(super) async fn check(deps: &Deps, request: &Request) -> Judged {
    if request.operation == "DELETE" {
        let Some(old) = request.old_object::<CloneSet>()? else {
            return Ok(Allowed::default());
        };
        return check_delete(&old.metadata, old.spec.wanted(), &deps.gates)
            .map(|()| Allowed::default())
            .map_err(|error| denied(vec![error]));
    }
    // A change of labels or finalizers is never refused for what the spec is.
    if request.old_object["spec"] == request.object["spec"] {
        let metadata = |object: &Value| strict::read::<ObjectMeta>(&object["metadata"]).unwrap_or_default();
        let report = validate_metadata(&metadata(&request.object), &metadata(&request.old_object));
        return judged(report);
    }
    let pods = match names(&request.object) {
        listed if listed == names(&request.old_object) || listed.is_empty() => None,
        _ => Some(deps.lookup.pods(&request.namespace).await?),
    };
    let options = Options::of(&deps.gates);
    let obstacle = move |old: &Value, new: &Value| match decide(old, new, options) {
        Decision::InPlace(_) => None,
        Decision::Impossible(obstacle) => Some(obstacle.to_string()),
    };
    let context = Context {
        pods: pods.as_deref(),
        obstacle: &obstacle,
    };
    let report = if is_older(request) {
        let set: v1alpha1::CloneSet = request.object()?;
        validate_v1alpha1(&set, request.old_object()?.as_ref(), &context)
    } else {
        let set: CloneSet = request.object()?;
        validate(&set, request.old_object()?.as_ref(), &context)
    };
    judged(report)
}

fn judged(Report { errors, warnings }: Report) -> Judged {
    if errors.is_empty() {
        return Ok(Allowed {
            warnings,
            patch: None,
        });
    }
    Err(denied(errors))
}

fn is_older(request: &Request) -> bool {
    request.resource.version == "v1alpha1"
}

fn names(object: &Value) -> Vec<&str> {
    let names = object.pointer("/spec/scaleStrategy/podsToDelete");
    let names = names.and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).collect()
}

fn denied(errors: Vec<FieldError>) -> Denied {
    let code = if errors.iter().all(|error| error.forbidden) {
        403
    } else {
        422
    };
    let more = errors.len().saturating_sub(MOST_ERRORS);
    let mut texts: Vec<String> = errors
        .into_iter()
        .take(MOST_ERRORS)
        .map(|FieldError { field, message, .. }| format!("{field}: {message}"))
        .collect();
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    Denied {
        code,
        message: texts.join("; "),
    }
}
