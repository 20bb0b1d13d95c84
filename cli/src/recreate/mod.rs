//! `kruisectl restart`: containers of a pod, or of all pods of a workload within a budget, in place.
//!
//! For each pod a ContainerRecreateRequest is made; everything else is the manager's. The requests of one run carry its name in a label, so that a
//! run that was interrupted goes on where it was.

mod budget;
mod request;
mod target;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use kruise_api::container_recreate_request::run::RunName;
use kruise_api::container_recreate_request::{ContainerRecreateRequest, keys};
use kube::Api;
use kube::api::{ListParams, PostParams};
use tokio::time::Instant;

use self::budget::{Run, Standing};
use self::target::Target;
use crate::args::{Global, duration};
use crate::connect::Cluster;
use crate::exit::{Code, Usage};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What a request gets when nothing is said; the help says it too.
const DEADLINE: Duration = Duration::from_mins(10);

/// Arguments of `restart`.
#[derive(Args, Debug)]
pub(crate) struct RestartArgs {
    /// What to restart: pod/NAME, clone/NAME, deploy/NAME, sts/NAME or ds/NAME.
    pub(crate) target: String,
    /// Container; may be given several times, in the order in which they are stopped. Left out, all containers.
    #[arg(short, long = "container", value_name = "NAME")]
    pub(crate) containers: Vec<String>,
    /// Most pods of a workload that may be down at once, whatever the reason.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_unavailable: u16,
    /// Stop the next container of a pod only when the one before is ready again.
    #[arg(long)]
    pub(crate) ordered: bool,
    /// Time for hook and stop of each container, for example 10s. Left out, the pod's own.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// Take each pod out of service for so long before. Needs the readiness gate KruisePodReady in the pod.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) drain: Option<Duration>,
    /// A container counts as restarted when it has run for longer than this.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) min_started: Option<Duration>,
    /// End the request of a pod after this time.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub(crate) deadline: Duration,
    /// Name of the run. Give that of a run that was interrupted to go on with it.
    #[arg(long, value_name = "NAME")]
    pub(crate) run: Option<String>,
    /// Go on with other pods when one fails.
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// Stay until it is over. A workload is restarted only as long as this program stays.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) wait: bool,
    /// Longest time to stay, for example 30m. Requests that were made go on.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait_timeout: Option<Duration>,
}

impl RestartArgs {
    /// All containers of all pods of a workload, with what is usual.
    pub(crate) fn of_workload(target: String, max_unavailable: u16) -> Self {
        Self {
            target,
            containers: Vec::new(),
            max_unavailable,
            ordered: false,
            grace: None,
            drain: None,
            min_started: None,
            deadline: DEADLINE,
            run: None,
            keep_going: false,
            wait: true,
            wait_timeout: None,
        }
    }
}

pub(crate) async fn run(global: &Global, args: RestartArgs) -> Result<Code> {
    let target = Target::parse(&args.target)?;
    if !args.wait && target.is_workload() {
        return Err(Usage(
            "--wait=false: a workload is restarted only as long as this program stays".to_owned(),
        )
        .into());
    }
    let name = args.run.clone().unwrap_or_else(request::run_name);
    let name = RunName::of(&name).ok_or_else(|| Usage("--run: a name is needed".to_owned()))?;
    let cluster = Cluster::new(global).await?;
    let session = Session {
        pods: Api::namespaced(cluster.client.clone(), &cluster.namespace),
        requests: Api::namespaced(cluster.client.clone(), &cluster.namespace),
        pods_of: target.pods(&cluster).await?,
        name,
        args: &args,
    };
    let work = session.work();
    let bounded = async {
        match args.wait_timeout {
            Some(limit) => tokio::time::timeout(limit, work).await.ok(),
            None => Some(work.await),
        }
    };
    tokio::select! {
        done = bounded => done.unwrap_or_else(|| {
            eprintln!("not over yet; requests that were made go on. {}", session.how_to_go_on());
            Ok(Code::TimedOut)
        }),
        _ = tokio::signal::ctrl_c() => {
            eprintln!("interrupted; requests that were made go on. {}", session.how_to_go_on());
            Ok(Code::Interrupted)
        }
    }
}

struct Session<'a> {
    pods: Api<Pod>,
    requests: Api<ContainerRecreateRequest>,
    pods_of: target::PodsOf,
    name: RunName,
    args: &'a RestartArgs,
}

impl Session<'_> {
    fn how_to_go_on(&self) -> String {
        format!("To go on: the same command with --run {}", self.name)
    }

    async fn work(&self) -> Result<Code> {
        let started = Instant::now();
        let mut told = BTreeMap::new();
        let mut announced = false;
        loop {
            let pods = self.pods_of.list(&self.pods).await?;
            let label = ListParams::default().labels(&format!("{}={}", keys::RESTART_RUN, self.name));
            let requests = self
                .requests
                .list(&label)
                .await
                .context("requests cannot be listed")?
                .items;
            let run = Run::new(&pods, &requests, usize::from(self.args.max_unavailable));
            if !std::mem::replace(&mut announced, true) {
                anyhow::ensure!(!pods.is_empty(), "{} has no pod to restart", self.args.target);
                eprintln!(
                    "run {}: {} pod(s), at most {} down at once, {} done before",
                    self.name,
                    pods.len(),
                    self.args.max_unavailable,
                    run.done()
                );
            }
            for (pod, standing) in run.standings() {
                let news = told.insert(pod.to_owned(), standing.clone()).as_ref() != Some(standing);
                if news && *standing != Standing::Waits {
                    eprintln!("{:7.1}s {pod}: {standing}", started.elapsed().as_secs_f64());
                }
            }
            let failed = run
                .standings()
                .any(|(_, standing)| matches!(standing, Standing::Failed(_)));
            if run.is_over() || (failed && !self.args.keep_going && run.is_idle()) {
                return Ok(self.summary(&run, failed, started));
            }
            if !failed || self.args.keep_going {
                for pod in run.next() {
                    self.begin(pod).await?;
                }
            }
            if !self.args.wait {
                eprintln!(
                    "asked for; see kubectl get crr {}",
                    self.name.request_for(run.first())
                );
                return Ok(Code::Success);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn begin(&self, pod: &Pod) -> Result<()> {
        let request = request::build(&self.name, pod, self.args)?;
        match self.requests.create(&PostParams::default(), &request).await {
            Ok(_) => Ok(()),
            // Of an earlier try of this very run.
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(error).context("a request cannot be made"),
        }
    }

    fn summary(&self, run: &Run<'_>, failed: bool, started: Instant) -> Code {
        let (done, longest, sum) = run.downtime();
        eprintln!(
            "{done} pod(s) restarted in {:.1} s; down {:.1} s on average, {longest:.1} s at most",
            started.elapsed().as_secs_f64(),
            if done == 0 { 0.0 } else { sum / f64::from(done) },
        );
        if failed {
            eprintln!("at least one pod failed: {}", self.how_to_go_on());
            Code::NodesFailed
        } else {
            Code::Success
        }
    }
}
