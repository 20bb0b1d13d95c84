//! Calls that a follower passes on to the leader.

use super::*;

/// Trusts one certificate.
#[derive(Debug)]
struct OneRoot(Arc<RootCertStore>);

impl Roots for OneRoot {
    fn roots(&self) -> BoxFuture<'_, Result<Arc<RootCertStore>, String>> {
        std::future::ready(Ok(Arc::clone(&self.0))).boxed()
    }
}

/// A leader that listens on loopback with a certificate of its own, and what to trust.
async fn leader_over_tls(bed: &Bed) -> (String, Arc<RootCertStore>) {
    let name = kruise_api::names::MANAGER_SERVER_NAME.to_owned();
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed([name]).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).expect("usable");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("usable");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback");
    let address = listener.local_addr().expect("bound").to_string();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let incoming = futures::stream::unfold((listener, acceptor), |(listener, acceptor)| async move {
        let (stream, _) = listener.accept().await.expect("accepts");
        Some((acceptor.accept(stream).await, (listener, acceptor)))
    });
    let service = service(
        bed.engine.clone(),
        cloneset::channel().0,
        identity(),
        leads(),
        "pod-a".into(),
        Arc::new(NoRoots),
    );
    let routes = Routes::new(service).prepare();
    tokio::spawn(async move {
        let incoming = std::pin::pin!(incoming);
        tonic::transport::Server::builder()
            .serve_with_incoming(routes, incoming)
            .await
    });
    (address, Arc::new(roots))
}

async fn follower(bed: &Bed, leader: Option<Peer>, roots: Arc<dyn Roots>) -> Channel {
    let leadership = Leadership::fixed(LeaderState::Follower { leader });
    let service = service(
        bed.engine.clone(),
        cloneset::channel().0,
        identity(),
        leadership,
        "pod-b".into(),
        roots,
    );
    serve_in_process(Routes::new(service)).await
}

#[tokio::test]
async fn a_follower_asks_the_leader_with_the_callers_token() {
    let bed = bed().await;
    let (address, roots) = leader_over_tls(&bed).await;
    let peer = Peer {
        name: "pod-a".into(),
        address,
    };
    let channel = follower(&bed, Some(peer.clone()), Arc::new(OneRoot(roots))).await;
    let list = |token: &str| with_token(token, ListAgentsRequest::default());
    let page = client(&channel)
        .list_agents(list("person-bob"))
        .await
        .expect("an answer")
        .into_inner();
    assert_eq!((page.leader.as_str(), page.agents.len()), ("pod-a", 3));
    let refused = client(&channel)
        .list_tasks(with_token("person-bob", ListTasksRequest::default()))
        .await;
    assert_eq!(refused.expect_err("no right").code(), Code::PermissionDenied);
    bed.cluster.create_job("a", &json!({"selector": {"names": []}}));
    let request = WatchTasksRequest {
        job: "ns/a".into(),
        node_name: String::new(),
        until_done: true,
    };
    let mut stream = client(&channel)
        .watch_tasks(with_token("person-ann", request))
        .await
        .expect("a stream")
        .into_inner();
    while next(&mut stream).await.is_some() {}
    let stranger = follower(&bed, Some(peer), Arc::new(NoRoots)).await;
    let failed = client(&stranger)
        .list_agents(list("person-bob"))
        .await
        .expect_err("no trust");
    assert_eq!(failed.code(), Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_when_nobody_leads_or_the_call_was_forwarded_once() {
    let bed = bed().await;
    let channel = follower(&bed, None, Arc::new(NoRoots)).await;
    let list = || with_token("person-bob", ListAgentsRequest::default());
    assert_eq!(
        client(&channel)
            .list_agents(list())
            .await
            .expect_err("nobody leads")
            .code(),
        Code::Unavailable
    );
    let peer = Peer {
        name: "pod-c".into(),
        address: "127.0.0.1:9".into(),
    };
    let channel = follower(&bed, Some(peer), Arc::new(NoRoots)).await;
    let mut request = list();
    request
        .metadata_mut()
        .insert("kruise-forwarded", "1".parse().expect("ASCII"));
    let refused = client(&channel)
        .list_agents(request)
        .await
        .expect_err("no ping-pong");
    let details = tonic_types::StatusExt::get_error_details(&refused);
    assert_eq!(details.error_info().expect("there").reason, "NOT_LEADER");
}
