//! The verifier that is used in a cluster.
//!
//! An agent's token is believed when its signature is one of the API server's, its words are in order (issuer, audience, account, time) and
//! everything that it is bound to still exists: pod, node, account, each with the same UID. All of that is known here, so that thousands of
//! agents can attach at once without a request. Whatever is not known — no keys, no node in the token, a pod that is too new — is asked
//! of the API server by TokenReview, at a limited rate.
//!
//! A person's token may be of any kind that the API server takes, so that it is always asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kruise_api::ids::{NodeName, NodeUid};
use kruise_api::names::{AGENT_AUDIENCE, INSPECT_AUDIENCE};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::directory::{Directory, Look, Subject, watch};
use super::follow::Follower;
use super::keyring::{Keyring, Known};
use super::keys::Doubt;
use super::limit::{Expiring, Key};
use super::review::{Place, Reviewer};
use super::token::{Bound, Claims};
use super::{AgentIdentity, AuthError, Person, Settings, Verifier};
use crate::clock::Monotonic;
use crate::kubeapi::Api;

/// How long the API server's word about a token is taken without asking again.
const BELIEVED: Duration = Duration::from_secs(30);
/// How long a refusal is repeated without asking again.
const REFUSED: Duration = Duration::from_secs(10);
/// How long an answer about rights is good.
const RIGHTS: Duration = Duration::from_secs(10);
/// More tokens than any cluster has nodes.
const MOST_BELIEVED: usize = 32_768;
/// Refusals and rights are remembered to spare the API server, so that forgetting some only costs requests.
const MOST_OTHERS: usize = 4_096;
/// Steps in which keys and watches are waited for at the start.
const STEP: Duration = Duration::from_millis(50);

/// Verifies tokens by what it knows, and asks the API server about the rest.
#[derive(Debug)]
pub struct ApiVerifier {
    settings: Settings,
    api: Api,
    clock: Monotonic,
    keyring: Arc<Keyring>,
    directory: Arc<Directory>,
    reviewer: Arc<Reviewer>,
    memory: Mutex<Memory>,
}

#[derive(Debug)]
struct Memory {
    agents: Expiring<Place>,
    people: Expiring<Person>,
    refused: Expiring<AuthError>,
    rights: Expiring<bool>,
}

impl Verifier for ApiVerifier {
    fn agent<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<AgentIdentity, AuthError>> {
        self.agent_of(token).boxed()
    }

    fn person<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Person, AuthError>> {
        self.person_of(token).boxed()
    }

    fn allowed<'a>(
        &'a self,
        person: &'a Person,
        resource: &'a str,
        verb: &'a str,
    ) -> BoxFuture<'a, Result<(), AuthError>> {
        self.right(person, resource, verb).boxed()
    }

    fn ended(&self, agent: &AgentIdentity) -> BoxFuture<'static, AuthError> {
        let place = Place {
            pod_name: agent.pod_name.clone(),
            pod_uid: agent.pod_uid.clone(),
            node_name: agent.node_name.to_string(),
            node_uid: agent.node_uid.to_string(),
        };
        let follower = Follower {
            api: self.api.clone(),
            clock: self.clock.clone(),
            directory: Arc::clone(&self.directory),
            reviewer: Arc::clone(&self.reviewer),
        };
        follower.ended(place).boxed()
    }
}

impl ApiVerifier {
    /// A verifier that knows nothing yet, and so asks the API server about everybody.
    #[must_use]
    pub fn new(settings: Settings, api: Api, clock: Monotonic) -> Self {
        let memory = Memory {
            agents: Expiring::new(MOST_BELIEVED),
            people: Expiring::new(MOST_OTHERS),
            refused: Expiring::new(MOST_OTHERS),
            rights: Expiring::new(MOST_OTHERS),
        };
        Self {
            keyring: Arc::new(Keyring::new(api.clone(), clock.clone())),
            directory: Arc::default(),
            reviewer: Arc::new(Reviewer::new(settings.clone(), api.clone(), clock.clone())),
            memory: Mutex::new(memory),
            settings,
            api,
            clock,
        }
    }

    /// Fetches keys and watches pods, nodes and the account from now on, until `stop`.
    pub fn learn(&self, stop: CancellationToken) {
        let agents = watch::Agents {
            namespace: self.settings.namespace.clone(),
            service_account: self.settings.service_account.clone(),
        };
        tokio::spawn(watch::run(
            Arc::clone(&self.directory),
            self.api.reader(),
            agents,
            self.clock.clone(),
            stop.clone(),
        ));
        let keyring = Arc::clone(&self.keyring);
        tokio::spawn(async move { keyring.run(stop).await });
    }

    /// Waits until agents can be verified without asking, but no longer than `limit`: it goes without, only slower.
    pub async fn informed(&self, limit: Duration) {
        let informed = async {
            while !(self.directory.is_complete() && self.keyring.current().is_some()) {
                tokio::time::sleep(STEP).await;
            }
        };
        if tokio::time::timeout(limit, informed).await.is_err() {
            tracing::warn!(
                "signing keys, pods or nodes are not known yet; agents' tokens are verified by TokenReview"
            );
        }
    }

    async fn agent_of(&self, token: &str) -> Result<AgentIdentity, AuthError> {
        // Agents' tokens are always of this form, people's need not be.
        let claims = Claims::of(token).ok_or_else(|| AuthError::invalid("it is no service account token"))?;
        if !claims.is_for(AGENT_AUDIENCE) {
            return Err(wrong_audience(AGENT_AUDIENCE));
        }
        if claims.exp.is_none() {
            return Err(AuthError::invalid("it has no end"));
        }
        let left = self.lifetime(Some(&claims))?;
        match self.known(token, &claims).await? {
            Some(place) => Ok(identity(place, left)),
            None => self.reviewed_agent(token, left).await,
        }
    }

    /// Pod and node of a token that can be verified by what is known here. None when the API server is to be asked.
    async fn known(&self, token: &str, claims: &Claims) -> Result<Option<Place>, AuthError> {
        let Some(keys) = self.signed(token).await? else {
            return Ok(None);
        };
        // The API server takes more than one issuer while it moves from one to another.
        if claims.iss != keys.issuer {
            return Ok(None);
        }
        if !claims.has_begun(self.api.now().as_second()) {
            return Err(AuthError::invalid("it is not valid yet"));
        }
        let username = self.settings.username();
        if claims.sub != username {
            return Err(AuthError::NotAnAgent {
                username: claims.sub.clone(),
            });
        }
        let bound = claims.bound.clone().unwrap_or_default();
        let Bound { pod: Some(pod), .. } = &bound else {
            return Err(AuthError::not_in_a_pod(&username));
        };
        let (Some(node), Some(account)) = (&bound.node, &bound.serviceaccount) else {
            return Ok(None);
        };
        let subject = Subject {
            pod_name: &pod.name,
            pod_uid: &pod.uid,
            node_name: &node.name,
            node_uid: &node.uid,
            account_uid: Some(&account.uid),
        };
        match self.directory.look(&subject, self.clock.now(), self.api.now()) {
            Look::Alive(_) => Ok(Some(Place {
                pod_name: pod.name.clone(),
                pod_uid: pod.uid.clone(),
                node_name: node.name.clone(),
                node_uid: node.uid.clone(),
            })),
            Look::Gone(error) => Err(error),
            Look::Absent(_) | Look::Unsure => Ok(None),
        }
    }

    /// The keys that a token is signed by; none when that cannot be told here.
    async fn signed(&self, token: &str) -> Result<Option<Arc<Known>>, AuthError> {
        let Some(mut known) = self.keyring.current() else {
            return Ok(None);
        };
        let mut checked = known.keys.check(token);
        if checked == Err(Doubt::UnknownKey) {
            let Some(newest) = self.keyring.newest().await else {
                return Ok(None);
            };
            checked = newest.keys.check(token);
            known = newest;
        }
        match checked {
            Ok(()) => Ok(Some(known)),
            Err(Doubt::OtherKind) => Ok(None),
            Err(Doubt::Malformed) => Err(AuthError::invalid("it is no service account token")),
            Err(Doubt::Forged | Doubt::UnknownKey) => {
                Err(AuthError::invalid("it is not signed by the API server"))
            }
        }
    }

    /// An agent by the API server's word.
    async fn reviewed_agent(&self, token: &str, left: Duration) -> Result<AgentIdentity, AuthError> {
        let key = hash([AGENT_AUDIENCE, token]);
        let now = self.clock.now();
        self.memory().refused.get(&key, now).map_or(Ok(()), Err)?;
        let known = self.memory().agents.get(&key, now);
        let place = match known {
            Some(place) => place,
            None => {
                let place = self
                    .review_agent(token)
                    .await
                    .inspect_err(|error| self.remember_refusal(key, error))?;
                let until = now + left.min(BELIEVED);
                self.memory().agents.insert(key, place.clone(), until, now);
                place
            }
        };
        match self
            .directory
            .look(&place.subject(), self.clock.now(), self.api.now())
        {
            Look::Gone(error) => Err(error),
            Look::Alive(_) | Look::Absent(_) | Look::Unsure => Ok(identity(place, left)),
        }
    }

    async fn review_agent(&self, token: &str) -> Result<Place, AuthError> {
        let user = self.reviewer.user(token, AGENT_AUDIENCE).await?;
        let place = self.reviewer.place_of(user).await?;
        let (name, uid) = (&place.node_name, &place.node_uid);
        match self.directory.has_node(name, uid, self.clock.now()) {
            Some(true) => {}
            Some(false) => return Err(AuthError::node_gone(name)),
            None => self.reviewer.check_node(name, uid).await?,
        }
        Ok(place)
    }

    async fn person_of(&self, token: &str) -> Result<Person, AuthError> {
        let key = hash([INSPECT_AUDIENCE, token]);
        let now = self.clock.now();
        let known = self.memory().people.get(&key, now);
        if let Some(person) = known {
            return Ok(person);
        }
        self.memory().refused.get(&key, now).map_or(Ok(()), Err)?;
        let claims = Claims::of(token);
        if claims
            .as_ref()
            .is_some_and(|claims| !claims.is_for(INSPECT_AUDIENCE))
        {
            return Err(wrong_audience(INSPECT_AUDIENCE));
        }
        let left = self.lifetime(claims.as_ref())?;
        let user = self
            .reviewer
            .user(token, INSPECT_AUDIENCE)
            .await
            .inspect_err(|error| self.remember_refusal(key, error))?;
        let person = Person {
            username: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default().into_iter().collect(),
        };
        let until = now + left.min(BELIEVED);
        self.memory().people.insert(key, person.clone(), until, now);
        Ok(person)
    }

    fn remember_refusal(&self, key: Key, error: &AuthError) {
        if !matches!(error, AuthError::Backend { .. }) {
            let now = self.clock.now();
            self.memory()
                .refused
                .insert(key, error.clone(), now + REFUSED, now);
        }
    }

    /// How long the token is good by its own words; an hour for one that does not say.
    fn lifetime(&self, claims: Option<&Claims>) -> Result<Duration, AuthError> {
        let Some(end) = claims.and_then(|claims| claims.exp) else {
            return Ok(Duration::from_secs(3600));
        };
        let left = end.saturating_sub(self.api.now().as_second());
        match u64::try_from(left) {
            Ok(left) if left > 0 => Ok(Duration::from_secs(left)),
            _ => Err(AuthError::TokenExpired),
        }
    }

    async fn right(&self, person: &Person, resource: &str, verb: &str) -> Result<(), AuthError> {
        let groups = person.groups.join("\n");
        let key = hash(["right", &person.username, &person.uid, &groups, resource, verb]);
        let known = self.memory().rights.get(&key, self.clock.now());
        let allowed = match known {
            Some(known) => known,
            None => {
                let allowed = self.reviewer.right(person, resource, verb).await?;
                let now = self.clock.now();
                self.memory().rights.insert(key, allowed, now + RIGHTS, now);
                allowed
            }
        };
        if allowed {
            return Ok(());
        }
        Err(AuthError::Forbidden {
            username: person.username.clone(),
            resource: resource.to_owned(),
            verb: verb.to_owned(),
        })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn identity(place: Place, valid_for: Duration) -> AgentIdentity {
    AgentIdentity {
        node_name: NodeName::new(place.node_name),
        node_uid: NodeUid::new(place.node_uid),
        pod_name: place.pod_name,
        pod_uid: place.pod_uid,
        valid_for,
    }
}

fn wrong_audience(wanted: &str) -> AuthError {
    AuthError::WrongAudience {
        wanted: wanted.to_owned(),
    }
}

/// Parts with their lengths, so that no two lists of parts look alike.
fn hash<const N: usize>(parts: [&str; N]) -> Key {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests;
