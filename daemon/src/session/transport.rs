//! How bytes get to the manager.

use std::fmt;
use std::io;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A two-way stream of bytes.
pub trait Bytes: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Bytes for T {}

/// Opens streams. TLS goes on top of it in any case.
pub trait Transport: Send + Sync + fmt::Debug {
    /// To `host:port`.
    fn open(&self, address: String) -> BoxFuture<'static, io::Result<Box<dyn Bytes>>>;
}

/// Plain TCP.
#[derive(Clone, Copy, Debug)]
pub struct Tcp;

impl Transport for Tcp {
    fn open(&self, address: String) -> BoxFuture<'static, io::Result<Box<dyn Bytes>>> {
        async move {
            let stream = TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Bytes>)
        }
        .boxed()
    }
}
