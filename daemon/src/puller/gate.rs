//! Who may call the runtime: so many at once on the node, and one per image.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex, PoisonError, Weak};

use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Slots of the node and locks of the images.
#[derive(Debug)]
pub(super) struct Gate {
    slots: Option<Arc<Semaphore>>,
    images: StdMutex<BTreeMap<String, Weak<Mutex<()>>>>,
}

/// Leave to call the runtime for one image, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Leave {
    _image: OwnedMutexGuard<()>,
    _slot: Option<OwnedSemaphorePermit>,
}

impl Gate {
    /// With so many slots; none is no limit.
    pub(super) fn new(slots: Option<usize>) -> Self {
        Self {
            slots: slots.map(|slots| Arc::new(Semaphore::new(slots))),
            images: StdMutex::default(),
        }
    }

    /// Waits for a turn with an image. Whether somebody else had it first: then the image may be there by now.
    pub(super) async fn image(&self, image: &str) -> (OwnedMutexGuard<()>, bool) {
        let lock = self.lock_of(image);
        match Arc::clone(&lock).try_lock_owned() {
            Ok(guard) => (guard, false),
            Err(_) => (lock.lock_owned().await, true),
        }
    }

    /// Waits for a slot, first come, first served.
    pub(super) async fn slot(&self, image: OwnedMutexGuard<()>) -> Leave {
        let slot = match &self.slots {
            Some(slots) => Arc::clone(slots).acquire_owned().await.ok(),
            None => None,
        };
        Leave {
            _image: image,
            _slot: slot,
        }
    }

    fn lock_of(&self, image: &str) -> Arc<Mutex<()>> {
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        images.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = images.get(image).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(Mutex::new(()));
        images.insert(image.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn slots_and_images_are_limited() {
        let gate = Gate::new(Some(1));
        let (a, waited) = gate.image("a").await;
        assert!(!waited);
        let leave = gate.slot(a).await;
        assert!(gate.image("a").now_or_never().is_none(), "one call per image");
        let (b, _) = gate.image("b").await;
        let mut second = Box::pin(gate.slot(b));
        assert!((&mut second).now_or_never().is_none(), "one slot");
        drop(leave);
        second.await;
        assert!(gate.image("a").now_or_never().is_some());
    }

    #[tokio::test]
    async fn who_waited_for_an_image_knows_it() {
        let gate = Gate::new(None);
        let (a, _) = gate.image("a").await;
        let second = gate.image("a");
        tokio::pin!(second);
        assert!((&mut second).now_or_never().is_none());
        drop(a);
        assert!(second.await.1);
        assert!(gate.images.lock().expect("not poisoned").len() <= 1);
    }
}
