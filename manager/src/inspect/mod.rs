//! The view for people and their tools: agents, tasks, progress as it happens.
//!
//! Whoever leads answers; another replica verifies the caller and then asks the leader with the caller's own token. Nothing here changes anything.

mod follow;
mod forward;
mod recheck;
mod roots;

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use kruise_api::ids::ObjectKey;
use kruise_proto::inspect::inspect_service_server::{InspectService, InspectServiceServer};
use kruise_proto::inspect::{
    ExplainCloneSetRequest, ExplainCloneSetResponse, ExplainJobRequest, ExplainJobResponse, GetAgentRequest,
    GetAgentResponse, ListAgentsRequest, ListAgentsResponse, ListTasksRequest, ListTasksResponse,
    WatchTasksRequest, WatchTasksResponse,
};
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::cloneset::{Answer, CloneSetHandle};
use crate::dispatch::refuse;
use crate::engine::state::TaskFilter;
use crate::engine::{EngineGone, EngineHandle};
use crate::identity::{DOMAIN, Identity, bearer};
use crate::leader::Leadership;

use forward::Forwarder;
pub use roots::{ConfigMapRoots, Roots};

/// Rows of a page when the caller does not say, and at most.
const PAGE: usize = 500;
const LARGEST_PAGE: usize = 5_000;
/// Requests are a few names.
const MAX_MESSAGE: usize = 64 * 1024;

/// The service.
#[derive(Debug)]
pub struct Inspect {
    engine: EngineHandle,
    clone_sets: CloneSetHandle,
    identity: Identity,
    leadership: Leadership,
    /// Name of this pod.
    me: String,
    forwarder: Forwarder,
}

/// The service as tonic takes it. `me` is this pod's name, `roots` what the leader's certificate is checked against.
#[must_use]
pub fn service(
    engine: EngineHandle,
    clone_sets: CloneSetHandle,
    identity: Identity,
    leadership: Leadership,
    me: String,
    roots: Arc<dyn Roots>,
) -> InspectServiceServer<Inspect> {
    let inspect = Inspect {
        engine,
        clone_sets,
        identity,
        leadership,
        me,
        forwarder: Forwarder::new(roots),
    };
    InspectServiceServer::new(inspect).max_decoding_message_size(MAX_MESSAGE)
}

impl Inspect {
    async fn authorise(&self, metadata: &MetadataMap, resource: &str, verb: &str) -> Result<(), Status> {
        let person = self.identity.person(bearer(metadata)?).await?;
        self.identity.allowed(&person, resource, verb).await?;
        Ok(())
    }

    /// None when this replica leads; otherwise a client of the one that does.
    async fn leader(&self, metadata: &MetadataMap) -> Result<Option<forward::Leader>, Status> {
        match self.leadership.check() {
            Ok(_) => Ok(None),
            Err(error) => self.forwarder.leader(error.leader, metadata).await.map(Some),
        }
    }

    fn gone(&self, gone: EngineGone) -> Status {
        match gone {
            EngineGone::NotLeading => {
                let leader = self.leadership.check().err().and_then(|error| error.leader);
                refuse::not_leader(leader.as_ref())
            }
            EngineGone::Busy => status(Code::ResourceExhausted, "BUSY", gone.to_string()),
        }
    }
}

/// A status with its reason.
fn status(code: Code, reason: &str, message: impl Into<String>) -> Status {
    Status::with_error_details(code, message, ErrorDetails::with_error_info(reason, DOMAIN, []))
}

fn no_such_job(job: &str) -> Status {
    status(
        Code::NotFound,
        "NO_SUCH_JOB",
        format!("there is no ImagePullJob {job}"),
    )
}

fn page_size(wanted: u32) -> usize {
    match wanted {
        0 => PAGE,
        size => usize::try_from(size).unwrap_or(LARGEST_PAGE).min(LARGEST_PAGE),
    }
}

/// Reads "namespace/name".
fn key(text: &str) -> Option<ObjectKey> {
    let (namespace, name) = text.split_once('/')?;
    let one_each = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
    one_each.then(|| ObjectKey::new(namespace, name))
}

/// What a caller sent, as far as an error says it back.
fn cut(text: &str) -> String {
    text.chars().take(300).collect()
}

fn job_key(text: &str) -> Result<ObjectKey, Status> {
    key(text).ok_or_else(|| {
        let message = format!(
            "job is {:?}; give namespace/name, or leave it empty for all jobs",
            cut(text)
        );
        status(Code::InvalidArgument, "BAD_JOB", message)
    })
}

fn clone_set_key(text: &str) -> Result<ObjectKey, Status> {
    key(text).ok_or_else(|| {
        let message = format!("clone_set is {:?}; give namespace/name", cut(text));
        status(Code::InvalidArgument, "BAD_CLONE_SET", message)
    })
}

fn filter(job: &str, node: &str) -> Result<TaskFilter, Status> {
    let job = if job.is_empty() {
        None
    } else {
        Some(job_key(job)?.to_string())
    };
    Ok(TaskFilter {
        job,
        node: (!node.is_empty()).then(|| node.into()),
    })
}

#[tonic::async_trait]
impl InspectService for Inspect {
    type WatchTasksStream = Pin<Box<dyn Stream<Item = Result<WatchTasksResponse, Status>> + Send>>;

    async fn list_agents(
        &self,
        request: Request<ListAgentsRequest>,
    ) -> Result<Response<ListAgentsResponse>, Status> {
        self.authorise(request.metadata(), "agents", "get").await?;
        if let Some(mut leader) = self.leader(request.metadata()).await? {
            return leader
                .client
                .list_agents(leader.request(request.into_inner()))
                .await;
        }
        let ListAgentsRequest {
            page_size: size,
            page_token,
        } = request.into_inner();
        let (page, epoch) = self
            .engine
            .agents(page_token, page_size(size))
            .await
            .map_err(|gone| self.gone(gone))?;
        Ok(Response::new(ListAgentsResponse {
            agents: page.agents,
            next_page_token: page.next.unwrap_or_default(),
            epoch: epoch.0,
            leader: self.me.clone(),
        }))
    }

    async fn get_agent(
        &self,
        request: Request<GetAgentRequest>,
    ) -> Result<Response<GetAgentResponse>, Status> {
        self.authorise(request.metadata(), "agents", "get").await?;
        if let Some(mut leader) = self.leader(request.metadata()).await? {
            return leader
                .client
                .get_agent(leader.request(request.into_inner()))
                .await;
        }
        let name = request.into_inner().node_name;
        let found = self
            .engine
            .agent(name.as_str().into())
            .await
            .map_err(|gone| self.gone(gone))?;
        let Some((agent, tasks)) = found else {
            let name: String = name.chars().take(253).collect();
            return Err(status(
                Code::NotFound,
                "NO_SUCH_NODE",
                format!("there is no node {name:?}"),
            ));
        };
        Ok(Response::new(GetAgentResponse {
            agent: Some(agent),
            tasks,
        }))
    }

    async fn list_tasks(
        &self,
        request: Request<ListTasksRequest>,
    ) -> Result<Response<ListTasksResponse>, Status> {
        self.authorise(request.metadata(), "tasks", "get").await?;
        if let Some(mut leader) = self.leader(request.metadata()).await? {
            return leader
                .client
                .list_tasks(leader.request(request.into_inner()))
                .await;
        }
        let ListTasksRequest {
            job,
            node_name,
            page_size: size,
            page_token,
        } = request.into_inner();
        let filter = filter(&job, &node_name)?;
        let page = self
            .engine
            .tasks(filter, page_token, page_size(size))
            .await
            .map_err(|gone| self.gone(gone))?;
        Ok(Response::new(ListTasksResponse {
            tasks: page.tasks,
            next_page_token: page.next.unwrap_or_default(),
        }))
    }

    async fn explain_job(
        &self,
        request: Request<ExplainJobRequest>,
    ) -> Result<Response<ExplainJobResponse>, Status> {
        self.authorise(request.metadata(), "tasks", "get").await?;
        if let Some(mut leader) = self.leader(request.metadata()).await? {
            return leader
                .client
                .explain_job(leader.request(request.into_inner()))
                .await;
        }
        let ExplainJobRequest { job, node_name } = request.into_inner();
        let key = job_key(&job)?;
        let node = (!node_name.is_empty()).then(|| node_name.as_str().into());
        // A job of this moment is known to the API server first.
        if !self
            .engine
            .find_job(key.clone())
            .await
            .map_err(|gone| self.gone(gone))?
        {
            return Err(no_such_job(&job));
        }
        let explained = self
            .engine
            .explain(key, node)
            .await
            .map_err(|gone| self.gone(gone))?;
        explained.map(Response::new).ok_or_else(|| no_such_job(&job))
    }

    async fn explain_clone_set(
        &self,
        request: Request<ExplainCloneSetRequest>,
    ) -> Result<Response<ExplainCloneSetResponse>, Status> {
        self.authorise(request.metadata(), "clonesets", "get").await?;
        if let Some(mut leader) = self.leader(request.metadata()).await? {
            return leader
                .client
                .explain_clone_set(leader.request(request.into_inner()))
                .await;
        }
        let key = clone_set_key(&request.into_inner().clone_set)?;
        let answer = self
            .clone_sets
            .explain(key.clone())
            .await
            .map_err(|gone| self.gone(gone))?;
        match answer {
            Answer::Explained(told) => Ok(Response::new(*told)),
            Answer::Unknown => Err(status(
                Code::NotFound,
                "NO_SUCH_CLONE_SET",
                format!("there is no CloneSet {key}"),
            )),
            Answer::Starting => Err(status(
                Code::Unavailable,
                "STARTING",
                "the leader still reads the cluster; try again in a few seconds",
            )),
        }
    }

    async fn watch_tasks(
        &self,
        request: Request<WatchTasksRequest>,
    ) -> Result<Response<Self::WatchTasksStream>, Status> {
        self.authorise(request.metadata(), "tasks", "watch").await?;
        if let Some(mut leader) = self.leader(request.metadata()).await? {
            let stream = leader
                .client
                .watch_tasks(leader.request(request.into_inner()))
                .await?;
            return Ok(stream.map(|stream| Box::pin(stream) as Self::WatchTasksStream));
        }
        let caller = recheck::Caller {
            identity: self.identity.clone(),
            token: bearer(request.metadata())?.to_owned(),
            resource: "tasks",
            verb: "watch",
            peer: crate::dispatch::peer(&request),
        };
        let WatchTasksRequest {
            job,
            node_name,
            until_done,
        } = request.into_inner();
        let filter = filter(&job, &node_name)?;
        if until_done && filter.job.is_none() {
            return Err(status(
                Code::InvalidArgument,
                "JOB_WANTED",
                "until_done needs a job",
            ));
        }
        if filter.job.is_some() {
            let key = job_key(&job)?;
            if !self.engine.find_job(key).await.map_err(|gone| self.gone(gone))? {
                return Err(no_such_job(&job));
            }
        }
        let watched = self
            .engine
            .watch(filter.clone())
            .await
            .map_err(|gone| self.gone(gone))?;
        let stream = follow::stream(watched, filter, until_done);
        Ok(Response::new(Box::pin(recheck::rechecked(stream, caller))))
    }
}

#[cfg(test)]
mod tests;
