//! Judges what really happens, on agents and in storage, by nothing of the product but the texts that everybody can read.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use kruise_api::image_pull_job::ImagePullJobStatus;

/// How long a lowered number may still be exceeded: until the news has come and what runs has ended.
const DRAIN: u64 = 240_000;

#[derive(Default)]
pub(super) struct Judge {
    /// Windows of each job, with the moment from which on they were valid.
    windows: BTreeMap<String, Vec<(u64, usize)>>,
    /// Nodes by job that pull now.
    pulling: BTreeMap<String, BTreeSet<String>>,
    /// Node and image of every pull that came to its end, well or badly.
    pulled: BTreeSet<(String, String)>,
    failed: BTreeSet<(String, String)>,
    /// Highest epoch that welcomed an agent of a node.
    heard: BTreeMap<String, u64>,
    over: BTreeMap<String, String>,
    told: BTreeMap<String, (String, i32)>,
    pub(super) writes: usize,
    pub(super) failovers: usize,
}

fn fnv(text: &str) -> u64 {
    let mut hash: u64 = 14_695_981_039_346_656_037;
    for byte in text.bytes() {
        hash ^= u64::from(byte);
        hash = hash.wrapping_mul(1_099_511_628_211);
    }
    hash
}

/// UIDs of a stored set.
fn members(text: &str, uids: &[String]) -> BTreeSet<String> {
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .expect("base64");
    let hashes: BTreeSet<u64> = bytes
        .chunks(8)
        .map(|chunk| u64::from_le_bytes(chunk.try_into().expect("eight bytes")))
        .collect();
    uids.iter()
        .filter(|uid| hashes.contains(&fnv(uid)))
        .cloned()
        .collect()
}

impl Judge {
    pub(super) fn window(&mut self, job: &str, now: u64, parallelism: usize) {
        self.windows
            .entry(job.to_owned())
            .or_default()
            .push((now, parallelism));
    }

    pub(super) fn forget_job(&mut self, job: &str) {
        self.windows.remove(job);
    }

    pub(super) fn heard(&mut self, uid: &str, epoch: u64) {
        let highest = self.heard.entry(uid.to_owned()).or_default();
        *highest = (*highest).max(epoch);
    }

    /// A node begins to pull. `age` is how long ago the leader was sure of its lease.
    pub(super) fn begins(&mut self, uid: &str, job: &str, epoch: u64, age: u64, now: u64) {
        let heard = self.heard.get(uid).copied().unwrap_or_default();
        assert!(
            epoch >= heard,
            "I6: {uid} begins for epoch {epoch} after {heard} spoke"
        );
        assert!(age < 16_000, "I6: {uid} begins on an order that is {age} ms old");
        let nodes = self.pulling.entry(job.to_owned()).or_default();
        nodes.insert(uid.to_owned());
        let Some(windows) = self.windows.get(job) else {
            return;
        };
        let mut allowed = 0;
        for (at, window) in windows.iter().rev() {
            allowed = allowed.max(*window);
            if at + DRAIN <= now {
                break;
            }
        }
        assert!(
            nodes.len() <= allowed,
            "I1: {nodes:?} pull at once for {job}, allowed are {allowed}"
        );
    }

    pub(super) fn stops(&mut self, uid: &str, job: &str) {
        if let Some(nodes) = self.pulling.get_mut(job) {
            nodes.remove(uid);
        }
    }

    pub(super) fn ends(&mut self, uid: &str, image: &str, well: bool) {
        let ended = if well { &mut self.pulled } else { &mut self.failed };
        ended.insert((uid.to_owned(), image.to_owned()));
    }

    pub(super) fn stored(&mut self, job: &str, status: &ImagePullJobStatus, uids: &[String]) {
        self.writes += 1;
        assert!(!self.over.contains_key(job), "I3: {job} is over and was written");
        let ended = status.succeeded + status.failed;
        assert!(
            status.succeeded >= 0 && status.failed >= 0 && ended + status.active <= status.desired,
            "I5: {status:?}"
        );
        let Some(outcomes) = &status.outcomes else { return };
        let (well, badly) = (
            members(&outcomes.succeeded, uids),
            members(&outcomes.failed, uids),
        );
        assert!(well.is_disjoint(&badly), "I5: {well:?} {badly:?}");
        for (set, truth, word) in [
            (&well, &self.pulled, "succeeded"),
            (&badly, &self.failed, "failed"),
        ] {
            for uid in set {
                let known = truth.contains(&(uid.clone(), outcomes.image.clone()));
                assert!(
                    known,
                    "I4: {uid} counts as {word} with {} and never did",
                    outcomes.image
                );
            }
        }
        let round = format!("{} {}", outcomes.round, outcomes.image);
        let before = self
            .told
            .get(job)
            .filter(|told| told.0 == round)
            .map_or(0, |told| told.1);
        assert!(ended >= before, "I2: {job} fell from {before} to {ended}");
        assert!(
            usize::try_from(ended) == Ok(well.len() + badly.len()),
            "I4: {ended} are counted, {well:?} and {badly:?} are stored"
        );
        self.told.insert(job.to_owned(), (round, ended));
        if status.completion_time.is_some() {
            assert!(
                ended == status.desired,
                "I2: {job} is over without all: {status:?}"
            );
            self.over.insert(job.to_owned(), format!("{status:?}"));
        }
    }

    /// A leader that has been told that a job is over sends no order for it.
    pub(super) fn sends(&self, job: &str, knows_over: bool) {
        assert!(
            !knows_over,
            "I3: an order for {job} by a leader that knows that it is over"
        );
    }

    /// An agent forgets a result.
    pub(super) fn forgets(
        &self,
        job: &str,
        uid: &str,
        image: &str,
        status: Option<&ImagePullJobStatus>,
        of_use: bool,
    ) {
        if !of_use || self.over.contains_key(job) || !self.windows.contains_key(job) {
            return;
        }
        let outcomes = status
            .and_then(|status| status.outcomes.clone())
            .unwrap_or_default();
        let uids = [uid.to_owned()];
        let stored = outcomes.image == image
            && !(members(&outcomes.succeeded, &uids).is_empty()
                && members(&outcomes.failed, &uids).is_empty());
        assert!(
            stored,
            "I7: {uid} forgot the result of {image} before it was stored"
        );
    }
}
