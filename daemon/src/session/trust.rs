//! What the agent trusts, and how it proves who it is: two files that the kubelet refreshes.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::clock::Clock;

/// For so long an empty bundle is waited for. Not longer: the kubelet looks at the volume of a running pod about once a minute, but
/// at once when the container starts anew.
pub(crate) const TRUST_WAIT: Duration = Duration::from_secs(10);
/// How often it is looked at meanwhile.
const TRUST_LOOK_EVERY: Duration = Duration::from_secs(1);

/// Text that is read when it is used. Its `Debug` shows where it comes from.
#[derive(Clone)]
pub enum Secret {
    /// A file, which may change.
    File(PathBuf),
    /// The text itself, for agents without files.
    Text(String),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "File({})", path.display()),
            Self::Text(_) => f.write_str("Text"),
        }
    }
}

impl Secret {
    /// The text as it is now.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn read(&self) -> io::Result<String> {
        match self {
            Self::File(path) => {
                let named =
                    |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
                tokio::fs::read_to_string(path).await.map_err(named)
            }
            Self::Text(text) => Ok(text.clone()),
        }
    }

    fn place(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Text(_) => "the given text".to_owned(),
        }
    }
}

/// Nobody can be trusted.
#[derive(Debug, thiserror::Error)]
#[error(
    "the trust bundle {place} holds no certificate after {} s ({found}); the manager fills ConfigMap kruise-manager-ca when it \
     first runs, and restarting this container makes the kubelet look again",
    .waited.as_secs()
)]
pub struct TrustError {
    place: String,
    waited: Duration,
    found: String,
}

/// Reads the trust bundle, waiting a little for one that is empty or not there.
///
/// # Errors
/// It stays empty.
pub(crate) async fn bundle(ca: &Secret, clock: &Clock) -> Result<String, TrustError> {
    let begin = clock.now_mono();
    loop {
        let found = match ca.read().await {
            Ok(text) => {
                match CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>() {
                    Ok(certificates) if !certificates.is_empty() => return Ok(text),
                    Ok(_) => "no certificate in it".to_owned(),
                    Err(error) => format!("not PEM: {error}"),
                }
            }
            Err(error) => error.to_string(),
        };
        let waited = clock.now_mono().saturating_sub(begin);
        if waited >= TRUST_WAIT {
            return Err(TrustError {
                place: ca.place(),
                waited,
                found,
            });
        }
        tokio::time::sleep(TRUST_LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_empty_bundle_is_said_to_be_so() {
        for text in ["", "\n", "not pem"] {
            let error = bundle(&Secret::Text(text.into()), &Clock::tokio())
                .await
                .expect_err("nothing to trust");
            let text = error.to_string();
            assert!(
                text.contains("kruise-manager-ca") && text.contains("10 s"),
                "{text}"
            );
        }
        let missing = Secret::File("/nonexistent/ca.crt".into());
        let error = bundle(&missing, &Clock::tokio())
            .await
            .expect_err("not there")
            .to_string();
        assert!(
            error.contains("/nonexistent/ca.crt") && error.contains("No such file"),
            "{error}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_bundle_that_comes_in_time_is_taken() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ca.crt");
        let ca = Secret::File(path.clone());
        let clock = Clock::tokio();
        let wait = bundle(&ca, &clock);
        let fill = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let key = rcgen::generate_simple_self_signed(vec!["x".to_owned()]).expect("a certificate");
            std::fs::write(&path, key.cert.pem()).expect("written");
        };
        let (found, ()) = tokio::join!(wait, fill);
        assert!(found.expect("in time").contains("BEGIN CERTIFICATE"));
    }

    #[test]
    fn what_is_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Secret::Text("hunter2".into())), "Text");
    }
}
