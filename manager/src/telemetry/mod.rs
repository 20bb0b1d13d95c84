//! Logs and metrics.

mod logs;
mod metrics;

pub use logs::{LogFormat, chain, init_logs};
pub use metrics::{ApiMetrics, LeaderMetrics, Metrics, RequestLabels, ServeMetrics};
