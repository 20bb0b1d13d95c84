//! The verifier that asks the API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::{Node, Pod};
use kruise_api::ids::{NodeName, NodeUid};
use kruise_api::names::{AGENT_AUDIENCE, INSPECT_AUDIENCE, INSPECT_GROUP};
use kube::api::PostParams;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::limit::{Bucket, Expiring, Key};
use super::token::Claims;
use super::{AgentIdentity, AuthError, Person, Verifier};
use crate::clock::Monotonic;
use crate::kubeapi::Api;

/// How long a verified token is believed without asking again: the bound on how long a removed pod's agent stays in.
const BELIEVED: Duration = Duration::from_secs(60);
/// How long a refusal is repeated without asking again.
const REFUSED: Duration = Duration::from_secs(10);
/// How long an answer about rights is good.
const RIGHTS: Duration = Duration::from_secs(10);
/// More tokens than any cluster has nodes.
const MOST_BELIEVED: usize = 32_768;
/// Refusals and rights are remembered to spare the API server, so that forgetting some only costs requests.
const MOST_OTHERS: usize = 4_096;
/// Reviews under way at once; the API server answers one within milliseconds.
const REVIEWS: usize = 32;
/// Time to get one of those places.
const PATIENCE: Duration = Duration::from_secs(3);

const EXTRA: &str = "authentication.kubernetes.io/";

/// Who the agents are, and how often tokens may be looked at.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the agents.
    pub namespace: String,
    /// Their service account.
    pub service_account: String,
    /// Reviews a second, and at once.
    pub reviews_per_second: u32,
}

/// Asks the API server, remembers for a short time, and asks only so often.
#[derive(Debug)]
pub struct ApiVerifier {
    settings: Settings,
    api: Api,
    clock: Monotonic,
    places: Semaphore,
    memory: Mutex<Memory>,
}

#[derive(Debug)]
struct Memory {
    believed: Expiring<Verified>,
    refused: Expiring<AuthError>,
    rights: Expiring<bool>,
    bucket: Bucket,
}

/// A verified token, as it is remembered.
#[derive(Clone, Debug)]
struct Verified {
    who: Arc<Who>,
    /// End of the token on our clock.
    ends: Duration,
}

#[derive(Debug)]
enum Who {
    Agent {
        node_name: NodeName,
        node_uid: NodeUid,
        pod_name: String,
        pod_uid: String,
    },
    Person(Person),
}

impl Verifier for ApiVerifier {
    fn agent<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<AgentIdentity, AuthError>> {
        async move {
            // Agents' tokens are always of this form, people's need not be.
            if Claims::of(token).is_none() {
                return Err(invalid("it is no service account token"));
            }
            let verified = self.verified(token, AGENT_AUDIENCE).await?;
            match &*verified.who {
                Who::Agent {
                    node_name,
                    node_uid,
                    pod_name,
                    pod_uid,
                } => Ok(AgentIdentity {
                    node_name: node_name.clone(),
                    node_uid: node_uid.clone(),
                    pod_name: pod_name.clone(),
                    pod_uid: pod_uid.clone(),
                    valid_for: verified.ends.saturating_sub(self.clock.now()),
                }),
                Who::Person(person) => Err(AuthError::NotAnAgent {
                    username: person.username.clone(),
                }),
            }
        }
        .boxed()
    }

    fn person<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Person, AuthError>> {
        async move {
            match &*self.verified(token, INSPECT_AUDIENCE).await?.who {
                Who::Person(person) => Ok(person.clone()),
                Who::Agent { .. } => Err(AuthError::WrongAudience {
                    wanted: INSPECT_AUDIENCE.to_owned(),
                }),
            }
        }
        .boxed()
    }

    fn allowed<'a>(
        &'a self,
        person: &'a Person,
        resource: &'a str,
        verb: &'a str,
    ) -> BoxFuture<'a, Result<(), AuthError>> {
        self.right(person, resource, verb).boxed()
    }
}

impl ApiVerifier {
    /// A verifier that remembers nothing yet.
    #[must_use]
    pub fn new(settings: Settings, api: Api, clock: Monotonic) -> Self {
        let memory = Memory {
            believed: Expiring::new(MOST_BELIEVED),
            refused: Expiring::new(MOST_OTHERS),
            rights: Expiring::new(MOST_OTHERS),
            bucket: Bucket::new(settings.reviews_per_second),
        };
        Self {
            settings,
            api,
            clock,
            places: Semaphore::new(REVIEWS),
            memory: Mutex::new(memory),
        }
    }

    async fn verified(&self, token: &str, audience: &str) -> Result<Verified, AuthError> {
        let key = hash([audience, token]);
        let now = self.clock.now();
        if let Some(known) = self.recall(&key, now) {
            return known;
        }
        let claims = Claims::of(token);
        if claims.as_ref().is_some_and(|claims| !claims.is_for(audience)) {
            return Err(AuthError::WrongAudience {
                wanted: audience.to_owned(),
            });
        }
        let left = self.lifetime(claims)?;
        let result = self.review(token, audience).await;
        let result = result.map(|who| Verified {
            who: Arc::new(who),
            ends: now + left,
        });
        self.remember(key, &result);
        result
    }

    fn recall(&self, key: &Key, now: Duration) -> Option<Result<Verified, AuthError>> {
        let memory = self.memory();
        memory
            .believed
            .get(key, now)
            .map(Ok)
            .or_else(|| memory.refused.get(key, now).map(Err))
    }

    fn remember(&self, key: Key, result: &Result<Verified, AuthError>) {
        let now = self.clock.now();
        let mut memory = self.memory();
        match result {
            Ok(verified) => {
                let until = verified.ends.min(now + BELIEVED);
                memory.believed.insert(key, verified.clone(), until, now);
            }
            Err(AuthError::Backend { .. }) => {}
            Err(refusal) => memory.refused.insert(key, refusal.clone(), now + REFUSED, now),
        }
    }

    /// How long the token is good by its own words; an hour for one that does not say.
    fn lifetime(&self, claims: Option<Claims>) -> Result<Duration, AuthError> {
        let Some(end) = claims.and_then(|claims| claims.exp) else {
            return Ok(Duration::from_secs(3600));
        };
        let left = end.saturating_sub(self.api.now().as_second());
        match u64::try_from(left) {
            Ok(left) if left > 0 => Ok(Duration::from_secs(left)),
            _ => Err(AuthError::TokenExpired),
        }
    }

    async fn review(&self, token: &str, audience: &str) -> Result<Who, AuthError> {
        let _place = self.admitted().await?;
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: Some(vec![audience.to_owned()]),
            },
            ..TokenReview::default()
        };
        let reviews: kube::Api<TokenReview> = kube::Api::all(self.api.plain());
        let answer = reviews
            .create(&PostParams::default(), &review)
            .await
            .map_err(|error| backend(&error))?;
        let status = answer.status.unwrap_or_default();
        if !status.authenticated.unwrap_or(false) {
            // The server's words may change and are for our log only; the caller learns no more than it must.
            tracing::debug!(
                error = status.error.as_deref().unwrap_or_default(),
                "token review"
            );
            return Err(invalid("the API server does not accept it"));
        }
        if !status
            .audiences
            .unwrap_or_default()
            .iter()
            .any(|granted| granted == audience)
        {
            return Err(AuthError::WrongAudience {
                wanted: audience.to_owned(),
            });
        }
        let user = status.user.unwrap_or_default();
        if audience == AGENT_AUDIENCE {
            self.agent_of(user).await
        } else {
            Ok(Who::Person(person_of(user)))
        }
    }

    /// A place among the reviews that may run at once, and a drop from the bucket.
    async fn admitted(&self) -> Result<tokio::sync::SemaphorePermit<'_>, AuthError> {
        let busy = |retry_after| AuthError::Backend {
            detail: "too many tokens at once".to_owned(),
            retry_after,
        };
        self.memory().bucket.take(self.clock.now()).map_err(busy)?;
        let place = tokio::time::timeout(PATIENCE, self.places.acquire()).await;
        place.map_err(|_| busy(PATIENCE))?.map_err(|_| busy(PATIENCE))
    }

    async fn agent_of(&self, user: UserInfo) -> Result<Who, AuthError> {
        let Settings {
            namespace,
            service_account,
            ..
        } = &self.settings;
        let username = user.username.unwrap_or_default();
        if username != format!("system:serviceaccount:{namespace}:{service_account}") {
            return Err(AuthError::NotAnAgent { username });
        }
        let extra = user.extra.unwrap_or_default();
        let (Some(pod_name), Some(pod_uid)) = (first(&extra, "pod-name"), first(&extra, "pod-uid")) else {
            return Err(AuthError::NotAnAgent {
                username: format!("{username} without a pod"),
            });
        };
        let (node_name, node_uid) = match (first(&extra, "node-name"), first(&extra, "node-uid")) {
            (Some(name), Some(uid)) => (name, uid),
            _ => self.node_of(&pod_name, &pod_uid).await?,
        };
        Ok(Who::Agent {
            node_name: NodeName::new(node_name),
            node_uid: NodeUid::new(node_uid),
            pod_name,
            pod_uid,
        })
    }

    /// Node of a pod, for API servers that do not put it into tokens.
    async fn node_of(&self, pod_name: &str, pod_uid: &str) -> Result<(String, String), AuthError> {
        let pods: kube::Api<Pod> = kube::Api::namespaced(self.api.plain(), &self.settings.namespace);
        let pod = pods.get_opt(pod_name).await.map_err(|error| backend(&error))?;
        let pod = pod.filter(|pod| pod.metadata.uid.as_deref() == Some(pod_uid));
        let pod = pod.ok_or_else(|| invalid("its pod is gone"))?;
        let name = pod
            .spec
            .and_then(|spec| spec.node_name)
            .ok_or_else(|| invalid("its pod has no node"))?;
        let nodes: kube::Api<Node> = kube::Api::all(self.api.plain());
        let node = nodes.get_opt(&name).await.map_err(|error| backend(&error))?;
        let uid = node
            .and_then(|node| node.metadata.uid)
            .ok_or_else(|| invalid("its node is gone"))?;
        Ok((name, uid))
    }

    async fn right(&self, person: &Person, resource: &str, verb: &str) -> Result<(), AuthError> {
        let forbidden = || AuthError::Forbidden {
            username: person.username.clone(),
            resource: resource.to_owned(),
            verb: verb.to_owned(),
        };
        let groups = person.groups.join("\n");
        let key = hash(["right", &person.username, &person.uid, &groups, resource, verb]);
        let known = self.memory().rights.get(&key, self.clock.now());
        let allowed = match known {
            Some(known) => known,
            None => {
                let allowed = self.ask_right(person, resource, verb).await?;
                let now = self.clock.now();
                self.memory().rights.insert(key, allowed, now + RIGHTS, now);
                allowed
            }
        };
        if allowed { Ok(()) } else { Err(forbidden()) }
    }

    async fn ask_right(&self, person: &Person, resource: &str, verb: &str) -> Result<bool, AuthError> {
        let _place = self.admitted().await?;
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(person.username.clone()),
                uid: Some(person.uid.clone()).filter(|uid| !uid.is_empty()),
                groups: Some(person.groups.clone()),
                extra: Some(person.extra.iter().cloned().collect()),
                resource_attributes: Some(ResourceAttributes {
                    group: Some(INSPECT_GROUP.to_owned()),
                    resource: Some(resource.to_owned()),
                    verb: Some(verb.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: kube::Api<SubjectAccessReview> = kube::Api::all(self.api.plain());
        let answer = reviews
            .create(&PostParams::default(), &review)
            .await
            .map_err(|error| backend(&error))?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn person_of(user: UserInfo) -> Person {
    Person {
        username: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default().into_iter().collect(),
    }
}

fn first(extra: &BTreeMap<String, Vec<String>>, name: &str) -> Option<String> {
    extra
        .get(&format!("{EXTRA}{name}"))?
        .first()
        .filter(|value| !value.is_empty())
        .cloned()
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

fn invalid(detail: &str) -> AuthError {
    AuthError::TokenInvalid {
        detail: detail.to_owned(),
    }
}

fn backend(error: &kube::Error) -> AuthError {
    // Errors of the client name URLs and causes, never bodies.
    tracing::warn!(error = %crate::telemetry::chain(error), "the API server could not be asked about a caller");
    let detail = match error {
        kube::Error::Api(status) => format!("the API server answered {}", status.code),
        _ => "the API server does not answer".to_owned(),
    };
    AuthError::Backend {
        detail,
        retry_after: Duration::from_secs(2),
    }
}

#[cfg(test)]
mod tests;
