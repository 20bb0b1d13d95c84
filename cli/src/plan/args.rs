//! Arguments of `plan`.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;

use crate::args::ResultFormat;

/// Arguments of `plan`.
#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// CloneSet, as clone/NAME. Left out, every CloneSet of the files; without files one of the cluster has to be named.
    pub(crate) set: Option<String>,
    /// File of objects in YAML or JSON, in any order: CloneSets, Pods, PersistentVolumeClaims, ControllerRevisions, ImagePullJobs and Nodes.
    /// May be given several times; - reads standard input. With files no cluster is asked.
    #[arg(short, long = "filename", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The time, as 2026-01-31T12:00:00Z. Left out, now.
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<Timestamp>,
    /// Feature gates, as NAME=true, several separated by commas.
    #[arg(long, value_name = "GATES", default_value = "")]
    pub(crate) feature_gates: String,
    /// See what another image would do: image=REFERENCE for all containers, or CONTAINER=REFERENCE. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) edits: Vec<String>,
    /// Play on, with a kubelet that does everything at once, until nothing more happens, and show each step.
    #[arg(long)]
    pub(crate) until_settled: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = ResultFormat::Text)]
    pub(crate) output: ResultFormat,
}
