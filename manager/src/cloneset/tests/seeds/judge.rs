//! Looks at every version of every object, and says when a promise is broken. It shares nothing with what decides.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::Value;

use super::super::super::space::Kind;
use super::super::server::Change;
use super::super::world::{image_of, is_ready, text};

/// A spec counts for so long after it was replaced: the longest silence of a watch, and the longest pass.
const LAG: Duration = Duration::from_secs(5);
/// Steps that a story tells at most.
const STEPS: usize = 400;

/// What a spec allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Allowed {
    replicas: i64,
    partition: i64,
    max_unavailable: i64,
    max_surge: i64,
}

impl Allowed {
    fn of(set: &Value) -> Self {
        let spec = &set["spec"];
        let rolling = &spec["updateStrategy"]["rollingUpdate"];
        let number = |value: &Value| value.as_i64().unwrap_or(0);
        Self {
            replicas: number(&spec["replicas"]),
            partition: number(&rolling["partition"]),
            max_unavailable: number(&rolling["maxUnavailable"]),
            max_surge: number(&rolling["maxSurge"]),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PodSeen {
    available: bool,
    leaving: bool,
    image: String,
}

impl PodSeen {
    fn of(pod: &Value) -> Self {
        Self {
            available: is_ready(pod),
            leaving: !pod["metadata"]["deletionTimestamp"].is_null(),
            image: image_of(pod),
        }
    }
}

/// Looks at every version of every object.
#[derive(Default)]
pub(super) struct Judge {
    pods: BTreeMap<String, PodSeen>,
    /// Specs and when each was replaced; the last one holds.
    specs: VecDeque<(Option<Duration>, Allowed)>,
    story: VecDeque<String>,
    /// The first promise that was broken.
    pub(super) broken: Option<String>,
    /// Writes of the controller.
    pub(super) writes: usize,
}

impl Judge {
    /// Something that is done to the controller.
    pub(super) fn note(&mut self, at: Duration, step: &str) {
        if self.story.len() == STEPS {
            self.story.pop_front();
        }
        self.story.push_back(format!("{:9.3} {step}", at.as_secs_f64()));
    }

    /// The last steps.
    pub(super) fn story(&self) -> String {
        let steps: Vec<&str> = self.story.iter().map(String::as_str).collect();
        steps.join("\n")
    }

    pub(super) fn see(&mut self, change: &Change<'_>, at: Duration) {
        if change.by_controller {
            self.writes += 1;
        }
        match (change.kind, change.after) {
            (Kind::Set, Some(set)) => self.spec(Allowed::of(set), at),
            (Kind::Pod, _) => self.pod(change, at),
            _ => {}
        }
    }

    fn spec(&mut self, allowed: Allowed, at: Duration) {
        if self.specs.back().is_some_and(|(_, known)| *known == allowed) {
            return;
        }
        self.note(at, &format!("spec {allowed:?}"));
        if let Some(last) = self.specs.back_mut() {
            last.0 = Some(at);
        }
        self.specs.push_back((None, allowed));
    }

    /// The most of this among the specs that the controller may act on.
    fn most(&self, of: impl Fn(&Allowed) -> i64) -> i64 {
        self.specs
            .iter()
            .map(|(_, allowed)| of(allowed))
            .max()
            .unwrap_or(0)
    }

    fn pod(&mut self, change: &Change<'_>, at: Duration) {
        self.specs
            .retain(|(until, _)| until.is_none_or(|until| until + LAG > at));
        let pod = change.after.or(change.before).expect("one of them");
        let name = text(&pod["metadata"]["name"]);
        let after = change.after.map(PodSeen::of);
        let before = match &after {
            Some(seen) => self.pods.insert(name.clone(), seen.clone()),
            None => self.pods.remove(&name),
        };
        if before == after {
            return;
        }
        let who = if change.by_controller {
            "controller"
        } else {
            "kubelet"
        };
        self.note(at, &format!("{who}: pod {name} {before:?} to {after:?}"));
        if change.by_controller {
            self.taken_down(&name, before.as_ref(), after.as_ref());
            self.updated(&name, before.as_ref(), after.as_ref());
            self.created(&name, before.as_ref());
        }
    }

    fn breaks(&mut self, text: String) {
        self.broken.get_or_insert(text);
    }

    fn staying(&self) -> impl Iterator<Item = &PodSeen> {
        self.pods.values().filter(|pod| !pod.leaving)
    }

    fn count(pods: impl Iterator<Item = impl Sized>) -> i64 {
        i64::try_from(pods.count()).expect("few")
    }

    fn taken_down(&mut self, name: &str, before: Option<&PodSeen>, after: Option<&PodSeen>) {
        let was = before.is_some_and(|pod| pod.available);
        if !was || after.is_some_and(|pod| pod.available) {
            return;
        }
        let available = Self::count(self.staying().filter(|pod| pod.available));
        let needed = -self.most(|allowed| allowed.max_unavailable - allowed.replicas);
        if available < needed {
            self.breaks(format!(
                "I1: {name} went down, {available} are left, {needed} are needed"
            ));
        }
    }

    fn updated(&mut self, name: &str, before: Option<&PodSeen>, after: Option<&PodSeen>) {
        let (Some(before), Some(after)) = (before, after) else {
            return;
        };
        if before.image == after.image {
            return;
        }
        if before.leaving {
            self.breaks(format!("I5: {name} is updated while it leaves"));
        }
        let updated = Self::count(self.staying().filter(|pod| pod.image == after.image));
        let most = self.most(|allowed| allowed.replicas - allowed.partition + allowed.max_surge);
        if updated > most {
            self.breaks(format!(
                "I2: {name} is the {updated}th pod on its image, {most} may be"
            ));
        }
    }

    fn created(&mut self, name: &str, before: Option<&PodSeen>) {
        if before.is_some() {
            return;
        }
        let pods = Self::count(self.staying());
        let most = self.most(|allowed| allowed.replicas + allowed.max_surge);
        if pods > most {
            self.breaks(format!("I10: {name} is the {pods}th pod, {most} may be"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, image: &str, ready: bool) -> Value {
        let status = if ready { "True" } else { "False" };
        json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"image": image}]},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        })
    }

    /// A judge who has seen two pods and a set that wants two of them, one of which may be down.
    fn judge(rolling: &Value) -> Judge {
        let mut judge = Judge::default();
        let set = json!({"spec": {"replicas": 2, "updateStrategy": {"rollingUpdate": rolling}}});
        let mut see = |kind, object: &Value| {
            let change = Change {
                by_controller: false,
                kind,
                before: None,
                after: Some(object),
            };
            judge.see(&change, Duration::ZERO);
        };
        see(Kind::Set, &set);
        see(Kind::Pod, &pod("a", "x:1", true));
        see(Kind::Pod, &pod("b", "x:1", true));
        judge
    }

    fn write(judge: &mut Judge, after: &Value) -> Option<String> {
        let change = Change {
            by_controller: true,
            kind: Kind::Pod,
            before: None,
            after: Some(after),
        };
        judge.see(&change, Duration::from_secs(1));
        judge.broken.clone()
    }

    #[test]
    fn each_broken_promise_is_noticed() {
        let mut one = judge(&json!({"maxUnavailable": 1}));
        assert_eq!(write(&mut one, &pod("a", "x:1", false)), None);
        assert!(write(&mut one, &pod("b", "x:1", false)).is_some_and(|text| text.starts_with("I1")));
        let mut one = judge(&json!({"maxUnavailable": 2, "partition": 1}));
        assert_eq!(write(&mut one, &pod("a", "x:2", false)), None);
        assert!(write(&mut one, &pod("b", "x:2", false)).is_some_and(|text| text.starts_with("I2")));
        let mut one = judge(&json!({"maxSurge": 1}));
        assert_eq!(write(&mut one, &pod("c", "x:1", false)), None);
        assert!(write(&mut one, &pod("d", "x:1", false)).is_some_and(|text| text.starts_with("I10")));
        let mut one = judge(&json!({"maxUnavailable": 2}));
        let mut leaving = pod("a", "x:1", true);
        leaving["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z".into();
        assert_eq!(write(&mut one, &leaving), None);
        leaving["spec"]["containers"][0]["image"] = "x:2".into();
        assert!(write(&mut one, &leaving).is_some_and(|text| text.starts_with("I5")));
    }
}
