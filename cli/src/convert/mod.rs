//! `kruisectl convert`: objects of the one version as the other, by the manager's own conversion, without a cluster.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use kruise_api::container_recreate_request::{self, ContainerRecreateRequest};
use kruise_api::{clone_set, crd, names, strict, structural};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::documents;
use crate::exit::Code;
use crate::output;

/// Arguments of `convert`.
#[derive(Args, Debug)]
pub(crate) struct ConvertArgs {
    /// File of objects in YAML or JSON; may be given several times, and - reads standard input. Objects of other kinds go through as
    /// they are.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Version to convert to.
    #[arg(long, value_enum)]
    pub(crate) to: Version,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = DocumentFormat::Yaml)]
    pub(crate) output: DocumentFormat,
}

/// A version that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Version {
    /// The older one.
    V1alpha1,
    /// The one that is stored.
    V1beta1,
}

impl Version {
    const fn name(self) -> &'static str {
        match self {
            Self::V1alpha1 => "v1alpha1",
            Self::V1beta1 => "v1beta1",
        }
    }
}

/// Form of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DocumentFormat {
    /// JSON; a list when there are several.
    Json,
    /// YAML; a document each.
    Yaml,
}

/// Converts every object of the files.
pub(crate) fn run(args: &ConvertArgs) -> Result<Code> {
    let (text, notes) = told(args)?;
    for note in notes {
        eprintln!("{note}");
    }
    output::put(&text)?;
    Ok(Code::Success)
}

/// What `run` prints, and its notes.
pub(crate) fn told(args: &ConvertArgs) -> Result<(String, Vec<String>)> {
    let objects = documents::read(&args.files)?;
    documents::at_least_one(&objects, "objects")?;
    let (mut converted, mut notes) = (Vec::new(), Vec::new());
    for object in &objects {
        let (object, more) = convert(object, args.to).with_context(|| documents::title(object))?;
        converted.push(object);
        notes.extend(more);
    }
    let text = documents::show(&converted, args.output == DocumentFormat::Yaml)?;
    Ok((text, notes))
}

/// The object in that version, and what a person should know.
fn convert(object: &Value, to: Version) -> Result<(Value, Vec<String>)> {
    let title = documents::title(object);
    let (group, from) = documents::group_version(object);
    let kind = documents::kind(object);
    let schema = match kind {
        "CloneSet" => crd::clone_set(),
        "ContainerRecreateRequest" => crd::container_recreate_request(),
        "ImagePullJob" => crd::image_pull_job(),
        "ImageListPullJob" => crd::image_list_pull_job(),
        "NodeImage" => crd::node_image(),
        _ => {
            return Ok((
                object.clone(),
                vec![format!(
                    "{title}: left as it is, this kind has no two versions here"
                )],
            ));
        }
    };
    let Some(structure) = structural::check(&schema, from, object).filter(|_| group == names::GROUP) else {
        anyhow::bail!("{group}/{from} is no version of {kind}; there are v1alpha1 and v1beta1");
    };
    if from == to.name() {
        return Ok((object.clone(), Vec::new()));
    }
    let notes = structure
        .unknown
        .iter()
        .map(|field| format!("{title}: {field} is not known and left out"));
    let notes: Vec<String> = notes.collect();
    let mut converted = match (kind, to) {
        ("CloneSet", Version::V1beta1) => through(object, |set| clone_set::convert::to_v1beta1(&set))?,
        ("CloneSet", Version::V1alpha1) => through(object, |set| clone_set::convert::to_v1alpha1(&set))?,
        ("ContainerRecreateRequest", Version::V1beta1) => {
            through(object, container_recreate_request::conversion::to_v1beta1)?
        }
        ("ContainerRecreateRequest", Version::V1alpha1) => {
            through(object, |request: ContainerRecreateRequest| {
                container_recreate_request::conversion::to_v1alpha1(request)
            })?
        }
        // The others have the same fields in both versions.
        _ => object.clone(),
    };
    if let Some(fields) = converted.as_object_mut() {
        fields.insert(
            "apiVersion".to_owned(),
            format!("{}/{}", names::GROUP, to.name()).into(),
        );
        fields.insert("kind".to_owned(), kind.into());
    }
    Ok((converted, notes))
}

fn through<A: DeserializeOwned, B: Serialize>(object: &Value, convert: impl Fn(A) -> B) -> Result<Value> {
    let read: A = strict::read(object).context("not readable")?;
    Ok(serde_json::to_value(convert(read))?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set() -> Value {
        json!({
            "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet",
            "metadata": {"name": "web", "annotations": {"apps.kruise.io/image-predownload-parallelism": "2"}},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"odd": {"kept": true}},
                "scaleStrategy": {}, "updateStrategy": {"type": "InPlaceIfPossible", "partition": "20%"}},
        })
    }

    #[test]
    fn a_set_goes_there_and_back() {
        let (there, notes) = convert(&set(), Version::V1beta1).unwrap();
        assert_eq!(notes, [""; 0]);
        assert_eq!(there["apiVersion"], "apps.kruise.io/v1beta1");
        assert_eq!(
            there["spec"]["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "partition": "20%",
                "inPlaceUpdateStrategy": {"imagePreDownloadParallelism": 2}}})
        );
        let (mut back, _) = convert(&there, Version::V1alpha1).unwrap();
        assert_eq!(back["spec"]["updateStrategy"]["inPlaceUpdateStrategy"], json!({}));
        back["spec"]["updateStrategy"]
            .as_object_mut()
            .unwrap()
            .remove("inPlaceUpdateStrategy");
        assert_eq!(back, set());
        assert_eq!(convert(&set(), Version::V1alpha1).unwrap().0, set());
    }

    #[test]
    fn other_kinds_change_their_version_or_nothing() {
        let job = json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "metadata": {"name": "j"}, "spec": {"image": "a"}});
        let (older, _) = convert(&job, Version::V1alpha1).unwrap();
        assert_eq!(
            (&older["apiVersion"], &older["spec"]),
            (&json!("apps.kruise.io/v1alpha1"), &job["spec"])
        );
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
        let (same, notes) = convert(&pod, Version::V1beta1).unwrap();
        assert_eq!((same, notes.len()), (pod, 1));
        let crr = json!({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "ContainerRecreateRequest", "metadata": {"name": "r"},
            "spec": {"podName": "p", "containers": [{"name": "c"}]}});
        let (newer, _) = convert(&crr, Version::V1beta1).unwrap();
        assert_eq!(
            (&newer["kind"], &newer["spec"]["podName"]),
            (&json!("ContainerRecreateRequest"), &json!("p"))
        );
    }

    #[test]
    fn what_gets_lost_is_told_and_what_is_wrong_is_an_error() {
        let mut odd = set();
        odd["spec"]["updateStrategy"]["partitoin"] = json!(1);
        let (_, notes) = convert(&odd, Version::V1beta1).unwrap();
        assert_eq!(
            notes,
            ["CloneSet web: spec.updateStrategy.partitoin is not known and left out"]
        );
        odd["apiVersion"] = json!("apps.kruise.io/v2");
        assert!(convert(&odd, Version::V1beta1).is_err());
        let mut wrong = set();
        wrong["spec"]["replicas"] = json!("three");
        assert!(convert(&wrong, Version::V1beta1).is_err());
    }
}
