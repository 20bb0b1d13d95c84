//! The front's server: takes a request, applies its fault, passes it on to the registry.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http::header::{CONTENT_LENGTH, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::Shared;
use super::body::{Body, Pace, Plan, through};
use super::fault::Fault;
use super::log::{Access, Entry};
use crate::cluster::{Cluster, REGISTRY};

pub(super) struct Server {
    pub(super) cluster: Cluster,
    pub(super) shared: Arc<Shared>,
}

/// What the requests of one connection need.
struct Connection {
    cluster: Cluster,
    shared: Arc<Shared>,
    upstream: Client<HttpConnector, Incoming>,
    client: IpAddr,
    /// A second handle on the connection, to have it reset rather than closed.
    socket: OwnedFd,
}

impl Server {
    /// Serves until the other end of `stopped` is gone. Ending drops every connection.
    pub(super) fn run(self, listener: TcpListener, stopped: oneshot::Receiver<()>) -> Result<()> {
        listener
            .set_nonblocking(true)
            .context("cannot prepare the listener")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(async {
            tokio::select! {
                ended = self.accept(listener) => ended,
                _ = stopped => Ok(()),
            }
        })
    }

    async fn accept(self, listener: TcpListener) -> Result<()> {
        let listener = tokio::net::TcpListener::from_std(listener).context("cannot watch the listener")?;
        let upstream = Client::builder(TokioExecutor::new()).build_http();
        loop {
            let (stream, from) = listener.accept().await.context("cannot accept")?;
            let context = Connection {
                cluster: self.cluster.clone(),
                shared: self.shared.clone(),
                upstream: upstream.clone(),
                client: from.ip(),
                socket: rustix::io::dup(&stream).context("cannot share the connection")?,
            };
            tokio::spawn(converse(stream, Arc::new(context)));
        }
    }
}

async fn converse(stream: TcpStream, context: Arc<Connection>) {
    let service = service_fn(move |request| {
        let context = context.clone();
        async move { context.answer(request).await }
    });
    // An error here is a client that went away or a fault that was asked for; both are in the log.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

impl Connection {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, io::Error> {
        let access = self.describe(&request);
        let is_blob = access.is_blob();
        let login = request.headers().get(http::header::AUTHORIZATION);
        let login = login.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (is_welcome, fault, mut plan) = {
            let mut state = self.shared.lock();
            let is_welcome = state.login.is_none() || state.login == login;
            let mut plan = Plan::default();
            if is_blob {
                plan.paces
                    .extend(state.each.map(|rate| Arc::new(Mutex::new(Pace::new(rate)))));
                plan.paces.extend(state.all.clone());
            }
            (is_welcome, state.take_fault(&access), plan)
        };
        let path = access.path.clone();
        let entry = Entry::begin(&self.shared, access);
        if let Some(fault) = &fault {
            entry.update(|access| access.fault = Some(format!("{fault:?}")));
        }
        if let Some(Fault::Delay(time)) = fault {
            tokio::time::sleep(time).await;
        }
        if !is_welcome {
            let challenge = (WWW_AUTHENTICATE, "Basic realm=\"front\"".to_owned());
            return refusal(&entry, 401, Some(challenge));
        }
        match fault {
            Some(Fault::Status(code)) => return refusal(&entry, code, None),
            Some(Fault::RetryAfter(code, seconds)) => {
                return refusal(&entry, code, Some((RETRY_AFTER, seconds.to_string())));
            }
            Some(Fault::RedirectLoop) => return refusal(&entry, 307, Some((LOCATION, path))),
            Some(Fault::ResetAfter(0)) => {
                self.reset_on_close();
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            Some(Fault::ResetAfter(_)) => self.reset_on_close(),
            Some(Fault::Trickle(rate)) => plan.paces.push(Arc::new(Mutex::new(Pace::new(rate)))),
            _ => {}
        }
        plan.fault = fault;
        self.pass_on(request, plan, entry).await
    }

    fn describe(&self, request: &Request<Incoming>) -> Access {
        let range = request.headers().get(http::header::RANGE);
        Access {
            id: 0,
            began: Instant::now(),
            time: Timestamp::now(),
            ended: None,
            client: self.client,
            node: self.cluster.node_of_ip(&self.client.to_string()),
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            range: range.and_then(|r| r.to_str().ok()).map(str::to_owned),
            status: 0,
            bytes: 0,
            fault: None,
        }
    }

    async fn pass_on(
        &self,
        mut request: Request<Incoming>,
        plan: Plan,
        entry: Entry,
    ) -> Result<Response<Body>, io::Error> {
        // Only the address changes: the Host header stays the client's, and with it links in answers.
        let mut parts = request.uri().clone().into_parts();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(Authority::from_static(REGISTRY));
        *request.uri_mut() = Uri::from_parts(parts).map_err(io::Error::other)?;
        let Ok(response) = self.upstream.request(request).await else {
            return refusal(&entry, 502, None);
        };
        entry.update(|access| access.status = response.status().as_u16());
        let (mut head, body) = response.into_parts();
        if let Some(Fault::Truncate(bytes) | Fault::Claim(bytes)) = plan.fault {
            head.headers.insert(CONTENT_LENGTH, bytes.into());
        }
        Ok(Response::from_parts(head, through(body, plan, entry)))
    }

    /// From now on the end of the connection is a reset.
    fn reset_on_close(&self) {
        let _ = rustix::net::sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
    }
}

fn refusal(
    entry: &Entry,
    code: u16,
    header: Option<(http::HeaderName, String)>,
) -> Result<Response<Body>, io::Error> {
    entry.update(|access| access.status = code);
    let mut response = Response::builder().status(code);
    if let Some((name, value)) = header {
        response = response.header(name, value);
    }
    response
        .body(
            Empty::new()
                .map_err(|never: Infallible| match never {})
                .boxed_unsync(),
        )
        .map_err(io::Error::other)
}
