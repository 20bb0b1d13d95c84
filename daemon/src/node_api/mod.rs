//! What this node's agent does and sees, for people on the node.

mod pull;
mod refuse;
mod restart;
pub mod socket;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kruise_proto::node::node_service_server::{NodeService, NodeServiceServer};
use kruise_proto::node::{
    GetAgentRequest, GetAgentResponse, Image, ListImagesRequest, ListImagesResponse, ListTasksRequest,
    ListTasksResponse, PullImageRequest, PullImageResponse, RestartContainerRequest,
    RestartContainerResponse, WatchTasksRequest, WatchTasksResponse, watch_tasks_response,
};
use kruise_proto::{FILE_DESCRIPTOR_SET, convert};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::clock::Clock;
use crate::puller::board::{Board, Follower, News};
use crate::puller::here::MAX_HERE;
use crate::puller::{Puller, Refused};
use crate::runtime::{Link, Runtime};
use crate::session::View;

use self::restart::{Restart, UnderWay};

/// Messages between a watch and its reader; the latest state waits where it is until there is room.
const WATCH_QUEUE: usize = 4;

/// Largest request: a pull with as many log-ins as it may have.
const MAX_REQUEST: usize = 2 << 20;

/// What the service looks at, and who does what it is asked for.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Node that the agent acts for.
    pub node_name: String,
    /// Clocks.
    pub clock: Clock,
    /// Tasks.
    pub board: watch::Receiver<Board>,
    /// Who pulls.
    pub puller: Puller,
    /// Container runtime.
    pub link: watch::Receiver<Link>,
    /// Contact with the manager.
    pub view: watch::Receiver<View>,
}

/// The service with health and reflection.
///
/// # Errors
/// The contracts that were compiled in cannot be read.
pub async fn routes(sources: Sources) -> Result<Routes, tonic_reflection::server::Error> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<NodeServiceServer<Node>>().await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // The set has the manager's services too; they do not answer here.
            .with_service_name("kruise.node.v1.NodeService")
            .with_service_name("grpc.health.v1.Health")
    };
    let node = Node {
        sources: Arc::new(sources),
        under_way: UnderWay::default(),
    };
    Ok(
        Routes::new(NodeServiceServer::new(node).max_decoding_message_size(MAX_REQUEST))
            .add_service(health)
            .add_service(reflection().build_v1()?)
            .add_service(reflection().build_v1alpha()?),
    )
}

#[derive(Debug)]
struct Node {
    sources: Arc<Sources>,
    under_way: UnderWay,
}

impl Node {
    fn runtime(&self) -> Result<Arc<dyn Runtime>, Status> {
        let link = self.sources.link.borrow();
        link.runtime()
            .map(Arc::clone)
            .ok_or_else(|| refuse::no_runtime(&link))
    }
}

#[tonic::async_trait]
impl NodeService for Node {
    async fn get_agent(&self, _: Request<GetAgentRequest>) -> Result<Response<GetAgentResponse>, Status> {
        let Sources {
            node_name,
            clock,
            link,
            view,
            ..
        } = &*self.sources;
        let view = view.borrow().clone();
        let (runtime, disk, sockets_tried) = match &*link.borrow() {
            Link::Up { info, disk, .. } => (Some(info.clone()), *disk, Vec::new()),
            Link::Down { tried } => (
                None,
                None,
                tried
                    .iter()
                    .map(|tried| format!("{}: {}", tried.socket, tried.error))
                    .collect(),
            ),
        };
        let ago = view
            .last_contact
            .map(|last| convert::to_duration(clock.now_mono().saturating_sub(last)));
        Ok(Response::new(GetAgentResponse {
            node_name: node_name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime,
            disk,
            contact: view.contact.into(),
            manager: view.manager,
            last_contact_ago: ago,
            epoch: view.epoch,
            generation: view.generation,
            last_error: view.last_error,
            sockets_tried,
        }))
    }

    async fn list_tasks(&self, _: Request<ListTasksRequest>) -> Result<Response<ListTasksResponse>, Status> {
        let board = self.sources.board.borrow();
        let tasks = board.0.values().map(|status| status.as_ref().clone()).collect();
        Ok(Response::new(ListTasksResponse { tasks }))
    }

    type WatchTasksStream = BoxStream<'static, Result<WatchTasksResponse, Status>>;

    async fn watch_tasks(
        &self,
        _: Request<WatchTasksRequest>,
    ) -> Result<Response<Self::WatchTasksStream>, Status> {
        let (sender, events) = mpsc::channel(WATCH_QUEUE);
        tokio::spawn(follow(
            self.sources.board.clone(),
            self.sources.clock.clone(),
            sender,
        ));
        Ok(Response::new(ReceiverStream::new(events).map(Ok).boxed()))
    }

    async fn list_images(
        &self,
        _: Request<ListImagesRequest>,
    ) -> Result<Response<ListImagesResponse>, Status> {
        let runtime = self.runtime()?;
        let machine = runtime
            .machine()
            .ok_or_else(|| refuse::no_runtime(&self.sources.link.borrow()))?;
        let mut images = machine.images().await.map_err(|error| refuse::runtime(&error))?;
        images.sort_by(|a, b| {
            let key = |image: &Image| image.repo_tags.first().or(image.repo_digests.first()).cloned();
            (key(a), &a.id).cmp(&(key(b), &b.id))
        });
        Ok(Response::new(ListImagesResponse { images }))
    }

    type PullImageStream = BoxStream<'static, Result<PullImageResponse, Status>>;

    async fn pull_image(
        &self,
        request: Request<PullImageRequest>,
    ) -> Result<Response<Self::PullImageStream>, Status> {
        let order = pull::order(request.into_inner())?;
        let task = self
            .sources
            .puller
            .pull_here(order)
            .await
            .map_err(|refused| match refused {
                Refused::TooManyHere => refuse::too_many("pulls", MAX_HERE),
                _ => refuse::stopping(),
            })?;
        let (sender, events) = mpsc::channel(WATCH_QUEUE);
        tokio::spawn(pull::follow(task, self.sources.clock.clone(), sender));
        Ok(Response::new(ReceiverStream::new(events).boxed()))
    }

    type RestartContainerStream = BoxStream<'static, Result<RestartContainerResponse, Status>>;

    async fn restart_container(
        &self,
        request: Request<RestartContainerRequest>,
    ) -> Result<Response<Self::RestartContainerStream>, Status> {
        let (runtime, clock) = (self.runtime()?, self.sources.clock.clone());
        let restart = Restart::new(runtime, clock, &self.under_way, request.into_inner()).await?;
        let (sender, stages) = mpsc::channel(WATCH_QUEUE);
        tokio::spawn(restart.run(sender));
        Ok(Response::new(ReceiverStream::new(stages).boxed()))
    }
}

/// Tells a reader of the tasks until it goes away.
async fn follow(mut board: watch::Receiver<Board>, clock: Clock, sender: mpsc::Sender<WatchTasksResponse>) {
    let mut follower = Follower::default();
    loop {
        // First the room, then the news: what waits for a slow reader is the latest state.
        let Ok(room) = sender.reserve().await else { return };
        let (news, again) = follower.next(&board.borrow_and_update(), clock.now_mono());
        let event = match news {
            Some(News::Task(status)) => watch_tasks_response::Event::Task(status.as_ref().clone()),
            Some(News::Gone(id)) => watch_tasks_response::Event::Gone(id.as_str().to_owned()),
            None => {
                drop(room);
                let due = async {
                    match again {
                        Some(again) => clock.sleep_until(again).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    changed = board.changed() => if changed.is_err() { return },
                    () = due => {}
                    () = sender.closed() => return,
                }
                continue;
            }
        };
        room.send(WatchTasksResponse { event: Some(event) });
    }
}
