//! Flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser, ValueEnum};
use kruise_api::features::FeatureGates;
use kruise_planner::node::stall::Rules;

use crate::credentials::{ConfigError, Keychain};
use crate::puller::Settings;

/// The node agent of kruise-rs: pulls images on the order of the manager.
#[derive(Clone, Debug, Parser)]
#[command(name = "kruise-daemon", version, max_term_width = 120)]
pub struct Args {
    /// Address of health and metrics; ":PORT" listens on every address.
    /// Left out with --standalone, nothing listens.
    #[arg(
        long,
        default_value = ":10221",
        default_value_if("standalone", "true", Some("")),
        value_name = "ADDRESS"
    )]
    pub addr: String,

    /// Work without a manager, for whoever may open the node service: `kruisectl --socket FILE pull IMAGE` then pulls onto this
    /// machine, which needs no cluster. Nothing is dialled and nothing is remembered.
    #[arg(long)]
    pub standalone: bool,

    /// Name of this node. Left out with --standalone, the machine's own.
    #[arg(long, env = "NODE_NAME", default_value = "", value_name = "NAME")]
    pub node_name: String,

    /// Where the manager listens for agents.
    #[arg(
        long,
        default_value = "kruise-manager.kruise-system.svc:9877",
        conflicts_with = "standalone",
        value_name = "HOST:PORT"
    )]
    pub manager: String,

    /// Trust bundle, PEM; read at each dial.
    #[arg(
        long,
        default_value = "/var/run/kruise/ca/ca.crt",
        conflicts_with = "standalone",
        value_name = "FILE"
    )]
    pub manager_ca: PathBuf,

    /// Name in the manager's certificate, whatever address is dialled.
    #[arg(long, default_value = kruise_api::names::MANAGER_SERVER_NAME, conflicts_with = "standalone", value_name = "NAME")]
    pub manager_server_name: String,

    /// Service account token with audience kruise-manager; read at each dial, watched while attached.
    #[arg(
        long,
        default_value = "/var/run/kruise/token/token",
        conflicts_with = "standalone",
        value_name = "FILE"
    )]
    pub token: PathBuf,

    /// Socket of the container runtime: a full path, or a name that is looked for in the known directories. Empty tries the
    /// known sockets of containerd, k3s, CRI-O and cri-dockerd.
    #[arg(long, default_value = "", value_name = "FILE")]
    pub socket_file: String,

    /// Directory of the small state file that survives restarts of the agent.
    #[arg(
        long,
        default_value = "/var/lib/kruise-daemon",
        conflicts_with = "standalone",
        value_name = "DIR"
    )]
    pub state_dir: PathBuf,

    /// Where the node service listens, mode 0600.
    #[arg(long, default_value = "/run/kruise/agent.sock", value_name = "FILE")]
    pub node_socket: PathBuf,

    /// Pulls that run at once on this node; -1 is no limit.
    #[arg(long, default_value_t = 3, allow_negative_numbers = true, value_name = "N")]
    pub max_workers_for_pull_image: i32,

    /// Pulls that run at once from one registry; 0 is no limit.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub max_pulls_per_registry: usize,

    /// The kubelet's CredentialProviderConfig. Its plug-ins are asked after a job's pull secrets and before the node's docker
    /// configuration. Empty uses none.
    #[arg(long, default_value = "", value_name = "FILE")]
    pub image_credential_provider_config: String,

    /// Folder of the plug-ins' programs.
    #[arg(long, default_value = "", value_name = "DIR")]
    pub image_credential_provider_bin_dir: String,

    /// Bytes per second below which a pull counts as stalled; 0 never stops one for its rate.
    #[arg(long, default_value_t = 65_536, value_name = "BYTES")]
    pub pull_min_rate: u64,

    /// Shortest time over which the rate of a pull is judged, such as 30s; 0s never stops one for its rate.
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "TIME")]
    pub pull_stall_timeout: Duration,

    /// Feature gates, such as ImagePullJobGate=true, several separated by commas.
    #[arg(long, default_value = "", conflicts_with = "standalone", value_name = "GATES")]
    pub feature_gates: String,

    /// Form of the log.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub logging_format: LogFormat,

    /// How much is logged: 0 to 3 what happens, 4 and 5 why, more everything. The variable KRUISE_LOG says it in more detail.
    #[arg(long, default_value_t = 0, value_name = "LEVEL")]
    pub v: u8,

    /// Print the settings in effect and exit.
    #[arg(
        long,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub print_config: bool,
}

/// Flags that make no sense without a manager.
const OF_CLUSTERS: [&str; 6] = [
    "manager",
    "manager-ca",
    "manager-server-name",
    "token",
    "state-dir",
    "feature-gates",
];

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Args {
    /// How pulls are made.
    ///
    /// # Errors
    /// The credential providers cannot be used.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        // As OpenKruise has it: everything but a number above zero is no limit.
        let slots = usize::try_from(self.max_workers_for_pull_image)
            .ok()
            .filter(|slots| *slots > 0);
        let given = |path: &str| Some(PathBuf::from(path)).filter(|_| !path.is_empty());
        let config = given(&self.image_credential_provider_config);
        let bin_dir = given(&self.image_credential_provider_bin_dir);
        Ok(Settings {
            slots,
            per_registry: Some(self.max_pulls_per_registry).filter(|most| *most > 0),
            rules: Rules {
                min_rate: self.pull_min_rate,
                timeout: self.pull_stall_timeout,
            },
            keychain: Keychain::open(config.as_deref(), bin_dir.as_deref())?,
        })
    }

    /// What makes no sense even though each flag can be read.
    ///
    /// # Errors
    /// Says which flag and what would do.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.standalone {
            self.settings()?;
            return Ok(());
        }
        FeatureGates::parse(&self.feature_gates)?;
        anyhow::ensure!(
            !self.node_name.is_empty(),
            "the node's name is not known; set NODE_NAME from spec.nodeName, or give --node-name"
        );
        anyhow::ensure!(
            self.manager
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()),
            "--manager is {:?}; the form is HOST:PORT",
            self.manager
        );
        self.settings()?;
        Ok(())
    }

    /// The settings in effect, as flags.
    #[must_use]
    pub fn print(&self) -> String {
        let lines = [
            ("addr", self.addr.clone()),
            ("node-name", self.node_name.clone()),
            ("manager", self.manager.clone()),
            ("manager-ca", self.manager_ca.display().to_string()),
            ("manager-server-name", self.manager_server_name.clone()),
            ("token", self.token.display().to_string()),
            ("socket-file", self.socket_file.clone()),
            ("state-dir", self.state_dir.display().to_string()),
            ("node-socket", self.node_socket.display().to_string()),
            (
                "max-workers-for-pull-image",
                self.max_workers_for_pull_image.to_string(),
            ),
            ("max-pulls-per-registry", self.max_pulls_per_registry.to_string()),
            (
                "image-credential-provider-config",
                self.image_credential_provider_config.clone(),
            ),
            (
                "image-credential-provider-bin-dir",
                self.image_credential_provider_bin_dir.clone(),
            ),
            ("pull-min-rate", self.pull_min_rate.to_string()),
            (
                "pull-stall-timeout",
                format!("{}ms", self.pull_stall_timeout.as_millis()),
            ),
            ("feature-gates", self.feature_gates.clone()),
            (
                "logging-format",
                format!("{:?}", self.logging_format).to_lowercase(),
            ),
            ("v", self.v.to_string()),
        ];
        let alone = if self.standalone { "--standalone\n" } else { "" };
        let in_effect = lines
            .iter()
            .filter(|(flag, _)| !(self.standalone && OF_CLUSTERS.contains(flag)));
        let lines = in_effect.map(|(flag, value)| format!("--{flag}={value}\n"));
        std::iter::once(alone.to_owned()).chain(lines).collect()
    }
}

/// Durations as Go writes them: 30s, 1m30s, 500ms.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok());
    parsed.ok_or_else(|| "give a time such as 30s, 1m30s or 500ms".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Args, String> {
        let all = ["kruise-daemon", "--node-name=n"].iter().chain(flags);
        let args = Args::try_parse_from(all).map_err(|error| error.to_string())?;
        args.check().map_err(|error| error.to_string())?;
        Ok(args)
    }

    #[test]
    fn flags_are_read_as_people_write_them() {
        let args = parse(&[
            "--max-workers-for-pull-image",
            "-1",
            "--pull-stall-timeout=1m30s",
            "--v=4",
        ])
        .expect("fine");
        let settings = args.settings().expect("fine");
        assert_eq!((settings.slots, settings.per_registry), (None, None));
        assert_eq!(settings.rules.timeout, Duration::from_secs(90));
        assert!(!args.print_config);
        assert!(parse(&["--print-config"]).expect("fine").print_config);
        assert!(!parse(&["--print-config=false"]).expect("fine").print_config);
        let again: Vec<String> = args.print().lines().map(str::to_owned).collect();
        let again: Vec<&str> = again.iter().map(String::as_str).collect();
        let flags: Vec<&str> = again
            .iter()
            .copied()
            .filter(|flag| !flag.starts_with("--node-name"))
            .collect();
        assert_eq!(
            parse(&flags).expect("what is printed can be given").print(),
            args.print()
        );
    }

    #[test]
    fn slips_are_refused_with_what_was_probably_meant() {
        let cases: [(&[&str], &str); 8] = [
            (&["--socket-fil=x"], "--socket-file"),
            (
                &["--max-workers-for-pull-images=3"],
                "--max-workers-for-pull-image",
            ),
            (
                &["--feature-gates=ImagePullJobGat=true"],
                "did you mean ImagePullJobGate?",
            ),
            (&["--logging-format=jsn"], "json"),
            (&["--pull-stall-timeout=30"], "30s"),
            (&["--manager=somewhere"], "HOST:PORT"),
            (&["--v=many"], "invalid digit"),
            (
                &["--image-credential-provider-config=/x"],
                "--image-credential-provider-bin-dir",
            ),
        ];
        for (flags, want) in cases {
            let error = parse(flags).expect_err("refused");
            assert!(error.contains(want), "{flags:?}: {error}");
        }
    }

    #[test]
    fn alone_it_needs_nothing_of_a_cluster_and_takes_nothing_of_one() {
        let alone = |flags: &[&str]| {
            let all = ["kruise-daemon", "--standalone"].iter().chain(flags);
            let args = Args::try_parse_from(all).map_err(|error| error.to_string())?;
            args.check().map_err(|error| error.to_string())?;
            Ok::<_, String>(args)
        };
        let args = alone(&[]).expect("enough");
        assert_eq!(args.addr, "", "nothing listens that was not asked for");
        let printed = args.print();
        let flags: Vec<&str> = printed.lines().filter(|line| *line != "--standalone").collect();
        assert_eq!(
            alone(&flags).expect("what is printed can be given").print(),
            printed
        );
        assert_eq!(alone(&["--addr=:1"]).expect("fine").addr, ":1");
        for flag in OF_CLUSTERS {
            let error = alone(&[&format!("--{flag}=m:1")]).expect_err("refused");
            assert!(
                error.contains("cannot be used with") && error.contains(flag),
                "{error}"
            );
        }
    }

    #[test]
    fn a_node_without_a_name_is_refused() {
        let args = Args::try_parse_from(["kruise-daemon", "--node-name="]).expect("readable");
        assert!(
            args.check()
                .expect_err("no name")
                .to_string()
                .contains("NODE_NAME")
        );
    }
}
