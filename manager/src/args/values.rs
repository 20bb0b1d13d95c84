//! Values as Go programs take them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait to be accepted; the system has its own limit, usually 4096.
const BACKLOG: u32 = 4096;

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Nowhere.
    Off,
    /// This port of every address, IPv6 as well where there is any.
    Everywhere(u16),
    /// This address.
    At(SocketAddr),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("0"),
            Self::Everywhere(port) => write!(f, ":{port}"),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl Listen {
    /// Opens the port; none when it is off.
    ///
    /// # Errors
    /// When it is taken, or not allowed.
    pub fn bind(self) -> std::io::Result<Option<TcpListener>> {
        match self {
            Self::Off => Ok(None),
            Self::At(address) => open(address).map(Some),
            Self::Everywhere(port) => match open((Ipv6Addr::UNSPECIFIED, port).into()) {
                Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => {
                    // A machine without IPv6.
                    open((Ipv4Addr::UNSPECIFIED, port).into()).map(Some)
                }
                other => other.map(Some),
            },
        }
    }
}

/// Listens with a queue that holds the agents of a large cluster when they all come at once after a change of the leader: a full
/// queue costs each of them a second.
fn open(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv6() {
        TcpSocket::new_v6()?
    } else {
        TcpSocket::new_v4()?
    };
    // So that a restart need not wait for connections of the last run to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// `:8080`, `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, or `0` for nowhere.
pub(super) fn listen(text: &str) -> Result<Listen, String> {
    if text == "0" {
        return Ok(Listen::Off);
    }
    let port = |text: &str| text.parse::<u16>().map_err(|_| format!("{text:?} is no port"));
    match text.rsplit_once(':') {
        Some(("", text)) => port(text).map(Listen::Everywhere),
        Some(("localhost", text)) => Ok(Listen::At(SocketAddr::from((Ipv4Addr::LOCALHOST, port(text)?)))),
        _ => {
            let wanted =
                || format!("{text:?} is no address; accepted are :PORT, IP:PORT, localhost:PORT and 0");
            text.parse().map(Listen::At).map_err(|_| wanted())
        }
    }
}

/// `15s`, `1m30s`, `100ms`, `2h`; `0` needs no unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let wanted =
        || format!("{text:?} is no duration; accepted are numbers with units, such as 15s, 1m30s or 500ms");
    // Words and signs that the parser would take as well are not what other programs print or accept.
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.') && !text.starts_with(['P', 'p']);
    let parsed: SignedDuration = if plain {
        text.parse().map_err(|_| wanted())?
    } else {
        return Err(wanted());
    };
    Duration::try_from(parsed).map_err(|_| wanted())
}

/// Go's words for yes and no.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        for (text, millis) in [
            ("0", 0),
            ("15s", 15_000),
            ("1m30s", 90_000),
            ("100ms", 100),
            ("2h", 7_200_000),
            ("1.5s", 1_500),
            ("2m0s", 120_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "15", "-1s", "1 s", "PT5S", "five", "1s ago", "1d1"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(listen(":80"), Ok(Listen::Everywhere(80)));
        assert_eq!(listen("0"), Ok(Listen::Off));
        assert_eq!(listen("localhost:1"), listen("127.0.0.1:1"));
        assert!(matches!(listen("[::1]:5"), Ok(Listen::At(address)) if address.is_ipv6()));
        for text in ["", "80", ":", ":99999", "host:80", "1.2.3.4"] {
            assert!(listen(text).is_err(), "{text}");
        }
        for text in [":80", "0", "127.0.0.1:1"] {
            assert_eq!(listen(text).map(|listen| listen.to_string()).as_deref(), Ok(text));
        }
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_an_error() {
        let first = Listen::Everywhere(0).bind().expect("any port").expect("on");
        let port = first.local_addr().expect("bound").port();
        let error = Listen::Everywhere(port).bind().expect_err("taken");
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        assert!(Listen::Off.bind().expect("nothing to fail").is_none());
    }
}
