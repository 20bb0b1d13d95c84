//! Command line: OpenKruise's flag names as far as they mean something here, and our own.
//!
//! Unknown flags and gates are refused with the nearest known one. Flags of OpenKruise that have nothing to act on are accepted, so that
//! arguments written for it keep working, and listed as such in the help and in the log.
//!
//! A value comes from the file of `--config`, from an environment variable, or from the command line; the later wins.

mod inert;
mod layers;
mod values;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser};
use kruise_api::features::FeatureGates;
use kruise_api::names;
use kruise_planner::cloneset::Gates;
use kruise_planner::job::Caps;
use kruise_planner::lease::Timing;

use crate::engine::EngineConfig;
use crate::telemetry::LogFormat;
use crate::trust::Policy;

pub use values::Listen;
use values::{boolean, duration, listen};

/// Manager of kruise-rs: hands out image pulls to node agents and keeps count.
#[derive(Debug, Parser)]
#[command(name = "kruise-manager", version, max_term_width = 110)]
struct Flags {
    /// Address of the gRPC server for agents and people (TLS).
    #[arg(long, default_value = ":9877", value_parser = listen, help_heading = "Listeners")]
    grpc_addr: Listen,
    /// Address of /metrics; 0 means none.
    #[arg(long, default_value = ":8080", value_parser = listen, help_heading = "Listeners")]
    metrics_addr: Listen,
    /// Address of /healthz, /livez and /readyz; 0 means none.
    #[arg(long, default_value = ":8000", value_parser = listen, help_heading = "Listeners")]
    health_probe_addr: Listen,
    /// Port of the webhooks (TLS); 0 means none.
    #[arg(long, default_value = "9876", help_heading = "Listeners")]
    port: u16,

    /// Elect a leader among the replicas. Without it this must be the only one.
    #[arg(long, default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = boolean, action = ArgAction::Set, help_heading = "Leader election")]
    enable_leader_election: bool,
    /// Namespace of the Lease; the pod's own by default.
    #[arg(long, default_value = "", help_heading = "Leader election")]
    leader_election_namespace: String,
    /// Name of the Lease.
    #[arg(long, default_value = names::LEASE, help_heading = "Leader election")]
    leader_election_id: String,
    /// How long the others wait for a silent leader, in whole seconds.
    #[arg(long, default_value = "15s", value_parser = duration, help_heading = "Leader election")]
    leader_election_lease_duration: Duration,
    /// How long a leader that cannot renew goes on.
    #[arg(long, default_value = "10s", value_parser = duration, help_heading = "Leader election")]
    leader_election_renew_deadline: Duration,
    /// How often the Lease is looked at.
    #[arg(long, default_value = "2s", value_parser = duration, help_heading = "Leader election")]
    leader_election_retry_period: Duration,
    /// Kind of the lock. There is one.
    #[arg(long, default_value = "leases", value_parser = ["leases"], help_heading = "Leader election")]
    leader_election_resource_lock: String,

    /// How long an agent works on without hearing from a leader.
    #[arg(long, default_value = "90s", value_parser = duration, help_heading = "Agents")]
    agent_contact_lease: Duration,
    /// How often an agent shows that it lives.
    #[arg(long, default_value = "5s", value_parser = duration, help_heading = "Agents")]
    agent_heartbeat_interval: Duration,
    /// How long a new leader waits for agents before it hands out work.
    #[arg(long, default_value = "10s", value_parser = duration, help_heading = "Agents")]
    agent_attach_grace: Duration,
    /// Agents that may attach in one second. Ten thousand come back within ten seconds of a failover only if this lets them.
    #[arg(long, default_value = "2000", value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Agents")]
    max_agents_attaching_per_second: u32,
    /// How long a new node must have been Ready before images are pulled on it.
    #[arg(long, default_value = "30s", value_parser = duration, help_heading = "Agents")]
    nodeimage_creation_delay: Duration,
    /// Service account of the agents, in the pod's namespace.
    #[arg(long, default_value = names::AGENT_SERVICE_ACCOUNT, help_heading = "Agents")]
    agent_service_account: String,

    /// Secret with our certificate authority and serving key.
    #[arg(long, default_value = names::TRUST_SECRET, help_heading = "Trust")]
    trust_secret: String,
    /// ConfigMap with the trust bundle that agents mount.
    #[arg(long, default_value = names::TRUST_CONFIGMAP, help_heading = "Trust")]
    trust_configmap: String,
    /// Life of our certificate authority. A new one comes when a third of it has passed.
    #[arg(long, default_value = "8760h", value_parser = duration, help_heading = "Trust")]
    certificate_authority_life: Duration,
    /// Life of the serving certificate. A new one comes when a third of it has passed.
    #[arg(long, default_value = "2160h", value_parser = duration, help_heading = "Trust")]
    serving_certificate_life: Duration,
    /// How long a new certificate authority is trusted before it signs. The kubelet takes up to two minutes to bring it to the
    /// agents.
    #[arg(long, default_value = "5m", value_parser = duration, help_heading = "Trust")]
    trust_overlap: Duration,

    /// File with settings, in YAML: names of flags with their values. Environment variables (KRUISE_FLAG_ and the name in capitals, as
    /// KRUISE_FLAG_METRICS_ADDR) go before it, flags before both.
    #[arg(long, value_name = "FILE", help_heading = "General")]
    config: Option<String>,
    /// Look at something and end, with an exit code that tells: connection (do the Services answer with a certificate that agents
    /// trust), uninstall (would objects be left alone).
    #[arg(long, value_enum, value_name = "WHAT", help_heading = "General")]
    check: Option<Check>,
    /// Most image pulls in flight at once in the whole cluster, over all jobs; 0 means no limit.
    #[arg(long, default_value = "0", help_heading = "Image pulls")]
    max_pulls_in_flight: u32,
    /// Most image pulls in flight at once from one registry; 0 means no limit.
    #[arg(long, default_value = "0", help_heading = "Image pulls")]
    max_pulls_per_registry: u32,

    /// Pods of CloneSets that wait for a hook before their deletion do not count among the replicas, in every set.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = boolean, action = ArgAction::Set, help_heading = "CloneSets")]
    cloneset_scaling_exclude_preparing_delete: bool,

    /// Where traces of updates go: a collector that speaks OTLP over gRPC, for example http://otel-collector:4317. Empty means that nothing is traced.
    /// Headers and a certificate authority come from the variables OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_CERTIFICATE.
    #[arg(long, default_value = "", help_heading = "General")]
    otlp_endpoint: String,
    /// Feature gates, NAME=true or NAME=false, separated by commas.
    #[arg(long, default_value = "", help_heading = "General")]
    feature_gates: String,
    /// Namespace to work in. Only all of them, which is the empty default, is possible.
    #[arg(long, default_value = "", help_heading = "General")]
    namespace: String,
    /// How log lines look.
    #[arg(long, default_value = "text", value_enum, help_heading = "General")]
    logging_format: LogFormat,
    /// How much is logged: debugging from 5 on, tracing from 8 on. The environment variable KRUISE_LOG, a filter of the form
    /// level,target=level, goes before it.
    #[arg(long = "v", short = 'v', default_value = "4", help_heading = "General")]
    verbosity: u8,
    /// Print the flags in force and end.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = boolean, action = ArgAction::Set, help_heading = "General")]
    print_config: bool,
}

/// What `--check` looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Check {
    /// Whether the Services answer, with a certificate that agents trust.
    Connection,
    /// Whether objects would be left without anybody to look after them.
    Uninstall,
}

/// Everything that was settled before start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen.
    pub listeners: Listeners,
    /// How to elect; none means that this replica leads alone.
    pub election: Option<Election>,
    /// This pod.
    pub pod: PodInfo,
    /// Secret of the trust store.
    pub trust_secret: String,
    /// ConfigMap of the trust store.
    pub trust_configmap: String,
    /// Lives of certificates.
    pub trust_policy: Policy,
    /// Service account of the agents.
    pub agent_service_account: String,
    /// Spans that the engine goes by.
    pub engine: EngineConfig,
    /// Feature gates.
    pub gates: FeatureGates,
    /// Switches of the controller of CloneSets.
    pub clone_sets: Gates,
    /// How to log.
    pub logging: Logging,
    /// Where traces go; none means nowhere.
    pub otlp_endpoint: Option<String>,
    /// Flags that were given and have no effect.
    pub without_effect: Vec<String>,
}

/// Addresses to listen on.
#[derive(Clone, Debug)]
pub struct Listeners {
    /// gRPC.
    pub grpc: Listen,
    /// Metrics.
    pub metrics: Listen,
    /// Health.
    pub health: Listen,
    /// Webhooks.
    pub webhooks: Listen,
}

/// How to elect a leader.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub lease: String,
    /// Times.
    pub timing: Timing,
}

/// What the downward API says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodInfo {
    /// `POD_NAME`, else the host's name.
    pub name: String,
    /// `POD_NAMESPACE`, else the usual one.
    pub namespace: String,
    /// `POD_IP`, else loopback.
    pub ip: IpAddr,
}

/// How to log.
#[derive(Clone, Debug)]
pub struct Logging {
    /// Text or JSON.
    pub format: LogFormat,
    /// `--v`.
    pub verbosity: u8,
    /// `KRUISE_LOG`.
    pub filter: Option<String>,
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Request {
    /// Run.
    Run(Box<Config>),
    /// Print this and end.
    Print(String),
    /// Look at this and end.
    Check(Check, PodInfo),
}

/// Reads command line and environment.
///
/// # Errors
/// clap's own, ready to be shown; help and version are among them.
pub fn parse<I>(arguments: I, environment: impl Fn(&str) -> Option<String>) -> Result<Request, clap::Error>
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    let mut command = inert::add(Flags::command()).args_override_self(true);
    let arguments = layers::lay(&command, arguments, &environment)
        .map_err(|words| command.error(ErrorKind::ValueValidation, words))?;
    let matches = command.try_get_matches_from_mut(arguments)?;
    let flags = Flags::from_arg_matches(&matches)?;
    if flags.print_config {
        return Ok(Request::Print(shown(&command, &matches)));
    }
    if let Some(check) = flags.check {
        return pod(&environment)
            .map(|pod| Request::Check(check, pod))
            .map_err(|words| command.error(ErrorKind::ValueValidation, words));
    }
    let config = settle(flags, inert::given(&matches), environment);
    config
        .map(|config| Request::Run(Box::new(config)))
        .map_err(|words| command.error(ErrorKind::ValueValidation, words))
}

fn settle(
    flags: Flags,
    without_effect: Vec<String>,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Config, String> {
    if !flags.namespace.is_empty() {
        return Err(format!(
            "--namespace {:?}: this version always works in all namespaces; leave it empty",
            flags.namespace
        ));
    }
    let endpoint = &flags.otlp_endpoint;
    if !endpoint.is_empty()
        && !["http://", "https://"]
            .iter()
            .any(|scheme| endpoint.starts_with(scheme))
    {
        return Err(format!(
            "--otlp-endpoint {endpoint:?}: give an URL that begins with http:// or https://, such as http://otel-collector:4317"
        ));
    }
    if flags.grpc_addr == Listen::Off {
        return Err("--grpc-addr cannot be 0: agents would have nowhere to go".to_owned());
    }
    let gates =
        FeatureGates::parse(&flags.feature_gates).map_err(|error| format!("--feature-gates: {error}"))?;
    let pod = pod(&environment)?;
    let engine = EngineConfig {
        switched_off: switched_off(&gates),
        ..engine(&flags)?
    };
    let trust_policy = trust_policy(&flags)?;
    Ok(Config {
        trust_policy,
        election: election(&flags, &pod)?,
        listeners: Listeners {
            grpc: flags.grpc_addr,
            metrics: flags.metrics_addr,
            health: flags.health_probe_addr,
            webhooks: match flags.port {
                0 => Listen::Off,
                port => Listen::Everywhere(port),
            },
        },
        pod,
        trust_secret: flags.trust_secret,
        trust_configmap: flags.trust_configmap,
        agent_service_account: flags.agent_service_account,
        engine,
        clone_sets: Gates {
            exclude_preparing_delete: flags.cloneset_scaling_exclude_preparing_delete,
            // Containers whose environment comes from metadata are not restarted by agents, so such a change only writes the metadata.
            env_from_metadata: false,
            ..Gates::of(&gates)
        },
        gates,
        logging: Logging {
            format: flags.logging_format,
            verbosity: flags.verbosity,
            filter: environment("KRUISE_LOG").filter(|filter| !filter.is_empty()),
        },
        otlp_endpoint: Some(flags.otlp_endpoint).filter(|endpoint| !endpoint.is_empty()),
        without_effect,
    })
}

fn election(flags: &Flags, pod: &PodInfo) -> Result<Option<Election>, String> {
    if !flags.enable_leader_election {
        return Ok(None);
    }
    let timing = Timing {
        lease_duration: flags.leader_election_lease_duration,
        renew_deadline: flags.leader_election_renew_deadline,
        retry_period: flags.leader_election_retry_period,
    };
    timing
        .validate()
        .map_err(|error| format!("leader election: {error}"))?;
    let own = || pod.namespace.clone();
    let namespace = Some(flags.leader_election_namespace.clone())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(own);
    Ok(Some(Election {
        namespace,
        lease: flags.leader_election_id.clone(),
        timing,
    }))
}

fn engine(flags: &Flags) -> Result<EngineConfig, String> {
    let (lease, beat) = (flags.agent_contact_lease, flags.agent_heartbeat_interval);
    if beat < Duration::from_millis(100) {
        return Err(format!(
            "--agent-heartbeat-interval {beat:?} must be at least 100 ms"
        ));
    }
    // Three heartbeats may get lost before an agent gives up on a living leader.
    if lease < beat * 4 {
        return Err(format!(
            "--agent-contact-lease {lease:?} must be at least four times --agent-heartbeat-interval {beat:?}"
        ));
    }
    Ok(EngineConfig {
        contact_lease: lease,
        heartbeat_interval: beat,
        attach_grace: flags.agent_attach_grace,
        creation_delay: flags.nodeimage_creation_delay,
        attach_per_second: flags.max_agents_attaching_per_second,
        caps: Caps {
            total: (flags.max_pulls_in_flight > 0).then_some(flags.max_pulls_in_flight),
            per_registry: (flags.max_pulls_per_registry > 0).then_some(flags.max_pulls_per_registry),
        },
        switched_off: None,
    })
}

/// The gate to be named to people when jobs do not run.
fn switched_off(gates: &FeatureGates) -> Option<&'static str> {
    ["KruiseDaemon", "ImagePullJobGate"]
        .into_iter()
        .find(|gate| !gates.enabled(gate))
}

fn trust_policy(flags: &Flags) -> Result<Policy, String> {
    let (authority, leaf, overlap) = (
        flags.certificate_authority_life,
        flags.serving_certificate_life,
        flags.trust_overlap,
    );
    if leaf < Duration::from_secs(30) {
        return Err(format!(
            "--serving-certificate-life {leaf:?} must be at least 30 s"
        ));
    }
    // A new authority comes after a third of the old one's life, and then needs the overlap before it can sign.
    if authority < leaf || authority / 3 < overlap {
        return Err(format!(
            "--certificate-authority-life {authority:?} must be at least --serving-certificate-life {leaf:?} and three times --trust-overlap {overlap:?}"
        ));
    }
    Ok(Policy {
        authority,
        leaf,
        overlap,
        ..Policy::default()
    })
}

fn pod(environment: &impl Fn(&str) -> Option<String>) -> Result<PodInfo, String> {
    let value = |name: &str| environment(name).filter(|value| !value.is_empty());
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let ip = match value("POD_IP") {
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(text) => text
            .parse()
            .map_err(|_| format!("POD_IP {text:?} is no IP address"))?,
    };
    Ok(PodInfo {
        name: value("POD_NAME").unwrap_or_else(host),
        namespace: value("POD_NAMESPACE").unwrap_or_else(|| names::DEFAULT_NAMESPACE.to_owned()),
        ip,
    })
}

impl Config {
    /// gRPC address that other replicas send agents to.
    #[must_use]
    pub fn announced(&self, bound: SocketAddr) -> String {
        SocketAddr::new(self.pod.ip, bound.port()).to_string()
    }
}

/// Every flag with the value in force, in a form that can be given back.
fn shown(command: &clap::Command, matches: &ArgMatches) -> String {
    let mut lines: Vec<String> = command
        .get_arguments()
        .filter(|flag| {
            flag.get_long()
                .is_some_and(|name| !["print-config", "config"].contains(&name))
        })
        .filter_map(|flag| {
            let values: Vec<_> = matches
                .get_raw(flag.get_id().as_str())?
                .map(|value| value.to_string_lossy())
                .collect();
            Some(format!("--{}={}\n", flag.get_long()?, values.join(",")))
        })
        .collect();
    lines.sort_unstable();
    lines.concat()
}

#[cfg(test)]
mod tests;
