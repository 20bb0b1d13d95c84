//! `kruisectl pull` and `kruisectl follow`.

mod board;
mod follow;
mod here;
mod job;
mod outcome;
mod selector;
mod view;

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kruise_api::ids::ObjectKey;
use kruise_api::image_pull_job::ImagePullJob;
use kube::Api;
use kube::api::PostParams;

use self::follow::{Ending, Follower};
use self::outcome::Outcome;
use self::view::{Bars, Plain, View};
use crate::args::{FollowArgs, Format, Global, PullArgs, ResultFormat, ShowArgs};
use crate::connect::Cluster;
use crate::exit::{Code, Usage};
use crate::output;
use crate::tasks::qualified;

/// Creates a job and shows how it goes.
pub(crate) async fn run(global: &Global, args: Box<PullArgs>) -> Result<Code> {
    if let Some(socket) = &global.socket {
        return here::run(socket, &args, || view(&args.show)).await;
    }
    if args.username.is_some() {
        let text =
            "--username is for pulls by --socket; a job takes its log-ins from Secrets, by --pull-secret";
        return Err(Usage(text.into()).into());
    }
    // Wrong use is told before anything of the cluster is needed.
    let mut job = job::build(&args)?;
    let cluster = Cluster::new(global).await?;
    job.metadata.namespace = Some(cluster.namespace.clone());
    let created = create(&cluster, &job).await?;
    let key = ObjectKey::new(
        &cluster.namespace,
        created.metadata.name.clone().unwrap_or_default(),
    );
    if !args.wait {
        match args.show.output {
            ResultFormat::Text => output::put(&format!("imagepulljob {key} created\n{}\n", advice(&key)))?,
            ResultFormat::Json => output::put(&output::document(&created, Format::Json)?)?,
        }
        return Ok(Code::Success);
    }
    show(&cluster, key, &args.show).await
}

/// Shows how an existing job goes.
pub(crate) async fn follow(global: &Global, args: FollowArgs) -> Result<Code> {
    if global.socket.is_some() {
        let text = "the agent behind --socket knows no jobs; `kruisectl tasks --watch --socket PATH` shows its tasks";
        return Err(Usage(text.into()).into());
    }
    let cluster = Cluster::new(global).await?;
    let name = qualified(&args.job, &cluster.namespace);
    let (namespace, name) = name.split_once('/').unwrap_or(("", &name));
    let key = ObjectKey::new(namespace, name);
    let jobs: Api<ImagePullJob> = Api::namespaced(cluster.client.clone(), &key.namespace);
    if jobs
        .get_opt(&key.name)
        .await
        .with_context(|| format!("cannot read job {key}"))?
        .is_none()
    {
        return Err(Usage(format!(
            "there is no job {key}; `kubectl get imagepulljobs -A` shows which there are"
        ))
        .into());
    }
    show(&cluster, key, &args.show).await
}

async fn create(cluster: &Cluster, job: &ImagePullJob) -> Result<ImagePullJob> {
    let jobs: Api<ImagePullJob> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    jobs.create(&PostParams::default(), job)
        .await
        .map_err(|error| match &error {
            kube::Error::Api(status)
                if status.code == 404 && status.details.as_ref().is_none_or(|d| d.name.is_empty()) =>
            {
                anyhow::Error::new(error).context(
                    "this cluster does not know ImagePullJobs: is the chart installed, with crds.managed?",
                )
            }
            kube::Error::Api(status) if matches!(status.code, 409 | 422) => {
                Usage(status.message.clone()).into()
            }
            _ => anyhow::Error::new(error)
                .context(format!("cannot create a job in namespace {}", cluster.namespace)),
        })
}

async fn show(cluster: &Cluster, key: ObjectKey, args: &ShowArgs) -> Result<Code> {
    let mut view = view(args);
    view.note(&format!("imagepulljob {key}"));
    let follower = Follower {
        cluster,
        key: &key,
        limit: args.wait_timeout,
    };
    let ending = follower.run(view.as_mut()).await;
    view.close();
    match ending? {
        Ending::Over(outcome) => finish(&outcome, args.output),
        Ending::Gone => {
            eprintln!("job {key} was deleted: running pulls of it are cancelled");
            Ok(Code::NodesFailed)
        }
        Ending::TimedOut => {
            let limit = args.wait_timeout.unwrap_or(Duration::ZERO);
            eprintln!(
                "job {key} is not over after {}; it goes on\n{}",
                crate::human::duration(limit),
                advice(&key)
            );
            Ok(Code::TimedOut)
        }
        Ending::Interrupted => {
            eprintln!("job {key} goes on\n{}", advice(&key));
            Ok(Code::Interrupted)
        }
    }
}

fn finish(outcome: &Outcome, format: ResultFormat) -> Result<Code> {
    match format {
        ResultFormat::Text => output::put(&outcome.text())?,
        ResultFormat::Json => output::put(&output::document(outcome, Format::Json)?)?,
    }
    Ok(if outcome.all_well() {
        Code::Success
    } else {
        Code::NodesFailed
    })
}

fn advice(key: &ObjectKey) -> String {
    format!(
        "  follow it: kruisectl follow {key}\n  stop it:   kubectl -n {} delete imagepulljob {}",
        key.namespace, key.name
    )
}

/// Bars want a terminal that may be redrawn; `NO_COLOR` is read as "nothing fancy".
fn view(args: &ShowArgs) -> Box<dyn View> {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if args.plain || no_color || !std::io::stderr().is_terminal() {
        Box::new(Plain::new(std::io::stderr()))
    } else {
        Box::new(Bars::new())
    }
}
