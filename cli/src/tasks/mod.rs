//! `kruisectl tasks`.

mod row;

use anyhow::{Context as _, Result};
use futures::{Stream, TryStreamExt as _};
use kruise_proto::{inspect, node};

pub(crate) use row::{TaskRow, seconds};

use crate::args::{Format, Global, TasksArgs};
use crate::connect::{self, Cluster};
use crate::exit::{Code, Usage};
use crate::output::{self, Row as _};

/// Lists tasks, and goes on with `--watch`.
pub(crate) async fn run(global: &Global, args: TasksArgs) -> Result<Code> {
    if let Some(socket) = &global.socket {
        if args.job.is_some() || args.node.is_some() {
            let text = "the agent behind --socket knows this machine's tasks and no jobs; leave --job and --node out";
            return Err(Usage(text.into()).into());
        }
        return on_node(socket, &args).await;
    }
    let cluster = Cluster::new(global).await?;
    let job = args
        .job
        .as_deref()
        .map(|job| qualified(job, &cluster.namespace))
        .unwrap_or_default();
    let node_name = args.node.clone().unwrap_or_default();
    let mut client = connect::open(&cluster).await?;
    if args.watch {
        let request = inspect::WatchTasksRequest {
            job,
            node_name,
            until_done: false,
        };
        let events = client.watch_tasks(request).await.map_err(refused)?.into_inner();
        return print_changes(events.map_err(refused).map_ok(Change::from), args.output).await;
    }
    let mut rows = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = inspect::ListTasksRequest {
            job: job.clone(),
            node_name: node_name.clone(),
            page_size: 0,
            page_token,
        };
        let page = client.list_tasks(request).await.map_err(refused)?.into_inner();
        rows.extend(page.tasks.into_iter().map(TaskRow::from));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    output::put(&output::listing(&rows, args.output)?)?;
    if rows.is_empty() && args.output == Format::Table {
        eprintln!("no tasks: nothing is being pulled, and every result is stored in its job's status");
    }
    Ok(Code::Success)
}

async fn on_node(socket: &std::path::Path, args: &TasksArgs) -> Result<Code> {
    let mut client = connect::node(socket).await?;
    if args.watch {
        let events = client
            .watch_tasks(node::WatchTasksRequest {})
            .await
            .map_err(connect::refused_by_agent)?
            .into_inner();
        return print_changes(
            events.map_err(connect::refused_by_agent).map_ok(Change::from),
            args.output,
        )
        .await;
    }
    let agent = client
        .get_agent(node::GetAgentRequest {})
        .await
        .map_err(connect::refused_by_agent)?
        .into_inner();
    let tasks = client
        .list_tasks(node::ListTasksRequest {})
        .await
        .map_err(connect::refused_by_agent)?
        .into_inner();
    let rows: Vec<_> = tasks
        .tasks
        .into_iter()
        .map(|task| TaskRow::on_node(&agent.node_name, task))
        .collect();
    output::put(&output::listing(&rows, args.output)?)?;
    Ok(Code::Success)
}

enum Change {
    Task(Box<TaskRow>),
    Gone(String),
    Other,
}

impl From<inspect::WatchTasksResponse> for Change {
    fn from(response: inspect::WatchTasksResponse) -> Self {
        use inspect::watch_tasks_response::Event;
        match response.event {
            Some(Event::Task(task)) => Self::Task(Box::new(task.into())),
            Some(Event::Gone(id)) => Self::Gone(id),
            Some(Event::Job(_)) | None => Self::Other,
        }
    }
}

impl From<node::WatchTasksResponse> for Change {
    fn from(response: node::WatchTasksResponse) -> Self {
        use node::watch_tasks_response::Event;
        match response.event {
            Some(Event::Task(task)) => Self::Task(Box::new(TaskRow::on_node("", task))),
            Some(Event::Gone(id)) => Self::Gone(id),
            None => Self::Other,
        }
    }
}

/// Prints each change as it comes: one line, or one document. A task that is gone shows in documents only, by its id.
async fn print_changes(changes: impl Stream<Item = Result<Change>>, format: Format) -> Result<Code> {
    let mut changes = std::pin::pin!(changes);
    if matches!(format, Format::Table | Format::Wide) {
        output::put(&TaskRow::fixed_heads(format == Format::Wide))?;
    }
    while let Some(change) = changes.try_next().await? {
        output::put(&change_text(&change, format)?)?;
    }
    Ok(Code::Success)
}

fn change_text(change: &Change, format: Format) -> Result<String> {
    Ok(match (change, format) {
        (Change::Task(row), Format::Table) => TaskRow::fixed(&row.cells()),
        (Change::Task(row), Format::Wide) => TaskRow::fixed(&[row.cells(), row.wide()].concat()),
        (Change::Task(row), Format::Json) => serde_json::to_string(row)? + "\n",
        (Change::Task(row), Format::Yaml) => format!("---\n{}", serde_norway::to_string(row)?),
        (Change::Gone(id), Format::Json) => format!("{}\n", serde_json::json!({"taskId": id, "gone": true})),
        (Change::Gone(id), Format::Yaml) => format!("---\ntaskId: {id}\ngone: true\n"),
        (Change::Gone(_), Format::Table | Format::Wide) | (Change::Other, _) => String::new(),
    })
}

/// A job's name with its namespace.
pub(crate) fn qualified(job: &str, namespace: &str) -> String {
    if job.contains('/') {
        job.to_owned()
    } else {
        format!("{namespace}/{job}")
    }
}

/// An answer that is an error, with what it means for the caller.
#[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
pub(crate) fn refused(status: tonic::Status) -> anyhow::Error {
    let advice = match status.code() {
        tonic::Code::Unauthenticated => "the manager does not take the token: is it another cluster's?",
        tonic::Code::PermissionDenied => "the ClusterRole kruise-viewer has the rights that are wanted",
        tonic::Code::ResourceExhausted => "too slow a reader: the changes came faster than they were taken",
        tonic::Code::Unavailable => "the manager broke off or does not lead any more; try again",
        _ => "the inspection service refused",
    };
    let said = if status.message().is_empty() {
        status.code().to_string()
    } else {
        status.message().to_owned()
    };
    anyhow::anyhow!(said).context(advice)
}

/// The part of a response that must be there.
pub(crate) fn present<T>(part: Option<T>, what: &str) -> Result<T> {
    part.with_context(|| format!("the answer lacks {what}: is the manager of another version?"))
}
