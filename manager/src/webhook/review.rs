//! AdmissionReview: read as loosely as can be, because a review whose uid is known can still be answered when its object cannot be read.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use json_patch::Patch;
use kruise_api::admission::Denied;
use kruise_api::strict;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Longest warning; the API server cuts what is longer.
const MAX_WARNING: usize = 250;

/// A question of the API server.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review {
    #[serde(default = "current")]
    api_version: String,
    pub(super) request: Request,
}

fn current() -> String {
    "admission.k8s.io/v1".to_owned()
}

/// What is asked about.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    pub(super) uid: String,
    pub(super) operation: String,
    #[serde(default)]
    pub(super) resource: Resource,
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) object: Value,
    #[serde(default)]
    pub(super) old_object: Value,
}

/// Kind and version of the object as it is sent.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Resource {
    #[serde(default)]
    pub(super) version: String,
}

/// What may be stored.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    pub(super) warnings: Vec<String>,
    pub(super) patch: Option<Patch>,
}

pub(super) type Judged = Result<Allowed, Denied>;

impl Allowed {
    /// With the changes that lead from `before` to `after`, both in our types' form, made in the object as it was sent.
    pub(super) fn changed(sent: &Value, before: &Value, after: &Value) -> Self {
        let patch = json_patch::diff(before, after);
        let mut trial = sent.clone();
        // Our types may have filled in a field on the way of a change; then the whole form is taken.
        let patch = match json_patch::patch(&mut trial, &patch) {
            Ok(()) => patch,
            Err(_) => json_patch::diff(sent, after),
        };
        Self {
            patch: Some(patch).filter(|patch| !patch.0.is_empty()),
            ..Self::default()
        }
    }
}

impl Review {
    /// Reads a body.
    ///
    /// # Errors
    /// Why it is no review, for people.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let value: Value =
            serde_json::from_slice(body).map_err(|error| format!("the body is no JSON: {error}"))?;
        strict::read(&value)
            .map_err(|error| format!("the body is no AdmissionReview of group admission.k8s.io: {error}"))
    }

    /// The answer.
    pub(super) fn answer(&self, judged: Judged) -> Value {
        let mut response = json!({"uid": self.request.uid, "allowed": judged.is_ok()});
        match judged {
            Ok(Allowed { warnings, patch }) => {
                if !warnings.is_empty() {
                    let cut = |text: String| text.chars().take(MAX_WARNING).collect();
                    response["warnings"] = json!(warnings.into_iter().map(cut).collect::<Vec<String>>());
                }
                if let Some(patch) = patch {
                    let text = serde_json::to_vec(&patch).unwrap_or_default();
                    response["patchType"] = json!("JSONPatch");
                    response["patch"] = json!(BASE64_STANDARD.encode(text));
                }
            }
            Err(Denied { code, message }) => {
                let reason = match code {
                    403 => "Forbidden",
                    422 => "Invalid",
                    500.. => "InternalError",
                    _ => "BadRequest",
                };
                response["status"] =
                    json!({"status": "Failure", "code": code, "reason": reason, "message": message});
            }
        }
        json!({"apiVersion": self.api_version, "kind": "AdmissionReview", "response": response})
    }
}

impl Request {
    /// The object as our type.
    ///
    /// # Errors
    /// A refusal that names the field.
    pub(super) fn object<T: DeserializeOwned>(&self) -> Result<T, Denied> {
        decode("the object", &self.object)
    }

    /// The stored object as our type; none when there is none.
    ///
    /// # Errors
    /// A refusal that names the field.
    pub(super) fn old_object<T: DeserializeOwned>(&self) -> Result<Option<T>, Denied> {
        if self.old_object.is_null() {
            return Ok(None);
        }
        decode("the stored object", &self.old_object).map(Some)
    }
}

fn decode<T: DeserializeOwned>(what: &str, value: &Value) -> Result<T, Denied> {
    strict::read(value).map_err(|error| Denied {
        code: 400,
        message: format!("{what} cannot be read: {error}"),
    })
}

/// Our type as JSON.
pub(super) fn encode(object: &impl serde::Serialize) -> Result<Value, Denied> {
    serde_json::to_value(object).map_err(|error| Denied {
        code: 500,
        message: format!("the object cannot be written: {error}"),
    })
}
