//! The order by which a node is asked for an image that a pod waits for.

use std::time::Duration;

use kruise_api::image_pull_job::options::priority;
use kruise_api::reference::ImageRef;
use kruise_proto::convert::to_duration;
use kruise_proto::dispatch::{Order, PullImage, order, pull_image};

use super::event::PullAsk;
use super::ports::Cluster;

/// The agent goes on by itself for as long as somebody waits: the question is taken back when nobody does.
const RETRIES: u32 = 100;
/// For the whole task, should nobody ever take it back.
const DEADLINE: Duration = Duration::from_secs(24 * 3600);

/// The order, with what the pod would log in with. The error is for people.
pub(super) async fn order(cluster: &dyn Cluster, ask: &PullAsk) -> Result<Order, String> {
    let image = ImageRef::parse(&ask.image).map_err(|error| error.to_string())?;
    let credentials = cluster
        .log_ins(ask.namespace.clone(), ask.pod.clone(), image.clone())
        .await?;
    let policy = if ask.always {
        pull_image::Policy::Always
    } else {
        pull_image::Policy::IfNotPresent
    };
    let pull = PullImage {
        image: image.canonical().to_owned(),
        policy: policy.into(),
        attempt_timeout: Some(to_duration(ask.timeout)),
        backoff_limit: RETRIES,
        deadline: Some(to_duration(DEADLINE)),
        credentials,
        requested_by: format!("{}/{}", ask.namespace, ask.set),
        priority: priority::WORKLOAD,
        traceparent: ask.traceparent.clone(),
        ..PullImage::default()
    };
    Ok(Order {
        task_id: ask.task.to_string(),
        work: Some(order::Work::PullImage(pull)),
    })
}
