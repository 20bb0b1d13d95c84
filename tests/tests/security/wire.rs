//! HTTP/2 by hand, for what no well-behaved library sends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kruise_api::names;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::leader::Target;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `SETTINGS_INITIAL_WINDOW_SIZE`.
pub(crate) const WINDOW: u16 = 4;

/// A TLS connection on which any bytes can be sent.
pub(crate) struct Wire {
    stream: TlsStream<TcpStream>,
    next: u32,
}

/// A TLS client that trusts the product and nobody else.
pub(crate) fn tls(bundle: &str) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

impl Wire {
    /// Finishes the handshake and says nothing yet.
    pub(crate) async fn connect(target: &Target, tls: &TlsConnector) -> Result<Self> {
        let name = ServerName::try_from(names::MANAGER_SERVER_NAME)?;
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        let stream = tls.connect(name, stream).await.context("TLS")?;
        Ok(Self { stream, next: 1 })
    }

    /// Preface and settings.
    pub(crate) async fn begin(&mut self, settings: &[(u16, u32)]) -> Result<()> {
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend(name.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, &payload));
        // The answer to the server's own settings, early.
        bytes.extend(frame(SETTINGS, 1, 0, &[]));
        self.send(&bytes).await
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await?;
        Ok(())
    }

    /// The frame that opens the next stream for a call of this method.
    pub(crate) fn open(&mut self, path: &str, token: Option<&str>) -> (u32, Vec<u8>) {
        let id = self.next;
        self.next += 2;
        let mut block = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "manager"),
            (":path", path),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ] {
            literal(&mut block, name, value);
        }
        if let Some(token) = token {
            literal(&mut block, "authorization", &format!("Bearer {token}"));
        }
        (id, frame(HEADERS, END_HEADERS, id, &block))
    }

    /// A header block that never ends: one frame, and then any number of continuations.
    pub(crate) fn endless_headers(&mut self) -> (Vec<u8>, Vec<u8>) {
        let id = self.next;
        self.next += 2;
        let mut block = Vec::new();
        literal(&mut block, "x-filler", &"a".repeat(16_000));
        (frame(HEADERS, 0, id, &block), frame(CONTINUATION, 0, id, &block))
    }

    /// Reads until the connection ends or `limit` has passed; answers when it ended.
    pub(crate) async fn until_closed(&mut self, limit: Duration) -> Option<Instant> {
        let mut buffer = vec![0; 16 * 1024];
        let closed = async {
            while let Ok(read) = self.stream.read(&mut buffer).await {
                if read == 0 {
                    break;
                }
            }
        };
        tokio::time::timeout(limit, closed).await.ok()?;
        Some(Instant::now())
    }

    /// Splits the connection, for those who write without reading.
    pub(crate) fn into_stream(self) -> TlsStream<TcpStream> {
        self.stream
    }
}

/// The frame that resets a stream.
pub(crate) fn reset(id: u32) -> Vec<u8> {
    const CANCEL: u32 = 8;
    frame(RST_STREAM, 0, id, &CANCEL.to_be_bytes())
}

/// A frame of data of an open stream.
pub(crate) fn data(id: u32, bytes: &[u8]) -> Vec<u8> {
    frame(DATA, 0, id, bytes)
}

/// The frame of data that ends a request.
pub(crate) fn last(id: u32) -> Vec<u8> {
    frame(DATA, END_STREAM, id, &[])
}

/// A gRPC message in its envelope.
pub(crate) fn message(bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![0];
    message.extend(u32::try_from(bytes.len()).expect("short").to_be_bytes());
    message.extend(bytes);
    message
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A header without indexing and without compression (RFC 7541, 6.2.2).
fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        length(block, text.len());
        block.extend(text.as_bytes());
    }
}

/// An integer with a prefix of seven bits (RFC 7541, 5.1).
fn length(block: &mut Vec<u8>, mut number: usize) {
    let byte = |number: usize| u8::try_from(number).expect("below 256");
    if number < 127 {
        return block.push(byte(number));
    }
    block.push(127);
    number -= 127;
    while number >= 128 {
        block.push(byte(number % 128 + 128));
        number /= 128;
    }
    block.push(byte(number));
}
