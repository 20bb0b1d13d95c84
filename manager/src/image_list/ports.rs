//! What the controller needs of the world, so that tests stand in for a cluster.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use kruise_api::ids::JobUid;
use kruise_planner::image_list_job::{ChildPatch, ListEvent, NewChild};
use serde_json::Value;

use super::objects::{ChildObject, ListObject};
use crate::engine::objects::Listing;
use crate::kubeapi::ApiFailure;

/// Answer to one request.
pub(crate) type Answer<T> = BoxFuture<'static, Result<T, ApiFailure>>;

/// Lists and their jobs at the API server.
pub(crate) trait Lists: Send + Sync + 'static {
    /// All lists. Begins with a list that is as new as the moment of the call, heals itself, and never ends.
    fn lists(&self) -> BoxStream<'static, Listing<ListObject, JobUid>>;
    /// All jobs that lists control, likewise.
    fn children(&self) -> BoxStream<'static, Listing<ChildObject, JobUid>>;
    /// Makes a job. One that is there already and belongs to the list is as good as made.
    fn create(&self, list: ListObject, child: NewChild) -> Answer<ChildObject>;
    /// Changes a job.
    fn patch(&self, list: ListObject, patch: ChildPatch) -> Answer<()>;
    /// Deletes a job of this UID; one that is gone is as good as deleted.
    fn delete_child(&self, list: ListObject, uid: JobUid, name: String) -> Answer<()>;
    /// Deletes a list.
    fn delete(&self, list: ListObject) -> Answer<()>;
    /// Takes OpenKruise's finalizer off.
    fn strip_finalizer(&self, list: ListObject) -> Answer<ListObject>;
    /// Patches the status of this version of a list.
    fn write_status(&self, list: ListObject, patch: Value) -> Answer<ListObject>;
    /// Tells an event.
    fn record(&self, list: ListObject, event: ListEvent) -> Answer<()>;
    /// Time of the API server.
    fn now(&self) -> Timestamp;
}
