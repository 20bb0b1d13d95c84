//! Which manifest, which bytes.

use kruise_api::reference::ImageRef;

use super::*;
use crate::clock::Clock;
use crate::runtime::fake::{Fake, Image};
use crate::runtime::{Pull, Runtime as _};

const RULES: Rules = Rules {
    min_rate: 64 << 10,
    timeout: Duration::from_secs(30),
};

fn subject(lease: &LeaseId) -> Subject {
    Subject {
        image: ImageRef::parse("reg:5000/app:1").expect("an image"),
        lease: lease.clone(),
        taken: Timestamp::UNIX_EPOCH,
        began: Duration::ZERO,
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_before_the_manifest_is_there() {
    let clock = Clock::tokio();
    let fake = Fake::new(clock.clone());
    let lease = LeaseId("l".into());
    fake.image(
        "reg:5000/app:1",
        Image {
            layers: vec![1000, 500],
            rate: 1000,
            ..Image::default()
        },
    );
    let mut watch = Watch::new(subject(&lease), RULES);
    let store = fake.content().expect("there");
    store.make_lease(&lease, Timestamp::MAX).await.expect("made");
    let reading = watch.read(store, clock.now_mono()).await.expect("read");
    assert_eq!(
        (reading.progress.bytes_total, reading.progress.bytes_done),
        (0, 0)
    );
    assert!(reading.progress.bytes_known);

    let pull = Pull {
        image: subject(&lease).image,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        credential: None,
        lease: Some(lease.clone()),
        limit: Duration::from_secs(600),
    };
    let call = fake.pull(pull);
    tokio::pin!(call);
    assert!(
        tokio::time::timeout(Duration::from_millis(950), &mut call)
            .await
            .is_err()
    );
    let reading = watch.read(store, clock.now_mono()).await.expect("read");
    assert_eq!(
        (reading.progress.bytes_total, reading.progress.bytes_done),
        (1502, 902)
    );
    assert_eq!(reading.phase, Phase::Pulling);
    call.await.expect("pulled");
    let reading = watch.read(store, clock.now_mono()).await.expect("read");
    assert_eq!(
        (reading.progress.bytes_done, reading.progress.layers_done),
        (1502, 2)
    );
    assert_eq!((reading.phase, reading.fetched), (Phase::Unpacking, 1502));
}

fn blob(digest: &str, created: i64) -> BlobInfo {
    BlobInfo {
        digest: digest.into(),
        size: 100,
        created: Timestamp::from_second(created).expect("a time"),
    }
}

fn manifest(size: u64) -> Document {
    let config = bytes::Blob {
        digest: "config".into(),
        size,
    };
    Document::Manifest(Manifest {
        config,
        layers: Vec::new(),
    })
}

fn index(digests: &[&str]) -> Document {
    let (os, architecture) = platform();
    let entry = |digest: &&str| bytes::Entry {
        digest: (*digest).to_owned(),
        os: os.into(),
        architecture: architecture.into(),
    };
    Document::Index(digests.iter().map(entry).collect())
}

fn picked(image: &str, documents: &[(&str, Document, i64)]) -> Option<u64> {
    let lease = LeaseId("l".into());
    let image = ImageRef::parse(image).expect("an image");
    let mut watch = Watch::new(
        Subject {
            image,
            ..subject(&lease)
        },
        RULES,
    );
    let mut blobs = Vec::new();
    for (digest, document, created) in documents {
        watch.documents.insert((*digest).to_owned(), document.clone());
        blobs.push(blob(digest, *created));
    }
    let leased = blobs.iter().map(|blob| blob.digest.clone()).collect();
    watch.pick(&blobs, &leased).map(|manifest| manifest.config.size)
}

#[test]
fn the_manifest_that_the_name_leads_to() {
    let tag = "reg:5000/app:1";
    assert_eq!(picked(tag, &[]), None);
    assert_eq!(
        picked(tag, &[("config", Document::Other, 5), ("m", manifest(1), 1)]),
        Some(1)
    );
    assert_eq!(
        picked(tag, &[("i", index(&["m", "n"]), 1), ("m", manifest(1), 2)]),
        Some(1),
        "by its index"
    );
    assert_eq!(picked(tag, &[("i", index(&["m"]), 1)]), None, "not fetched yet");
    assert_eq!(
        picked(tag, &[("m", manifest(1), 1), ("n", manifest(2), 2)]),
        Some(2),
        "the tag was moved"
    );
    let digest = format!("sha256:{}", "a".repeat(64));
    let pinned = format!("reg:5000/app@{digest}");
    let documents = [(digest.as_str(), manifest(1), 1), ("n", manifest(2), 2)];
    assert_eq!(picked(&pinned, &documents), Some(1));
}
