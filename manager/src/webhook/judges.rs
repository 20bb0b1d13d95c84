//! Which function judges what.

use jiff::Timestamp;
use kruise_api::admission::Denied;
use kruise_api::container_recreate_request::{
    ContainerRecreateRequest, admission, conversion, keys, v1alpha1,
};
use kruise_api::image_list_pull_job::{self, ImageListPullJob};
use kruise_api::image_pull_job::{self, ImagePullJob};
use kruise_api::node_image::{self, NodeImage};
use serde_json::Value;

use super::review::{Allowed, Judged, Request, encode};
use super::{Deps, pod, sets};
use crate::telemetry::{Place, Span};

/// One admission webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    CloneSetDefaults,
    CloneSet,
    ImageJob,
    ImageList,
    NodeImageDefaults,
    NodeImage,
    Recreate,
    Pod,
}

impl Hook {
    pub(super) const ALL: [Self; 8] = [
        Self::CloneSetDefaults,
        Self::CloneSet,
        Self::ImageJob,
        Self::ImageList,
        Self::NodeImageDefaults,
        Self::NodeImage,
        Self::Recreate,
        Self::Pod,
    ];

    /// OpenKruise's paths.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::CloneSetDefaults => "/mutate-apps-kruise-io-cloneset",
            Self::CloneSet => "/validate-apps-kruise-io-cloneset",
            Self::ImageJob => "/validate-apps-kruise-io-imagepulljob",
            Self::ImageList => "/validate-apps-kruise-io-imagelistpulljob",
            Self::NodeImageDefaults => "/mutate-apps-kruise-io-nodeimage",
            Self::NodeImage => "/validate-apps-kruise-io-nodeimage",
            Self::Recreate => "/mutate-apps-kruise-io-containerrecreaterequest",
            Self::Pod => "/mutate-pod",
        }
    }
}

/// Judges one request.
pub(super) async fn judge(hook: Hook, deps: &Deps, request: &Request) -> Judged {
    match hook {
        Hook::CloneSetDefaults => sets::default(deps, request),
        Hook::CloneSet => {
            let began = deps.time.now();
            let judged = sets::check(deps, request).await;
            trace_update(deps, request, began, &judged);
            judged
        }
        Hook::ImageJob => {
            let (job, old) = (request.object::<ImagePullJob>()?, request.old_object()?);
            warned(image_pull_job::admission::validate(
                &job,
                old.as_ref(),
                deps.switched_off,
            ))
        }
        Hook::ImageList => {
            let (list, old) = (request.object::<ImageListPullJob>()?, request.old_object()?);
            warned(image_list_pull_job::admission::validate(
                &list,
                old.as_ref(),
                deps.switched_off,
            ))
        }
        Hook::NodeImageDefaults => {
            let before: NodeImage = request.object()?;
            let mut after = before.clone();
            node_image::admission::default(&mut after, deps.time.now());
            Ok(Allowed::changed(
                &request.object,
                &encode(&before)?,
                &encode(&after)?,
            ))
        }
        Hook::NodeImage => {
            let (object, old) = (request.object::<NodeImage>()?, request.old_object()?);
            let off = (!has_agents(deps)).then_some("KruiseDaemon");
            warned(node_image::admission::validate(&object, old.as_ref(), off))
        }
        Hook::Recreate => recreate(deps, request).await,
        Hook::Pod => pod::judge(request, deps.gates.enabled("PodWebhook")),
    }
}

fn has_agents(deps: &Deps) -> bool {
    deps.gates.enabled("KruiseDaemon")
}

fn warned(judged: Result<Vec<String>, Denied>) -> Judged {
    judged.map(|warnings| Allowed {
        warnings,
        patch: None,
    })
}

/// Restarts: checked and completed when made, fixed from then on.
async fn recreate(deps: &Deps, request: &Request) -> Judged {
    if !has_agents(deps) {
        return Err(Denied {
            code: 403,
            message: "feature-gate KruiseDaemon is not enabled".to_owned(),
        });
    }
    let is_older = request.resource.version == "v1alpha1";
    let newer: ContainerRecreateRequest = if is_older {
        conversion::to_v1beta1(request.object::<v1alpha1::ContainerRecreateRequest>()?)
    } else {
        request.object()?
    };
    if request.operation == "UPDATE" {
        return recreate_changed(request, is_older, &newer);
    }
    let pod = deps.lookup.pod(&request.namespace, &newer.spec.pod_name).await?;
    let name = pod
        .as_ref()
        .and_then(|pod| pod.spec.as_ref()?.node_name.clone())
        .filter(|name| !name.is_empty());
    let node = match name {
        Some(name) => deps.lookup.node(&name).await?,
        None => None,
    };
    let subject = admission::Subject {
        pod: pod.as_ref(),
        node_exists: node.is_some(),
        virtual_node: node
            .is_some_and(|labels| labels.get(keys::TYPE).map(String::as_str) == Some(keys::VIRTUAL_KUBELET)),
    };
    let admitted = admission::create(&newer, &subject)?;
    let (before, after) = if is_older {
        let form = |object| encode(&conversion::to_v1alpha1(object));
        (form(newer)?, form(admitted)?)
    } else {
        (encode(&newer)?, encode(&admitted)?)
    };
    Ok(Allowed::changed(&request.object, &before, &after))
}

fn recreate_changed(request: &Request, is_older: bool, newer: &ContainerRecreateRequest) -> Judged {
    let old = if is_older {
        let old = request.old_object::<v1alpha1::ContainerRecreateRequest>()?;
        old.map(conversion::to_v1beta1)
    } else {
        request.old_object()?
    };
    if let Some(old) = &old {
        admission::update(old, newer)?;
    }
    // In v1alpha1 the time of the readiness lock is an annotation, and the drain counts from it.
    let lock = |object: &Value| object["metadata"]["annotations"][keys::UNREADY_ACQUIRED].clone();
    let held = lock(&request.old_object);
    if is_older && held.as_str().is_some_and(|time| !time.is_empty()) && held != lock(&request.object) {
        return Err(Denied {
            code: 403,
            message: format!("annotation {} is immutable", keys::UNREADY_ACQUIRED),
        });
    }
    Ok(Allowed::default())
}

/// The admission of a new template is where the trace of an update begins.
fn trace_update(deps: &Deps, request: &Request, began: Timestamp, judged: &Judged) {
    let (old, new) = (
        &request.old_object["spec"]["template"],
        &request.object["spec"]["template"],
    );
    let meta = &request.object["metadata"];
    if judged.is_err() || new.is_null() || old == new {
        return;
    }
    let Some(parent) = deps.traces.of_update(meta["uid"].as_str(), new) else {
        return;
    };
    let name = meta["name"].as_str().unwrap_or_default();
    deps.traces.tell(Span {
        parent,
        place: Place::Root,
        name: "update CloneSet".into(),
        start: began,
        end: deps.time.now(),
        about: vec![
            ("k8s.namespace.name", request.namespace.clone()),
            ("k8s.object.name", name.to_owned()),
        ],
        error: None,
    });
}
