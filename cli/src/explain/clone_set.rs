//! A CloneSet that does not move.
//!
//! The leader is asked, which knows its own failed writes. When it does not answer, the same planner decides by what the cluster has stored:
//! that nobody leads is then itself the reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use kruise_proto::{convert, inspect};
use serde::Serialize;

use crate::args::Format;
use crate::connect::{self, Cluster};
use crate::exit::{self, Code};
use crate::output::{self, cell};
use crate::plan;
use crate::tasks::refused;

/// Names that people are shown before the rest is counted.
const NAMES: usize = 5;

/// Asks, and shows the answer.
pub(super) async fn run(cluster: &Cluster, name: &str, format: Format) -> Result<Code> {
    let told = match ask(cluster, name).await {
        Ok(told) => told,
        Err(error) => {
            let told = plan::explanation(cluster, name).await?;
            eprintln!(
                "note: the manager does not say ({}); decided here, by what the cluster has stored",
                exit::chain(&error)
            );
            told
        }
    };
    let explanation = Explanation::from(told);
    output::put(&match format {
        Format::Table | Format::Wide => explanation.text(),
        Format::Json | Format::Yaml => output::document(&explanation, format)?,
    })?;
    Ok(Code::Success)
}

async fn ask(cluster: &Cluster, name: &str) -> Result<inspect::ExplainCloneSetResponse> {
    let mut client = connect::open(cluster).await?;
    let request = inspect::ExplainCloneSetRequest {
        clone_set: format!("{}/{name}", cluster.namespace),
    };
    let answer = client.explain_clone_set(request).await;
    Ok(answer.map_err(refused)?.into_inner())
}

/// Where a set stands, and why.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    clone_set: String,
    generation: i64,
    observed_generation: i64,
    current_revision: String,
    update_revision: String,
    policy: String,
    paused: bool,
    partition: u32,
    max_unavailable: u32,
    max_surge: u32,
    wanted: u32,
    pods: u32,
    ready: u32,
    available: u32,
    updated: u32,
    updated_ready: u32,
    updated_available: u32,
    expected_updated: u32,
    states: BTreeMap<String, u32>,
    writing: bool,
    next: Vec<Writes>,
    waiting: Vec<Waiting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_look_seconds: Option<u64>,
    /// Shown by `rollout status`.
    #[serde(skip)]
    pub(crate) in_place: Vec<inspect::InPlaceDowntime>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Writes {
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    count: u32,
    names: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Waiting {
    reason: String,
    message: String,
    pods: Vec<String>,
    pods_left_out: u32,
}

impl From<inspect::ExplainCloneSetResponse> for Explanation {
    fn from(told: inspect::ExplainCloneSetResponse) -> Self {
        let counts = told.counts.unwrap_or_default();
        let settings = told.settings.unwrap_or_default();
        let next_look = told.next_look_in.as_ref().and_then(convert::from_duration);
        Self {
            clone_set: told.clone_set,
            generation: told.generation,
            observed_generation: told.observed_generation,
            current_revision: told.current_revision,
            update_revision: told.update_revision,
            policy: settings.policy,
            paused: settings.paused,
            partition: settings.partition,
            max_unavailable: settings.max_unavailable,
            max_surge: settings.max_surge,
            wanted: counts.wanted,
            pods: counts.pods,
            ready: counts.ready,
            available: counts.available,
            updated: counts.updated,
            updated_ready: counts.updated_ready,
            updated_available: counts.updated_available,
            expected_updated: counts.expected_updated,
            states: told.states,
            writing: told.writing,
            next: told.next.into_iter().map(Writes::from).collect(),
            waiting: told.waiting.into_iter().map(Waiting::from).collect(),
            next_look_seconds: next_look.map(|span| span.as_secs()),
            in_place: told.in_place,
        }
    }
}

impl From<inspect::PlannedWrites> for Writes {
    fn from(writes: inspect::PlannedWrites) -> Self {
        Self {
            kind: writes.r#type,
            reason: writes.reason,
            count: writes.count,
            names: writes.names,
        }
    }
}

impl From<inspect::CloneSetWaiting> for Waiting {
    fn from(waiting: inspect::CloneSetWaiting) -> Self {
        Self {
            reason: waiting.reason,
            message: waiting.message,
            pods: waiting.pods,
            pods_left_out: waiting.pods_left_out,
        }
    }
}

impl Explanation {
    /// One screen for people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{}: {}", self.clone_set, self.rollout())?;
        writeln!(
            out,
            "  {} of {} pods, {} ready, {} available; {}",
            self.pods,
            self.wanted,
            self.ready,
            self.available,
            self.modes()
        )?;
        if !self.states.is_empty() {
            writeln!(out, "  {}", self.states())?;
        }
        if self.generation > self.observed_generation {
            writeln!(
                out,
                "  its status speaks of generation {}, the set is at {}",
                self.observed_generation, self.generation
            )?;
        }
        if !self.next.is_empty() {
            let head = if self.writing { "Writes now" } else { "Next" };
            writeln!(out, "\n{head}:")?;
            for writes in &self.next {
                let names = names(&writes.names, writes.count);
                writeln!(out, "  {}{names}  ({})", writes.kind, writes.reason)?;
            }
        }
        if !self.waiting.is_empty() {
            writeln!(out, "\nWaits for:")?;
        }
        for waiting in &self.waiting {
            let count = u32::try_from(waiting.pods.len()).unwrap_or(u32::MAX);
            let pods = names(&waiting.pods, count.saturating_add(waiting.pods_left_out));
            writeln!(
                out,
                "  {}{pods}\n      {}",
                waiting.reason,
                cell(&waiting.message)
            )?;
        }
        if self.next.is_empty() && self.waiting.is_empty() {
            writeln!(out, "\nNothing is to be done, and nothing is waited for.")?;
        }
        if let Some(seconds) = self.next_look_seconds {
            writeln!(out, "\nLooks again in {seconds} s if nothing happens before.")?;
        }
        Ok(())
    }

    fn rollout(&self) -> String {
        if self.current_revision == self.update_revision {
            return format!("all pods come from {}", cell(&self.update_revision));
        }
        format!(
            "from {} to {}, {} of {} pods updated",
            cell(&self.current_revision),
            self.update_revision,
            self.updated,
            self.expected_updated
        )
    }

    fn modes(&self) -> String {
        let mut modes = vec![self.policy.clone()];
        if self.paused {
            modes.push("paused".to_owned());
        }
        if self.partition > 0 {
            modes.push(format!("partition {}", self.partition));
        }
        modes.push(format!("maxUnavailable {}", self.max_unavailable));
        if self.max_surge > 0 {
            modes.push(format!("maxSurge {}", self.max_surge));
        }
        modes.join(", ")
    }

    /// How many pods are in which state.
    fn states(&self) -> String {
        let states = self.states.iter().map(|(state, pods)| format!("{pods} {state}"));
        states.collect::<Vec<_>>().join(", ")
    }

    /// Reasons with how many pods each is about, on one line.
    pub(crate) fn reasons(&self) -> String {
        let reasons = self.waiting.iter().map(|waiting| {
            let pods = u32::try_from(waiting.pods.len()).unwrap_or(u32::MAX);
            match pods.saturating_add(waiting.pods_left_out) {
                0 => waiting.reason.clone(),
                1 => format!("{} ({})", waiting.reason, waiting.pods[0]),
                pods => format!("{} ({pods} pods)", waiting.reason),
            }
        });
        reasons.collect::<Vec<_>>().join(", ")
    }
}

/// After a colon, the first names and how many more.
fn names(names: &[String], all: u32) -> String {
    if names.is_empty() {
        return String::new();
    }
    let shown = &names[..names.len().min(NAMES)];
    let more = all.saturating_sub(u32::try_from(shown.len()).unwrap_or(u32::MAX));
    match more {
        0 => format!(": {}", shown.join(" ")),
        more => format!(": {} and {more} more", shown.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    const DOCUMENT: &str = include_str!("../../../docs/cloneset.md");

    #[test]
    fn the_document_shows_what_the_example_gives() {
        let text = Explanation::from(plan::example()).text();
        assert!(
            DOCUMENT.contains(text.trim_end()),
            "docs/cloneset.md does not show:\n{text}"
        );
    }

    #[test]
    fn one_screen_says_who_waits_for_what() {
        let told = Explanation::from(inspect::ExplainCloneSetResponse {
            clone_set: "shop/web".into(),
            current_revision: "web-a".into(),
            update_revision: "web-b".into(),
            generation: 3,
            observed_generation: 2,
            counts: Some(inspect::CloneSetCounts {
                wanted: 30,
                expected_updated: 30,
                ..Default::default()
            }),
            waiting: vec![inspect::CloneSetWaiting {
                reason: "NotReady".into(),
                message: "not ready".into(),
                pods: (0..20).map(|number| format!("web-{number}")).collect(),
                pods_left_out: 5,
            }],
            ..Default::default()
        });
        let text = told.text();
        for part in [
            "shop/web: from web-a to web-b, 0 of 30 pods updated",
            "its status speaks of generation 2, the set is at 3",
            "NotReady: web-0 web-1 web-2 web-3 web-4 and 20 more\n      not ready",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        assert_eq!(told.reasons(), "NotReady (25 pods)");
        let done = Explanation::from(inspect::ExplainCloneSetResponse::default()).text();
        assert!(done.contains("Nothing is to be done"), "{done}");
    }

    #[tokio::test]
    async fn the_leader_is_asked_about_the_set_of_the_namespace() {
        let script = fake::Script {
            serving: true,
            ..fake::Script::default()
        };
        let cluster = fake::cluster(script).await.unwrap();
        let told = ask(&cluster, "web").await.unwrap();
        assert_eq!(told.clone_set, "default/web");
        let nobody = fake::cluster(fake::Script::default()).await.unwrap();
        assert!(ask(&nobody, "web").await.is_err());
    }
}
