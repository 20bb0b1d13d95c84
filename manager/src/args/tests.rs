//! Command lines that people write.

use super::*;

fn read(line: &str, environment: &[(&str, &str)]) -> Result<Request, clap::Error> {
    let words = std::iter::once("kruise-manager").chain(line.split_whitespace());
    parse(words, |name| {
        environment
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| (*value).to_owned())
    })
}

fn config(line: &str) -> Config {
    match read(line, &[]).expect("accepted") {
        Request::Run(config) => *config,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_definition_is_consistent() {
    inert::add(Flags::command()).debug_assert();
}

#[test]
fn without_flags_everything_is_as_documented() {
    let config = config("");
    let election = config.election.expect("on");
    assert_eq!(
        (election.namespace.as_str(), election.lease.as_str()),
        ("kruise-system", "kruise-manager")
    );
    assert_eq!(election.timing, Timing::default());
    assert_eq!(config.engine, EngineConfig::default());
    assert_eq!(config.listeners.grpc, Listen::Everywhere(9877));
    assert!(config.gates.enabled("ImagePullJobGate"));
    assert!(config.without_effect.is_empty());
    assert_eq!(config.trust_policy, Policy::default());
}

#[test]
fn values_come_after_an_equals_sign_or_a_space_and_booleans_may_stand_alone() {
    for line in [
        "--agent-contact-lease=60s",
        "--agent-contact-lease 60s",
        "--agent-contact-lease 1m",
    ] {
        assert_eq!(
            config(line).engine.contact_lease,
            Duration::from_secs(60),
            "{line}"
        );
    }
    assert!(config("--enable-leader-election").election.is_some());
    assert!(config("--enable-leader-election=true").election.is_some());
    assert!(config("--enable-leader-election=false").election.is_none());
    assert_eq!(config("--v=6").logging.verbosity, 6);
    assert_eq!(config("--metrics-addr=0").listeners.metrics, Listen::Off);
}

#[test]
fn arguments_written_for_openkruise_keep_working_and_are_named() {
    let line = "--enable-leader-election --metrics-addr=127.0.0.1:8080 --health-probe-addr=:8000 --logtostderr=true \
                --pprof-addr=localhost:8090 --leader-election-namespace=kruise-system --v=4 --feature-gates=ImagePullJobGate=true \
                --sync-period=0 --cloneset-workers=3 --rest-config-qps 30 --leader-election-resource-lock=leases";
    let names = config(line).without_effect;
    assert_eq!(
        names,
        [
            "pprof-addr",
            "rest-config-qps",
            "sync-period",
            "logtostderr",
            "cloneset-workers"
        ]
    );
}

#[test]
fn slips_and_nonsense_are_refused_with_a_hint() {
    for (line, words) in [
        ("--metric-addr=:1", "--metrics-addr"),
        ("--agent-contact-leese=1s", "--agent-contact-lease"),
        (
            "--feature-gates=ImagePulJobGate=true",
            "did you mean ImagePullJobGate",
        ),
        (
            "--feature-gates=SidecarTerminator=true",
            "does not have that feature",
        ),
        ("--enable-leader-election=yes", "neither true nor false"),
        ("--leader-election-lease-duration=10", "no duration"),
        (
            "--leader-election-renew-deadline=15s",
            "must be longer than the renew deadline",
        ),
        ("--leader-election-resource-lock=endpoints", "leases"),
        ("--agent-contact-lease=10s", "four times"),
        ("--serving-certificate-life=1s", "at least 30 s"),
        ("--certificate-authority-life=10m", "three times --trust-overlap"),
        ("--namespace=default", "all namespaces"),
        ("--grpc-addr=0", "nowhere to go"),
        ("--max-agents-attaching-per-second=0", "not in 1.."),
        ("stray", "unexpected argument"),
    ] {
        let error = read(line, &[]).expect_err(line).to_string();
        assert!(error.contains(words), "{line}: {error}");
    }
}

#[test]
fn the_pod_is_told_by_the_environment() {
    let environment = [
        ("POD_NAME", "pod-a"),
        ("POD_NAMESPACE", "other"),
        ("POD_IP", "fd00::1"),
        ("KRUISE_LOG", "debug"),
    ];
    let Request::Run(config) = read("", &environment).expect("accepted") else {
        panic!("runs")
    };
    assert_eq!(
        (config.pod.name.as_str(), config.pod.namespace.as_str()),
        ("pod-a", "other")
    );
    assert_eq!(
        config
            .election
            .as_ref()
            .map(|election| election.namespace.as_str()),
        Some("other")
    );
    assert_eq!(config.announced(([0, 0, 0, 0], 9877).into()), "[fd00::1]:9877");
    assert_eq!(config.logging.filter.as_deref(), Some("debug"));
    let error = read("", &[("POD_IP", "nonsense")])
        .expect_err("refused")
        .to_string();
    assert!(error.contains("POD_IP"), "{error}");
}

#[test]
fn the_printed_flags_can_be_given_back() {
    let Request::Print(text) = read("--print-config --agent-contact-lease=60s", &[]).expect("accepted")
    else {
        panic!("prints")
    };
    assert!(
        text.contains("--agent-contact-lease=60s\n--agent-heartbeat-interval=5s\n"),
        "{text}"
    );
    let again = format!("--print-config {}", text.replace('\n', " "));
    let Request::Print(second) = read(&again, &[]).expect("accepted") else {
        panic!("prints")
    };
    assert_eq!(text, second);
}

#[test]
fn help_names_what_has_no_effect() {
    let help = read("--help", &[]).expect_err("help").to_string();
    assert!(
        help.contains("without effect") && help.contains("--rest-config-qps"),
        "{help}"
    );
}

#[test]
fn a_file_goes_behind_the_environment_and_that_behind_the_command_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.yaml");
    let text = "metrics-addr: ':1'\nhealth-probe-addr: ':2'\nport: 3\nv: 6\nagent-contact-lease: 70s\nenable-leader-election: false\n\
                feature-gates:\n  ImagePullJobGate: false\n";
    std::fs::write(&file, text).expect("written");
    let environment = [
        ("KRUISE_FLAG_HEALTH_PROBE_ADDR", ":4"),
        ("WEBHOOK_PORT", "5"),
        ("KRUISE_FLAG_V", "7"),
    ];
    let line = format!("--v=8 --config {}", file.display());
    let Request::Run(config) = read(&line, &environment).expect("accepted") else {
        panic!("runs")
    };
    assert_eq!(config.listeners.metrics, Listen::Everywhere(1));
    assert_eq!(config.listeners.health, Listen::Everywhere(4));
    assert_eq!(config.listeners.webhooks, Listen::Everywhere(5));
    assert_eq!(config.logging.verbosity, 8);
    assert!(config.election.is_none() && !config.gates.enabled("ImagePullJobGate"));
    let named = [("KRUISE_FLAG_CONFIG", file.to_str().expect("text"))];
    let Request::Print(shown) = read("--print-config", &named).expect("accepted") else {
        panic!("prints")
    };
    assert!(
        shown.contains("--agent-contact-lease=70s\n")
            && shown.contains("--feature-gates=ImagePullJobGate=false\n"),
        "{shown}"
    );
}

#[test]
fn a_file_that_cannot_be_meant_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.yaml");
    for (text, words) in [
        ("metric-addr: ':1'", "did you mean metrics-addr?"),
        ("config: other.yaml", "is no flag"),
        ("- a", "not a map"),
        ("v:", "has no value"),
        ("agent-contact-lease: soon", "no duration"),
    ] {
        std::fs::write(&file, text).expect("written");
        let error = read(&format!("--config={}", file.display()), &[])
            .expect_err(text)
            .to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    let error = read("--config=/nowhere/x", &[]).expect_err("missing").to_string();
    assert!(error.contains("/nowhere/x"), "{error}");
}

#[test]
fn checks_need_nothing_else() {
    let environment = [("POD_NAMESPACE", "other")];
    let request = read("--check=uninstall", &environment).expect("accepted");
    assert!(
        matches!(&request, Request::Check(Check::Uninstall, pod) if pod.namespace == "other"),
        "{request:?}"
    );
    assert!(read("--check=everything", &[]).is_err());
}

#[test]
fn traces_go_nowhere_unless_an_url_is_given() {
    assert_eq!(config("").otlp_endpoint, None);
    let to = "http://otel-collector:4317";
    assert_eq!(
        config(&format!("--otlp-endpoint {to}")).otlp_endpoint.as_deref(),
        Some(to)
    );
    let error = read("--otlp-endpoint otel-collector:4317", &[]).expect_err("no URL");
    assert!(error.to_string().contains("http://"), "{error}");
}
