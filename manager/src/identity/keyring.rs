//! The API server's signing keys, fetched now and then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::keys::KeySet;
use crate::clock::Monotonic;
use crate::kubeapi::Api;

/// How often the keys are fetched: one that is taken out of service is not believed for longer.
const REFRESH: Duration = Duration::from_secs(60);
/// Least time between two fetches, however many tokens name keys that nobody knows.
const PAUSE: Duration = Duration::from_secs(10);
/// After a fetch that failed.
const RETRY: Duration = Duration::from_secs(2);
/// Keys that could not be fetched again for so long are not used any more.
const STALE: Duration = Duration::from_secs(300);

/// Where the API server says who it is, and by which keys it signs. Both can be read by every service account by default.
const DISCOVERY: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/openid/v1/jwks";

/// What the API server signs with at this moment.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) keys: KeySet,
    pub(super) issuer: String,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
}

/// The keys, and when they were fetched.
#[derive(Debug)]
pub(super) struct Keyring {
    api: Api,
    clock: Monotonic,
    state: Mutex<State>,
    /// One fetch at a time.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    known: Option<Arc<Known>>,
    fetched: Duration,
    /// When a fetch was last begun.
    tried: Option<Duration>,
    /// Whether a failure was told.
    told: bool,
}

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("the API server does not give its signing keys")]
    Request(#[source] Box<kube::Error>),
    #[error("the API server's answer about its signing keys cannot be read")]
    Read(#[from] serde_json::Error),
    #[error("the API server names no signing key of a kind that can be checked here")]
    None,
}

impl Keyring {
    pub(super) fn new(api: Api, clock: Monotonic) -> Self {
        Self {
            api,
            clock,
            state: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        }
    }

    /// Fetches the keys again and again until `stop`.
    pub(super) async fn run(&self, stop: CancellationToken) {
        loop {
            let pause = if self.fetch().await.is_some() {
                REFRESH
            } else {
                RETRY
            };
            tokio::select! {
                // A sleep can be dropped.
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// The keys, unless there are none that can be relied on.
    pub(super) fn current(&self) -> Option<Arc<Known>> {
        let state = self.state();
        let fresh = self.clock.now() < state.fetched + STALE;
        state.known.clone().filter(|_| fresh)
    }

    /// The keys as of now, give or take [`PAUSE`]: for a token that names a key which is not among the current ones.
    pub(super) async fn newest(&self) -> Option<Arc<Known>> {
        let _one = self.fetching.lock().await;
        let now = self.clock.now();
        let (tried, fetched) = {
            let state = self.state();
            (state.tried, state.fetched)
        };
        if tried.is_none_or(|tried| tried + PAUSE <= now) {
            return self.fetch_now().await;
        }
        // The last try is that young; if it failed, nobody knows.
        self.current().filter(|_| now < fetched + PAUSE)
    }

    async fn fetch(&self) -> Option<Arc<Known>> {
        let _one = self.fetching.lock().await;
        self.fetch_now().await
    }

    async fn fetch_now(&self) -> Option<Arc<Known>> {
        self.state().tried = Some(self.clock.now());
        let fetched = self.request().await;
        let mut state = self.state();
        match fetched {
            Ok(known) => {
                let known = Arc::new(known);
                state.known = Some(Arc::clone(&known));
                state.fetched = self.clock.now();
                state.told = false;
                Some(known)
            }
            Err(error) => {
                if !std::mem::replace(&mut state.told, true) {
                    let error = crate::telemetry::chain(&error);
                    tracing::warn!(
                        error,
                        "agents' tokens are verified by TokenReview, at a limited rate"
                    );
                }
                None
            }
        }
    }

    async fn request(&self) -> Result<Known, FetchError> {
        let get = async |path: &str| {
            let request = http::Request::get(path).body(Vec::new());
            let request = request.map_err(kube::Error::HttpError);
            let answer = match request {
                Ok(request) => self.api.plain().request_text(request).await,
                Err(error) => Err(error),
            };
            answer.map_err(|error| FetchError::Request(Box::new(error)))
        };
        let Discovery { issuer } = serde_json::from_str(&get(DISCOVERY).await?)?;
        let keys = KeySet::read(&get(KEYS).await?)?;
        if keys.usable() == 0 {
            return Err(FetchError::None);
        }
        Ok(Known { keys, issuer })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::keys::signer::Signer;
    use super::*;
    use crate::kubeapi::fake::{FakeApi, Fault};
    use crate::leader::{LeaderState, Leadership};

    fn keyring(server: &FakeApi) -> Keyring {
        let api = Api::over(server, Leadership::fixed(LeaderState::Follower { leader: None }));
        Keyring::new(api, Monotonic::tokio())
    }

    fn publish(server: &FakeApi, keys: &[&Signer]) {
        server.put(DISCOVERY, json!({"issuer": "https://a"}));
        let keys: Vec<_> = keys.iter().map(|signer| signer.public()).collect();
        server.put(KEYS, json!({ "keys": keys }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_key_is_fetched_when_a_token_names_it_but_not_for_every_token() {
        let (server, old, new) = (FakeApi::default(), Signer::new("old"), Signer::new("new"));
        publish(&server, &[&old]);
        let keyring = keyring(&server);
        assert!(keyring.current().is_none(), "nothing is fetched by looking");
        let known = keyring.newest().await.expect("fetched");
        assert_eq!(known.issuer, "https://a");
        publish(&server, &[&old, &new]);
        let asked = server.requests().len();
        for _ in 0..100 {
            assert_eq!(keyring.newest().await.expect("as before").keys.usable(), 1);
        }
        assert_eq!(server.requests().len(), asked);
        tokio::time::advance(PAUSE).await;
        assert_eq!(keyring.newest().await.expect("again").keys.usable(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_cannot_be_fetched_again_are_used_for_a_while_and_then_not() {
        let (server, signer) = (FakeApi::default(), Signer::new("k"));
        publish(&server, &[&signer]);
        let keyring = keyring(&server);
        keyring.newest().await.expect("fetched");
        server.fail_next("GET", Fault::Refuse(503));
        tokio::time::advance(PAUSE).await;
        assert!(
            keyring.newest().await.is_none(),
            "nobody knows about a key that is not among the current ones"
        );
        assert!(
            keyring.newest().await.is_none(),
            "and the server is left in peace"
        );
        assert!(keyring.current().is_some());
        tokio::time::advance(STALE).await;
        assert!(keyring.current().is_none());
        keyring.newest().await.expect("it is back");
        assert!(keyring.current().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_a_usable_key_is_none() {
        let server = FakeApi::default();
        publish(&server, &[]);
        assert!(keyring(&server).newest().await.is_none());
    }
}
