//! Nodes: which of them jobs may select, and how their agents stand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kruise_api::ids::{NodeName, NodeUid};
use kruise_planner::job::{AgentView, NodeTrouble, NodeView};

use super::super::objects::NodeObject;

/// Least age of a node whose readiness has changed, after which it counts as one that works, whatever the flag says.
const SETTLED: Duration = Duration::from_secs(30);
/// A node that has not become ready for so long is not waited for any more.
const YOUNG: Duration = Duration::from_mins(10);

/// The node list.
#[derive(Debug)]
pub(crate) struct NodeTable {
    creation_delay: Duration,
    /// Those that jobs may select.
    views: BTreeMap<NodeName, NodeView>,
    /// All of them.
    facts: BTreeMap<NodeName, Facts>,
    /// Those that may become eligible with time.
    young: BTreeSet<NodeName>,
    /// Not yet seen in the list that is being read.
    unlisted: Option<BTreeSet<NodeUid>>,
    complete: bool,
}

#[derive(Debug)]
struct Facts {
    uid: NodeUid,
    ready: bool,
    /// When `ready` last changed.
    ready_since: Option<Timestamp>,
    /// When it becomes eligible if nothing changes; none when it cannot by time alone.
    eligible_at: Option<Timestamp>,
    /// Until when jobs without nodes wait for it.
    young_until: Timestamp,
    /// Taken into `views` when it becomes eligible.
    labels: BTreeMap<String, String>,
    created: Timestamp,
    cordoned: bool,
    trouble: Option<NodeTrouble>,
    /// Of its agent.
    capacity: Capacity,
    /// It stands for a node that does not exist.
    fake: bool,
}

/// What a node's agent can take, and has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// Pulls that it runs at once; 0 is no limit.
    pub(crate) workers: u32,
    /// Tasks that it has and that have not ended.
    pub(crate) tasks: usize,
    pub(crate) answers_probes: bool,
}

impl Capacity {
    fn is_full(self) -> bool {
        self.workers > 0 && self.tasks >= self.workers as usize
    }
}

/// What a change of a node means for others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeChange {
    /// The set of nodes that jobs may select, their labels or their readiness have changed.
    pub(crate) relevant: bool,
    /// A node with this UID exists no longer.
    pub(crate) gone: Option<(NodeName, NodeUid)>,
}

impl NodeTable {
    pub(crate) fn new(creation_delay: Duration) -> Self {
        Self {
            creation_delay,
            views: BTreeMap::new(),
            facts: BTreeMap::new(),
            young: BTreeSet::new(),
            unlisted: None,
            complete: false,
        }
    }

    /// Those that jobs may select.
    pub(crate) fn views(&self) -> &BTreeMap<NodeName, NodeView> {
        &self.views
    }

    /// Whether a list has been read in full.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn uid(&self, name: &NodeName) -> Option<&NodeUid> {
        self.facts.get(name).map(|facts| &facts.uid)
    }

    /// Since when a node is not ready; the beginning of time for one that is not there, or never was.
    pub(crate) fn unready_since(&self, name: &NodeName) -> Option<Timestamp> {
        match self.facts.get(name) {
            Some(facts) if facts.ready => None,
            Some(facts) => Some(facts.ready_since.unwrap_or(Timestamp::MIN)),
            None => Some(Timestamp::MIN),
        }
    }

    /// Whether nodes exist that may soon be selected.
    pub(crate) fn has_young(&self, now: Timestamp) -> bool {
        self.young
            .iter()
            .any(|name| self.facts.get(name).is_some_and(|facts| facts.young_until > now))
    }

    pub(crate) fn begin_list(&mut self) {
        let real = self.facts.values().filter(|facts| !facts.fake);
        self.unlisted = Some(real.map(|facts| facts.uid.clone()).collect());
    }

    /// Ends a list and returns what it lacks.
    pub(crate) fn end_list(&mut self) -> Vec<NodeUid> {
        self.complete = true;
        self.unlisted.take().into_iter().flatten().collect()
    }

    /// Takes a node as it is now.
    pub(crate) fn apply(&mut self, node: NodeObject, now: Timestamp) -> NodeChange {
        if let Some(unlisted) = &mut self.unlisted {
            unlisted.remove(&node.uid);
        }
        let replaced = self.facts.get(&node.name).filter(|facts| facts.uid != node.uid);
        let gone = replaced.map(|facts| (node.name.clone(), facts.uid.clone()));
        if gone.is_some() {
            self.forget(&node.name);
        }
        if node.is_virtual() || node.deleting {
            let known = self.facts.contains_key(&node.name);
            let mut change = if known {
                self.remove(&node.uid)
            } else {
                NodeChange::default()
            };
            change.relevant |= gone.is_some();
            change.gone = change.gone.or(gone);
            return change;
        }
        let relevant = self.store(node, now) || gone.is_some();
        NodeChange { relevant, gone }
    }

    /// Whether anything changed that jobs look at.
    fn store(&mut self, node: NodeObject, now: Timestamp) -> bool {
        let ready = node.ready.is_some_and(|ready| ready.is_true);
        if let Some(view) = self.views.get_mut(&node.name) {
            let facts = self.facts.get_mut(&node.name).expect("each view has its facts");
            let trouble = node.trouble();
            let changed = view.labels != node.labels
                || facts.ready != ready
                || view.cordoned != node.cordoned
                || view.trouble != trouble;
            facts.ready = ready;
            facts.ready_since = node.ready.map(|ready| ready.since);
            view.cordoned = node.cordoned;
            view.trouble = trouble;
            view.labels = node.labels;
            return changed;
        }
        let facts = Facts {
            uid: node.uid.clone(),
            ready,
            ready_since: node.ready.map(|ready| ready.since),
            eligible_at: self.eligible_at(&node),
            young_until: later(node.created, YOUNG.max(self.creation_delay * 2)),
            created: node.created,
            cordoned: node.cordoned,
            trouble: node.trouble(),
            capacity: Capacity::default(),
            fake: false,
            labels: node.labels,
        };
        self.facts.insert(node.name.clone(), facts);
        self.young.insert(node.name);
        self.grow_up(now)
    }

    /// A node counts once it has been Ready for the delay, or if its readiness last changed well after it was made: then it has worked before.
    fn eligible_at(&self, node: &NodeObject) -> Option<Timestamp> {
        let ready = node.ready?;
        let settled = later(node.created, SETTLED.max(self.creation_delay)) <= ready.since;
        match (settled, ready.is_true) {
            (true, _) => Some(Timestamp::MIN),
            (false, true) => Some(later(ready.since, self.creation_delay)),
            (false, false) => None,
        }
    }

    /// Lets nodes in whose time has come. Once in, a node stays until it is deleted, ready or not.
    pub(crate) fn grow_up(&mut self, now: Timestamp) -> bool {
        let grown: Vec<NodeName> = self
            .young
            .iter()
            .filter(|name| {
                self.facts
                    .get(*name)
                    .and_then(|facts| facts.eligible_at)
                    .is_some_and(|at| at <= now)
            })
            .cloned()
            .collect();
        for name in &grown {
            self.young.remove(name);
            let facts = self.facts.get_mut(name).expect("young nodes have facts");
            let view = NodeView {
                uid: facts.uid.clone(),
                labels: std::mem::take(&mut facts.labels),
                agent: AgentView::Away,
                created: facts.created,
                cordoned: facts.cordoned,
                trouble: facts.trouble,
                busy: facts.capacity.is_full(),
                answers_probes: facts.capacity.answers_probes,
            };
            self.views.insert(name.clone(), view);
        }
        !grown.is_empty()
    }

    /// When the next node becomes eligible, or stops being waited for.
    pub(crate) fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let times = |facts: &Facts| {
            [
                facts.eligible_at,
                Some(facts.young_until).filter(|until| *until > now),
            ]
        };
        self.young
            .iter()
            .filter_map(|name| self.facts.get(name))
            .flat_map(times)
            .flatten()
            .min()
    }

    /// Takes a node that stands for one that does not exist, unless that one does exist. None when nothing changed.
    pub(crate) fn apply_fake(&mut self, node: NodeObject, now: Timestamp) -> Option<NodeChange> {
        let name = node.name.clone();
        if self.facts.get(&name).is_some_and(|facts| !facts.fake) {
            return None;
        }
        let change = self.apply(node, now);
        if let Some(facts) = self.facts.get_mut(&name) {
            facts.fake = true;
        }
        Some(change).filter(|change| *change != NodeChange::default())
    }

    /// Takes it away again.
    pub(crate) fn remove_fake(&mut self, name: &NodeName) -> Option<NodeChange> {
        let facts = self.facts.get(name).filter(|facts| facts.fake)?;
        let uid = facts.uid.clone();
        Some(self.remove(&uid))
    }

    /// Takes a node away.
    pub(crate) fn remove(&mut self, uid: &NodeUid) -> NodeChange {
        if let Some(unlisted) = &mut self.unlisted {
            unlisted.remove(uid);
        }
        let name = self
            .facts
            .iter()
            .find(|(_, facts)| facts.uid == *uid)
            .map(|(name, _)| name.clone());
        let Some(name) = name else {
            return NodeChange::default();
        };
        let relevant = self.forget(&name);
        NodeChange {
            relevant,
            gone: Some((name, uid.clone())),
        }
    }

    fn forget(&mut self, name: &NodeName) -> bool {
        self.facts.remove(name);
        self.young.remove(name);
        self.views.remove(name).is_some()
    }

    /// Says how a node's agent stands. Returns whether that is new.
    pub(crate) fn set_agent(&mut self, name: &NodeName, agent: AgentView) -> bool {
        match self.views.get_mut(name) {
            Some(view) if view.agent != agent => {
                view.agent = agent;
                true
            }
            _ => false,
        }
    }

    /// Says what a node's agent can take, and has.
    pub(crate) fn set_capacity(&mut self, name: &NodeName, capacity: Capacity) {
        if let Some(facts) = self.facts.get_mut(name) {
            facts.capacity = capacity;
        }
        if let Some(view) = self.views.get_mut(name) {
            view.busy = capacity.is_full();
            view.answers_probes = capacity.answers_probes;
        }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &NodeName> {
        self.views.keys()
    }
}

fn later(at: Timestamp, span: Duration) -> Timestamp {
    SignedDuration::try_from(span)
        .ok()
        .and_then(|span| at.checked_add(span).ok())
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::super::objects::Ready;
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).expect("a time")
    }

    fn node(name: &str, created: i64, ready: Option<(bool, i64)>) -> NodeObject {
        NodeObject {
            name: name.into(),
            uid: format!("uid-{name}").as_str().into(),
            labels: BTreeMap::new(),
            created: at(created),
            deleting: false,
            ready: ready.map(|(is_true, since)| Ready {
                is_true,
                since: at(since),
            }),
            cordoned: false,
            pressure: None,
        }
    }

    #[test]
    fn a_node_counts_once_it_has_been_ready_for_the_delay_and_then_for_good() {
        let mut table = NodeTable::new(Duration::from_secs(30));
        assert!(!table.apply(node("a", 0, None), at(0)).relevant);
        assert!(table.has_young(at(1)));
        assert!(!table.apply(node("a", 0, Some((true, 5))), at(5)).relevant);
        assert_eq!(table.next_change(at(5)), Some(at(35)));
        assert!(!table.grow_up(at(34)));
        assert!(table.grow_up(at(35)));
        assert!(!table.has_young(at(36)));
        assert!(table.apply(node("a", 0, Some((false, 40))), at(40)).relevant);
        assert!(
            table.views().contains_key(&"a".into()),
            "a node that was ready once stays"
        );
    }

    #[test]
    fn a_node_whose_readiness_changed_late_has_worked_before() {
        let mut table = NodeTable::new(Duration::ZERO);
        assert!(table.apply(node("late", 0, Some((false, 30))), at(31)).relevant);
        assert!(!table.apply(node("never", 0, Some((false, 0))), at(31)).relevant);
        assert!(
            table.apply(node("quick", 30, Some((true, 31))), at(31)).relevant,
            "the delay may be 0"
        );
        assert!(
            !table.has_young(at(601)),
            "nobody waits for ever for a node that never got ready"
        );
    }

    #[test]
    fn virtual_and_leaving_nodes_do_not_count_and_another_uid_is_another_node() {
        let mut table = NodeTable::new(Duration::ZERO);
        let mut kubelet = node("virtual", 0, Some((true, 0)));
        kubelet.labels.insert("type".into(), "virtual-kubelet".into());
        assert_eq!(table.apply(kubelet, at(60)), NodeChange::default());
        table.apply(node("a", 0, Some((true, 0))), at(60));
        let mut again = node("a", 50, Some((true, 55)));
        again.uid = "other".into();
        let change = table.apply(again.clone(), at(60));
        assert_eq!(change.gone, Some(("a".into(), "uid-a".into())));
        assert_eq!(table.uid(&"a".into()), Some(&"other".into()));
        again.deleting = true;
        let change = table.apply(again, at(61));
        assert_eq!(
            change,
            NodeChange {
                relevant: true,
                gone: Some(("a".into(), "other".into()))
            }
        );
        assert!(table.views().is_empty());
    }

    #[test]
    fn what_a_new_list_lacks_is_gone() {
        let mut table = NodeTable::new(Duration::ZERO);
        for name in ["a", "b"] {
            table.apply(node(name, 0, Some((true, 0))), at(60));
        }
        table.begin_list();
        table.apply(node("b", 0, Some((true, 0))), at(60));
        assert_eq!(table.end_list(), vec![NodeUid::from("uid-a")]);
        assert!(table.is_complete());
    }
}
