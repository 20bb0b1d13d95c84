//! Flags of OpenKruise's manager that have nothing to act on here.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// Heading in the help.
const HEADING: &str = "Accepted for OpenKruise's sake, without effect";

/// Flags with a value, and why they do nothing.
const VALUES: &[(&str, &str)] = &[
    (
        "controller-cache-sync-timeout",
        "watches are retried until they work",
    ),
    (
        "default-ttlseconds-for-always-nodeimage",
        "orders are no objects that could stay behind",
    ),
    ("expectation-timeout", "no expectations are kept"),
    ("pprof-addr", "profiles are taken from outside the process"),
    ("protection-log-path", "nothing is protected"),
    ("rate-limiter-base-delay", "retries have their own back-off"),
    ("rate-limiter-bucket-size", "retries have their own back-off"),
    ("rate-limiter-max-delay", "retries have their own back-off"),
    ("rate-limiter-qps", "retries have their own back-off"),
    (
        "rest-config-burst",
        "a job costs a handful of requests whatever its size",
    ),
    (
        "rest-config-qps",
        "a job costs a handful of requests whatever its size",
    ),
    ("stderrthreshold", "logs go to standard error"),
    ("sync-period", "everything is compared afresh each time"),
    ("vmodule", "KRUISE_LOG filters by target"),
    (
        "webhook-initialize-timeout",
        "webhooks are ready with the certificate",
    ),
];

/// Flags that are on or off.
const SWITCHES: &[(&str, &str)] = &[
    ("allow-privileged", "pods are not validated"),
    ("alsologtostderr", "logs go to standard error"),
    ("enable-pprof", "profiles are taken from outside the process"),
    ("logtostderr", "logs go to standard error"),
];

/// Kinds with a `--KIND-workers`; one task here does the work of all.
const WORKERS: &[&str] = &[
    "advancedcronjob",
    "broadcastjob",
    "cloneset",
    "containerlauchpriority",
    "containerrecreate",
    "crr",
    "daemonset",
    "ephemeraljob",
    "imagelistpulljob",
    "imagepulljob",
    "nodeimage",
    "nodepodprobe",
    "persistentpodstate",
    "podprobemarker",
    "podunavailablebudget",
    "resourcedistribution",
    "sidecarset",
    "sidecarterminator",
    "statefulset",
    "uniteddeployment",
    "workloadspread",
];

/// Adds them all.
pub(super) fn add(mut command: Command) -> Command {
    for (name, why) in VALUES {
        command = command.arg(flag(name).help(format!("Inert: {why}")).num_args(1));
    }
    for (name, why) in SWITCHES {
        let switch = flag(name).help(format!("Inert: {why}")).num_args(0..=1);
        command = command.arg(switch.require_equals(true).default_missing_value("true"));
    }
    for kind in WORKERS {
        let name: &'static str = Box::leak(format!("{kind}-workers").into_boxed_str());
        command = command.arg(flag(name).num_args(1).hide(true));
    }
    command.after_help("Also accepted without effect: --KIND-workers of OpenKruise's controllers.")
}

/// Those that were given.
pub(super) fn given(matches: &ArgMatches) -> Vec<String> {
    let workers = WORKERS.iter().map(|kind| format!("{kind}-workers"));
    let others = VALUES.iter().chain(SWITCHES).map(|(name, _)| (*name).to_owned());
    let named = others.chain(workers);
    named
        .filter(|name| matches.value_source(name) == Some(ValueSource::CommandLine))
        .collect()
}

fn flag(name: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::Set)
        .value_name("VALUE")
        .help_heading(HEADING)
}
