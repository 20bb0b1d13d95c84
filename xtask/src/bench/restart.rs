//! `cargo xtask bench restart`: restarts in place, first on a real cluster, then many at once on simulated nodes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kruise_api::container_recreate_request::ContainerRecreateRequest;
use kruise_tests::audit::{Counters, Mark};
use kruise_tests::cluster::{Cluster, Options};
use kruise_tests::cmd;
use kruise_tests::fleet::control::{Fleet, Request, stamp};
use kruise_tests::fleet::pods;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

use super::bed::{Bed, Programs};
use super::manager::{Manager, Start};
use super::meter::{self, millis};
use super::scale::{self, first, free_address, in_sync, last, millis_of, per};
use crate::deploy;
use crate::repo::build;

const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Restarts on the real cluster, each way, one after the other.
    #[arg(long, default_value_t = 30)]
    samples: usize,
    /// Requests at once on simulated nodes.
    #[arg(long, default_value_t = 500)]
    requests: usize,
    /// Simulated nodes.
    #[arg(long, default_value_t = 50)]
    nodes: usize,
    /// Name of the real cluster. One that is up with the chart in it is used and left up.
    #[arg(long, default_value = "bench-restart")]
    name: String,
    /// Folder with a kruise-manager and a fleet to use for the simulated nodes, instead of building them.
    #[arg(long)]
    programs: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the asynchronous runtime")?;
    if args.samples > 0 {
        on_cluster(args, &runtime)?;
    }
    if args.requests > 0 {
        let programs = match &args.programs {
            Some(folder) => Programs::in_folder(folder),
            None => Programs::build()?,
        };
        runtime.block_on(on_fleet(args, &programs))?;
    }
    Ok(())
}

/// Restarts one after the other where real kubelets and runtimes are.
fn on_cluster(args: &Args, runtime: &tokio::runtime::Runtime) -> Result<()> {
    let was_up = Cluster::attach(&args.name).is_ok();
    if !was_up {
        Cluster::down(&args.name).context("cannot take what is left of a cluster down")?;
        let options = Options {
            name: args.name.clone(),
            ..Options::default()
        };
        runtime.block_on(Cluster::up(options))?;
        deploy::install(&args.name)?;
    }
    let program = build(&["restarts"])?.join("restarts");
    println!("load {:.1}", meter::load());
    let mut measure = std::process::Command::new(program);
    measure
        .args(["--samples", &args.samples.to_string()])
        .env("KRUISE_BED", &args.name);
    let measured = cmd::show(&mut measure);
    if !was_up {
        Cluster::down(&args.name)?;
    }
    measured
}

/// Many at once, with real agents whose runtimes are played.
async fn on_fleet(args: &Args, programs: &Programs) -> Result<()> {
    let bed = Bed::up("bench", 0, false).await?;
    let targets = bed.targets(args.nodes).await?;
    let address = free_address()?;
    let manager = Manager::start(&bed, programs, address, Start::default())?;
    manager.leads()?;
    let mut fleet = scale::fleet(&bed, programs, address, &targets)?;
    in_sync(&mut fleet, 0)?;
    let client = bed.cluster.client().await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({"metadata": {"generateName": "restarts-"}});
    let namespace = namespaces
        .create(&PostParams::default(), &serde_json::from_value(namespace)?)
        .await?
        .metadata
        .name
        .context("an object has a name")?;
    // No controller is there to make it, and no pod is let in without.
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
    let account = json!({"metadata": {"name": "default"}});
    accounts
        .create(&PostParams::default(), &serde_json::from_value(account)?)
        .await?;
    let many = Many {
        bed: &bed,
        pods: Api::namespaced(client.clone(), &namespace),
        requests: Api::namespaced(client, &namespace),
        namespace,
    };
    many.run(args, &manager, &mut fleet).await
}

struct Many<'a> {
    bed: &'a Bed,
    pods: Api<Pod>,
    requests: Api<ContainerRecreateRequest>,
    namespace: String,
}

impl Many<'_> {
    async fn run(&self, args: &Args, manager: &Manager, fleet: &mut Fleet) -> Result<()> {
        let made = pods::make(&self.pods, args.requests, args.nodes).await?;
        let mark = Mark::now(&self.bed.cluster)?;
        let cpu = meter::cpu(manager.process()?)?;
        let asked = stamp();
        for pod in &made {
            self.ask(&pod.name).await?;
        }
        let all_asked = stamp();
        let stops = fleet.ask(&Request::Stops {
            count: args.requests,
            within_ms: millis_of(PATIENCE),
        })?;
        pods::report_all(&self.pods, &made, 1).await?;
        let all_ready = stamp();
        self.all_succeed(args.requests).await?;
        let over = stamp();
        let cpu = meter::cpu(manager.process()?)? - cpu;
        fleet.ask(&Request::Idle {
            within_ms: millis_of(PATIENCE),
        })?;
        let stops_of_each = stops.stamps.len();
        if stops_of_each != args.requests {
            bail!("{stops_of_each} stops for {} requests", args.requests);
        }
        println!(
            "\n{} requests on {} nodes, made in {:.1} s\nfirst stop {:.0} ms after the first request, last stop {:.0} ms after the last\n\
             all Completed {:.0} ms after the last pod was ready, {:.1} s in all\nprocessor time of the manager per request {:.2} ms",
            args.requests,
            args.nodes,
            millis(asked, all_asked) / 1e3,
            millis(asked, first(&stops)?),
            millis(all_asked, last(&stops)?),
            millis(all_ready, over),
            millis(asked, over) / 1e3,
            cpu.as_secs_f64() * 1e3 / per(args.requests),
        );
        self.writes(args.requests, mark)
    }

    async fn ask(&self, pod: &str) -> Result<()> {
        let request = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ContainerRecreateRequest", "metadata": {"name": pod},
            "spec": {"podName": pod, "containers": [{"name": "main"}]},
        });
        self.requests
            .create(&PostParams::default(), &serde_json::from_value(request)?)
            .await
            .with_context(|| format!("cannot ask for {pod}"))?;
        Ok(())
    }

    /// Waits until all requests have ended and nothing of their metadata is left to write.
    async fn all_succeed(&self, count: usize) -> Result<()> {
        let active = ListParams::default().labels(kruise_api::container_recreate_request::keys::ACTIVE);
        wait_for("all requests to end", PATIENCE, async || {
            let left = self.requests.list(&active).await?.items.len();
            if left == 0 {
                return Ok(Seen::Done(()));
            }
            not_yet(format!("{left} of {count} have not"))
        })
        .await?;
        let all = self.requests.list(&ListParams::default()).await?.items;
        let text = serde_json::to_string(&all)?;
        let good = text.matches(r#""phase":"Succeeded""#).count();
        if good != count {
            bail!("{good} of {count} succeeded");
        }
        Ok(())
    }

    fn writes(&self, count: usize, mark: Mark) -> Result<()> {
        let counters = Counters::since(&self.bed.cluster, mark)?;
        let agents = counters.count(|request| request.agent.starts_with("kruise-daemon"));
        let mut of_requests = counters;
        of_requests
            .requests
            .retain(|request| request.namespace == self.namespace);
        let writes = of_requests.api_writes("kruise-manager");
        let most = most(&of_requests);
        println!(
            "API writes per request {:.2}, most of one {most} (≤ 3), events {:.2}, requests of agents {agents} (0)  {}",
            per(writes.writes) / per(count),
            per(writes.events) / per(count),
            if most <= 3 && agents == 0 { "ok" } else { "MISS" }
        );
        Ok(())
    }
}

/// Most writes on one request.
fn most(counters: &Counters) -> usize {
    let mut by_name = std::collections::BTreeMap::<&str, usize>::new();
    for request in &counters.requests {
        let ours = request.agent.starts_with("kruise-manager") && !request.is_read();
        if ours && request.resource.contains("containerrecreaterequests") {
            *by_name.entry(&request.name).or_default() += 1;
        }
    }
    by_name.into_values().max().unwrap_or_default()
}
