//! Bodies of answers on their way through the front: counted, paced, cut short or changed.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::Stream;
use futures::stream::{self, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use tokio::time::{sleep, sleep_until};

use super::fault::Fault;
use super::log::Entry;

pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Bytes are passed on in pieces no larger than this, so that counts and limits are fine-grained.
const PIECE: usize = 16 * 1024;

/// A rate in bytes per second, kept by whoever sends next.
#[derive(Debug)]
pub(super) struct Pace {
    rate: u64,
    next: Option<Instant>,
}

impl Pace {
    pub(super) fn new(rate: u64) -> Self {
        Self {
            rate: rate.max(1),
            next: None,
        }
    }

    /// When a piece of this size has had its time.
    fn due(&mut self, size: usize) -> Instant {
        let now = Instant::now();
        let begin = self.next.map_or(now, |next| next.max(now));
        let due = begin + Duration::from_secs_f64(size as f64 / self.rate as f64);
        self.next = Some(due);
        due
    }
}

/// What is to happen to one body.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) paces: Vec<Arc<Mutex<Pace>>>,
    pub(super) fault: Option<Fault>,
}

impl Plan {
    fn piece(&self) -> usize {
        // A slow body moves twenty times a second rather than in leaps.
        let slowest = self
            .paces
            .iter()
            .map(|p| p.lock().unwrap_or_else(PoisonError::into_inner).rate)
            .min();
        let twentieth = usize::try_from(slowest.unwrap_or(u64::MAX) / 20).unwrap_or(PIECE);
        twentieth.clamp(1, PIECE)
    }

    /// The number of bytes after which the body ends in one way or another.
    fn limit(&self) -> Option<u64> {
        match self.fault {
            Some(Fault::ResetAfter(n) | Fault::StallAfter(n) | Fault::Truncate(n)) => Some(n),
            _ => None,
        }
    }
}

/// The body as the client gets it. The log entry lives in it and ends with it.
pub(super) fn through(incoming: Incoming, plan: Plan, entry: Entry) -> Body {
    let piece = plan.piece();
    let pieces = BodyStream::new(incoming)
        .map(|frame| frame.map_err(io::Error::other))
        .flat_map(move |frame| {
            stream::iter(match frame {
                Ok(frame) => match frame.into_data() {
                    Ok(data) => split(data, piece).map(Ok).collect(),
                    // Trailers mean nothing in this protocol.
                    Err(_) => Vec::new(),
                },
                Err(error) => vec![Err(error)],
            })
        });
    let state = Transfer {
        pieces: Box::pin(pieces),
        plan,
        entry,
        sent: 0,
    };
    let frames = stream::try_unfold(state, |mut state| async move {
        let next = state.next().await?;
        Ok(next.map(|data| (Frame::data(data), state)))
    });
    StreamBody::new(frames).boxed_unsync()
}

fn split(mut data: Bytes, piece: usize) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || (!data.is_empty()).then(|| data.split_to(piece.min(data.len()))))
}

struct Transfer<S> {
    pieces: std::pin::Pin<Box<S>>,
    plan: Plan,
    entry: Entry,
    sent: u64,
}

impl<S: Stream<Item = io::Result<Bytes>>> Transfer<S> {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let Some(piece) = self.pieces.next().await else {
            return Ok(None);
        };
        let mut piece = piece?;
        if let Some(limit) = self.plan.limit() {
            let left = usize::try_from(limit - self.sent).unwrap_or(usize::MAX);
            if left == 0 {
                return self.end().await;
            }
            piece.truncate(left);
        }
        for pace in &self.plan.paces {
            let due = pace
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .due(piece.len());
            sleep_until(due.into()).await;
        }
        if matches!(self.plan.fault, Some(Fault::Corrupt)) && self.sent == 0 {
            piece = corrupt(&piece);
        }
        self.sent += piece.len() as u64;
        self.entry.update(|access| access.bytes = self.sent);
        Ok(Some(piece))
    }

    /// What comes after the last byte that a fault allows.
    async fn end(&self) -> io::Result<Option<Bytes>> {
        match self.plan.fault {
            Some(Fault::StallAfter(_)) => std::future::pending().await,
            Some(Fault::ResetAfter(_)) => {
                // What was sent must have left before the reset discards it.
                sleep(Duration::from_millis(50)).await;
                Err(io::ErrorKind::ConnectionReset.into())
            }
            _ => Ok(None),
        }
    }
}

/// Changes one byte, not the first ones, so that a compressed layer still looks like one.
fn corrupt(piece: &Bytes) -> Bytes {
    let mut changed = piece.to_vec();
    let place = changed.len() / 2;
    if let Some(byte) = changed.get_mut(place) {
        *byte ^= 0x01;
    }
    Bytes::from(changed)
}
