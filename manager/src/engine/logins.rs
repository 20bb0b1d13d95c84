//! Reads the pull secrets of jobs and picks what fits their images.

use std::collections::BTreeMap;

use futures::StreamExt;
use kruise_api::ids::JobUid;
use kruise_api::reference::ImageRef;

use super::credentials;
use super::event::{SecretAnswer, SecretRequest};
use super::ports::Cluster;

/// Jobs whose secrets are read side by side.
const SIDE_BY_SIDE: usize = 8;

/// Answers for all of these jobs.
pub(super) async fn read(
    cluster: &dyn Cluster,
    requests: Vec<SecretRequest>,
) -> BTreeMap<JobUid, SecretAnswer> {
    futures::stream::iter(requests)
        .map(|request| async move { (request.job.clone(), answer(cluster, &request).await) })
        .buffer_unordered(SIDE_BY_SIDE)
        .collect()
        .await
}

async fn answer(cluster: &dyn Cluster, request: &SecretRequest) -> SecretAnswer {
    let image = match ImageRef::parse(&request.image) {
        Ok(image) => image,
        Err(error) => return SecretAnswer::Problem(error.to_string()),
    };
    let mut secrets = Vec::with_capacity(request.secrets.len());
    for key in &request.secrets {
        let name = &key.name;
        match cluster.secret(key.namespace.clone(), name.clone()).await {
            Ok(Some(secret)) => secrets.push((name.as_str(), secret)),
            Ok(None) => {
                return SecretAnswer::Problem(format!("pull secret {key} does not exist"));
            }
            Err(error) => {
                return SecretAnswer::Unavailable(format!(
                    "pull secret {name:?} cannot be read now: {error}"
                ));
            }
        }
    }
    match credentials::matching(&image, secrets.iter().map(|(name, secret)| (*name, secret))) {
        Ok(credentials) => SecretAnswer::Ready(credentials),
        Err(problem) => SecretAnswer::Problem(problem.to_string()),
    }
}
