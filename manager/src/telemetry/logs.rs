//! Logs on standard error, for people or for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging. `filter` is `KRUISE_LOG`, in the syntax of tracing's filters; without it, `verbosity` (`--v`) decides.
/// A filter that cannot be parsed is reported and the verbosity used. A second call changes nothing.
pub fn init_logs(format: LogFormat, verbosity: u8, filter: Option<&str>) {
    let parsed = filter.map(EnvFilter::try_new);
    let broken = matches!(parsed, Some(Err(_)));
    let filter = parsed
        .and_then(Result::ok)
        .unwrap_or_else(|| EnvFilter::new(default_filter(verbosity)));
    let filter = without_bodies(filter);
    let ansi = std::io::stderr().is_terminal();
    let started = subscribe(format, filter, ansi, std::io::stderr);
    if started && broken {
        tracing::warn!("KRUISE_LOG is no valid filter; --v decides");
    }
}

/// An error with its causes on one line, each cause once: libraries repeat the cause in their own text now and then.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

fn subscribe<W>(format: LogFormat, filter: EnvFilter, ansi: bool, writer: W) -> bool
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(ansi);
    match format {
        LogFormat::Text => builder.try_init().is_ok(),
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .try_init()
            .is_ok(),
    }
}

/// `--v` as OpenKruise's charts set it: 4 is everyday use there, so that debugging starts at 5.
fn default_filter(verbosity: u8) -> String {
    let level = match verbosity {
        0..=4 => "info",
        5..=7 => "debug",
        _ => "trace",
    };
    // HTTP/2 frames are never wanted unless named.
    format!("{level},h2=warn,hyper=warn,hyper_util=warn,rustls=warn,tower=warn")
}

/// The client of the API server logs an answer that it cannot read as a whole, which may be a secret or the review of a token. No filter brings
/// that back. It also logs each failed answer as an error of its own; whoever made the request says it better.
fn without_bodies(filter: EnvFilter) -> EnvFilter {
    let directives = ["kube_client::client=error", "kube_client::client::builder=off"];
    directives
        .into_iter()
        .fold(filter, |filter, text| match text.parse() {
            Ok(directive) => filter.add_directive(directive),
            Err(_) => filter,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_filter_brings_bodies_back() {
        for filter in ["trace", "kube_client::client=trace", "kube_client=debug"] {
            let filter = without_bodies(EnvFilter::new(filter)).to_string();
            assert!(filter.contains("kube_client::client=error"), "{filter}");
            assert!(!filter.contains("kube_client::client=trace"), "{filter}");
        }
    }

    #[test]
    fn default_filters_parse() {
        for verbosity in [0, 4, 5, 9, 255] {
            EnvFilter::try_new(default_filter(verbosity)).expect("a filter of ours");
        }
    }
}
