//! preStop hooks, as the kubelet has noted them on the container.
//!
//! What is run comes from the node alone; a manager has no say in it. A connection to a port (`tcpSocket`), which the kubelet does not know as a
//! hook, is made and closed.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::tls;
use crate::runtime::Runtime;

/// A hook.
#[derive(Debug, PartialEq)]
pub(super) enum Hook {
    Exec(Vec<String>),
    Http(Http),
    Tcp { host: Option<String>, port: u16 },
    Sleep(Duration),
}

/// A request to be made.
#[derive(Debug, PartialEq)]
pub(super) struct Http {
    host: Option<String>,
    port: u16,
    path: String,
    https: bool,
    headers: Vec<(String, String)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Handler {
    exec: Option<Exec>,
    http_get: Option<HttpGet>,
    tcp_socket: Option<TcpSocket>,
    sleep: Option<Sleep>,
}

#[derive(Deserialize)]
struct Exec {
    #[serde(default)]
    command: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HttpGet {
    #[serde(default)]
    host: String,
    port: Value,
    #[serde(default)]
    path: String,
    #[serde(default)]
    scheme: String,
    #[serde(default)]
    http_headers: Vec<Header>,
}

#[derive(Deserialize)]
struct Header {
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct TcpSocket {
    #[serde(default)]
    host: String,
    port: Value,
}

#[derive(Deserialize)]
struct Sleep {
    seconds: u64,
}

/// A port of the container; the kubelet writes it with the names of its own type.
#[derive(Deserialize)]
struct Port {
    #[serde(alias = "Name", default)]
    name: String,
    #[serde(alias = "ContainerPort", rename = "containerPort", default)]
    number: u16,
}

impl Hook {
    /// From the kubelet's notes.
    pub(super) fn parse(text: &str, ports: Option<&str>) -> Result<Self, String> {
        let handler: Handler =
            serde_json::from_str(text).map_err(|error| format!("preStop hook cannot be read: {error}"))?;
        let ports: Vec<Port> = ports
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let some = |host: String| Some(host).filter(|host| !host.is_empty());
        if let Some(exec) = handler.exec {
            return Ok(Self::Exec(exec.command));
        }
        if let Some(get) = handler.http_get {
            return Ok(Self::Http(Http {
                host: some(get.host),
                port: port(&get.port, &ports)?,
                path: if get.path.starts_with('/') {
                    get.path
                } else {
                    format!("/{}", get.path)
                },
                https: get.scheme.eq_ignore_ascii_case("https"),
                headers: get
                    .http_headers
                    .into_iter()
                    .map(|header| (header.name, header.value))
                    .collect(),
            }));
        }
        if let Some(socket) = handler.tcp_socket {
            return Ok(Self::Tcp {
                host: some(socket.host),
                port: port(&socket.port, &ports)?,
            });
        }
        match handler.sleep {
            Some(sleep) => Ok(Self::Sleep(Duration::from_secs(sleep.seconds))),
            None => Err("Cannot run handler".to_owned()),
        }
    }
}

/// A number, the text of one, or the name of a port.
fn port(value: &Value, ports: &[Port]) -> Result<u16, String> {
    let found = match value {
        Value::Number(number) => number.as_u64().and_then(|number| u16::try_from(number).ok()),
        Value::String(text) => text.parse().ok().or_else(|| {
            let named = ports.iter().find(|port| port.name == *text);
            named.map(|port| port.number)
        }),
        _ => None,
    };
    found
        .filter(|port| *port > 0)
        .ok_or_else(|| format!("preStop hook names a port that the container does not have: {value}"))
}

/// Runs it. Whoever calls gives up after `grace`; a command is killed by the runtime by then. Answers where a request had to be made again without TLS.
pub(super) async fn run(
    hook: &Hook,
    id: &str,
    pod_ips: &[String],
    grace: Duration,
    runtime: &dyn Runtime,
) -> Result<Option<String>, String> {
    let address = |host: &Option<String>| {
        host.clone()
            .or_else(|| pod_ips.first().cloned())
            .ok_or_else(|| "the pod has no address".to_owned())
    };
    match hook {
        Hook::Sleep(span) => {
            tokio::time::sleep(*span).await;
            Ok(None)
        }
        Hook::Exec(command) => {
            let containers = runtime.containers().ok_or("this runtime runs no commands")?;
            match containers.exec(id, command.clone(), grace).await {
                Ok((0, _)) => Ok(None),
                Ok((code, printed)) => Err(format!(
                    "command {command:?} exited with {code}: {printed}, message: {printed:?}"
                )),
                Err(error) => Err(format!("command {command:?} failed: {error}")),
            }
        }
        Hook::Tcp { host, port } => {
            let host = address(host)?;
            let connected = TcpStream::connect((host.as_str(), *port)).await;
            connected
                .map(|_| None)
                .map_err(|error| format!("{host}:{port}: {error}"))
        }
        Hook::Http(get) => fetch(get, &address(&get.host)?).await,
    }
}

/// Any answer is one. Says where it came without TLS although that was asked for.
async fn fetch(get: &Http, host: &str) -> Result<Option<String>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{host}:{}: {error}", get.port);
    let connect = || TcpStream::connect((host.trim_matches(['[', ']']), get.port));
    let stream = connect().await.map_err(|error| failed(&error))?;
    if !get.https {
        return ask(get, host, stream, true).await.map(|()| None);
    }
    let connector = TlsConnector::from(Arc::new(tls::anybody()));
    let name = rustls::pki_types::ServerName::try_from(host.to_owned()).map_err(|error| failed(&error))?;
    match connector.connect(name, stream).await {
        Ok(stream) => ask(get, host, stream, true).await.map(|()| None),
        Err(error) if tls::is_plain(&error) => {
            // As the kubelet does: the peer speaks HTTP without TLS. What was meant for TLS alone is not said in the clear.
            tracing::warn!(
                host,
                port = get.port,
                "https hook answered without TLS; asking again without"
            );
            let stream = connect().await.map_err(|error| failed(&error))?;
            ask(get, host, stream, false).await?;
            Ok(Some(format!("{}:{}", bracketed(host), get.port)))
        }
        Err(error) => Err(failed(&error)),
    }
}

/// A host as an address has it: IPv6 in brackets.
fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

async fn ask(
    get: &Http,
    host: &str,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    with_secrets: bool,
) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{host}:{}: {error}", get.port);
    let mut request = Request::get(&get.path)
        .header(http::header::HOST, format!("{}:{}", bracketed(host), get.port))
        .header(http::header::USER_AGENT, "kube-lifecycle/kruise-daemon")
        .header(http::header::ACCEPT, "*/*")
        .body(String::new())
        .map_err(|error| failed(&error))?;
    for (name, value) in &get.headers {
        let name: HeaderName = name.parse().map_err(|error| failed(&error))?;
        let value: HeaderValue = value.parse().map_err(|error| failed(&error))?;
        if name == http::header::AUTHORIZATION && !with_secrets {
            continue;
        }
        request.headers_mut().insert(name, value);
    }
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed(&error))?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    connection.abort();
    answer.map(drop).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_the_kubelet() {
        fn parse(text: &str) -> Result<Hook, String> {
            let ports = r#"[{"name":"http","containerPort":8080,"protocol":"TCP"}]"#;
            Hook::parse(text, Some(ports))
        }
        assert_eq!(
            parse(r#"{"exec":{"command":["sh","-c","x"]}}"#),
            Ok(Hook::Exec(vec!["sh".into(), "-c".into(), "x".into()]))
        );
        assert_eq!(
            parse(r#"{"sleep":{"seconds":3}}"#),
            Ok(Hook::Sleep(Duration::from_secs(3)))
        );
        for (port, number) in [("80", 80), ("\"81\"", 81), ("\"http\"", 8080)] {
            let text = format!(r#"{{"httpGet":{{"port":{port},"path":"bye","scheme":"HTTP"}}}}"#);
            let Ok(Hook::Http(get)) = parse(&text) else {
                panic!("{text}")
            };
            assert_eq!(
                (get.port, get.path.as_str(), get.https, get.host),
                (number, "/bye", false, None)
            );
        }
        assert_eq!(
            parse(r#"{"tcpSocket":{"port":81}}"#),
            Ok(Hook::Tcp { host: None, port: 81 })
        );
        for text in [
            "{}",
            "[]",
            "x",
            r#"{"httpGet":{"port":"nope"}}"#,
            r#"{"tcpSocket":{"port":0}}"#,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn https_that_is_answered_without_tls_is_asked_again_without_secrets() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let heard = tokio::spawn(async move {
            let mut heard = Vec::new();
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.expect("a client");
                let mut said = [0; 2048];
                let length = stream.read(&mut said).await.expect("a request");
                heard.push(String::from_utf8_lossy(&said[..length]).into_owned());
                let answer = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(answer.as_bytes()).await.expect("an answer");
            }
            heard
        });
        let get = Http {
            host: None,
            port,
            path: "/bye".to_owned(),
            https: true,
            headers: vec![
                ("Authorization".to_owned(), "secret".to_owned()),
                ("X-Why".to_owned(), "restart".to_owned()),
            ],
        };
        let asked_again = fetch(&get, "127.0.0.1").await;
        assert_eq!(asked_again, Ok(Some(format!("127.0.0.1:{port}"))));
        let heard = heard.await.expect("both requests");
        assert!(heard[1].starts_with("GET /bye"), "{heard:?}");
        assert!(heard[1].contains("x-why: restart"), "{heard:?}");
        assert!(!heard[1].contains("secret"), "{heard:?}");
    }
}
