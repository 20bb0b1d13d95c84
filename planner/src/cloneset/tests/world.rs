//! A set with everything around it, that tests change step by step.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kruise_api::clone_set::{CloneSet, names};
use serde_json::{Value, json};

use crate::cloneset::check::{check, written_pod};
use crate::cloneset::*;

pub(super) const UID: &str = "7d6f59b2-fec9-433f-953a-0cbd79727cac";

/// A set whose pods are what the tests say.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) play: Play,
}

/// A template with this image.
pub(super) fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": image}]}
    })
}

impl World {
    /// A set named `web` with the given `spec`, whose template is `app:2`, and the revisions of `app:1` (current) and `app:2` (update).
    pub(super) fn new(spec: Value) -> Self {
        let mut full = json!({
            "selector": {"matchLabels": {"app": "web"}},
            "template": template("app:1"),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {}},
        });
        merge(&mut full, spec);
        let spec = serde_json::from_value(full).expect("spec");
        let mut set = CloneSet::new("web", spec);
        set.metadata.namespace = Some("default".to_owned());
        set.metadata.uid = Some(UID.to_owned());
        set.metadata.generation = Some(1);
        let play = Play {
            set,
            pods: Vec::new(),
            claims: Vec::new(),
            revisions: Vec::new(),
            jobs: Vec::new(),
            requests: Vec::new(),
            nodes: BTreeMap::new(),
            writes: Writes::default(),
            gates: Gates::default(),
            now: Timestamp::from_second(1_800_000_000).expect("time"),
        };
        let mut world = Self { play };
        for image in ["app:1", "app:2"] {
            world.play.set.spec.template = template(image);
            let revisions: Vec<Action> = plan(&world.play.snapshot())
                .actions
                .into_iter()
                .filter(|action| matches!(action, Action::CreateRevision { .. }))
                .collect();
            let made = CloneSetPlan {
                actions: revisions,
                ..CloneSetPlan::default()
            };
            world.play.carry_out(&made);
        }
        let status = kruise_api::clone_set::CloneSetStatus {
            current_revision: world.revision(0),
            update_revision: world.revision(1),
            ..Default::default()
        };
        world.play.set.status = Some(status);
        world
    }

    /// As [`World::new`], with nothing to roll out.
    pub(super) fn settled(spec: Value) -> Self {
        let mut world = Self::new(spec);
        let update = world.revision(1);
        world.play.set.status.as_mut().expect("status").current_revision = update;
        world
    }

    /// Name of the first or second revision.
    pub(super) fn revision(&self, index: usize) -> String {
        self.play.revisions[index].name.clone()
    }

    /// Adds a pod that has been ready for an hour on the first (0) or second (1) revision.
    pub(super) fn pod(&mut self, name: &str, revision: usize) -> &mut PodView {
        let hash = self.revision(revision);
        let mut pod = PodView {
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            controller: Some(UID.to_owned()),
            owners: vec![UID.to_owned()],
            created: Some(self.play.now - SignedDuration::from_secs(7200)),
            phase: Phase::Running,
            node: Some(format!("node-of-{name}")),
            ready: Readiness::Ready {
                since: Some(self.play.now - SignedDuration::from_secs(3600)),
            },
            containers_ready: true,
            in_place_gate: true,
            in_place_ready: Some(true),
            kruise_gate: true,
            kruise_ready: Some(true),
            ..PodView::default()
        };
        for (key, value) in [
            ("app", "web"),
            (names::REVISION, &hash),
            (names::TEMPLATE_HASH, hash.rsplit('-').next().expect("hash")),
            (names::LIFECYCLE_STATE, "Normal"),
        ] {
            pod.labels.insert(key, value);
        }
        if let Some(id) = name.strip_prefix("web-") {
            pod.labels.insert(names::INSTANCE_ID, id);
        }
        pod.read_labels();
        self.play.pods.push(pod);
        self.play.pods.last_mut().expect("pushed")
    }

    pub(super) fn get(&mut self, name: &str) -> &mut PodView {
        self.play
            .pods
            .iter_mut()
            .find(|pod| pod.name == name)
            .expect("pod")
    }

    /// Plans, and checks the promises.
    pub(super) fn plan(&self) -> CloneSetPlan {
        let snapshot = self.play.snapshot();
        let made = plan(&snapshot);
        check(&snapshot, &made);
        let mut turned = snapshot.clone();
        turned.pods.reverse();
        turned.claims.reverse();
        turned.revisions.reverse();
        assert_eq!(
            plan(&turned),
            made,
            "the same objects in another order give the same plan"
        );
        made
    }

    /// Plans, checks, carries out, and lets the kubelet do its part.
    pub(super) fn step(&mut self) -> Step {
        self.plan();
        self.play.step()
    }

    /// Steps until nothing more happens; answers all plans.
    pub(super) fn settle(&mut self) -> Vec<CloneSetPlan> {
        let mut plans = Vec::new();
        for _ in 0..500 {
            let step = self.step();
            plans.push(step.plan);
            if step.settled {
                return plans;
            }
        }
        panic!("does not settle: {:#?}\n{:#?}", plans.last(), self.play.set.spec);
    }

    pub(super) fn pass(&mut self, seconds: i64) {
        self.play.now += SignedDuration::from_secs(seconds);
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Actions as short texts: `Type name`.
pub(super) fn told(plan: &CloneSetPlan) -> Vec<String> {
    plan.actions
        .iter()
        .map(|action| {
            let json = serde_json::to_value(action).expect("json");
            let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
            let name = ["claim", "pod", "job", "revision"]
                .map(text)
                .into_iter()
                .find(|name| !name.is_empty());
            let state = json["lifecycleState"]
                .as_str()
                .map(|state| format!(" {state}"))
                .unwrap_or_default();
            format!("{} {}{state}", text("type"), name.unwrap_or_default())
        })
        .collect()
}

/// Pods that a plan writes with this type of action.
pub(super) fn pods_of(plan: &CloneSetPlan, kind: &str) -> Vec<String> {
    plan.actions
        .iter()
        .filter(|action| serde_json::to_value(action).expect("json")["type"] == kind)
        .filter_map(|action| match action {
            Action::CreatePod { pod, .. } => Some(pod.clone()),
            action => written_pod(action).map(str::to_owned),
        })
        .collect()
}

/// Whether a plan waits for this, and the pods.
pub(super) fn waits(plan: &CloneSetPlan, reason: Reason) -> Option<Vec<String>> {
    let all: Vec<&Waiting> = plan
        .waiting
        .iter()
        .filter(|waiting| waiting.reason == reason)
        .collect();
    (!all.is_empty()).then(|| all.iter().flat_map(|waiting| waiting.pods.clone()).collect())
}
