//! Who is calling: agents by their projected tokens, people by theirs.
//!
//! Nothing of a token is logged or kept; caches know it by its SHA-256.
//!
//! - [`ApiVerifier`] says how tokens are judged; `keys` checks signatures, `keyring` fetches the keys, `directory` watches what tokens are
//!   bound to, `review` asks the API server about the rest.
//! - `follow` ends what was begun with a token once its pod, node or account is gone.

mod api;
mod directory;
mod error;
#[cfg(test)]
pub(crate) mod fake;
mod follow;
mod keyring;
mod keys;
mod limit;
mod review;
mod token;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kruise_api::ids::{NodeName, NodeUid};

pub use api::ApiVerifier;
pub use error::{AuthError, DOMAIN};
pub(crate) use limit::Bucket;
pub(crate) use token::claimed_node;

/// Who the agents are, and how often the API server may be asked about callers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the agents.
    pub namespace: String,
    /// Their service account.
    pub service_account: String,
    /// Questions a second, and at once.
    pub reviews_per_second: u32,
}

impl Settings {
    fn username(&self) -> String {
        let Self {
            namespace,
            service_account,
            ..
        } = self;
        format!("system:serviceaccount:{namespace}:{service_account}")
    }
}

/// An agent whose token was verified. It may act for this node only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentIdentity {
    /// Node of the agent's pod, from the token's own claims.
    pub node_name: NodeName,
    /// UID of that node: a node made again under the same name is a stranger.
    pub node_uid: NodeUid,
    /// Name of the agent's pod.
    pub pod_name: String,
    /// UID of the agent's pod.
    pub pod_uid: String,
    /// How long the token is still good.
    pub valid_for: Duration,
}

/// A person, or a tool of theirs, whose token was verified. What they may do is another question: [`Identity::allowed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// User name.
    pub username: String,
    /// UID, when there is one.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Extra attributes, as they go into the review of access.
    pub extra: Vec<(String, Vec<String>)>,
}

/// Verifies tokens and rights. The real one asks the API server; tests plug in theirs.
pub trait Verifier: Send + Sync + 'static {
    /// Verifies an agent's token.
    fn agent<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<AgentIdentity, AuthError>>;
    /// Verifies a person's token.
    fn person<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Person, AuthError>>;
    /// Whether a person may use a verb on a virtual resource of the inspection group.
    fn allowed<'a>(
        &'a self,
        person: &'a Person,
        resource: &'a str,
        verb: &'a str,
    ) -> BoxFuture<'a, Result<(), AuthError>>;
    /// Ends when an agent that was let in may act no more, although its token has not ended: its pod, node or account is gone. Says why.
    fn ended(&self, _agent: &AgentIdentity) -> BoxFuture<'static, AuthError> {
        Box::pin(std::future::pending())
    }
}

/// What the services ask. Cheap to clone.
#[derive(Clone)]
pub struct Identity {
    verifier: Arc<dyn Verifier>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

impl Identity {
    /// Asks this verifier.
    pub fn new(verifier: impl Verifier) -> Self {
        Self::shared(Arc::new(verifier))
    }

    /// Asks a verifier that others hold as well.
    pub fn shared(verifier: Arc<impl Verifier>) -> Self {
        Self { verifier }
    }

    /// Verifies an agent's token and says which node it may act for.
    ///
    /// # Errors
    /// Anything of [`AuthError`] but `Forbidden`.
    pub async fn agent(&self, token: &str) -> Result<AgentIdentity, AuthError> {
        self.verifier.agent(token).await
    }

    /// Verifies a person's token.
    ///
    /// # Errors
    /// Anything of [`AuthError`] but `Forbidden`, `NotAnAgent` and `NodeMismatch`.
    pub async fn person(&self, token: &str) -> Result<Person, AuthError> {
        self.verifier.person(token).await
    }

    /// Ends, with the reason, when an agent that was let in may act no more although its token has not ended.
    pub fn ended(&self, agent: &AgentIdentity) -> BoxFuture<'static, AuthError> {
        self.verifier.ended(agent)
    }

    /// Whether a person may use `verb` (`get`, `watch`, ...) on `resource` (`agents`, `tasks`, `clonesets`) of group `inspect.kruise.io`.
    ///
    /// # Errors
    /// `Forbidden`, or `Backend` when nobody could tell.
    pub async fn allowed(&self, person: &Person, resource: &str, verb: &str) -> Result<(), AuthError> {
        self.verifier.allowed(person, resource, verb).await
    }
}

/// The token of a call's `authorization: Bearer TOKEN`.
///
/// # Errors
/// [`AuthError::TokenMissing`], also when there are two: no two readers shall take a different one for the caller's.
pub fn bearer(metadata: &tonic::metadata::MetadataMap) -> Result<&str, AuthError> {
    let values = metadata.get_all("authorization");
    bearer_of(values.iter().map(|value| value.to_str().ok()))
}

/// [`bearer`] for plain header values; one that is no text is none.
pub(crate) fn bearer_of<'a>(values: impl IntoIterator<Item = Option<&'a str>>) -> Result<&'a str, AuthError> {
    let mut values = values.into_iter();
    let (Some(Some(value)), None) = (values.next(), values.next()) else {
        return Err(AuthError::TokenMissing);
    };
    let (scheme, token) = value.split_once(' ').ok_or(AuthError::TokenMissing)?;
    let token = token.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() {
        Ok(token)
    } else {
        Err(AuthError::TokenMissing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_takes_the_scheme_in_any_case_and_nothing_else() {
        assert_eq!(bearer_of([Some("Bearer abc")]), Ok("abc"));
        assert_eq!(bearer_of([Some("bearer  abc ")]), Ok("abc"));
        for wrong in ["", "abc", "Basic abc", "Bearer ", "Bearer"] {
            assert_eq!(
                bearer_of([Some(wrong)]),
                Err(AuthError::TokenMissing),
                "{wrong:?}"
            );
        }
        let good = Some("Bearer abc");
        for wrong in [vec![], vec![None], vec![good, good], vec![None, good]] {
            assert_eq!(
                bearer_of(wrong.clone()),
                Err(AuthError::TokenMissing),
                "{wrong:?}"
            );
        }
    }
}
