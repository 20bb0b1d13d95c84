//! States the promises of a plan, knowing nothing of how it is made: it reads the spec, the labels and the actions by itself.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kruise_api::clone_set::{CloneSetSpec, LifecycleHook, names};

use super::*;

/// Panics with the broken promise.
pub(super) fn check(snapshot: &CloneSetSnapshot<'_>, plan: &CloneSetPlan) {
    let view = View::of(snapshot);
    one_write_per_pod(plan);
    only_own_pods(&view, plan);
    budget(&view, plan);
    partition(&view, plan);
    sizes(&view, plan);
    new_names(&view, plan);
    hooks(&view, plan);
    claims(&view, plan);
    live_revisions(&view, plan);
    arithmetic(plan);
    if let Some(wake) = plan.wake {
        assert!(wake > snapshot.now, "wakes in the past would spin");
    }
    let blind = !snapshot.writes.unseen.is_empty() || snapshot.set.metadata.deletion_timestamp.is_some();
    assert!(
        !blind || plan.actions.is_empty(),
        "acted on what it must not act on"
    );
}

/// The set as a reader of the specification sees it.
struct View<'a> {
    snapshot: &'a CloneSetSnapshot<'a>,
    spec: &'a CloneSetSpec,
    pods: BTreeMap<&'a str, &'a PodView>,
    wanted: i64,
    max_unavailable: i64,
    max_surge: i64,
    partition: i64,
}

/// Percentages by long multiplication; only whole ones are used in tests.
fn percent(value: Option<&IntOrString>, absent: &str, wanted: i64, up: bool) -> Option<i64> {
    match value.cloned().unwrap_or(IntOrString::String(absent.to_owned())) {
        IntOrString::Int(number) => Some(i64::from(number).max(0)),
        IntOrString::String(text) => {
            let share: i64 = text.strip_suffix('%')?.parse().ok()?;
            Some((share * wanted + if up { 99 } else { 0 }) / 100)
        }
    }
}

impl<'a> View<'a> {
    fn of(snapshot: &'a CloneSetSnapshot<'a>) -> Self {
        let spec = &snapshot.set.spec;
        let uid = snapshot.set.metadata.uid.as_deref().unwrap();
        let wanted = i64::from(spec.replicas.unwrap_or(1));
        let rolling = spec.update_strategy.rolling_update.clone().unwrap_or_default();
        let max_surge = percent(rolling.max_surge.as_ref(), "0%", wanted, true).unwrap_or(0);
        let down = max_surge > 0 && !rolling.paused;
        let partition = match percent(rolling.partition.as_ref(), "0%", wanted, true) {
            None => wanted,
            Some(number)
                if number == wanted
                    && wanted > 1
                    && matches!(&rolling.partition, Some(IntOrString::String(text)) if text != "100%") =>
            {
                wanted - 1
            }
            Some(number) => number.min(wanted),
        };
        let selector = spec.selector.match_labels.clone().unwrap_or_default();
        let of_set = |pod: &&PodView| {
            let mine = pod.owners.iter().any(|owner| owner == uid)
                && pod.controller.as_deref().is_none_or(|it| it == uid);
            let alive = !pod.terminating && !matches!(pod.phase, Phase::Failed | Phase::Succeeded);
            mine && alive && selector.iter().all(|(key, value)| pod.labels.has(key, value))
        };
        let pods = snapshot.pods.iter().copied().filter(of_set);
        Self {
            snapshot,
            spec,
            pods: pods.map(|pod| (pod.name.as_str(), pod)).collect(),
            wanted,
            max_unavailable: percent(rolling.max_unavailable.as_ref(), "20%", wanted, !down).unwrap_or(0),
            max_surge,
            partition,
        }
    }

    fn state(pod: &PodView) -> &str {
        pod.labels.get(names::LIFECYCLE_STATE).unwrap_or_default()
    }

    fn is_available(&self, pod: &PodView) -> bool {
        let Readiness::Ready { since } = pod.ready else {
            return false;
        };
        let seconds = i64::from(self.spec.min_ready_seconds);
        let long = seconds == 0
            || since.is_some_and(|since| {
                (self.snapshot.now - since).total(jiff::Unit::Second).unwrap() > seconds as f64
            });
        pod.phase == Phase::Running
            && pod.in_place_ready != Some(false)
            && long
            && matches!(Self::state(pod), "" | "Normal")
    }

    fn is_leaving(pod: &PodView) -> bool {
        Self::state(pod) == "PreparingDelete"
    }

    fn is_marked(&self, pod: &PodView) -> bool {
        let named = self.spec.scale_strategy.pods_to_delete.contains(&pod.name);
        !Self::is_leaving(pod) && (named || pod.labels.contains_key(names::SPECIFIED_DELETE))
    }

    fn is_on(pod: &PodView, revision: &str) -> bool {
        let tail = |text: &str| text.rsplit('-').next().unwrap_or_default().to_owned();
        pod.labels
            .get(names::REVISION)
            .is_some_and(|label| tail(label) == tail(revision))
    }

    fn count(&self, test: impl Fn(&PodView) -> bool) -> i64 {
        i64::try_from(self.pods.values().filter(|pod| test(pod)).count()).unwrap()
    }

    fn hook(
        &self,
        pick: impl Fn(&kruise_api::clone_set::Lifecycle) -> Option<LifecycleHook>,
        pod: &PodView,
    ) -> bool {
        self.spec.lifecycle.as_ref().and_then(pick).is_some_and(|hook| {
            hook.labels_handler
                .iter()
                .any(|(key, value)| pod.labels.has(key, value))
                || hook
                    .finalizers_handler
                    .iter()
                    .any(|name| pod.finalizers.contains(name))
        })
    }
}

/// The pod that a write is about.
pub(super) fn written_pod(action: &Action) -> Option<&str> {
    match action {
        Action::DeletePod { pod, .. }
        | Action::UpdateInPlace { pod, .. }
        | Action::Recreate { pod, .. }
        | Action::PatchPod { pod, .. } => Some(pod),
        _ => None,
    }
}

fn one_write_per_pod(plan: &CloneSetPlan) {
    let mut seen = BTreeSet::new();
    for pod in plan.actions.iter().filter_map(written_pod) {
        assert!(seen.insert(pod), "{pod} is written twice: {:#?}", plan.actions);
    }
}

fn only_own_pods(view: &View<'_>, plan: &CloneSetPlan) {
    for action in &plan.actions {
        let released =
            matches!(action, Action::PatchPod { patch, .. } if patch.owners == Some(OwnerChange::Release));
        if let Some(pod) = written_pod(action).filter(|_| !released) {
            assert!(view.pods.contains_key(pod), "{pod} is not of the set");
        }
    }
}

/// What goes out of service by a write.
fn takes_down(action: &Action) -> Option<&str> {
    match action {
        Action::DeletePod { pod, .. } => Some(pod),
        Action::UpdateInPlace {
            pod, lifecycle_state, ..
        } => (*lifecycle_state != Some("Normal")).then_some(pod),
        Action::PatchPod { pod, patch, .. } => patch
            .lifecycle_state
            .is_some_and(|state| state != "Normal")
            .then_some(pod),
        _ => None,
    }
}

fn budget(view: &View<'_>, plan: &CloneSetPlan) {
    let before = view.count(|pod| view.is_available(pod));
    let down = plan
        .actions
        .iter()
        .filter_map(takes_down)
        .filter(|pod| view.is_available(view.pods[pod]))
        .count();
    let after = before - i64::try_from(down).unwrap();
    let floor = view.wanted - view.max_unavailable;
    assert!(
        down == 0 || after >= floor,
        "budget: {before} available, {down} taken down, at least {floor} must stay\n{plan:#?}"
    );
}

fn updates<'p>(plan: &'p CloneSetPlan, view: &'p View<'_>) -> impl Iterator<Item = &'p str> {
    plan.actions.iter().filter_map(|action| match action {
        Action::UpdateInPlace {
            pod,
            lifecycle_state: Some(_),
            ..
        }
        | Action::Recreate { pod, .. } => Some(pod.as_str()),
        Action::PatchPod { pod, patch, .. }
            if patch.lifecycle_state == Some("PreparingUpdate") && !view.pods[pod.as_str()].terminating =>
        {
            Some(pod)
        }
        _ => None,
    })
}

fn partition(view: &View<'_>, plan: &CloneSetPlan) {
    let on_update = |pod: &PodView| View::is_on(pod, &plan.update_revision);
    let forwards = updates(plan, view)
        .filter(|pod| !on_update(view.pods[pod]))
        .count();
    let backwards = updates(plan, view)
        .filter(|pod| on_update(view.pods[pod]))
        .count();
    let left = |side: &dyn Fn(&PodView) -> bool| {
        view.count(|pod| side(pod) && !View::is_leaving(pod) && !view.is_marked(pod))
    };
    let gate = view.snapshot.gates.partition_rollback;
    let count = |pods: usize| i64::try_from(pods).unwrap();
    let (old, new) = (left(&|pod| !on_update(pod)), left(&on_update));
    let (for_old, for_new) = (view.partition, view.wanted - view.partition);
    // With the gate pods are exchanged while some are missing too, but never beyond what the side that gets them wants.
    if forwards > 0 {
        let (old, new) = (old - count(forwards), new + count(forwards));
        assert!(
            old >= for_old || (gate && new <= for_new),
            "partition {for_old}: {old} old pods left"
        );
    }
    if backwards > 0 {
        assert!(gate, "went back without the gate");
        let (old, new) = (old + count(backwards), new - count(backwards));
        assert!(
            new >= for_new || old <= for_old,
            "partition {for_old}: {old} old pods made"
        );
    }
    let rolling = view
        .spec
        .update_strategy
        .rolling_update
        .clone()
        .unwrap_or_default();
    if rolling.paused || view.spec.update_strategy.kind == "OnDelete" {
        assert_eq!(forwards + backwards, 0, "updated while that is switched off");
    }
    assert!(forwards == 0 || backwards == 0, "went both ways");
}

fn sizes(view: &View<'_>, plan: &CloneSetPlan) {
    let kind = |wanted: &str| {
        let of_kind = |action: &&Action| serde_json::to_value(action).unwrap()["type"] == wanted;
        i64::try_from(plan.actions.iter().filter(of_kind).count()).unwrap()
    };
    let total = view.count(|_| true);
    let created = kind("CreatePod");
    let leaving = view.count(View::is_leaving);
    assert!(
        created == 0 || total - leaving + created <= view.wanted + view.max_surge,
        "{total} pods and {created} more"
    );
    let surplus = plan.actions.iter().filter(|action| {
        matches!(action, Action::DeletePod { reason: "ScaleDown", .. })
            || matches!(action, Action::PatchPod { patch, pod, .. }
                if patch.lifecycle_state == Some("PreparingDelete") && !view.is_marked(view.pods[pod.as_str()]))
    });
    let surplus = i64::try_from(surplus.count()).unwrap();
    let staying = view.count(|pod| !View::is_leaving(pod) && !view.is_marked(pod));
    assert!(
        surplus == 0 || staying - surplus >= view.wanted,
        "shrinks below what is wanted"
    );
    assert!(created == 0 || surplus == 0, "creates and shrinks at once");
}

fn new_names(view: &View<'_>, plan: &CloneSetPlan) {
    let mut held: BTreeSet<&str> = view.snapshot.pods.iter().map(|pod| pod.name.as_str()).collect();
    let mut claims: BTreeSet<&str> = view
        .snapshot
        .claims
        .iter()
        .map(|claim| claim.name.as_str())
        .collect();
    for action in &plan.actions {
        match action {
            Action::CreatePod { pod, .. } => assert!(held.insert(pod), "{pod} is taken"),
            Action::CreateClaim { claim, .. } => assert!(claims.insert(claim), "{claim} is taken"),
            _ => {}
        }
    }
}

fn hooks(view: &View<'_>, plan: &CloneSetPlan) {
    for action in &plan.actions {
        match action {
            Action::DeletePod { pod, .. } => {
                let held = view.hook(|lifecycle| lifecycle.pre_delete.clone(), view.pods[pod.as_str()]);
                assert!(!held, "{pod} was deleted under its hook");
            }
            Action::UpdateInPlace { pod, .. } => {
                let pod = view.pods[pod.as_str()];
                let held = view.hook(|lifecycle| lifecycle.in_place_update.clone(), pod);
                assert!(
                    !held || View::state(pod) == "Updating",
                    "{} was changed under its hook",
                    pod.name
                );
            }
            _ => {}
        }
    }
}

fn claims(view: &View<'_>, plan: &CloneSetPlan) {
    let deleted: BTreeSet<&str> = plan
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::DeletePod { pod, .. } => Some(pod.as_str()),
            _ => None,
        })
        .collect();
    for action in &plan.actions {
        let Action::DeleteClaim { claim, .. } = action else {
            continue;
        };
        let known = view
            .snapshot
            .claims
            .iter()
            .find(|known| known.name == *claim)
            .expect("in view");
        let user = view
            .snapshot
            .pods
            .iter()
            .find(|pod| pod.instance_id == known.instance_id);
        let in_use = user.is_some_and(|pod| !deleted.contains(pod.name.as_str()));
        assert!(!in_use, "claim {claim} is in use");
    }
}

fn live_revisions(view: &View<'_>, plan: &CloneSetPlan) {
    for action in &plan.actions {
        let Action::DeleteRevision { revision, .. } = action else {
            continue;
        };
        let live = *revision == plan.current_revision
            || *revision == plan.update_revision
            || view.pods.values().any(|pod| View::is_on(pod, revision));
        assert!(!live, "{revision} is in use");
    }
}

fn arithmetic(plan: &CloneSetPlan) {
    let n = &plan.numbers;
    assert!(
        0 <= n.scale_up_limit && n.scale_up_limit <= n.scale_up_num,
        "{n:?}"
    );
    assert!(n.use_surge_old_revision <= n.use_surge, "{n:?}");
    assert!(n.scale_up_num == 0 || n.scale_down_num == 0, "{n:?}");
    assert!(n.delete_ready_limit >= 0, "{n:?}");
    let s = &plan.status;
    assert!(
        s.available_replicas <= s.ready_replicas && s.ready_replicas <= s.replicas,
        "{s:?}"
    );
    assert!(s.updated_available_replicas <= s.updated_ready_replicas, "{s:?}");
    assert!(
        s.updated_ready_replicas <= s.updated_replicas && s.updated_replicas <= s.replicas,
        "{s:?}"
    );
}
