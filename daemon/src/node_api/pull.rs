//! PullImage: a task of this call alone, and how it goes.

use std::time::Duration;

use kruise_api::reference::ImageRef;
use kruise_proto::convert;
use kruise_proto::dispatch::{self, PullImage};
use kruise_proto::node::{PullImageRequest, PullImageResponse};
use tokio::sync::mpsc;
use tonic::Status;

use super::refuse;
use crate::clock::Clock;
use crate::puller::board::{Board, Follower, News};
use crate::puller::here::Here;
use crate::puller::order::Order;

/// See the contract.
const MAX_IMAGE: usize = 1024;
const MAX_RETRIES: u32 = 100;
const MAX_CREDENTIALS: usize = 16;
const MAX_SECRET: usize = 16 << 10;
const TIMES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(24 * 3600));

/// Who takes turns with the jobs of the manager.
const REQUESTED_BY: &str = "local";

/// An order as for a task of the manager. Its id is made by whoever takes it.
pub(super) fn order(request: PullImageRequest) -> Result<Order, Status> {
    let PullImageRequest {
        image,
        policy,
        attempt_timeout,
        backoff_limit,
        deadline,
        credentials,
    } = request;
    if image.len() > MAX_IMAGE {
        return Err(refuse::out_of_bounds("image", "at most 1024 bytes long"));
    }
    let image = ImageRef::parse(&image).map_err(|error| refuse::invalid_reference(&error))?;
    within("attempt_timeout", attempt_timeout.as_ref())?;
    within("deadline", deadline.as_ref())?;
    if backoff_limit > MAX_RETRIES {
        return Err(refuse::out_of_bounds("backoff_limit", "at most 100"));
    }
    let too_long = |credential: &dispatch::Credential| {
        let dispatch::Credential {
            username,
            password,
            identity_token,
            registry_token,
        } = credential;
        [username, password, identity_token, registry_token]
            .iter()
            .any(|text| text.len() > MAX_SECRET)
    };
    if credentials.len() > MAX_CREDENTIALS || credentials.iter().any(too_long) {
        return Err(refuse::out_of_bounds(
            "credentials",
            "at most 16, none longer than 16 KiB",
        ));
    }
    let pull = PullImage {
        image: image.canonical().to_owned(),
        policy,
        attempt_timeout,
        backoff_limit,
        deadline,
        credentials,
        requested_by: REQUESTED_BY.to_owned(),
        traceparent: String::new(),
        ..PullImage::default()
    };
    Ok(Order::from(dispatch::Order {
        task_id: String::new(),
        work: Some(dispatch::order::Work::PullImage(pull)),
    }))
}

fn within(field: &str, time: Option<&prost_types::Duration>) -> Result<(), Status> {
    let Some(time) = time else { return Ok(()) };
    match convert::from_duration(time) {
        Some(time) if (TIMES.0..=TIMES.1).contains(&time) => Ok(()),
        _ => Err(refuse::out_of_bounds(field, "from 1 s to 24 h")),
    }
}

/// Tells how a task goes, to its end. Leaving it earlier cancels it, since nobody else holds it.
pub(super) async fn follow(
    task: Here,
    clock: Clock,
    sender: mpsc::Sender<Result<PullImageResponse, Status>>,
) {
    let mut follower = Follower::default();
    let mut board = task.board();
    loop {
        // First the room, then the news: what waits for a slow reader is the latest state.
        let Ok(room) = sender.reserve().await else { return };
        let own = Board(
            board
                .borrow_and_update()
                .0
                .get_key_value(task.id())
                .map(|(id, status)| (id.clone(), status.clone()))
                .into_iter()
                .collect(),
        );
        let (news, again) = follower.next(&own, clock.now_mono());
        match news {
            Some(News::Task(status)) => {
                let phase = convert::phase_from_number(status.phase);
                let response = PullImageResponse {
                    task: Some(status.as_ref().clone()),
                };
                room.send(Ok(response));
                if phase.is_final() {
                    if phase == kruise_planner::task::Phase::Failed {
                        let _ = sender.send(Err(refuse::pull_failed(&status))).await;
                    }
                    return;
                }
            }
            Some(News::Gone(_)) => return room.send(Err(refuse::stopping())),
            None => {
                drop(room);
                let due = async {
                    match again {
                        Some(again) => clock.sleep_until(again).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    changed = board.changed() => if changed.is_err() {
                        let _ = sender.send(Err(refuse::stopping())).await;
                        return;
                    },
                    () = due => {}
                    () = sender.closed() => return,
                }
            }
        }
    }
}
