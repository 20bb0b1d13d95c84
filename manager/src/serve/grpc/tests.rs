//! The listener on real sockets of the loopback interface.

use std::net::SocketAddr;
use std::pin::pin;

use futures::StreamExt;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::{v1, v1alpha};
use tonic_types::StatusExt;

use super::*;
use crate::identity::fake::FakeVerifier;
use crate::serve::{ServingStatus, common_services};
use crate::trust::{Serving, renew_for_tests};

const NAME: &str = "kruise-manager.kruise-system.svc";
/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

struct Bench {
    address: SocketAddr,
    authority: String,
    serving: Serving,
    metrics: ServeMetrics,
    reporter: crate::serve::Reporter,
    stop: CancellationToken,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Bench {
    async fn start(limits: Limits) -> Self {
        let serving = Serving::default();
        let authority = renew_for_tests(&serving, NAME);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let verifier = FakeVerifier::default()
            .with_agent("node1")
            .with_person("reader", &[("agents", "get")])
            .with_person("nobody", &[]);
        let (routes, reporter) = common_services(Routes::default());
        let metrics = ServeMetrics::default();
        let deps = Deps {
            tls: serving.server_config(&["h2"]),
            limits,
            identity: Identity::new(verifier),
            metrics: metrics.clone(),
        };
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, routes, deps, stop.clone()));
        Self {
            address,
            authority,
            serving,
            metrics,
            reporter,
            stop,
            server,
        }
    }

    async fn tls(&self, authority: &str) -> std::io::Result<TlsStream<TcpStream>> {
        handshake(self.address, authority).await
    }

    async fn channel(&self) -> Channel {
        let (address, authority) = (self.address, self.authority.clone());
        let connect = tower::service_fn(move |_| {
            let authority = authority.clone();
            async move { handshake(address, &authority).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://kruise-manager");
        within(endpoint.connect_with_connector(connect))
            .await
            .expect("connected")
    }

    async fn health(&self, token: Option<&str>) -> Result<i32, Status> {
        let mut client = HealthClient::new(self.channel().await);
        let request = with_token(HealthCheckRequest::default(), token);
        within(client.check(request))
            .await
            .map(|answer| answer.into_inner().status)
    }
}

async fn handshake(address: SocketAddr, authority: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for der in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(der.expect("PEM")).expect("a certificate");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(NAME).expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn with_token<T>(message: T, token: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        let value = MetadataValue::try_from(format!("Bearer {token}")).expect("ASCII");
        request.metadata_mut().insert("authorization", value);
    }
    request
}

async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it does not hang")
}

/// Waits until the other side closes.
async fn closed(stream: &mut (impl AsyncReadExt + Unpin)) {
    let mut buffer = [0; 1024];
    // Settings and a GOAWAY may come first.
    while within(stream.read(&mut buffer))
        .await
        .is_ok_and(|bytes| bytes > 0)
    {}
}

fn reason(status: &Status) -> String {
    status
        .get_error_details()
        .error_info()
        .map(|info| info.reason.clone())
        .unwrap_or_default()
}

#[tokio::test]
async fn health_wants_a_token_of_an_agent_or_of_somebody_who_may_look() {
    let bench = Bench::start(Limits::default()).await;
    let serving = tonic_health::pb::health_check_response::ServingStatus::Serving as i32;
    assert_eq!(bench.health(Some("agent-node1")).await.expect("served"), serving);
    assert_eq!(
        bench.health(Some("person-reader")).await.expect("served"),
        serving
    );
    for (token, code, expected) in [
        (None, Code::Unauthenticated, "TOKEN_MISSING"),
        (Some("forged"), Code::Unauthenticated, "TOKEN_INVALID"),
        (Some("person-nobody"), Code::PermissionDenied, "FORBIDDEN"),
    ] {
        let status = bench.health(token).await.expect_err("refused");
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (code, expected),
            "{token:?}"
        );
    }
    bench.reporter.set_all(ServingStatus::NotServing).await;
    assert_ne!(bench.health(Some("agent-node1")).await.expect("served"), serving);
}

#[tokio::test]
async fn without_a_token_nobody_learns_which_services_there_are() {
    let bench = Bench::start(Limits::default()).await;
    let mut client = tonic::client::Grpc::new(bench.channel().await);
    within(client.ready()).await.expect("connected");
    let path = http::uri::PathAndQuery::from_static("/no.such.Service/Method");
    let codec = tonic_prost_codec();
    let answer = within(client.unary(Request::new(HealthCheckRequest::default()), path.clone(), codec)).await;
    assert_eq!(answer.expect_err("refused").code(), Code::Unauthenticated);
    let mut client = tonic::client::Grpc::new(bench.channel().await);
    within(client.ready()).await.expect("connected");
    let request = with_token(HealthCheckRequest::default(), Some("agent-node1"));
    let answer = within(client.unary(request, path, tonic_prost_codec())).await;
    assert_eq!(answer.expect_err("unknown").code(), Code::Unimplemented);
}

fn tonic_prost_codec() -> tonic_prost::ProstCodec<HealthCheckRequest, tonic_health::pb::HealthCheckResponse> {
    tonic_prost::ProstCodec::default()
}

#[tokio::test]
async fn reflection_lists_exactly_what_is_served_in_both_versions() {
    let bench = Bench::start(Limits::default()).await;
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(bench.channel().await);
    let ask = || {
        use v1::server_reflection_request::MessageRequest;
        let message_request = Some(MessageRequest::ListServices(String::new()));
        tokio_stream::once(v1::ServerReflectionRequest {
            host: String::new(),
            message_request,
        })
    };
    let refused = within(client.server_reflection_info(with_token(ask(), None)))
        .await
        .expect_err("refused");
    assert_eq!(refused.code(), Code::Unauthenticated);
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(bench.channel().await);
    let answer = within(client.server_reflection_info(with_token(ask(), Some("person-reader"))))
        .await
        .expect("served");
    let first = within(pin!(answer.into_inner()).next())
        .await
        .expect("an answer")
        .expect("no error");
    let Some(v1::server_reflection_response::MessageResponse::ListServicesResponse(list)) =
        first.message_response
    else {
        panic!("{first:?}")
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&"kruise.dispatch.v1.DispatchService"), "{names:?}");
    assert!(!names.contains(&"kruise.node.v1.NodeService"), "{names:?}");
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(bench.channel().await);
    let message_request = Some(
        v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(
            "google.rpc.ErrorInfo".into(),
        ),
    );
    let ask = tokio_stream::once(v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request,
    });
    let answer = within(client.server_reflection_info(with_token(ask, Some("agent-node1"))))
        .await
        .expect("served");
    let first = within(pin!(answer.into_inner()).next())
        .await
        .expect("an answer")
        .expect("no error");
    assert!(
        matches!(
            first.message_response,
            Some(v1alpha::server_reflection_response::MessageResponse::FileDescriptorResponse(_))
        ),
        "{first:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_does_not_begin_is_cut_off() {
    let bench = Bench::start(Limits::default()).await;
    let mut stream = TcpStream::connect(bench.address).await.expect("accepted");
    closed(&mut stream).await;
}

#[tokio::test]
async fn a_client_that_trusts_others_harms_nobody() {
    let bench = Bench::start(Limits::default()).await;
    let other = renew_for_tests(&Serving::default(), NAME);
    let error = bench.tls(&other).await.expect_err("not trusted").to_string();
    assert!(error.contains("certificate"), "{error}");
    let mut plain = TcpStream::connect(bench.address).await.expect("accepted");
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("sent");
    closed(&mut plain).await;
    bench.health(Some("agent-node1")).await.expect("served");
}

#[tokio::test]
async fn strangers_are_cut_off_and_known_ones_stay() {
    let limits = Limits {
        stranger: Duration::from_millis(300),
        ..Limits::default()
    };
    let bench = Bench::start(limits).await;
    let mut known = HealthClient::new(bench.channel().await);
    let ask = || with_token(HealthCheckRequest::default(), Some("agent-node1"));
    within(known.check(ask())).await.expect("served");
    let mut silent = bench.tls(&bench.authority).await.expect("a handshake");
    closed(&mut silent).await;
    within(known.check(ask()))
        .await
        .expect("the known one is still connected");
    assert_eq!(bench.metrics.connections.get(), 1);
}

#[tokio::test]
async fn a_refused_stranger_is_told_and_then_cut_off() {
    let bench = Bench::start(Limits::default()).await;
    let mut client = HealthClient::new(bench.channel().await);
    let start = tokio::time::Instant::now();
    let refused = within(client.check(Request::new(HealthCheckRequest::default())))
        .await
        .expect_err("refused");
    assert_eq!(refused.code(), Code::Unauthenticated);
    within(async {
        while bench.metrics.connections.get() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "long before a silent one"
    );
}

#[tokio::test]
async fn too_many_connections_are_closed_at_once_and_room_is_used_again() {
    let bench = Bench::start(Limits {
        connections: 1,
        ..Limits::default()
    })
    .await;
    let first = bench.tls(&bench.authority).await.expect("room for one");
    let mut second = TcpStream::connect(bench.address)
        .await
        .expect("accepted by the system");
    closed(&mut second).await;
    drop(first);
    within(async { while bench.tls(&bench.authority).await.is_err() {} }).await;
}

#[tokio::test]
async fn the_oldest_silent_connection_makes_room_for_others() {
    let bench = Bench::start(Limits {
        idle: 2,
        handshake: PATIENCE * 10,
        ..Limits::default()
    })
    .await;
    let mut idle = Vec::new();
    for _ in 0..3 {
        idle.push(TcpStream::connect(bench.address).await.expect("accepted"));
    }
    let oldest = closed(&mut idle[0]);
    let mut oldest = pin!(oldest);
    // It takes a moment until they are known to be silent; others are served meanwhile and after that.
    while futures::poll!(&mut oldest).is_pending() {
        bench.health(Some("agent-node1")).await.expect("served");
    }
    bench.health(Some("agent-node1")).await.expect("served");
}

#[tokio::test]
async fn a_burst_is_served_one_after_the_other_and_in_full() {
    let bench = Bench::start(Limits {
        at_work: 2,
        idle: 4,
        ..Limits::default()
    })
    .await;
    let burst = futures::future::join_all((0..40).map(|_| bench.tls(&bench.authority))).await;
    assert_eq!(burst.iter().filter(|stream| stream.is_ok()).count(), 40);
}

#[tokio::test]
async fn who_begins_handshakes_and_does_not_go_on_holds_up_no_other_address() {
    let bench = Bench::start(Limits {
        at_work: 1,
        ..Limits::default()
    })
    .await;
    let mut stalled = Vec::new();
    for _ in 0..40 {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket
            .bind("127.0.0.2:0".parse().expect("an address"))
            .expect("bound");
        let mut stream = socket.connect(bench.address).await.expect("accepted");
        stream.write_all(&[22]).await.expect("sent");
        stalled.push(stream);
    }
    let start = tokio::time::Instant::now();
    bench.health(Some("agent-node1")).await.expect("served");
    // Half a second each, one after the other.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_new_certificate_is_used_from_the_next_handshake_on() {
    let bench = Bench::start(Limits::default()).await;
    let mut client = HealthClient::new(bench.channel().await);
    let ask = || with_token(HealthCheckRequest::default(), Some("agent-node1"));
    within(client.check(ask())).await.expect("served");
    let renewed = renew_for_tests(&bench.serving, NAME);
    bench
        .tls(&bench.authority)
        .await
        .expect_err("the old authority is no good");
    bench.tls(&renewed).await.expect("the new one is");
    within(client.check(ask())).await.expect("open connections go on");
}

#[tokio::test]
async fn a_stop_closes_the_port_and_waits_for_those_who_are_there() {
    let bench = Bench::start(Limits::default()).await;
    let mut client = HealthClient::new(bench.channel().await);
    let request = with_token(HealthCheckRequest::default(), Some("agent-node1"));
    let mut watch = within(client.watch(request)).await.expect("served").into_inner();
    within(watch.next()).await.expect("a status").expect("no error");
    bench.stop.cancel();
    within(async { while TcpStream::connect(bench.address).await.is_ok() {} }).await;
    assert!(!bench.server.is_finished(), "a stream is open");
    drop(watch);
    drop(client);
    within(bench.server)
        .await
        .expect("no panic")
        .expect("a clean end");
}

#[tokio::test]
async fn an_address_with_too_many_bad_tokens_is_refused_unheard() {
    let bench = Bench::start(Limits::default()).await;
    let mut client = HealthClient::new(bench.channel().await);
    within(client.check(with_token(HealthCheckRequest::default(), Some("agent-node1"))))
        .await
        .expect("served");
    let mut reasons = Vec::new();
    for n in 0..40 {
        let token = format!("forged-{n}");
        let refused = within(client.check(with_token(HealthCheckRequest::default(), Some(&token)))).await;
        reasons.push(reason(&refused.expect_err("refused")));
    }
    assert_eq!(
        reasons[..20]
            .iter()
            .filter(|reason| *reason == "TOKEN_INVALID")
            .count(),
        20
    );
    // Now and then one more is heard, the more often the slower this machine is.
    assert!(
        reasons[20..].iter().any(|reason| reason == "TOO_MANY_FAILURES"),
        "{reasons:?}"
    );
}
