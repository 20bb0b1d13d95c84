//! `kruisectl pull --socket`: onto this machine, by its own agent, without any cluster.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kruise_planner::task::Phase;
use kruise_proto::dispatch::{Credential, pull_image};
use kruise_proto::inspect;
use kruise_proto::inspect::watch_tasks_response::Event;
use kruise_proto::node::node_service_client::NodeServiceClient;
use kruise_proto::node::{GetAgentRequest, PullImageRequest, PullImageResponse};
use kruise_proto::{convert, node};
use tonic::Streaming;
use tonic::transport::Channel;

use super::board::Board;
use super::view::View;
use crate::args::{Format, PullArgs, ResultFormat};
use crate::connect::{self, refused_by_agent};
use crate::exit::{Code, Usage};
use crate::human;
use crate::output;
use crate::tasks::TaskRow;

/// Longest password that is read, so that a wrong pipe does not fill the memory.
const MAX_PASSWORD: u64 = 16 << 10;

/// Why the stream was left.
enum Ending {
    /// The task has ended, well or not.
    Over(Box<TaskRow>),
    TimedOut,
    Interrupted,
}

/// Pulls the image and shows how it goes.
pub(super) async fn run(
    socket: &Path,
    args: &PullArgs,
    view: impl FnOnce() -> Box<dyn View>,
) -> Result<Code> {
    // Wrong use is told before anybody is asked.
    let request = request(args)?;
    let mut client = connect::node(socket).await?;
    let agent = client
        .get_agent(GetAgentRequest {})
        .await
        .map_err(refused_by_agent)?
        .into_inner();
    let mut view = view();
    if let Some(text) = runtime_away(&agent) {
        view.note(&text);
    }
    let ending = tokio::select! {
        ending = follow(client, request, &agent.node_name, view.as_mut()) => ending,
        () = limit(args.show.wait_timeout) => Ok(Ending::TimedOut),
        _ = tokio::signal::ctrl_c() => Ok(Ending::Interrupted),
    };
    view.close();
    match ending? {
        Ending::Over(row) => finish(&row, args.show.output),
        Ending::TimedOut => {
            let limit = human::duration(args.show.wait_timeout.unwrap_or_default());
            eprintln!("not pulled after {limit}; the pull is cancelled");
            Ok(Code::TimedOut)
        }
        Ending::Interrupted => {
            eprintln!("the pull is cancelled");
            Ok(Code::Interrupted)
        }
    }
}

async fn limit(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// What of the command line makes sense for one machine, as a request.
fn request(args: &PullArgs) -> Result<PullImageRequest> {
    let of_jobs = [
        ("--nodes", !args.nodes.is_empty()),
        ("--selector", args.selector.is_some()),
        ("--parallelism", args.parallelism.is_some()),
        ("--ttl", args.ttl.is_some()),
        ("--name", args.name.is_some()),
        ("--pull-secret", !args.pull_secrets.is_empty()),
        ("--wait=false", !args.wait),
    ];
    if let Some((flag, _)) = of_jobs.iter().find(|(_, given)| *given) {
        return Err(Usage(format!(
            "{flag} is about jobs of a cluster; leave it out with --socket"
        ))
        .into());
    }
    let policy = if args.always {
        pull_image::Policy::Always
    } else {
        pull_image::Policy::IfNotPresent
    };
    let credentials = match &args.username {
        Some(username) => vec![Credential {
            username: username.clone(),
            password: password(std::io::stdin())?,
            ..Default::default()
        }],
        None => Vec::new(),
    };
    Ok(PullImageRequest {
        image: args.image.clone(),
        policy: policy.into(),
        attempt_timeout: args.timeout.map(convert::to_duration),
        // As jobs have it.
        backoff_limit: args.backoff_limit.unwrap_or(3).into(),
        deadline: args.deadline.map(convert::to_duration),
        credentials,
    })
}

fn password(from: impl std::io::Read) -> Result<String> {
    let mut text = String::new();
    from.take(MAX_PASSWORD)
        .read_to_string(&mut text)
        .context("no password on standard input")?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(Usage("--password-stdin: standard input is empty".into()).into());
    }
    Ok(password.to_owned())
}

fn runtime_away(agent: &node::GetAgentResponse) -> Option<String> {
    if agent.runtime.is_some() {
        return None;
    }
    Some(format!(
        "no container runtime answers the agent yet, the pull waits for it; tried: {}",
        agent.sockets_tried.join("; ")
    ))
}

async fn follow(
    mut client: NodeServiceClient<Channel>,
    request: PullImageRequest,
    node: &str,
    view: &mut dyn View,
) -> Result<Ending> {
    let events = client
        .pull_image(request)
        .await
        .map_err(refused_by_agent)?
        .into_inner();
    let row = show(events, node, view).await?;
    let Some(row) = row.filter(|row| row.stage.is_final()) else {
        bail!("the agent said no more before the pull had ended");
    };
    Ok(Ending::Over(Box::new(row)))
}

/// Feeds the view until the stream ends: the last state.
async fn show(
    mut events: Streaming<PullImageResponse>,
    node: &str,
    view: &mut dyn View,
) -> Result<Option<TaskRow>> {
    let mut board = Board::default();
    let mut last: Option<TaskRow> = None;
    loop {
        let response = match events.message().await {
            Ok(Some(response)) => response,
            Ok(None) => return Ok(last),
            // The end of a pull that failed says again what its last state said.
            Err(_) if last.as_ref().is_some_and(|row| row.stage == Phase::Failed) => return Ok(last),
            Err(status) => return Err(refused_by_agent(status)),
        };
        let Some(status) = response.task else { continue };
        last = Some(TaskRow::on_node(node, status.clone()));
        let task = inspect::Task {
            node_name: node.to_owned(),
            status: Some(status),
            attached: true,
            ..Default::default()
        };
        if let Some(change) = board.apply(Event::Task(task)) {
            view.changed(&board, &change);
        }
    }
}

fn finish(row: &TaskRow, format: ResultFormat) -> Result<Code> {
    let failed = row.stage == Phase::Failed;
    match format {
        ResultFormat::Json => output::put(&output::document(row, Format::Json)?)?,
        ResultFormat::Text if failed => eprintln!("error: {} was not pulled", row.image),
        ResultFormat::Text => output::put(&format!("{}@{}\n", row.image, row.image_id))?,
    }
    Ok(if failed { Code::NodesFailed } else { Code::Success })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn args(words: &[&str]) -> Box<PullArgs> {
        let words = ["kruisectl", "pull", "app:1", "--socket", "/s"]
            .iter()
            .chain(words);
        match Cli::parse_from(words).command {
            Command::Pull(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_about_jobs_is_refused() {
        for flag in [
            "--nodes=a",
            "--selector=a",
            "--parallelism=2",
            "--ttl=1h",
            "--name=x",
            "--pull-secret=x",
            "--wait=false",
        ] {
            let error = request(&args(&[flag])).unwrap_err();
            let name = flag.split('=').next().unwrap();
            assert!(
                error.is::<Usage>() && error.to_string().contains(name),
                "{flag}: {error}"
            );
        }
        let request = request(&args(&["--timeout=5m", "--always"])).unwrap();
        assert_eq!(request.policy(), pull_image::Policy::Always);
        assert_eq!(request.attempt_timeout.unwrap().seconds, 300);
        assert_eq!(request.backoff_limit, 3);
    }

    #[test]
    fn a_password_ends_at_its_line() {
        assert_eq!(password("secret\n".as_bytes()).unwrap(), "secret");
        assert!(password("\n".as_bytes()).unwrap_err().is::<Usage>());
    }
}
