//! Waiting on a level, never on an edge: the condition is asked again until it holds, and a time-out
//! reports what was last seen.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often a condition is asked. Short enough to measure tenths of a second, long enough that ten
/// waiting tests do not load the API server.
pub const POLL: Duration = Duration::from_millis(100);

/// The answer of a condition: what was waited for, or a word on how things stand.
#[derive(Debug)]
pub enum Seen<T> {
    Done(T),
    NotYet(String),
}

/// Shorthand for the answer "not yet, and this is why".
pub fn not_yet<T>(status: impl Display) -> Result<Seen<T>> {
    Ok(Seen::NotYet(status.to_string()))
}

/// Asks `check` every [`POLL`] until it answers [`Seen::Done`]. An error of `check` counts as "not yet":
/// the cluster may be in the middle of a fault. The time-out tells the last status or error.
pub async fn wait_for<T>(
    what: &str,
    timeout: Duration,
    mut check: impl AsyncFnMut() -> Result<Seen<T>>,
) -> Result<T> {
    let end = Instant::now() + timeout;
    let mut last = String::from("never answered");
    loop {
        match tokio::time::timeout_at(end.into(), check()).await {
            Ok(Ok(Seen::Done(value))) => return Ok(value),
            Ok(Ok(Seen::NotYet(status))) => last = status,
            Ok(Err(error)) => last = format!("{error:#}"),
            Err(_) => last = format!("{last} (and the last question was not answered)"),
        }
        if Instant::now() >= end {
            bail!("waited {timeout:?} for {what}; last seen: {last}");
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The same for conditions without asynchronous parts, such as the state of a process.
pub fn wait_until(
    what: &str,
    timeout: Duration,
    mut check: impl FnMut() -> Result<(), String>,
) -> Result<()> {
    let end = Instant::now() + timeout;
    loop {
        match check() {
            Ok(()) => return Ok(()),
            Err(last) if Instant::now() >= end => bail!("waited {timeout:?} for {what}; last seen: {last}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
