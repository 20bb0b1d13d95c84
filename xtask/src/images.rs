//! `cargo xtask images`: the product's images for the test cluster, built from local binaries, without Docker.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kruise_tests::cluster::Cluster;
use kruise_tests::cmd;
use kruise_tests::registry::{ImageSpec, LayerSpec};
use sha2::{Digest as _, Sha256};

use crate::repo::{cargo, host, target};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster whose registry gets the images.
    #[arg(long, default_value = "kruise")]
    name: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let cluster = Cluster::attach(&args.name)?;
    for image in push(&cluster)? {
        println!("{}", image.reference);
    }
    Ok(())
}

/// An image that is in the cluster's registry.
#[derive(Debug)]
pub(crate) struct Image {
    /// `manager` or `daemon`, as the chart's values call it.
    pub(crate) part: &'static str,
    /// Of the content, so that pods are rolled exactly when their program changed.
    pub(crate) tag: String,
    pub(crate) reference: String,
}

/// Programs by part, and the user that each runs as.
const PARTS: [(&str, &str); 2] = [("manager", "65532:65532"), ("daemon", "0:0")];

/// Builds both programs and pushes what the registry does not have.
pub(crate) fn push(cluster: &Cluster) -> Result<Vec<Image>> {
    let programs = build()?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the asynchronous runtime")?;
    let push = |(part, user)| runtime.block_on(push_one(cluster, &programs, part, user));
    PARTS.into_iter().map(push).collect()
}

async fn push_one(cluster: &Cluster, programs: &Path, part: &'static str, user: &str) -> Result<Image> {
    let program = format!("kruise-{part}");
    let file = programs.join(&program);
    let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let hash: String = Sha256::digest(&bytes)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let (name, tag) = (format!("kruise-rs/{program}"), format!("dev-{hash}"));
    let reference = format!("{}/{name}:{tag}", kruise_tests::cluster::REGISTRY);
    let registry = cluster.registry();
    if registry.digest(&name, &tag).await?.is_none() {
        let layer = LayerSpec::files(vec![(format!("/{program}"), file, 0o755)]);
        let image = ImageSpec::new(&name, &tag)
            .layer(layer)
            .entrypoint([format!("/{program}")])
            .user(user);
        registry.push(&image).await?;
        eprintln!("pushed {reference} ({:.1} MB)", mega(bytes.len()));
    }
    Ok(Image { part, tag, reference })
}

#[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
fn mega(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

/// Builds both programs as they run in a cluster: optimised, and static, so that the image holds nothing else. glibc resolves
/// names by files and DNS without any library at run time since 2.34. Naming the target keeps the flag away from build scripts.
fn build() -> Result<PathBuf> {
    let host = host()?;
    eprintln!("building the manager and the agent for the cluster (release, static) ...");
    let mut build = cargo();
    build
        .args(["build", "--quiet", "--release", "--locked", "--target", &host])
        .args([
            "--package",
            "kruise-manager",
            "--package",
            "kruise-daemon",
            "--bins",
        ])
        .env("RUSTFLAGS", "-C target-feature=+crt-static");
    cmd::show(&mut build)?;
    Ok(target()?.join(host).join("release"))
}
