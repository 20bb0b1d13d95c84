//! `kruisectl explain`: why a job or a CloneSet stands where it stands, in the words of the planner that decided it.

mod clone_set;
mod text;

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use kruise_proto::{convert, inspect};
use serde::Serialize;

use crate::args::{Format, Global};
use crate::connect::{self, Cluster};
use crate::exit::{Code, Usage};
use crate::output;
use crate::plan;
use crate::tasks::{present, qualified, refused};

pub(crate) use clone_set::Explanation as CloneSetExplanation;

/// Arguments of `explain`.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// What to explain: clone/NAME, job/NAME or job/NAMESPACE/NAME.
    pub(crate) what: String,
    /// One node of the job.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

/// Asks the manager and shows what it says.
pub(crate) async fn run(global: &Global, args: ExplainArgs) -> Result<Code> {
    let Some(job) = job_of(&args.what) else {
        return explain_set(global, &args).await;
    };
    let cluster = Cluster::new(global).await?;
    let mut client = connect::open(&cluster).await?;
    let request = inspect::ExplainJobRequest {
        job: qualified(job, &cluster.namespace),
        node_name: args.node.clone().unwrap_or_default(),
    };
    let answer = client.explain_job(request).await.map_err(refused)?.into_inner();
    let explanation = Explanation::new(present(answer.job.clone(), "the job")?, answer);
    if let Some(node) = &args.node
        && explanation.nodes.is_empty()
        && !explanation.complete
    {
        bail!("{} does not select node {node}", explanation.job);
    }
    output::put(&match args.output {
        Format::Table | Format::Wide => explanation.text(),
        Format::Json | Format::Yaml => output::document(&explanation, args.output)?,
    })?;
    Ok(Code::Success)
}

async fn explain_set(global: &Global, args: &ExplainArgs) -> Result<Code> {
    let name = plan::kind_and_name(&args.what).ok_or_else(|| {
        Usage(format!(
            "{:?} cannot be explained; give clone/NAME, job/NAME or job/NAMESPACE/NAME",
            args.what
        ))
    })?;
    if args.node.is_some() {
        return Err(Usage("--node is for jobs".to_owned()).into());
    }
    clone_set::run(&Cluster::new(global).await?, name, args.output).await
}

/// The job that is meant, under each of the names that its kind goes by.
fn job_of(what: &str) -> Option<&str> {
    let (kind, name) = what.split_once('/')?;
    let is_job = matches!(kind, "job" | "ipj" | "imagepulljob" | "imagepulljobs");
    (is_job && !name.is_empty()).then_some(name)
}

/// What the manager said.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    job: String,
    complete: bool,
    image: String,
    parallelism: u32,
    priority: u32,
    round: u32,
    always_pull: bool,
    attempt_timeout_seconds: u64,
    backoff_limit: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_left_seconds: Option<u64>,
    desired: u32,
    active: u32,
    succeeded: u32,
    failed: u32,
    waiting: Vec<Waiting>,
    nodes: Vec<Node>,
    nodes_left_out: u32,
    failures: Vec<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_look_seconds: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Waiting {
    reason: String,
    message: String,
    nodes: u32,
}

#[derive(Debug, Serialize)]
struct Node {
    name: String,
    state: String,
    message: String,
    place: u32,
}

#[derive(Debug, Serialize)]
struct Failure {
    reason: String,
    nodes: u32,
    node: String,
    message: String,
}

impl Explanation {
    fn new(job: inspect::JobSummary, answer: inspect::ExplainJobResponse) -> Self {
        let seconds = |span: Option<prost_types::Duration>| {
            span.as_ref()
                .and_then(convert::from_duration)
                .map(|span: Duration| span.as_secs())
        };
        let settings = answer.settings.unwrap_or_default();
        Self {
            job: job.job,
            complete: job.complete,
            image: settings.image,
            parallelism: settings.parallelism,
            priority: settings.priority,
            round: settings.round,
            always_pull: settings.always_pull,
            attempt_timeout_seconds: seconds(settings.attempt_timeout).unwrap_or(0),
            backoff_limit: settings.backoff_limit,
            deadline_left_seconds: seconds(settings.deadline_left),
            desired: job.desired,
            active: job.active,
            succeeded: job.succeeded,
            failed: job.failed,
            waiting: answer.waiting.into_iter().map(Waiting::from).collect(),
            nodes: answer.nodes.into_iter().map(Node::from).collect(),
            nodes_left_out: answer.nodes_left_out,
            failures: answer.failures.into_iter().map(Failure::from).collect(),
            next_look_seconds: seconds(answer.next_look_in),
        }
    }
}

impl From<inspect::WaitingReason> for Waiting {
    fn from(waiting: inspect::WaitingReason) -> Self {
        Self {
            reason: waiting.reason,
            message: waiting.message,
            nodes: waiting.nodes,
        }
    }
}

impl From<inspect::NodeStanding> for Node {
    fn from(node: inspect::NodeStanding) -> Self {
        Self {
            name: node.node_name,
            state: node.state,
            message: node.message,
            place: node.place,
        }
    }
}

impl From<inspect::FailureCount> for Failure {
    fn from(failure: inspect::FailureCount) -> Self {
        Self {
            reason: failure.reason,
            nodes: failure.nodes,
            node: failure.example_node,
            message: failure.example_message,
        }
    }
}

#[cfg(test)]
mod tests;
