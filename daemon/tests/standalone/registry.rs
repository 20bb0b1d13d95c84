//! A registry with two images of one layer each, which comes slowly.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::StreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

/// A layer comes in pieces of this size, one each 50 ms.
const PIECE: usize = 128 << 10;
/// Content of the layer's one file: some two seconds.
const SIZE: usize = 5 << 20;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// What is served: blobs by digest, manifests by tag and digest.
struct Store {
    blobs: Vec<(String, Vec<u8>)>,
    manifests: Vec<(String, Vec<u8>)>,
}

/// Serves until the test ends.
pub(super) async fn serve() -> SocketAddr {
    let mut store = Store {
        blobs: Vec::new(),
        manifests: Vec::new(),
    };
    for tag in ["1", "2"] {
        store.image(tag);
    }
    let router = Router::new()
        .route("/v2/", get(|| async { "{}" }))
        .route("/v2/app/manifests/{name}", get(manifest))
        .route("/v2/app/blobs/{name}", get(blob))
        .with_state(Arc::new(store));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

impl Store {
    fn image(&mut self, tag: &str) {
        let layer = tar(tag);
        let config = serde_json::json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }, "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        });
        let config = config.to_string().into_bytes();
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(&config), "size": config.len()},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest(&layer), "size": layer.len()}],
        });
        let manifest = manifest.to_string().into_bytes();
        self.manifests.push((digest(&manifest), manifest.clone()));
        self.manifests.push((tag.to_owned(), manifest));
        self.blobs.push((digest(&config), config));
        self.blobs.push((digest(&layer), layer));
    }
}

fn digest(content: &[u8]) -> String {
    let hex: String = Sha256::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

/// An archive of one file, different for each name.
fn tar(name: &str) -> Vec<u8> {
    let mut head = [0_u8; 512];
    let fields = [
        (0, name.to_owned()),
        (100, "0000644".into()),
        (108, "0000000".into()),
        (116, "0000000".into()),
        (124, format!("{SIZE:011o}")),
        (136, "00000000000".into()),
        (148, " ".repeat(8)),
        (156, "0".into()),
        (257, "ustar\0".to_owned() + "00"),
    ];
    for (at, text) in fields {
        head[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut archive = head.to_vec();
    archive.extend(name.bytes().cycle().take(SIZE));
    archive.resize(archive.len().next_multiple_of(512) + 1024, 0);
    archive
}

fn found(all: &[(String, Vec<u8>)], name: &str) -> Option<Vec<u8>> {
    all.iter()
        .find(|(known, _)| known == name)
        .map(|(_, content)| content.clone())
}

async fn manifest(State(store): State<Arc<Store>>, Path(name): Path<String>) -> Response {
    match found(&store.manifests, &name) {
        Some(content) => {
            let heads = [
                (header::CONTENT_TYPE.as_str(), MANIFEST.to_owned()),
                ("docker-content-digest", digest(&content)),
            ];
            (heads, content).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn blob(State(store): State<Arc<Store>>, method: Method, Path(name): Path<String>) -> Response {
    let Some(content) = found(&store.blobs, &name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let heads = [(header::CONTENT_LENGTH, content.len().to_string())];
    if method == Method::HEAD {
        return heads.into_response();
    }
    let pieces: Vec<Vec<u8>> = content.chunks(PIECE).map(<[u8]>::to_vec).collect();
    let slowly = futures::stream::iter(pieces).then(|piece| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok::<_, Infallible>(piece)
    });
    (heads, Body::from_stream(slowly)).into_response()
}
