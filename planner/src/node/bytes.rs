//! How far a pull is, from what lies in the runtime's content store.
//!
//! The total comes from the manifest, the bytes from blobs that are complete and from downloads that grow. Nothing is guessed: while
//! the manifest is not there, the total is unknown.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::node::stall::HIDDEN_PER_LAYER;
use crate::task::Progress;

/// Largest document that is looked at; the runtime takes no larger manifest either.
pub const MAX_DOCUMENT: u64 = 4 << 20;

/// A piece of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// With its algorithm.
    pub digest: String,
    /// Compressed.
    pub size: u64,
}

/// What an image of one platform consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The image's configuration.
    pub config: Blob,
    /// Its layers, each once.
    pub layers: Vec<Blob>,
}

/// What an image index lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Of the manifest.
    pub digest: String,
    /// For example `linux`; empty if not given.
    pub os: String,
    /// For example `amd64`; empty if not given.
    pub architecture: String,
}

/// A blob, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// An image of one platform.
    Manifest(Manifest),
    /// A list of manifests.
    Index(Vec<Entry>),
    /// A configuration, a layer, or nonsense.
    Other,
}

#[derive(Deserialize)]
struct RawDocument {
    manifests: Option<Vec<RawDescriptor>>,
    config: Option<RawDescriptor>,
    layers: Option<Vec<RawDescriptor>>,
}

#[derive(Deserialize)]
struct RawDescriptor {
    digest: String,
    size: u64,
    platform: Option<RawPlatform>,
}

#[derive(Deserialize, Default)]
struct RawPlatform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

/// Reads a blob.
#[must_use]
pub fn parse(bytes: &[u8]) -> Document {
    let Ok(raw) = serde_json::from_slice::<RawDocument>(bytes) else {
        return Document::Other;
    };
    match raw {
        RawDocument {
            config: Some(config),
            layers: Some(layers),
            ..
        } => {
            let mut seen = BTreeSet::new();
            let once = |blob: &Blob| seen.insert(blob.digest.clone());
            let layers = layers.into_iter().map(RawDescriptor::blob).filter(once).collect();
            Document::Manifest(Manifest {
                config: config.blob(),
                layers,
            })
        }
        RawDocument {
            manifests: Some(manifests),
            ..
        } => Document::Index(manifests.into_iter().map(RawDescriptor::entry).collect()),
        _ => Document::Other,
    }
}

impl RawDescriptor {
    fn blob(self) -> Blob {
        Blob {
            digest: self.digest,
            size: self.size,
        }
    }

    fn entry(self) -> Entry {
        let RawPlatform { os, architecture } = self.platform.unwrap_or_default();
        Entry {
            digest: self.digest,
            os,
            architecture,
        }
    }
}

/// The manifest that the runtime took from an index: of those that it has fetched, the one for this platform; failing that, the only
/// one.
#[must_use]
pub fn choose<'a>(
    entries: &'a [Entry],
    fetched: &BTreeSet<String>,
    os: &str,
    architecture: &str,
) -> Option<&'a str> {
    let here: Vec<&Entry> = entries
        .iter()
        .filter(|entry| fetched.contains(&entry.digest))
        .collect();
    let fits = |entry: &&&Entry| entry.os == os && entry.architecture == architecture;
    match (here.iter().find(fits), here.as_slice()) {
        (Some(entry), _) | (None, [entry]) => Some(&entry.digest),
        _ => None,
    }
}

/// A blob that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complete {
    /// Whether it came after the task began, so that the task fetched it.
    pub fresh: bool,
}

/// What the content store shows of one image at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Blobs that are complete.
    pub complete: BTreeMap<String, Complete>,
    /// Bytes of downloads that run, by digest.
    pub growing: BTreeMap<String, u64>,
}

/// Books of one attempt.
#[derive(Clone, Debug)]
pub struct Tally {
    manifest: Manifest,
    complete: BTreeMap<String, Complete>,
    highest: u64,
    fetched: u64,
    hidden: u64,
    growing: usize,
}

impl Tally {
    /// Nothing seen so far.
    #[must_use]
    pub fn new(manifest: Manifest) -> Self {
        Self {
            manifest,
            complete: BTreeMap::new(),
            highest: 0,
            fetched: 0,
            hidden: 0,
            growing: 0,
        }
    }

    /// What is counted.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Digests that were not complete when last looked at.
    #[must_use]
    pub fn missing(&self) -> Vec<&str> {
        self.blobs()
            .map(|blob| blob.digest.as_str())
            .filter(|digest| !self.complete.contains_key(*digest))
            .collect()
    }

    /// Compressed bytes of the whole image.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.blobs().fold(0, |sum, blob| sum.saturating_add(blob.size))
    }

    /// Whether every byte is on the node.
    #[must_use]
    pub fn all_down(&self) -> bool {
        self.missing().is_empty()
    }

    /// Bytes that this task brought in.
    #[must_use]
    pub fn fetched(&self) -> u64 {
        self.fetched
    }

    /// Bytes that may be on the node and are not yet to be seen.
    #[must_use]
    pub fn hidden(&self) -> u64 {
        self.hidden
    }

    /// Downloads of this image that were there when last looked at. None at all means that the runtime fetches nothing: it has not
    /// begun, or it unpacks.
    #[must_use]
    pub fn growing(&self) -> usize {
        self.growing
    }

    /// Takes in what the content store shows now. A blob once complete stays so: where the runtime throws unpacked layers away, it
    /// vanishes from the store. Bytes never fall.
    pub fn observe(&mut self, seen: &Seen) -> Progress {
        for (digest, complete) in &seen.complete {
            if self.blobs().any(|blob| blob.digest == *digest) {
                self.complete.entry(digest.clone()).or_insert(*complete);
            }
        }
        let (mut done, mut fetched, mut hidden, mut growing) = (0_u64, 0_u64, 0_u64, 0);
        for blob in self.blobs() {
            if let Some(complete) = self.complete.get(&blob.digest) {
                done = done.saturating_add(blob.size);
                fetched = fetched.saturating_add(if complete.fresh { blob.size } else { 0 });
            } else if let Some(offset) = seen.growing.get(&blob.digest) {
                growing += 1;
                let offset = blob.size.min(*offset);
                done = done.saturating_add(offset);
                fetched = fetched.saturating_add(offset);
                hidden = hidden.saturating_add(HIDDEN_PER_LAYER.min(blob.size - offset));
            }
        }
        self.hidden = hidden;
        self.growing = growing;
        self.highest = self.highest.max(done);
        self.fetched = self.fetched.max(fetched);
        self.progress()
    }

    fn progress(&self) -> Progress {
        let layers_done = self
            .manifest
            .layers
            .iter()
            .filter(|layer| self.complete.contains_key(&layer.digest))
            .count();
        Progress {
            bytes_done: self.highest,
            bytes_total: self.total(),
            bytes_per_second: 0,
            layers_done: u32::try_from(layers_done).unwrap_or(u32::MAX),
            layers_total: u32::try_from(self.manifest.layers.len()).unwrap_or(u32::MAX),
            bytes_known: true,
        }
    }

    fn blobs(&self) -> impl Iterator<Item = &Blob> {
        std::iter::once(&self.manifest.config).chain(&self.manifest.layers)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blob(digest: &str, size: u64) -> Blob {
        Blob {
            digest: digest.into(),
            size,
        }
    }

    fn image() -> Manifest {
        Manifest {
            config: blob("c", 10),
            layers: vec![blob("a", 1000), blob("b", 500)],
        }
    }

    fn seen(complete: &[(&str, bool)], growing: &[(&str, u64)]) -> Seen {
        Seen {
            complete: complete
                .iter()
                .map(|(digest, fresh)| ((*digest).into(), Complete { fresh: *fresh }))
                .collect(),
            growing: growing
                .iter()
                .map(|(digest, offset)| ((*digest).into(), *offset))
                .collect(),
        }
    }

    #[test]
    fn documents() {
        let manifest = br#"{"schemaVersion":2,"config":{"digest":"c","size":10},
            "layers":[{"digest":"a","size":1000},{"digest":"b","size":500},{"digest":"a","size":1000}]}"#;
        assert_eq!(
            parse(manifest),
            Document::Manifest(image()),
            "a layer that occurs twice is fetched once"
        );
        let index = br#"{"manifests":[{"digest":"m","size":5,"platform":{"os":"linux","architecture":"amd64"}},{"digest":"n","size":5}]}"#;
        let Document::Index(entries) = parse(index) else {
            unreachable!("an index")
        };
        assert_eq!(entries.len(), 2);
        assert_eq!(
            (entries[0].os.as_str(), entries[1].architecture.as_str()),
            ("linux", "")
        );
        let others: [&[u8]; 6] = [
            b"",
            b"\x1f\x8b\x08",
            b"[]",
            br#"{"architecture":"amd64","config":{"Env":[]},"rootfs":{}}"#,
            br#"{"config":{"digest":"c","size":-1},"layers":[]}"#,
            br#"{"layers":[]}"#,
        ];
        for other in others {
            assert_eq!(parse(other), Document::Other);
        }
    }

    #[test]
    fn the_manifest_that_the_runtime_took() {
        let entry = |digest: &str, architecture: &str| Entry {
            digest: digest.into(),
            os: "linux".into(),
            architecture: architecture.into(),
        };
        let entries = [
            entry("x", "arm64"),
            entry("y", "amd64"),
            entry("z", "amd64"),
            entry("u", "unknown"),
        ];
        let fetched = |digests: &[&str]| digests.iter().map(|digest| (*digest).to_owned()).collect();
        assert_eq!(
            choose(&entries, &fetched(&["x", "z"]), "linux", "amd64"),
            Some("z")
        );
        assert_eq!(
            choose(&entries, &fetched(&["x"]), "linux", "amd64"),
            Some("x"),
            "emulated, but what the runtime took"
        );
        assert_eq!(choose(&entries, &fetched(&["x", "u"]), "linux", "amd64"), None);
        assert_eq!(choose(&entries, &fetched(&[]), "linux", "amd64"), None);
    }

    #[test]
    fn bytes_are_those_in_the_store() {
        let mut tally = Tally::new(image());
        let progress = tally.observe(&seen(&[("b", false)], &[]));
        assert_eq!((progress.bytes_done, progress.bytes_total), (500, 1510));
        assert_eq!((progress.layers_done, progress.layers_total), (1, 2));
        let progress = tally.observe(&seen(
            &[("c", true), ("b", false)],
            &[("a", 300), ("foreign", 77)],
        ));
        assert_eq!(
            (progress.bytes_done, tally.fetched(), tally.hidden()),
            (810, 310, 700)
        );
        assert_eq!(tally.missing(), ["a"]);
        let progress = tally.observe(&seen(&[("a", true)], &[]));
        assert_eq!(
            (progress.bytes_done, progress.layers_done, tally.fetched()),
            (1510, 2, 1010)
        );
        assert!(tally.all_down());
        assert_eq!(
            tally.observe(&Seen::default()).bytes_done,
            1510,
            "thrown away after unpacking"
        );
    }

    #[test]
    fn a_download_that_began_anew_shows_no_fall() {
        let mut tally = Tally::new(image());
        tally.observe(&seen(&[], &[("a", 900)]));
        assert_eq!(tally.observe(&seen(&[], &[("a", 0)])).bytes_done, 900);
        assert_eq!(
            tally.observe(&seen(&[], &[("a", 5000)])).bytes_done,
            1000,
            "more than there is"
        );
    }

    proptest! {
        #[test]
        fn bytes_grow_and_stay_within_the_total(steps in prop::collection::vec(
            (prop::collection::vec((0_usize..4, any::<bool>()), 0..3), prop::collection::vec((0_usize..4, any::<u64>()), 0..3)), 1..30,
        )) {
            let names = ["a", "b", "c", "x"];
            let mut tally = Tally::new(image());
            let mut last = 0;
            for (complete, growing) in steps {
                let complete: Vec<_> = complete.iter().map(|(i, fresh)| (names[*i], *fresh)).collect();
                let growing: Vec<_> = growing.iter().map(|(i, offset)| (names[*i], *offset)).collect();
                let progress = tally.observe(&seen(&complete, &growing));
                prop_assert!(progress.bytes_done >= last && progress.bytes_done <= progress.bytes_total);
                prop_assert!(tally.fetched() <= progress.bytes_total);
                prop_assert!(!tally.all_down() || progress.bytes_done == progress.bytes_total);
                last = progress.bytes_done;
            }
        }

        #[test]
        fn any_bytes_can_be_parsed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
