//! Which credentials of a job's pull secrets fit its image, and in which order they are tried.
//! The rules are those of [`kruise_proto::login`], which agents use for their node's own log-ins too.

mod config;

use k8s_openapi::api::core::v1::Secret;
use kruise_api::reference::ImageRef;
use kruise_proto::dispatch::Credential;
use kruise_proto::login;

pub(crate) use config::SecretProblem;

/// Credentials for an image, in the order to be tried, from secrets in the order in which the job names them. None that fit means an anonymous
/// pull, as for a pod.
///
/// # Errors
/// A secret that cannot be read, by its name in the list.
pub(crate) fn matching<'a>(
    image: &ImageRef,
    secrets: impl IntoIterator<Item = (&'a str, &'a Secret)>,
) -> Result<Vec<Credential>, SecretProblem> {
    let mut entries = Vec::new();
    for (name, secret) in secrets {
        entries.extend(config::read(name, secret)?);
    }
    Ok(login::matching(image, entries))
}

#[cfg(test)]
mod tests;
