//! What all calls and workers of an agent share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kruise_api::reference::ImageRef;
use kruise_planner::node::stall::Rules;
use tokio::sync::watch;

use super::calls::Calls;
use super::gate::Gate;
use crate::clock::Clock;
use crate::credentials::Keychain;
use crate::metrics::Metrics;
use crate::runtime::{Link, Runtime};

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) link: watch::Receiver<Link>,
    pub(super) gate: Arc<Gate>,
    pub(super) calls: Calls,
    pub(super) rules: Rules,
    pub(super) keychain: Keychain,
    pub(super) promises: Promises,
    pub(super) books: Books,
}

impl Shared {
    /// Waits for the runtime; none when nobody looks for one any more.
    pub(super) async fn runtime(&self) -> Option<Arc<dyn Runtime>> {
        let mut link = self.link.clone();
        let up = link.wait_for(|link| link.runtime().is_some()).await.ok()?;
        up.runtime().map(Arc::clone)
    }
}

/// Bytes of the disk that running pulls will still take.
#[derive(Debug, Default)]
pub(super) struct Promises(Mutex<BTreeMap<String, u64>>);

impl Promises {
    pub(super) fn promise(&self, image: &str, bytes: u64) {
        self.lock().insert(image.to_owned(), bytes);
    }

    pub(super) fn forget(&self, image: &str) {
        self.lock().remove(image);
    }

    pub(super) fn of_others(&self, image: &str) -> u64 {
        let promises = self.lock();
        let others = promises.iter().filter(|(other, _)| *other != image);
        others.fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many bytes of each image have been counted, so that each is counted once whoever wanted it and however often it was tried.
#[derive(Debug)]
pub(super) struct Books {
    metrics: Arc<Metrics>,
    counted: Mutex<BTreeMap<String, Book>>,
}

#[derive(Clone, Copy, Debug)]
struct Book {
    wanted: jiff::Timestamp,
    counted: u64,
}

impl Books {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            counted: Mutex::default(),
        }
    }

    /// Opens the book of an image, unless it is open. Since when its bytes count.
    pub(super) fn open(&self, image: &ImageRef, wanted: jiff::Timestamp, counted: u64) -> jiff::Timestamp {
        let book = Book { wanted, counted };
        self.lock()
            .entry(image.canonical().to_owned())
            .or_insert(book)
            .wanted
    }

    pub(super) fn count(&self, image: &ImageRef, fetched: u64) {
        if let Some(book) = self.lock().get_mut(image.canonical()) {
            self.metrics
                .pull_bytes
                .inc_by(fetched.saturating_sub(book.counted));
            book.counted = book.counted.max(fetched);
        }
    }

    /// Nobody wants the image any more.
    pub(super) fn close(&self, image: &ImageRef) {
        self.lock().remove(image.canonical());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Book>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
