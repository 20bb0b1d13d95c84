//! `kruisectl images`: what the runtime of this machine holds.

use anyhow::Result;
use kruise_proto::node;
use serde::Serialize;

use crate::args::{Global, ImagesArgs};
use crate::connect::{self, refused_by_agent};
use crate::exit::Code;
use crate::human;
use crate::output::{self, Row, cell};

/// Characters of an id in a table, as other tools show it.
const SHORT_ID: usize = 13;

/// Lists the images.
pub(crate) async fn run(global: &Global, args: &ImagesArgs) -> Result<Code> {
    let mut client = connect::node(connect::only_here(global)?).await?;
    let request = node::ListImagesRequest {};
    let answer = client.list_images(request).await.map_err(refused_by_agent)?;
    let rows: Vec<_> = answer
        .into_inner()
        .images
        .into_iter()
        .map(ImageRow::from)
        .collect();
    output::put(&output::listing(&rows, args.output)?)?;
    Ok(Code::Success)
}

/// An image, as a line and as a document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ImageRow {
    id: String,
    repo_tags: Vec<String>,
    repo_digests: Vec<String>,
    size_bytes: u64,
    pinned: bool,
}

impl From<node::Image> for ImageRow {
    fn from(image: node::Image) -> Self {
        Self {
            id: image.id,
            repo_tags: image.repo_tags,
            repo_digests: image.repo_digests,
            size_bytes: image.size_bytes,
            pinned: image.pinned,
        }
    }
}

impl Row for ImageRow {
    const HEADS: (&'static [&'static str], &'static [&'static str]) =
        (&["IMAGE", "ID", "SIZE", "PINNED"], &["MORE-TAGS", "DIGEST"]);

    fn cells(&self) -> Vec<String> {
        let name = self.repo_tags.first().or(self.repo_digests.first());
        let id = self.id.strip_prefix("sha256:").unwrap_or(&self.id);
        vec![
            cell(name.cloned().unwrap_or_default()),
            cell(id.chars().take(SHORT_ID).collect::<String>()),
            human::bytes(self.size_bytes),
            if self.pinned { "yes" } else { "no" }.to_owned(),
        ]
    }

    fn wide(&self) -> Vec<String> {
        let more = self.repo_tags.iter().skip(1).cloned().collect::<Vec<_>>();
        let digest = self.repo_digests.first().and_then(|name| name.split_once('@'));
        vec![
            cell(more.join(",")),
            cell(digest.map(|(_, digest)| digest).unwrap_or_default()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_tag_shows_its_digest() {
        let row = ImageRow::from(node::Image {
            id: "sha256:0123456789abcdef0123".into(),
            repo_digests: vec!["reg/app@sha256:1".into()],
            size_bytes: 10 << 20,
            ..Default::default()
        });
        assert_eq!(
            row.cells(),
            ["reg/app@sha256:1", "0123456789abc", "10.0 MiB", "no"]
        );
        assert_eq!(row.wide(), ["-", "sha256:1"]);
    }
}
