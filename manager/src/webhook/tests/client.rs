//! What the API server does: one connection over TLS, kept for several requests.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
    address: SocketAddr,
    tls: TlsConnector,
}

impl Client {
    /// Trusts this authority and nobody else.
    pub(super) async fn connect(address: SocketAddr, authority: &str) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(certificate.expect("PEM")).expect("an authority");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("supported")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = TlsConnector::from(Arc::new(config));
        let sender = open(address, &tls).await;
        Self { sender, address, tls }
    }

    pub(super) async fn post(&mut self, path: &str, body: Vec<u8>) -> (u16, Bytes) {
        // As after a body that was not read to its end, which closes the connection.
        if self.sender.ready().await.is_err() {
            self.sender = open(self.address, &self.tls).await;
        }
        let request = Request::post(path)
            .header(header::HOST, "localhost")
            .body(Full::new(Bytes::from(body)))
            .expect("a request");
        let response = self.sender.send_request(request).await.expect("an answer");
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body");
        (status, body.to_bytes())
    }

    pub(super) async fn review(&mut self, path: &str, review: &Value) -> Value {
        let (status, body) = self.post(path, review.to_string().into_bytes()).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).expect("JSON")
    }
}

async fn open(address: SocketAddr, tls: &TlsConnector) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.expect("listens");
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = tls.connect(name, stream).await.expect("trusted");
    let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    sender
}
