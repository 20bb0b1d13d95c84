//! Figures beside their targets.

use std::fmt::Write as _;

use kruise_tests::audit::Counters;

use crate::sample::{Issued, Sample};

/// Milliseconds in order.
struct Spread(Vec<f64>);

impl Spread {
    fn of(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> Self {
        Self::from_values(samples.iter().map(value).collect())
    }

    fn from_values(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    fn at(&self, percent: usize) -> f64 {
        let place = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0.get(place).copied().unwrap_or_default()
    }
}

/// A line, with the most that p50 and p99 may be.
fn line(text: &mut String, what: &str, spread: &Spread, targets: Option<(f64, f64)>) {
    let (p50, p99) = (spread.at(50), spread.at(99));
    let verdict = targets.map_or_else(String::new, |(most_p50, most_p99)| {
        let met = p50 <= most_p50 && p99 <= most_p99;
        format!(
            "≤ {most_p50:.0}, ≤ {most_p99:.0}  {}",
            if met { "ok" } else { "MISS" }
        )
    });
    let max = spread.at(100);
    let _ = writeln!(text, "{what:<62} {p50:>8.0} {p99:>8.0} {max:>8.0}  {verdict}");
}

/// Restarts by request, beside those by hand.
pub(crate) fn table(requests: &[Sample], by_hand: &[Sample], issued: &Issued) -> String {
    let mut text = format!(
        "{:<62} {:>8} {:>8} {:>8}  p50, p99\n",
        format!("{} samples of each, milliseconds", requests.len()),
        "p50",
        "p99",
        "max"
    );
    let completion = requests.iter().filter_map(Sample::completion).collect();
    let issue = requests
        .iter()
        .filter_map(|sample| sample.issue(issued))
        .collect();
    let issue = Spread::from_values(issue);
    line(
        &mut text,
        "request sent → StopContainer issued",
        &issue,
        Some((60.0, 300.0)),
    );
    let stop = Spread::of(requests, Sample::stop);
    line(&mut text, "request sent → its container has ended", &stop, None);
    let relist = Spread::of(requests, Sample::relist);
    line(
        &mut text,
        "ended → the kubelet makes the next (its relist)",
        &relist,
        None,
    );
    line(
        &mut text,
        "made → started",
        &Spread::of(requests, Sample::start),
        None,
    );
    let readiness = Spread::of(requests, Sample::readiness);
    line(&mut text, "started → ready in the pod's status", &readiness, None);
    let completion = Spread::from_values(completion);
    line(&mut text, "ready → Completed", &completion, Some((300.0, 300.0)));
    line(&mut text, "in all", &Spread::of(requests, Sample::total), None);
    let rest = |sample: &Sample| sample.total() - sample.relist() - sample.start();
    line(
        &mut text,
        "in all, without relist and start",
        &Spread::of(requests, rest),
        None,
    );
    let raw = Spread::of(by_hand, Sample::stop);
    line(
        &mut text,
        "by hand: StopContainer → its container has ended",
        &raw,
        None,
    );
    let relist = Spread::of(by_hand, Sample::relist);
    line(
        &mut text,
        "by hand: ended → the kubelet makes the next",
        &relist,
        None,
    );
    line(
        &mut text,
        "by hand: made → started",
        &Spread::of(by_hand, Sample::start),
        None,
    );
    line(
        &mut text,
        "by hand: in all, to ready",
        &Spread::of(by_hand, Sample::total),
        None,
    );
    // What the kubelet takes to notice differs by up to a second from one sample to the next, so it is left out on both sides.
    let runs = |sample: &Sample| sample.stop() + sample.start();
    let gap = Spread::of(requests, runs).at(50) - Spread::of(by_hand, runs).at(50);
    let met = if gap <= 50.0 { "ok" } else { "MISS" };
    let _ = writeln!(
        text,
        "{:<62} {gap:>8.0} {:>8} {:>8}  ≤ 50  {met}",
        "more than by hand until it runs again, relist apart", "", ""
    );
    text
}

/// Writes per request.
pub(crate) fn writes(counters: &Counters, requests: usize) -> String {
    let writes = counters.api_writes("kruise-manager");
    let per = |count: usize| {
        f64::from(u32::try_from(count).unwrap_or(u32::MAX))
            / f64::from(u32::try_from(requests.max(1)).unwrap_or(1))
    };
    let agents = counters.count(|request| request.agent.starts_with("kruise-daemon"));
    let met = if per(writes.writes) <= 3.0 && agents == 0 {
        "ok"
    } else {
        "MISS"
    };
    format!(
        "API writes per request {:.2} (≤ 3), events {:.2}, requests of agents {agents} (0)  {met}\n",
        per(writes.writes),
        per(writes.events)
    )
}
