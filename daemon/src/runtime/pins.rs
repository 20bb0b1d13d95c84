//! Images that are kept from the kubelet's image collection for a time.
//!
//! containerd tells the kubelet that an image is pinned when the image's record has a certain label. Beside it lies a label of ours
//! with the end, so that the end is known after any restart, and pins that others have set are never touched.

use containerd_client::services::v1 as services;
use containerd_client::services::v1::images_client::ImagesClient;
use jiff::Timestamp;
use kruise_api::reference::ImageRef;
use kruise_planner::node::reason::Code;
use prost_types::FieldMask;
use tonic::transport::Channel;

use super::RuntimeError;
use super::containerd::in_namespace;
use super::cri::{CALL_TIMEOUT, within};

/// What containerd looks at, and the value that it wants.
const PINNED_LABEL: (&str, &str) = ("io.cri-containerd.pinned", "pinned");
/// Until when it is there because of us.
const UNTIL_LABEL: &str = "kruise.io/pinned-until";
/// First version that looks at the label.
const SINCE: [u32; 3] = [1, 7, 10];

/// The image service of containerd.
#[derive(Clone, Debug)]
pub(super) struct Pins {
    images: ImagesClient<Channel>,
    supported: bool,
}

impl Pins {
    pub(super) fn new(channel: Channel, version: &str) -> Self {
        Self {
            images: ImagesClient::new(channel),
            supported: is_supported(version),
        }
    }

    /// False where containerd would not look at it.
    pub(super) async fn pin(&self, image: &ImageRef, until: Timestamp) -> Result<bool, RuntimeError> {
        if !self.supported {
            return Ok(false);
        }
        let name = image.canonical().to_owned();
        let request = services::GetImageRequest { name };
        let mut client = self.images.clone();
        let found = within("GetImage", CALL_TIMEOUT, client.get(in_namespace(request))).await?;
        let Some(found) = found.image.filter(|image| image.target.is_some()) else {
            return Err(RuntimeError {
                call: "GetImage",
                code: Code::Other,
                text: "the answer names no content".to_owned(),
            });
        };
        let by_us = end(&found);
        let by_others = by_us.is_none() && found.labels.contains_key(PINNED_LABEL.0);
        if by_others || by_us.is_some_and(|by_us| by_us >= until) {
            return Ok(true);
        }
        self.label(found, PINNED_LABEL.1, &until.to_string()).await?;
        Ok(true)
    }

    /// Takes off what is over; when the next one is.
    pub(super) async fn unpin(&self, now: Timestamp) -> Result<Option<Timestamp>, RuntimeError> {
        let request = services::ListImagesRequest {
            filters: vec![format!("labels.{UNTIL_LABEL:?}")],
        };
        let mut client = self.images.clone();
        let answer = within("ListImages", CALL_TIMEOUT, client.list(in_namespace(request))).await?;
        let mut next: Option<Timestamp> = None;
        for image in answer.images.into_iter().filter(|image| image.target.is_some()) {
            match end(&image) {
                Some(until) if until > now => next = Some(next.map_or(until, |next| next.min(until))),
                _ => {
                    tracing::info!(image = image.name, "image is no longer kept from the kubelet");
                    self.label(image, "", "").await?;
                }
            }
        }
        Ok(next)
    }

    /// Sets both labels of an image as it was answered; an empty value takes them off. Only the labels are written, but the image must
    /// name its content: containerd 2 does not survive a request without.
    async fn label(&self, mut image: services::Image, pinned: &str, until: &str) -> Result<(), RuntimeError> {
        let labels = [(PINNED_LABEL.0, pinned), (UNTIL_LABEL, until)];
        for (label, value) in labels {
            image.labels.insert(label.to_owned(), value.to_owned());
        }
        let paths = labels.map(|(label, _)| format!("labels.{label}")).into();
        let request = services::UpdateImageRequest {
            image: Some(image),
            update_mask: Some(FieldMask { paths }),
            source_date_epoch: None,
        };
        let mut client = self.images.clone();
        within("UpdateImage", CALL_TIMEOUT, client.update(in_namespace(request)))
            .await
            .map(drop)
    }
}

/// The end of a pin of ours. One that cannot be read is over.
fn end(image: &services::Image) -> Option<Timestamp> {
    let text = image.labels.get(UNTIL_LABEL)?;
    Some(text.parse().unwrap_or(Timestamp::UNIX_EPOCH))
}

/// For example `v1.7.12`, `1.6.20~ds1` or `v2.2.9-k3s1`.
fn is_supported(version: &str) -> bool {
    let mut parts = version.trim_start_matches('v').split(['.', '~', '-', '+']);
    let mut number = || {
        parts
            .next()
            .and_then(|part| part.parse::<u32>().ok())
            .unwrap_or(0)
    };
    [number(), number(), number()] >= SINCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_look_at_the_label() {
        for version in [
            "v1.7.10",
            "1.7.27",
            "v2.0.0-rc.1",
            "v2.2.9",
            "1.10.0",
            "v1.7.11-k3s2",
        ] {
            assert!(is_supported(version), "{version}");
        }
        for version in ["1.6.20~ds1", "v1.7.9", "", "latest", "v1", "v1.7"] {
            assert!(!is_supported(version), "{version}");
        }
    }

    #[test]
    fn an_end_that_cannot_be_read_is_over() {
        let image = |label: &str, text: &str| services::Image {
            labels: [(label.to_owned(), text.to_owned())].into(),
            ..Default::default()
        };
        let soon = image(UNTIL_LABEL, "soon");
        assert_eq!(end(&soon), Some(Timestamp::UNIX_EPOCH));
        let later = end(&image(UNTIL_LABEL, "2026-11-30T12:00:00Z"));
        assert!(later.is_some_and(|end| end > Timestamp::UNIX_EPOCH));
        assert_eq!(end(&image("other", "x")), None);
    }
}
