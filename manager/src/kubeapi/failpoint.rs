//! Ends the process right before or right after a write, for tests of what the next one finds. Not in what is shipped.
//!
//! `KRUISE_CRASH=before:3` ends it before the third write about a CloneSet, `after:3` once that has been answered and before anybody knows.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What the controller of CloneSets writes.
const COUNTED: [&str; 5] = [
    "clonesets",
    "pods",
    "controllerrevisions",
    "persistentvolumeclaims",
    "imagepulljobs",
];

static WRITES: AtomicUsize = AtomicUsize::new(0);

/// A write is about to be sent. Its number, if it counts.
pub(super) fn before(resource: &str) -> Option<usize> {
    if !COUNTED.contains(&resource) {
        return None;
    }
    let number = WRITES.fetch_add(1, Ordering::SeqCst) + 1;
    crash("before", number);
    Some(number)
}

/// It has been answered.
pub(super) fn after(number: Option<usize>) {
    if let Some(number) = number {
        crash("after", number);
    }
}

fn crash(when: &str, number: usize) {
    if std::env::var("KRUISE_CRASH").is_ok_and(|point| point == format!("{when}:{number}")) {
        std::process::abort();
    }
}
