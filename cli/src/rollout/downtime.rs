//! How long pods were down while they changed in place.

use std::fmt::Write as _;
use std::time::Duration;

use kruise_planner::revision::short_hash;
use kruise_proto::convert::from_duration;
use kruise_proto::inspect::{InPlaceDowntime, PodDowntime};

/// Pods that are named.
const NAMED: usize = 20;

/// What the leader has measured for a revision, for people; empty when it has measured nothing.
pub(super) fn text(all: &[InPlaceDowntime], revision: &str) -> String {
    let of_revision = |one: &&InPlaceDowntime| short_hash(&one.revision) == short_hash(revision);
    let mut text = String::new();
    if let Some(one) = all.iter().find(of_revision) {
        // Writing to a String cannot fail.
        let _ = write(&mut text, one);
    }
    text
}

fn write(out: &mut String, one: &InPlaceDowntime) -> std::fmt::Result {
    let spans = [("p50", &one.p50), ("p90", &one.p90), ("longest", &one.longest)];
    let spans = spans.map(|(name, span)| Some(format!("{name} {}", seconds(span.as_ref()?)?)));
    let spans: Vec<String> = spans.into_iter().flatten().collect();
    if !spans.is_empty() {
        writeln!(
            out,
            "in place, {} pods were down for: {}",
            one.pods,
            spans.join(", ")
        )?;
    }
    if one.pods_in_whole_seconds > 0 {
        let pods = one.pods_in_whole_seconds;
        writeln!(out, "  of {pods} pods only whole seconds are known (~)")?;
    }
    if one.pods_not_known > 0 {
        writeln!(out, "  of {} pods nobody can say", one.pods_not_known)?;
    }
    for pod in one.slowest.iter().take(NAMED) {
        let container = &pod.container;
        writeln!(
            out,
            "  {}  {container}  {}",
            pod.pod,
            gap(pod).unwrap_or_default()
        )?;
    }
    let named = u32::try_from(one.slowest.len().min(NAMED)).unwrap_or(u32::MAX);
    match one.pods.saturating_sub(named) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} pods that were down for no longer"),
    }
}

fn gap(pod: &PodDowntime) -> Option<String> {
    let span = from_duration(pod.gap.as_ref()?)?;
    Some(if pod.in_whole_seconds {
        format!("~{} s", span.as_secs())
    } else {
        format!("{:.3} s", span.as_secs_f64())
    })
}

fn seconds(span: &prost_types::Duration) -> Option<String> {
    let span: Duration = from_duration(span)?;
    Some(format!("{:.3} s", span.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use kruise_proto::convert::to_duration;

    use super::*;

    fn pod(name: &str, millis: u64, in_whole_seconds: bool) -> PodDowntime {
        PodDowntime {
            pod: name.to_owned(),
            container: "main".to_owned(),
            gap: Some(to_duration(Duration::from_millis(millis))),
            in_whole_seconds,
        }
    }

    #[test]
    fn what_was_measured_is_shown_with_how_exact_it_is() {
        let one = InPlaceDowntime {
            revision: "web-abc".to_owned(),
            pods: 3,
            pods_in_whole_seconds: 1,
            pods_not_known: 1,
            p50: Some(to_duration(Duration::from_millis(812))),
            p90: Some(to_duration(Duration::from_secs(2))),
            longest: Some(to_duration(Duration::from_secs(2))),
            slowest: vec![pod("web-1", 2000, true), pod("web-2", 812, false)],
        };
        let shown = text(std::slice::from_ref(&one), "abc");
        assert_eq!(
            shown,
            "in place, 3 pods were down for: p50 0.812 s, p90 2.000 s, longest 2.000 s\n  of 1 pods only whole seconds are known (~)\n  \
             of 1 pods nobody can say\n  web-1  main  ~2 s\n  web-2  main  0.812 s\n  and 1 pods that were down for no longer\n"
        );
        assert_eq!(text(&[one], "web-other"), "", "of another revision");
    }

    #[test]
    fn no_number_is_made_up() {
        let one = InPlaceDowntime {
            revision: "abc".to_owned(),
            pods_not_known: 2,
            ..InPlaceDowntime::default()
        };
        assert_eq!(text(&[one], "abc"), "  of 2 pods nobody can say\n");
    }
}
