//! Wiring: one function per part, and the order of start and end.
//!
//! Start: clients, listeners, trust store; with a certificate to serve, the gRPC server, and then the election, since a leader that nobody can
//! reach is of no use.
//!
//! End, on SIGTERM or SIGINT: not ready any more, streams are sent to the next leader, the listener closes, calls under way get a short
//! grace, the lease is released. A lost lease ends the process at once instead.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kruise_api::names::{MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS};
use kruise_planner::lease::{Loss, Timing};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::args::{Config, Election, Listen};
use crate::clock::{Monotonic, wall_unix_ms};
use crate::cloneset::CloneSetHandle;
use crate::engine::{self, Engine, EngineHandle};
use crate::identity::{self, ApiVerifier, Identity};
use crate::kubeapi::Api;
use crate::leader::{self, Control, Driver, LeaderState, Leadership};
use crate::serve::{Check, Health, Limits, Reporter, ServingStatus, common_services, grpc, serve_http};
use crate::telemetry::{Metrics, Traces, chain, init_logs};
use crate::trust::{self, Healer, Serving, Store, Target};
use crate::webhook::{self, KubeLookup, WebhookMetrics};
use crate::{cloneset, dispatch, image_list, inspect, launch, restart};

/// For calls under way when the process is told to end. Together with a retry period it stays below the time in which others shall take over.
const GRACE: Duration = Duration::from_secs(2);
/// Work is a few thousand small messages a second at most; more threads only cost memory on large machines.
const THREADS: usize = 4;
/// For learning the signing keys and what tokens are bound to, before the first agent is let in.
const INFORMED: Duration = Duration::from_secs(5);
/// Before the webhooks stop, after this replica has said that it is not ready: the way of that news to the API server's own proxy.
const LINGER: Duration = Duration::from_secs(3);
/// For letting go of the lease.
const RELEASE: Duration = Duration::from_secs(5);

/// Runs until it is told to end or must.
#[must_use]
pub fn run(config: Config) -> ExitCode {
    let logging = config.logging.clone();
    init_logs(logging.format, logging.verbosity, logging.filter.as_deref());
    // Secrets pass through this memory: no core dumps, no ptrace by others of the same user.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "the process stays dumpable");
    }
    // Fails only when it was installed before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let threads = std::thread::available_parallelism()
        .map_or(1, std::num::NonZero::get)
        .min(THREADS);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "no runtime");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(manage(config));
    // Nothing may go on acting: whatever still runs ends with the process.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = %chain(error.as_ref()), "the manager ends");
            ExitCode::FAILURE
        }
    }
}

/// The parts that run, and how they are told to stop.
struct Parts {
    metrics: Metrics,
    clock: Monotonic,
    api: Api,
    leadership: Leadership,
    verifier: Arc<ApiVerifier>,
    serving: Serving,
    health: Health,
    /// Stops what nobody waits for: trust store and plain HTTP.
    rest: CancellationToken,
}

async fn manage(config: Config) -> anyhow::Result<()> {
    announce(&config);
    let mut signals = Signals::new()?;
    let clock = Monotonic::boot();
    let (leadership, control) = Leadership::new(clock.clone());
    let metrics = Metrics::default().with_traces(traces(&config)?);
    let serving = Serving::default();
    let api = api(&config, &leadership, &metrics).await?;
    let healer = healer(&config, &api);
    let parts = Parts {
        verifier: verifier(&config, &api, &clock),
        api,
        health: Health::new(checks(&serving, healer.as_ref())),
        metrics,
        clock,
        leadership,
        serving,
        rest: CancellationToken::new(),
    };
    let listener = config
        .listeners
        .grpc
        .bind()
        .with_context(|| format!("gRPC on {}", config.listeners.grpc))?;
    let listener = listener.context("gRPC needs an address")?;
    plain_http(&config, &parts)?;
    trust_store(&config, &parts);
    webhooks(&config, &parts, healer)?;
    parts.verifier.learn(parts.rest.clone());
    let ready = async { tokio::join!(certificate(&parts.serving), parts.verifier.informed(INFORMED)) };
    tokio::select! {
        _ = ready => {}
        name = signals.next() => {
            tracing::info!(signal = name, "told to end before anything was served");
            return Ok(());
        }
    }
    serve(&config, parts, listener, control, signals).await
}

/// Everything from the first agent to the release of the lease.
async fn serve(
    config: &Config,
    parts: Parts,
    listener: TcpListener,
    control: Control,
    mut signals: Signals,
) -> anyhow::Result<()> {
    let address = config.announced(listener.local_addr().context("gRPC listener")?);
    let engine = engine(config, &parts);
    image_lists(config, &parts);
    restarts(config, &parts, &engine);
    launches(config, &parts);
    let clone_sets = clone_sets(config, &parts, &engine);
    let (routes, reporter) = routes(config, &parts, &engine, clone_sets);
    let grpc_stop = CancellationToken::new();
    let mut grpc = grpc_server(&parts, routes, listener, grpc_stop.clone());
    let lease_stop = CancellationToken::new();
    let mut lease = election(config, &parts, control, address, lease_stop.clone());
    tokio::select! {
        name = signals.next() => tracing::info!(signal = name, "told to end"),
        ended = &mut lease => return lost(ended),
        ended = &mut grpc => {
            ended.context("gRPC server")?.context("gRPC server")?;
            anyhow::bail!("the gRPC server ended by itself");
        }
    }
    parts.health.stop();
    reporter.set_all(ServingStatus::NotServing).await;
    let end = async {
        engine.close();
        grpc_stop.cancel();
        if tokio::time::timeout(GRACE, &mut grpc).await.is_err() {
            tracing::info!("some connections were still open");
        }
        lease_stop.cancel();
        let ended = tokio::time::timeout(RELEASE, &mut lease).await;
        if config.listeners.webhooks != Listen::Off {
            tokio::time::sleep(LINGER).await;
        }
        ended
    };
    let ended = tokio::select! {
        ended = end => ended,
        name = signals.next() => anyhow::bail!("told to end twice, the second time by {name}"),
    };
    parts.rest.cancel();
    let traces = parts.metrics.traces.clone();
    // Blocks for a moment, which the runtime does not like.
    drop(tokio::task::spawn_blocking(move || traces.close()).await);
    match ended {
        Ok(ended) => lost(ended),
        Err(_) => anyhow::bail!("the lease was not released in time"),
    }
}

/// Where spans go. Needs the runtime.
fn traces(config: &Config) -> anyhow::Result<Traces> {
    let Some(endpoint) = &config.otlp_endpoint else {
        return Ok(Traces::default());
    };
    let traces = Traces::to(endpoint, &config.pod.name);
    traces.with_context(|| format!("--otlp-endpoint {endpoint}"))
}

fn announce(config: &Config) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        pod = config.pod.name,
        namespace = config.pod.namespace,
        "kruise-manager starts"
    );
    if !config.without_effect.is_empty() {
        tracing::info!(
            flags = config.without_effect.join(" "),
            "these flags have no effect in this program"
        );
    }
    let inert = config.gates.inert();
    if !inert.is_empty() {
        tracing::info!(
            gates = inert.join(" "),
            "these feature gates have no effect in this program"
        );
    }
}

async fn api(config: &Config, leadership: &Leadership, metrics: &Metrics) -> anyhow::Result<Api> {
    let timing = config
        .election
        .as_ref()
        .map_or_else(Timing::default, |election| election.timing);
    let kube = Api::infer().await?;
    Ok(Api::new(
        &kube,
        timing.request_timeout(),
        leadership.clone(),
        metrics.api.clone(),
    )?)
}

fn plain_http(config: &Config, parts: &Parts) -> anyhow::Result<()> {
    for (name, address, routes) in [
        ("health", config.listeners.health, parts.health.routes()),
        ("metrics", config.listeners.metrics, parts.metrics.routes()),
    ] {
        let listener = address.bind().with_context(|| format!("{name} on {address}"))?;
        let Some(listener) = listener else { continue };
        let stop = parts.rest.clone();
        tokio::spawn(async move {
            if let Err(error) = serve_http(listener, routes, stop).await {
                tracing::error!(name, %error, "HTTP listener ended");
            }
        });
    }
    Ok(())
}

fn trust_store(config: &Config, parts: &Parts) {
    let settings = trust::Settings {
        namespace: config.pod.namespace.clone(),
        secret: config.trust_secret.clone(),
        configmap: config.trust_configmap.clone(),
        policy: config.trust_policy,
    };
    let store = Store::new(
        settings,
        parts.api.clone(),
        parts.leadership.clone(),
        parts.serving.clone(),
        parts.metrics.serve.clone(),
    );
    tokio::spawn(store.run(parts.rest.clone()));
}

/// What must hold for this replica to be ready.
fn checks(serving: &Serving, healer: Option<&Healer>) -> Vec<Check> {
    let mut checks = vec![Check::new("serving-certificate", {
        let serving = serving.clone();
        move || serving.is_ready()
    })];
    if let Some(healer) = healer.cloned() {
        checks.push(Check::new("webhook-authorities", move || healer.was_in_order()));
    }
    checks
}

/// Looks after the authorities of what the chart installs for our webhooks; nobody does without webhooks.
fn healer(config: &Config, api: &Api) -> Option<Healer> {
    if config.listeners.webhooks == Listen::Off {
        return None;
    }
    let converted = kruise_api::crd::all().into_iter().filter(|definition| {
        let conversion = definition.spec.conversion.as_ref();
        conversion.is_some_and(|conversion| conversion.strategy == "Webhook")
    });
    let names = converted.filter_map(|definition| definition.metadata.name);
    let mut targets: Vec<Target> = names.map(Target::Definition).collect();
    targets.push(Target::Mutating(MUTATING_WEBHOOKS.to_owned()));
    targets.push(Target::Validating(VALIDATING_WEBHOOKS.to_owned()));
    let (namespace, map) = (config.pod.namespace.clone(), config.trust_configmap.clone());
    Some(Healer::new(api.clone(), namespace, map, targets))
}

/// Webhooks, on every replica and before any certificate is there: until then handshakes fail.
fn webhooks(config: &Config, parts: &Parts, healer: Option<Healer>) -> anyhow::Result<()> {
    let address = config.listeners.webhooks;
    let listener = address.bind().with_context(|| format!("webhooks on {address}"))?;
    let (Some(listener), Some(healer)) = (listener, healer) else {
        return Ok(());
    };
    let metrics = WebhookMetrics::default();
    parts.metrics.register(|registry| metrics.register(registry));
    let deps = webhook::Deps {
        serving: parts.serving.clone(),
        lookup: Arc::new(KubeLookup(parts.api.clone())),
        switched_off: config.engine.switched_off,
        gates: config.gates.clone(),
        time: parts.api.clock().clone(),
        metrics,
        traces: parts.metrics.traces.clone(),
    };
    tokio::spawn(webhook::serve(listener, deps, parts.rest.clone()));
    tokio::spawn(healer.run(parts.rest.clone()));
    Ok(())
}

/// Waits until there is something to serve with.
async fn certificate(serving: &Serving) {
    let mut look = tokio::time::interval(Duration::from_millis(100));
    while !serving.is_ready() {
        look.tick().await;
    }
}

fn engine(config: &Config, parts: &Parts) -> EngineHandle {
    Engine::spawn(engine::Deps {
        api: parts.api.clone(),
        namespace: config.pod.namespace.clone(),
        leadership: parts.leadership.clone(),
        clock: parts.clock.clone(),
        metrics: parts.metrics.clone(),
        config: config.engine,
    })
}

fn image_lists(config: &Config, parts: &Parts) {
    image_list::spawn(image_list::Deps {
        api: parts.api.clone(),
        leadership: parts.leadership.clone(),
        metrics: parts.metrics.clone(),
        switched_off: config.engine.switched_off,
    });
}

/// Restarts of containers, unless there are no agents to do them.
fn restarts(config: &Config, parts: &Parts, engine: &EngineHandle) {
    if !config.gates.enabled("KruiseDaemon") {
        return;
    }
    restart::spawn(restart::Deps {
        api: parts.api.clone(),
        engine: engine.clone(),
        leadership: parts.leadership.clone(),
        clock: parts.clock.clone(),
        metrics: parts.metrics.clone(),
    });
}

/// Orders in which containers of pods start, unless pods are not asked about.
fn launches(config: &Config, parts: &Parts) {
    if config.gates.enabled("PodWebhook") {
        launch::spawn(parts.api.clone(), &parts.leadership);
    }
}

fn clone_sets(config: &Config, parts: &Parts, engine: &EngineHandle) -> CloneSetHandle {
    cloneset::spawn(cloneset::Deps {
        api: parts.api.clone(),
        leadership: parts.leadership.clone(),
        clock: parts.clock.clone(),
        metrics: parts.metrics.clone(),
        gates: config.clone_sets,
        engine: engine.clone(),
    })
}

/// TokenReviews in one second. They are the way out when tokens cannot be verified here, and the API server has others to serve.
const MOST_REVIEWS: u32 = 500;

fn verifier(config: &Config, api: &Api, clock: &Monotonic) -> Arc<ApiVerifier> {
    let settings = identity::Settings {
        namespace: config.pod.namespace.clone(),
        service_account: config.agent_service_account.clone(),
        reviews_per_second: config.engine.attach_per_second.min(MOST_REVIEWS),
    };
    Arc::new(ApiVerifier::new(settings, api.clone(), clock.clone()))
}

fn routes(
    config: &Config,
    parts: &Parts,
    engine: &EngineHandle,
    clone_sets: CloneSetHandle,
) -> (RoutesFor, Reporter) {
    let identity = Identity::shared(Arc::clone(&parts.verifier));
    let roots = inspect::ConfigMapRoots::new(
        parts.api.clone(),
        config.pod.namespace.clone(),
        config.trust_configmap.clone(),
    );
    let dispatch = dispatch::service(engine.clone(), identity.clone(), parts.leadership.clone());
    let inspect = inspect::service(
        engine.clone(),
        clone_sets,
        identity.clone(),
        parts.leadership.clone(),
        config.pod.name.clone(),
        Arc::new(roots),
    );
    let routes = Routes::default().add_service(dispatch).add_service(inspect);
    let (routes, reporter) = common_services(routes);
    (RoutesFor { routes, identity }, reporter)
}

/// Routes with who verifies the callers of the common ones.
struct RoutesFor {
    routes: Routes,
    identity: Identity,
}

fn grpc_server(
    parts: &Parts,
    routes: RoutesFor,
    listener: TcpListener,
    stop: CancellationToken,
) -> JoinHandle<Result<(), tonic::transport::Error>> {
    let deps = grpc::Deps {
        tls: parts.serving.server_config(&["h2"]),
        limits: Limits::for_this_process(),
        identity: routes.identity,
        metrics: parts.metrics.serve.clone(),
    };
    tokio::spawn(grpc::serve(listener, routes.routes, deps, stop))
}

fn election(
    config: &Config,
    parts: &Parts,
    control: Control,
    address: String,
    stop: CancellationToken,
) -> JoinHandle<Result<(), Loss>> {
    let Some(Election {
        namespace,
        lease,
        timing,
    }) = config.election.clone()
    else {
        leader::lead_alone(&control, &parts.metrics.leader, wall_unix_ms());
        return tokio::spawn(async move {
            stop.cancelled().await;
            control.revoke();
            Ok(())
        });
    };
    let holder = leader::holder_name(&config.pod.name);
    let settings = leader::Settings {
        namespace,
        lease,
        holder,
        address,
        timing,
    };
    let driver = Driver::new(
        settings,
        &parts.api,
        control,
        parts.clock.clone(),
        parts.metrics.leader.clone(),
    );
    tokio::spawn(watch_leader(parts.leadership.clone()));
    tokio::spawn(driver.run(stop))
}

/// Says in the log whom this replica follows.
async fn watch_leader(leadership: Leadership) {
    let mut states = leadership.subscribe();
    while states.changed().await.is_ok() {
        if let LeaderState::Follower { leader: Some(peer) } = &*states.borrow_and_update() {
            tracing::info!(
                leader = peer.name,
                address = peer.address,
                "another replica leads"
            );
        }
    }
}

fn lost(ended: Result<Result<(), Loss>, tokio::task::JoinError>) -> anyhow::Result<()> {
    ended
        .context("leader election")?
        .context("this replica leads no more")
}

/// What asks a process to end.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
