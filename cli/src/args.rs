//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use kruise_api::names;

/// Pull images onto nodes and see what the agents do.
#[derive(Debug, Parser)]
#[command(name = "kruisectl", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 it is over and something failed, not all is in sync, or an object is refused; 2 wrong use; \
3 not over in the time given; 4 it could not be done; 130 interrupted (a job goes on, a pull by --socket is cancelled).";

/// How to reach the cluster, for every command.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// Kubeconfig file. Left out, KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Left out, its current one.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace of jobs. Left out, that of the context.
    #[arg(short, long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Namespace that Kruise is installed in.
    #[arg(long, global = true, value_name = "NAME", default_value = names::DEFAULT_NAMESPACE)]
    pub(crate) system_namespace: String,
    /// Dial the manager's gRPC port at this address instead of forwarding a port to the leader's pod.
    #[arg(long, global = true, value_name = "HOST:PORT")]
    pub(crate) server: Option<String>,
    /// Ask the agent of this machine by its unix socket, usually /run/kruise/agent.sock, instead of a cluster.
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Pull an image onto nodes: creates an ImagePullJob and shows how it goes. With --socket, onto this machine alone.
    Pull(Box<PullArgs>),
    /// Show how a job that exists goes, until it is over.
    Follow(FollowArgs),
    /// Say why a job or a CloneSet stands where it stands: what its nodes or pods wait for.
    Explain(crate::explain::ExplainArgs),
    /// Follow, undo, pause, resume or restart the rollout of a CloneSet.
    Rollout(crate::rollout::RolloutArgs),
    /// Make a CloneSet smaller by these pods.
    ScaleDown(crate::rollout::ScaleDownArgs),
    /// Restart containers of a pod, or of all pods of a workload within a budget, in place.
    Restart(Box<crate::recreate::RestartArgs>),
    /// Show the agents, one line per node, or one agent with its tasks.
    Agents(AgentsArgs),
    /// Show tasks that agents hold.
    Tasks(TasksArgs),
    /// Show who leads, which managers answer, which agents are in sync and which jobs run.
    Status(StatusArgs),
    /// Show the images of this machine; needs --socket.
    Images(ImagesArgs),
    /// Restart one container of this machine, by its id; needs --socket.
    RestartContainer(RestartArgs),
    /// Check objects as the admission webhooks would, without a cluster.
    Validate(crate::validate::ValidateArgs),
    /// Say whether pods can come from one template to another in place, without a cluster.
    #[command(name = "inplace")]
    InPlace(crate::inplace::InPlaceArgs),
    /// Convert objects between v1alpha1 and v1beta1, without a cluster.
    Convert(crate::convert::ConvertArgs),
    /// Show what a CloneSet would do next, and why no more: from files without a cluster, or of a cluster. Nothing is written.
    Plan(Box<crate::plan::PlanArgs>),
    /// Print the version of this program.
    Version,
    /// Print a completion script, for example: source <(kruisectl completion bash)
    Completion {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// Arguments of `pull`.
#[derive(Args, Debug)]
pub(crate) struct PullArgs {
    /// Image to pull, for example registry.example.com/team/app:1.2
    pub(crate) image: String,
    /// Names of the nodes, in the order in which they get their turn. Left out, with --selector too: all nodes.
    #[arg(long, value_name = "A,B", value_delimiter = ',', conflicts_with = "selector")]
    pub(crate) nodes: Vec<String>,
    /// Nodes by label: k=v, k!=v, k, !k, 'k in (a,b)', 'k notin (a,b)', several separated by commas.
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(crate) selector: Option<String>,
    /// Most nodes that pull at once; 0 makes the job and pauses it. Left out, 1.
    #[arg(short, long, value_name = "N")]
    pub(crate) parallelism: Option<u32>,
    /// Time for one attempt on one node, for example 10m.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Retries on each node after the first attempt.
    #[arg(long, value_name = "N")]
    pub(crate) backoff_limit: Option<u16>,
    /// End the whole job, or the pull, after this time, whatever is left.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) deadline: Option<Duration>,
    /// Delete the job so long after it is over; "none" keeps it. Left out, 24h.
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    pub(crate) ttl: Option<Ttl>,
    /// Name of the job. Left out, one is made from the image's.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Secret of the job's namespace to log in at the registry with; may be given several times.
    #[arg(long = "pull-secret", value_name = "NAME")]
    pub(crate) pull_secrets: Vec<String>,
    /// Ask the registry even where the image is present.
    #[arg(long)]
    pub(crate) always: bool,
    /// With --socket: name to log in at the registry with; the password is read from standard input.
    #[arg(long, value_name = "NAME", requires = "password_stdin")]
    pub(crate) username: Option<String>,
    /// With --socket: read the password from standard input.
    #[arg(long, requires = "username")]
    pub(crate) password_stdin: bool,
    /// Stay until the job is over.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

/// Arguments of `follow`.
#[derive(Args, Debug)]
pub(crate) struct FollowArgs {
    /// Job, as NAME or NAMESPACE/NAME.
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

/// How the course of a job is shown.
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// Longest time to stay, for example 30m. A job goes on; a pull by --socket is cancelled.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait_timeout: Option<Duration>,
    /// Plain lines instead of bars. Also when standard error is no terminal, and with NO_COLOR set.
    #[arg(long)]
    pub(crate) plain: bool,
    /// Form of the result on standard output. Progress goes to standard error.
    #[arg(short, long, value_enum, default_value_t = ResultFormat::Text)]
    pub(crate) output: ResultFormat,
}

/// Arguments of `agents`.
#[derive(Args, Debug)]
pub(crate) struct AgentsArgs {
    /// Show this node's agent alone, with its tasks.
    pub(crate) node: Option<String>,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

/// Arguments of `tasks`.
#[derive(Args, Debug)]
pub(crate) struct TasksArgs {
    /// Tasks of this job only, as NAME or NAMESPACE/NAME.
    #[arg(long)]
    pub(crate) job: Option<String>,
    /// Tasks of this node only.
    #[arg(long)]
    pub(crate) node: Option<String>,
    /// Go on showing each change.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

/// Arguments of `status`.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Stay until all agents are in sync.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Longest time to stay with --wait.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = ResultFormat::Text)]
    pub(crate) output: ResultFormat,
}

/// Arguments of `images`.
#[derive(Args, Debug)]
pub(crate) struct ImagesArgs {
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

/// Arguments of `restart-container`.
#[derive(Args, Debug)]
pub(crate) struct RestartArgs {
    /// Id of the container, as crictl shows it; its beginning will do if no other one begins so.
    pub(crate) container: String,
    /// Time between the stop signal and the kill, at most 1h; 0 kills at once. Left out, the pod's own grace period.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) grace_period: Option<Duration>,
    /// Longest time until the kubelet has started the new container. Left out, 2m.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) start_timeout: Option<Duration>,
    /// Form of the result on standard output. What happens meanwhile goes to standard error.
    #[arg(short, long, value_enum, default_value_t = ResultFormat::Text)]
    pub(crate) output: ResultFormat,
}

/// Form of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns.
    Table,
    /// More columns.
    Wide,
    /// JSON; one document a line with --watch.
    Json,
    /// YAML.
    Yaml,
}

/// Form of a job's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ResultFormat {
    /// For people.
    Text,
    /// One JSON document.
    Json,
}

/// When a finished job is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ttl {
    /// So long after it is over.
    After(Duration),
    /// Never.
    Keep,
}

fn ttl(text: &str) -> Result<Ttl, String> {
    if text == "none" {
        Ok(Ttl::Keep)
    } else {
        duration(text).map(Ttl::After)
    }
}

/// A positive length of time: `90s`, `10m`, `1h30m`; a bare number means seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Duration::from_secs(seconds.into()));
    }
    let parsed = text
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|time| Duration::try_from(time).ok());
    parsed.ok_or_else(|| "give a length of time such as 90s, 10m or 1h30m".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lengths_of_time() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("0", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "x", "-5s", "10 parsecs"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert_eq!(ttl("none"), Ok(Ttl::Keep));
    }

    #[test]
    fn the_socket_may_stand_before_or_after_the_command() {
        for words in [["--socket", "/s", "images"], ["images", "--socket", "/s"]] {
            let cli = Cli::parse_from(["kruisectl"].iter().chain(&words));
            assert_eq!(cli.global.socket, Some(PathBuf::from("/s")));
        }
    }

    #[test]
    fn waiting_is_the_default_and_can_be_switched_off() {
        let wait = |words: &[&str]| match Cli::parse_from(words).command {
            Command::Pull(args) => args.wait,
            other => panic!("{other:?}"),
        };
        assert!(wait(&["kruisectl", "pull", "app:1"]));
        assert!(wait(&["kruisectl", "pull", "--wait", "app:1"]));
        assert!(!wait(&["kruisectl", "pull", "--wait=false", "app:1"]));
    }
}
