//! Logs, metrics and traces.

mod logs;
mod metrics;
pub(crate) mod traces;

pub use logs::{LogFormat, chain, init_logs};
pub use metrics::{ApiMetrics, LeaderMetrics, Metrics, RequestLabels, ServeMetrics};
pub use traces::Traces;
pub(crate) use traces::{Parent, Place, Span};
