//! What goes into the state and what comes out of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kruise_api::clone_set::CloneSet;
use kruise_api::ids::{JobUid, NodeName, TaskId};
use kruise_planner::cloneset::{Action, PlanEvent};
use kruise_proto::dispatch::Order;
use serde_json::Value;

use super::objects::Object;
use super::ports::{PodName, Told};
use super::space::Kind;
use crate::engine::guests::GuestNode;
use crate::kubeapi::ApiFailure;

/// A moment, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Of this process.
    pub(crate) mono: Duration,
    /// Of the API server.
    pub(crate) wall: Timestamp,
}

/// Something has happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// A list of a kind begins.
    Begin(Kind),
    /// An object was listed, made or changed.
    Told {
        /// Its namespace.
        namespace: String,
        /// The object.
        object: Object,
    },
    /// A list of a kind is complete.
    Complete(Kind),
    /// An object is gone.
    Deleted {
        /// Of this kind.
        kind: Kind,
        /// In this namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Labels of a node; none when it is gone.
    Node {
        /// Name of the node.
        name: String,
        /// Its labels.
        labels: Option<BTreeMap<String, String>>,
    },
    /// What an agent holds and says.
    Agent(NodeName, GuestNode),
    /// An agent could not be asked for an image.
    NotAsked {
        /// The question.
        task: TaskId,
        /// Why.
        problem: String,
    },
    /// A pass has ended.
    Done(Outcome),
    /// An object was asked for.
    Found {
        /// Of this kind.
        kind: Kind,
        /// In this namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The object; none when it does not exist.
        result: Result<Option<Object>, ApiFailure>,
    },
}

/// A node is asked to make an image present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PullAsk {
    /// Identity of the question.
    pub(crate) task: TaskId,
    /// Node.
    pub(crate) node: NodeName,
    /// As the template writes it.
    pub(crate) image: String,
    /// Whether the registry is to be asked although the image may be there.
    pub(crate) always: bool,
    /// Namespace of the set.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) set: String,
    /// A pod that waits, whose pull secrets are used.
    pub(crate) pod: String,
    /// Time of one attempt.
    pub(crate) timeout: Duration,
    /// Jobs that may bring the image.
    pub(crate) behind: Vec<JobUid>,
    /// The trace of the update that it is a part of; empty if nobody traces it.
    pub(crate) traceparent: String,
}

/// Something is to be done.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Ask a node for an image.
    Ask(PullAsk),
    /// A node is asked how long containers were down.
    Question {
        /// Node.
        node: NodeName,
        /// The question, as an order that stops nothing.
        order: Box<Order>,
    },
    /// Tell an event about a pod.
    Tell {
        /// The pod.
        pod: PodName,
        /// The event.
        event: Told,
    },
    /// A node may forget a question.
    Release {
        /// Node.
        node: NodeName,
        /// The question.
        task: TaskId,
    },
    /// Carry out a plan.
    Pass(Pass),
    /// Ask for an object.
    Find {
        /// Of this kind.
        kind: Kind,
        /// In this namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Follow the labels of nodes from now on: a template spreads its pods by them.
    WatchNodes,
    /// Follow pods, claims, revisions, jobs and requests from now on: there is a set.
    WatchAll,
}

/// A plan to carry out, with all that its actions speak of.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    /// The set.
    pub(crate) set: Arc<CloneSet>,
    /// What to do, in order.
    pub(crate) actions: Vec<Action>,
    /// What to tell.
    pub(crate) events: Vec<PlanEvent>,
    /// Merge patch of the status, when it is to be written.
    pub(crate) status: Option<Value>,
    /// UIDs and versions of the objects that the actions change, by kind and name.
    pub(crate) seen: BTreeMap<(Kind, String), Seen>,
    /// Data of revisions by name, the one of the template included.
    pub(crate) revisions: BTreeMap<String, Arc<Value>>,
    /// How a change in place is worked out.
    pub(crate) gates: kruise_planner::cloneset::Gates,
}

/// An object as the plan saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// UID.
    pub(crate) uid: String,
    /// Version.
    pub(crate) version: String,
}

/// What came of a pass.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// UID of the set.
    pub(crate) set: String,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Objects as the writes left them.
    pub(crate) made: Vec<Object>,
    /// Objects that are gone: kind, name, UID.
    pub(crate) gone: Vec<(Kind, String, String)>,
    /// Objects of which nobody knows whether they were written, or that are another than the plan saw.
    pub(crate) unsure: Vec<(Kind, String)>,
    /// Steps that had something to do.
    pub(crate) tried: Vec<Step>,
    /// What went wrong.
    pub(crate) failures: Vec<Failed>,
    /// Whether the status was written.
    pub(crate) status_written: bool,
}

/// A write that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    /// What it was about.
    pub(crate) kind: Kind,
    /// Name of the object.
    pub(crate) name: String,
    /// Which step it belongs to.
    pub(crate) step: Step,
    /// Why.
    pub(crate) failure: ApiFailure,
}

/// Steps of a pass whose failures are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Pods and claims are added.
    Create,
    /// Pods and claims are taken away.
    Delete,
    /// Pods are changed.
    Update,
    /// Requests to restart containers are made.
    Restart,
    /// Revisions, jobs, the set itself.
    Keep,
}
