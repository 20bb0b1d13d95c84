//! What this node's agent does and sees, for people on the node.

pub mod socket;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kruise_proto::node::node_service_server::{NodeService, NodeServiceServer};
use kruise_proto::node::{
    GetAgentRequest, GetAgentResponse, ListTasksRequest, ListTasksResponse, WatchTasksRequest,
    WatchTasksResponse, watch_tasks_response,
};
use kruise_proto::{FILE_DESCRIPTOR_SET, convert};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::clock::Clock;
use crate::puller::board::{Board, Follower, News};
use crate::runtime::Link;
use crate::session::View;

/// Messages between a watch and its reader; the latest state waits where it is until there is room.
const WATCH_QUEUE: usize = 4;

/// What the service looks at. It changes nothing.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Node that the agent acts for.
    pub node_name: String,
    /// Clocks.
    pub clock: Clock,
    /// Tasks.
    pub board: watch::Receiver<Board>,
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
    Ok(Routes::new(NodeServiceServer::new(Node {
        sources: Arc::new(sources),
    }))
    .add_service(health)
    .add_service(reflection().build_v1()?)
    .add_service(reflection().build_v1alpha()?))
}

#[derive(Debug)]
struct Node {
    sources: Arc<Sources>,
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
