//! A registry client that knows just enough of the distribution API to push an image and look it up.

use std::convert::Infallible;
use std::fs::File;
use std::io::Read;

use anyhow::{Context, Result, bail};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;

use super::image::ImageSpec;
use super::layer::{self, sha256};
use crate::cluster::REGISTRY;

pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Layers are sent in pieces of this size.
const CHUNK: usize = 256 * 1024;

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// A blob of a pushed image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    pub digest: String,
    pub size: u64,
}

/// An image that is in the registry.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// As pods name it.
    pub reference: String,
    /// The manifest's digest, which nodes report as the image's.
    pub digest: String,
    /// The configuration's digest, which the runtime uses as the image's id.
    pub config: Blob,
    pub layers: Vec<Blob>,
}

impl Pushed {
    /// What a pull of everything transfers: configuration and layers.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.config.size + self.layers.iter().map(|l| l.size).sum::<u64>()
    }
}

/// The registry, through its forwarder on the host's loopback.
#[derive(Clone, Debug)]
pub struct Registry {
    base: String,
    http: Client<HttpConnector, Body>,
}

impl Registry {
    #[must_use]
    pub fn new(port: u16) -> Self {
        let http = Client::builder(TokioExecutor::new()).build_http();
        Self {
            base: format!("http://127.0.0.1:{port}"),
            http,
        }
    }

    /// Whether the registry answers.
    pub async fn ping(&self) -> Result<()> {
        self.expect(Method::GET, "/v2/", empty(), &[StatusCode::OK])
            .await
            .map(drop)
    }

    /// Builds an image and pushes what the registry does not have yet.
    pub async fn push(&self, spec: &ImageSpec) -> Result<Pushed> {
        let sources = spec.layers.clone();
        let built =
            tokio::task::spawn_blocking(move || sources.iter().map(layer::build).collect::<Result<Vec<_>>>())
                .await
                .context("the building of layers panicked")??;
        let config = serde_json::to_vec(&spec.config(&built)).context("a configuration is plain data")?;
        let config_blob = Blob {
            digest: sha256(&config),
            size: config.len() as u64,
        };
        let descriptors: Vec<_> = built
            .iter()
            .map(|l| json!({"mediaType": l.media_type, "digest": l.digest, "size": l.size}))
            .collect();
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": config_blob.digest, "size": config_blob.size},
            "layers": descriptors,
        }))?;
        let mut layers = Vec::new();
        for layer in built {
            let blob = Blob {
                digest: layer.digest,
                size: layer.size,
            };
            self.put_blob(&spec.name, &blob, || stream(layer.file)).await?;
            layers.push(blob);
        }
        self.put_blob(&spec.name, &config_blob, || full(config)).await?;
        let digest = self
            .put_manifest(&spec.name, &spec.tag, manifest, MANIFEST)
            .await?;
        let reference = format!("{REGISTRY}/{}:{}", spec.name, spec.tag);
        Ok(Pushed {
            reference,
            digest,
            config: config_blob,
            layers,
        })
    }

    /// Pushes a manifest as it is, under a tag or a digest, and answers its digest.
    pub async fn put_manifest(
        &self,
        name: &str,
        tag: &str,
        manifest: Vec<u8>,
        media_type: &str,
    ) -> Result<String> {
        let digest = sha256(&manifest);
        let request = Request::put(self.url(&format!("/v2/{name}/manifests/{tag}")))
            .header(CONTENT_TYPE, media_type)
            .body(full(manifest))?;
        self.send(request, &[StatusCode::CREATED])
            .await
            .with_context(|| format!("cannot push {name}:{tag}"))?;
        Ok(digest)
    }

    /// A manifest as it is stored, and its media type.
    pub async fn manifest(&self, name: &str, tag: &str) -> Result<(Vec<u8>, String)> {
        let request = Request::get(self.url(&format!("/v2/{name}/manifests/{tag}")))
            .header(ACCEPT, MANIFEST)
            .body(empty())?;
        let response = self.send(request, &[StatusCode::OK]).await?;
        let kind = response
            .headers()
            .get(CONTENT_TYPE)
            .context("a manifest has a media type")?;
        let kind = kind.to_str()?.to_owned();
        let bytes = response.into_body().collect().await?.to_bytes();
        Ok((bytes.to_vec(), kind))
    }

    /// The digest behind a tag, if the registry has it.
    pub async fn digest(&self, name: &str, tag: &str) -> Result<Option<String>> {
        let request = Request::head(self.url(&format!("/v2/{name}/manifests/{tag}")))
            .header(ACCEPT, MANIFEST)
            .body(empty())?;
        let response = self
            .send(request, &[StatusCode::OK, StatusCode::NOT_FOUND])
            .await?;
        let digest = response.headers().get("docker-content-digest");
        Ok(digest.map(|d| d.to_str().map(str::to_owned)).transpose()?)
    }

    /// Removes a manifest by its digest: its tags are gone, and pulls of it answer "not found".
    pub async fn delete(&self, name: &str, digest: &str) -> Result<()> {
        let path = format!("/v2/{name}/manifests/{digest}");
        self.expect(Method::DELETE, &path, empty(), &[StatusCode::ACCEPTED])
            .await
            .map(drop)
    }

    async fn put_blob(&self, name: &str, blob: &Blob, body: impl FnOnce() -> Body) -> Result<()> {
        let path = format!("/v2/{name}/blobs/{}", blob.digest);
        let found = self
            .expect(
                Method::HEAD,
                &path,
                empty(),
                &[StatusCode::OK, StatusCode::NOT_FOUND],
            )
            .await?;
        if found.status() == StatusCode::OK {
            return Ok(());
        }
        let uploads = format!("/v2/{name}/blobs/uploads/");
        let begun = self
            .expect(Method::POST, &uploads, empty(), &[StatusCode::ACCEPTED])
            .await?;
        let place = begun
            .headers()
            .get(LOCATION)
            .context("the registry names no place to upload to")?
            .to_str()?;
        let joint = if place.contains('?') { '&' } else { '?' };
        let request = Request::put(self.url(&format!("{place}{joint}digest={}", blob.digest)))
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, blob.size)
            .body(body())?;
        self.send(request, &[StatusCode::CREATED]).await.map(drop)
    }

    async fn expect(
        &self,
        method: Method,
        path: &str,
        body: Body,
        good: &[StatusCode],
    ) -> Result<Response<Incoming>> {
        let request = Request::builder().method(method).uri(self.url(path)).body(body)?;
        self.send(request, good).await
    }

    async fn send(&self, request: Request<Body>, good: &[StatusCode]) -> Result<Response<Incoming>> {
        let what = format!("{} {}", request.method(), request.uri());
        let response = self.http.request(request).await.with_context(|| what.clone())?;
        if good.contains(&response.status()) {
            return Ok(response);
        }
        let status = response.status();
        let text = response
            .into_body()
            .collect()
            .await
            .with_context(|| what.clone())?
            .to_bytes();
        bail!("{what}: {status}: {}", String::from_utf8_lossy(&text).trim());
    }

    fn url(&self, path: &str) -> String {
        if path.starts_with("http://") {
            path.to_owned()
        } else {
            format!("{}{path}", self.base)
        }
    }
}

fn empty() -> Body {
    Empty::new().map_err(never).boxed_unsync()
}

fn full(bytes: Vec<u8>) -> Body {
    Full::new(Bytes::from(bytes)).map_err(never).boxed_unsync()
}

fn stream(file: File) -> Body {
    // The file was just written and is still in memory, so reading it blocks for no time worth a thread.
    StreamBody::new(futures::stream::iter(Pieces(file))).boxed_unsync()
}

struct Pieces(File);

impl Iterator for Pieces {
    type Item = std::io::Result<Frame<Bytes>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut piece = vec![0; CHUNK];
        match self.0.read(&mut piece) {
            Ok(0) => None,
            Ok(length) => {
                piece.truncate(length);
                Some(Ok(Frame::data(Bytes::from(piece))))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

fn never(never: Infallible) -> std::io::Error {
    match never {}
}
