//! What the API server is asked about callers, and how often.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kruise_api::names::INSPECT_GROUP;
use kube::Resource;
use kube::api::PostParams;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::directory::Subject;
use super::limit::Bucket;
use super::{AuthError, Person, Settings};
use crate::clock::Monotonic;
use crate::kubeapi::Api;

/// Questions under way at once; the API server answers one within milliseconds.
const AT_ONCE: usize = 32;
/// Time to get one of those places.
const PATIENCE: Duration = Duration::from_secs(3);

const EXTRA: &str = "authentication.kubernetes.io/";

/// Asks the API server, so many times a second at most.
#[derive(Debug)]
pub(super) struct Reviewer {
    settings: Settings,
    api: Api,
    clock: Monotonic,
    places: Semaphore,
    bucket: Mutex<Bucket>,
}

/// Pod and node of an agent's token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) pod_name: String,
    pub(super) pod_uid: String,
    pub(super) node_name: String,
    pub(super) node_uid: String,
}

impl Place {
    pub(super) fn subject(&self) -> Subject<'_> {
        Subject {
            pod_name: &self.pod_name,
            pod_uid: &self.pod_uid,
            node_name: &self.node_name,
            node_uid: &self.node_uid,
            account_uid: None,
        }
    }
}

impl Reviewer {
    pub(super) fn new(settings: Settings, api: Api, clock: Monotonic) -> Self {
        Self {
            bucket: Mutex::new(Bucket::new(settings.reviews_per_second)),
            settings,
            api,
            clock,
            places: Semaphore::new(AT_ONCE),
        }
    }

    /// Who a token is of, when it is meant for this audience.
    pub(super) async fn user(&self, token: &str, audience: &str) -> Result<UserInfo, AuthError> {
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
            return Err(AuthError::invalid("the API server does not accept it"));
        }
        let granted = status.audiences.unwrap_or_default();
        if !granted.iter().any(|granted| granted == audience) {
            return Err(AuthError::WrongAudience {
                wanted: audience.to_owned(),
            });
        }
        Ok(status.user.unwrap_or_default())
    }

    /// Pod and node of a user who is an agent.
    pub(super) async fn place_of(&self, user: UserInfo) -> Result<Place, AuthError> {
        let username = user.username.unwrap_or_default();
        if username != self.settings.username() {
            return Err(AuthError::NotAnAgent { username });
        }
        let extra = user.extra.unwrap_or_default();
        let (Some(pod_name), Some(pod_uid)) = (first(&extra, "pod-name"), first(&extra, "pod-uid")) else {
            return Err(AuthError::not_in_a_pod(&username));
        };
        let (node_name, node_uid) = match (first(&extra, "node-name"), first(&extra, "node-uid")) {
            (Some(name), Some(uid)) => (name, uid),
            // API servers before 1.30 do not put the node into tokens.
            _ => {
                let _place = self.admitted().await?;
                self.node_of(&pod_name, &pod_uid).await?
            }
        };
        Ok(Place {
            pod_name,
            pod_uid,
            node_name,
            node_uid,
        })
    }

    async fn node_of(&self, pod_name: &str, pod_uid: &str) -> Result<(String, String), AuthError> {
        let name = self.node_of_pod(pod_name, pod_uid).await?;
        let nodes: kube::Api<Node> = kube::Api::all(self.api.plain());
        let node = nodes.get_opt(&name).await.map_err(|error| backend(&error))?;
        let uid = node.and_then(|node| node.metadata.uid);
        let uid = uid.ok_or_else(|| AuthError::node_gone(&name))?;
        Ok((name, uid))
    }

    /// Name of the node that a pod is on.
    async fn node_of_pod(&self, name: &str, uid: &str) -> Result<String, AuthError> {
        let pods: kube::Api<Pod> = kube::Api::namespaced(self.api.plain(), &self.settings.namespace);
        let pod = pods.get_opt(name).await.map_err(|error| backend(&error))?;
        let over = |pod: &Pod| {
            let ends = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
            ends.is_some_and(|end| end <= self.api.now())
        };
        let pod = pod.filter(|pod| pod.metadata.uid.as_deref() == Some(uid) && !over(pod));
        let pod = pod.ok_or_else(AuthError::pod_gone)?;
        pod.spec
            .and_then(|spec| spec.node_name)
            .ok_or_else(|| AuthError::invalid("its pod has no node"))
    }

    /// Whether a node still has this UID. Tokens of pods outlive it: the API server looks at the pod only.
    pub(super) async fn check_node(&self, name: &str, uid: &str) -> Result<(), AuthError> {
        let _place = self.admitted().await?;
        let nodes: kube::Api<Node> = kube::Api::all(self.api.plain());
        let node = nodes.get_opt(name).await.map_err(|error| backend(&error))?;
        if has_uid(node.as_ref(), uid) {
            Ok(())
        } else {
            Err(AuthError::node_gone(name))
        }
    }

    /// Whether pod, node and account still exist.
    pub(super) async fn check_place(&self, place: &Place) -> Result<(), AuthError> {
        let name = {
            let _place = self.admitted().await?;
            self.node_of_pod(&place.pod_name, &place.pod_uid).await?
        };
        if name != place.node_name {
            return Err(AuthError::NodeMismatch {
                token_node: name,
                claimed: place.node_name.clone(),
            });
        }
        self.check_node(&place.node_name, &place.node_uid).await?;
        let _place = self.admitted().await?;
        let accounts: kube::Api<ServiceAccount> =
            kube::Api::namespaced(self.api.plain(), &self.settings.namespace);
        match accounts.get_opt(&self.settings.service_account).await {
            Ok(None) => Err(AuthError::account_gone()),
            Ok(Some(_)) => Ok(()),
            Err(error) => Err(backend(&error)),
        }
    }

    /// Whether a person may use a verb on a virtual resource of the inspection group.
    pub(super) async fn right(&self, person: &Person, resource: &str, verb: &str) -> Result<bool, AuthError> {
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

    /// A place among the questions that may be under way at once, and a drop from the bucket.
    async fn admitted(&self) -> Result<SemaphorePermit<'_>, AuthError> {
        let busy = |retry_after| AuthError::Backend {
            detail: "too many tokens at once".to_owned(),
            retry_after,
        };
        self.bucket
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(self.clock.now())
            .map_err(busy)?;
        let place = tokio::time::timeout(PATIENCE, self.places.acquire()).await;
        place.map_err(|_| busy(PATIENCE))?.map_err(|_| busy(PATIENCE))
    }
}

fn has_uid<K: Resource>(object: Option<&K>, uid: &str) -> bool {
    object.is_some_and(|object| object.meta().uid.as_deref() == Some(uid))
}

fn first(extra: &BTreeMap<String, Vec<String>>, name: &str) -> Option<String> {
    extra
        .get(&format!("{EXTRA}{name}"))?
        .first()
        .filter(|value| !value.is_empty())
        .cloned()
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
