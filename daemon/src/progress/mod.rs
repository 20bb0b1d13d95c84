//! How far a running pull is, read from the content store while it runs.
//!
//! CRI says nothing between call and answer. But the lease that a pull runs under lists the very blobs that the pull has brought
//! in or found, its manifest among them, so nothing has to be guessed from names or times of other pulls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use kruise_api::reference::ImageRef;
use kruise_planner::node::bytes::{self, Complete, Document, Manifest, Seen, Tally};
use kruise_planner::node::stall::{Meter, Rules};
use kruise_planner::task::{Phase, Progress};

use crate::runtime::{BlobInfo, ContentStore, LeaseId, RuntimeError};

/// How often the content store is read while a pull runs.
pub(crate) const POLL_EVERY: Duration = Duration::from_millis(500);
/// So many readings in a row without a download mean that the runtime unpacks, also where a layer is known only unpacked.
const QUIET_READINGS: u32 = 4;
/// For so long the manifest is looked for again: the lease may still hold that of an earlier attempt, from before the tag was
/// moved, when the runtime has not asked the registry yet.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What one attempt is about.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) image: ImageRef,
    pub(crate) lease: LeaseId,
    /// When the task was taken: younger blobs were fetched by it.
    pub(crate) taken: Timestamp,
    /// When the attempt began.
    pub(crate) began: Duration,
}

/// Watches one attempt.
#[derive(Debug)]
pub(crate) struct Watch {
    subject: Subject,
    rules: Rules,
    documents: BTreeMap<String, Document>,
    tally: Option<Tally>,
    meter: Meter,
    quiet: u32,
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) phase: Phase,
    pub(crate) progress: Progress,
    /// Bytes that the task brought in.
    pub(crate) fetched: u64,
    /// Whether bytes were coming in at the wanted rate.
    pub(crate) growing: bool,
}

impl Watch {
    pub(crate) fn new(subject: Subject, rules: Rules) -> Self {
        Self {
            subject,
            rules,
            documents: BTreeMap::new(),
            tally: None,
            meter: Meter::default(),
            quiet: 0,
        }
    }

    /// Reads the content store.
    pub(crate) async fn read(
        &mut self,
        store: &dyn ContentStore,
        now: Duration,
    ) -> Result<Reading, RuntimeError> {
        if self.tally.is_none() || now < self.subject.began.saturating_add(LOOK_AGAIN) {
            let found = self.manifest(store).await?;
            if let Some(manifest) =
                found.filter(|found| self.tally.as_ref().is_none_or(|tally| tally.manifest() != found))
            {
                self.tally = Some(Tally::new(manifest));
            }
        }
        let Some(tally) = &mut self.tally else {
            let progress = Progress {
                bytes_known: true,
                ..Progress::default()
            };
            return Ok(Reading {
                phase: Phase::Pulling,
                progress,
                fetched: 0,
                growing: false,
            });
        };
        let blobs = store.blobs(&tally.missing()).await?;
        let taken = self.subject.taken;
        let complete = blobs
            .into_iter()
            .map(|blob| {
                (
                    blob.digest,
                    Complete {
                        fresh: blob.created >= taken,
                    },
                )
            })
            .collect();
        let growing = if tally.all_down() {
            BTreeMap::new()
        } else {
            store.downloads().await?
        };
        let mut progress = tally.observe(&Seen { complete, growing });
        self.meter.push(now, progress.bytes_done, tally.hidden());
        progress.bytes_per_second = self.meter.rate(now);
        self.quiet = if tally.growing() == 0 { self.quiet + 1 } else { 0 };
        let unpacking = tally.all_down() || (self.quiet >= QUIET_READINGS && progress.layers_done > 0);
        let phase = if unpacking {
            Phase::Unpacking
        } else {
            Phase::Pulling
        };
        Ok(Reading {
            phase,
            progress,
            fetched: tally.fetched(),
            growing: self.meter.growing(&self.rules, now),
        })
    }

    /// Whether bytes have come in too slowly for too long. Never while the runtime unpacks.
    pub(crate) fn stalled(&self, now: Duration) -> bool {
        self.tally.as_ref().is_some_and(|tally| tally.growing() > 0) && self.meter.stalled(&self.rules, now)
    }

    /// Finds the manifest among what the lease holds.
    async fn manifest(&mut self, store: &dyn ContentStore) -> Result<Option<Manifest>, RuntimeError> {
        let leased = store.leased(&self.subject.lease).await?;
        let digests: Vec<&str> = leased.iter().map(String::as_str).collect();
        let mut blobs = store.blobs(&digests).await?;
        blobs.retain(|blob| blob.size <= bytes::MAX_DOCUMENT);
        for blob in &blobs {
            if !self.documents.contains_key(&blob.digest) {
                let text = store.document(&blob.digest, bytes::MAX_DOCUMENT).await?;
                self.documents.insert(blob.digest.clone(), bytes::parse(&text));
            }
        }
        Ok(self.pick(&blobs, &leased))
    }

    fn pick(&self, blobs: &[BlobInfo], leased: &BTreeSet<String>) -> Option<Manifest> {
        let (os, architecture) = platform();
        match self.documents.get(self.root(blobs)?)? {
            Document::Manifest(manifest) => Some(manifest.clone()),
            Document::Index(entries) => {
                match self
                    .documents
                    .get(bytes::choose(entries, leased, os, architecture)?)?
                {
                    Document::Manifest(manifest) => Some(manifest.clone()),
                    Document::Index(_) | Document::Other => None,
                }
            }
            Document::Other => None,
        }
    }

    /// The document that the image's name leads to: the digest of the reference, else the youngest one that no index lists.
    fn root<'a>(&'a self, blobs: &'a [BlobInfo]) -> Option<&'a str> {
        if let Some(digest) = self.subject.image.digest() {
            return Some(digest);
        }
        let listed: BTreeSet<&str> = (self.documents.values())
            .filter_map(|document| match document {
                Document::Index(entries) => Some(entries.iter().map(|entry| entry.digest.as_str())),
                Document::Manifest(_) | Document::Other => None,
            })
            .flatten()
            .collect();
        let is_root = |blob: &&BlobInfo| {
            !listed.contains(blob.digest.as_str())
                && !matches!(self.documents.get(&blob.digest), None | Some(Document::Other))
        };
        let last = blobs.iter().filter(is_root).max_by_key(|blob| blob.created)?;
        Some(&last.digest)
    }
}

/// This machine in the words of image indexes.
fn platform() -> (&'static str, &'static str) {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    };
    (std::env::consts::OS, architecture)
}

#[cfg(test)]
mod tests;
