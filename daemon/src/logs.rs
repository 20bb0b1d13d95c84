//! The log.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::args::LogFormat;

/// Variable that says in detail what is logged.
const VARIABLE: &str = "KRUISE_LOG";

/// Starts the log. `v` is what is logged if the variable is not set.
pub fn init(format: LogFormat, v: u8) {
    let level = match v {
        0..=3 => "info",
        4 | 5 => "info,kruise_daemon=debug",
        _ => "debug,kruise_daemon=trace",
    };
    let filter = match std::env::var(VARIABLE) {
        Ok(text) if !text.is_empty() => EnvFilter::builder().parse_lossy(text),
        _ => EnvFilter::new(level),
    };
    let log = fmt::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(false)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
