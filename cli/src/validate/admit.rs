//! One object through schema, defaults and rules.

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kruise_api::admission::Denied;
use kruise_api::clone_set::defaults::{TemplateDefaults, fill, fill_v1alpha1};
use kruise_api::clone_set::validation::{Context, Report, validate, validate_v1alpha1};
use kruise_api::clone_set::{self, CloneSet};
use kruise_api::container_recreate_request::admission::{Subject, check_spec, create, update};
use kruise_api::container_recreate_request::{ContainerRecreateRequest, conversion};
use kruise_api::image_list_pull_job::{self, ImageListPullJob};
use kruise_api::image_pull_job::{self, ImagePullJob};
use kruise_api::node_image::{self, NodeImage};
use kruise_api::{crd, names, strict, structural};
use kruise_planner::inplace::{Decision, Options, decide};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::surroundings::Surroundings;
use super::{Problem, Verdict};
use crate::documents;

/// What one kind's rules said.
#[derive(Debug, Default)]
struct Said {
    errors: Vec<Problem>,
    warnings: Vec<String>,
    defaulted: Option<Value>,
}

/// The verdict on an object. None for kinds that are not Kruise's.
pub(super) fn admit(object: &Value, old: Option<&Value>, around: &Surroundings) -> Option<Verdict> {
    let (group, version) = documents::group_version(object);
    if group != names::GROUP {
        return None;
    }
    let kind = documents::kind(object);
    let said = match schema(kind) {
        Some(schema) => through(&schema, version, object, old, around),
        None => Said::refused("kind", format!("{kind:?} is no kind that is known here")),
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Some(Verdict {
        kind: kind.to_owned(),
        name: name.to_owned(),
        allowed: said.errors.is_empty(),
        errors: said.errors,
        warnings: said.warnings,
        defaulted: said.defaulted,
    })
}

fn schema(kind: &str) -> Option<CustomResourceDefinition> {
    Some(match kind {
        "CloneSet" => crd::clone_set(),
        "ContainerRecreateRequest" => crd::container_recreate_request(),
        "ImagePullJob" => crd::image_pull_job(),
        "ImageListPullJob" => crd::image_list_pull_job(),
        "NodeImage" => crd::node_image(),
        _ => return None,
    })
}

impl Said {
    fn refused(field: &str, message: impl Into<String>) -> Self {
        Self {
            errors: vec![Problem {
                field: field.to_owned(),
                message: message.into(),
            }],
            ..Self::default()
        }
    }

    fn reported(report: Report) -> Self {
        let errors = report.errors.into_iter().map(|error| Problem {
            field: error.field,
            message: error.message,
        });
        Self {
            errors: errors.collect(),
            warnings: report.warnings,
            defaulted: None,
        }
    }

    fn told(result: Result<Vec<String>, Denied>) -> Self {
        match result {
            Ok(warnings) => Self {
                warnings,
                ..Self::default()
            },
            Err(denied) => {
                let (field, message) = match denied.message.split_once(": ") {
                    Some((field, rest)) if field.starts_with("spec") && !field.contains(' ') => (field, rest),
                    _ => ("spec", denied.message.as_str()),
                };
                Self::refused(field, message)
            }
        }
    }

    fn with(mut self, object: &impl Serialize, like: &Value) -> Result<Self> {
        let mut value = serde_json::to_value(object)?;
        for name in ["apiVersion", "kind"] {
            value[name] = like[name].clone();
        }
        self.defaulted = Some(value);
        Ok(self)
    }
}

fn through(
    schema: &CustomResourceDefinition,
    version: &str,
    object: &Value,
    old: Option<&Value>,
    around: &Surroundings,
) -> Said {
    let Some(structure) = structural::check(schema, version, object) else {
        let text = format!("{version:?} is no version of this kind; there are v1alpha1 and v1beta1");
        return Said::refused("apiVersion", text);
    };
    let unknown = structure
        .unknown
        .into_iter()
        .map(|field| format!("unknown field {field:?}: it is dropped"));
    let warnings: Vec<String> = unknown.collect();
    if !structure.errors.is_empty() {
        let errors = structure
            .errors
            .into_iter()
            .map(|(field, message)| Problem { field, message });
        return Said {
            errors: errors.collect(),
            warnings,
            defaulted: None,
        };
    }
    let mut said = rules(version, object, old, around)
        .unwrap_or_else(|error| Said::refused("metadata", format!("not readable: {error:#}")));
    said.warnings.splice(0..0, warnings);
    said
}

fn rules(version: &str, object: &Value, old: Option<&Value>, around: &Surroundings) -> Result<Said> {
    match (documents::kind(object), version) {
        ("CloneSet", "v1alpha1") => older_set(object, old, around),
        ("CloneSet", _) => newer_set(object, old, around),
        ("ContainerRecreateRequest", _) => request(version, object, old, around),
        ("ImagePullJob", _) => {
            let job: ImagePullJob = typed(object)?;
            let old = old.map(typed::<ImagePullJob>).transpose()?;
            let off = around.switched_off(&["KruiseDaemon", "ImagePullJobGate"]);
            Said::told(image_pull_job::admission::validate(&job, old.as_ref(), off)).with(&job, object)
        }
        ("ImageListPullJob", _) => {
            let list: ImageListPullJob = typed(object)?;
            let old = old.map(typed::<ImageListPullJob>).transpose()?;
            let off = around.switched_off(&["KruiseDaemon", "ImagePullJobGate"]);
            Said::told(image_list_pull_job::admission::validate(&list, old.as_ref(), off)).with(&list, object)
        }
        _ => {
            let mut node: NodeImage = typed(object)?;
            let old = old.map(typed::<NodeImage>).transpose()?;
            node_image::admission::default(&mut node, around.now);
            let off = around.switched_off(&["KruiseDaemon"]);
            Said::told(node_image::admission::validate(&node, old.as_ref(), off)).with(&node, object)
        }
    }
}

fn typed<T: DeserializeOwned>(object: &Value) -> Result<T> {
    strict::read(object).with_context(|| documents::title(object))
}

/// The stored object may be of the other version.
fn stored_newer(old: &Value) -> Result<CloneSet> {
    if documents::group_version(old).1 == "v1alpha1" {
        return Ok(clone_set::convert::to_v1beta1(&typed(old)?));
    }
    typed(old)
}

fn stored_older(old: &Value) -> Result<clone_set::v1alpha1::CloneSet> {
    if documents::group_version(old).1 == "v1alpha1" {
        return typed(old);
    }
    Ok(clone_set::convert::to_v1alpha1(&typed(old)?))
}

fn newer_set(object: &Value, old: Option<&Value>, around: &Surroundings) -> Result<Said> {
    let mut set: CloneSet = typed(object)?;
    let mut old = old.map(stored_newer).transpose()?;
    let stored = old.as_ref().map(|old| &old.spec.template);
    let template = TemplateDefaults::of(&around.gates, stored, &set.spec.template);
    fill(&mut set, template);
    if let Some(old) = &mut old {
        // What is stored was filled in when it came. A file may hold what people wrote; filling in twice does no harm.
        fill(old, template);
        set.metadata.uid = set.metadata.uid.take().or_else(|| old.metadata.uid.clone());
    }
    let pods = around.pods(set.metadata.namespace.as_deref());
    let context = Context {
        pods: pods.as_deref(),
        obstacle: &|old, new| obstacle(old, new, around),
    };
    Said::reported(validate(&set, old.as_ref(), &context)).with(&set, object)
}

fn older_set(object: &Value, old: Option<&Value>, around: &Surroundings) -> Result<Said> {
    let mut set: clone_set::v1alpha1::CloneSet = typed(object)?;
    let mut old = old.map(stored_older).transpose()?;
    let stored = old.as_ref().map(|old| &old.spec.template);
    let template = TemplateDefaults::of(&around.gates, stored, &set.spec.template);
    fill_v1alpha1(&mut set, template);
    if let Some(old) = &mut old {
        fill_v1alpha1(old, template);
        set.metadata.uid = set.metadata.uid.take().or_else(|| old.metadata.uid.clone());
    }
    let pods = around.pods(set.metadata.namespace.as_deref());
    let context = Context {
        pods: pods.as_deref(),
        obstacle: &|old, new| obstacle(old, new, around),
    };
    Said::reported(validate_v1alpha1(&set, old.as_ref(), &context)).with(&set, object)
}

fn obstacle(old: &Value, new: &Value, around: &Surroundings) -> Option<String> {
    match decide(old, new, Options::of(&around.gates)) {
        Decision::InPlace(_) => None,
        Decision::Impossible(obstacle) => Some(format!("spec.template.{obstacle}")),
    }
}

fn request(version: &str, object: &Value, old: Option<&Value>, around: &Surroundings) -> Result<Said> {
    let read = |object: &Value| -> Result<ContainerRecreateRequest> {
        if documents::group_version(object).1 == "v1alpha1" {
            return Ok(conversion::to_v1beta1(typed(object)?));
        }
        typed(object)
    };
    let request = read(object)?;
    let namespace = request.metadata.namespace.as_deref();
    let pod = around.pod(namespace, &request.spec.pod_name);
    let (result, mut warnings) = match (old, pod) {
        (Some(old), _) => (
            update(&read(old)?, &request).map(|()| request.clone()),
            Vec::new(),
        ),
        (None, None) if around.pods(None).is_none() => {
            let warning =
                "the files hold no Pod: the request is not checked against the pod that it is about"
                    .to_owned();
            (check_spec(&request.spec).map(|()| request.clone()), vec![warning])
        }
        (None, pod) => {
            let node = pod
                .and_then(|pod| pod.spec.as_ref()?.node_name.as_deref())
                .unwrap_or_default();
            let subject = Subject {
                pod,
                node_exists: around.has_node(node),
                virtual_node: false,
            };
            (create(&request, &subject), Vec::new())
        }
    };
    let admitted = result.as_ref().map_or_else(|_| request.clone(), Clone::clone);
    let mut said = Said::told(result.map(|_| Vec::new()));
    said.warnings.append(&mut warnings);
    if version == "v1alpha1" {
        return said.with(&conversion::to_v1alpha1(admitted), object);
    }
    said.with(&admitted, object)
}
