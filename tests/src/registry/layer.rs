//! Layers of images: what is in them, and how they become a compressed tar file.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};
use tempfile::NamedTempFile;

/// How a layer travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    None,
    #[default]
    Gzip,
    Zstd,
}

/// Where the content of a file in a layer comes from.
#[derive(Clone, Debug)]
pub enum FileSource {
    Local(PathBuf),
    Bytes(Vec<u8>),
    /// A symbolic link to this path.
    Link(String),
    /// So many bytes that no compression makes smaller; the same seed gives the same bytes.
    Random {
        size: u64,
        seed: u64,
    },
}

/// One layer to build.
#[derive(Clone, Debug, Default)]
pub struct LayerSpec {
    files: Vec<(String, FileSource, u32)>,
    compression: Compression,
}

/// What busybox answers to in [`LayerSpec::busybox`].
const APPLETS: [&str; 18] = [
    "cat", "cp", "dd", "echo", "env", "hostname", "httpd", "id", "kill", "ls", "nc", "nslookup", "ps", "sh",
    "sleep", "true", "touch", "wget",
];

impl LayerSpec {
    /// Files of this machine: the path in the image, the local path, the mode.
    #[must_use]
    pub fn files<P: AsRef<str>, L: Into<PathBuf>>(files: Vec<(P, L, u32)>) -> Self {
        files
            .into_iter()
            .fold(Self::default(), |layer, (path, local, mode)| {
                layer.file(path.as_ref(), FileSource::Local(local.into()), mode)
            })
    }

    /// One file of random bytes, `data/SEED`.
    #[must_use]
    pub fn random(size: u64, seed: u64) -> Self {
        Self::default().file(&format!("/data/{seed}"), FileSource::Random { size, seed }, 0o644)
    }

    /// A shell and the usual small programs, statically linked. As a pod's first process a shell ignores
    /// SIGTERM unless it traps it.
    #[must_use]
    pub fn busybox() -> Self {
        let layer = Self::default().file(
            "/bin/busybox",
            FileSource::Local("/usr/bin/busybox".into()),
            0o755,
        );
        APPLETS.iter().fold(layer, |layer, applet| {
            layer.file(
                &format!("/bin/{applet}"),
                FileSource::Link("busybox".to_owned()),
                0o777,
            )
        })
    }

    /// Adds a file; its folders come with it.
    #[must_use]
    pub fn file(mut self, path: &str, source: FileSource, mode: u32) -> Self {
        self.files
            .push((path.trim_start_matches('/').to_owned(), source, mode));
        self
    }

    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }
}

/// A layer ready to be pushed.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) file: File,
    pub(super) digest: String,
    pub(super) diff_id: String,
    pub(super) size: u64,
    pub(super) media_type: &'static str,
}

/// Writes the layer to a temporary file, taking both digests on the way: of the tar file, which names the
/// layer in an image, and of the compressed bytes, which name it in the registry.
pub(super) fn build(spec: &LayerSpec) -> Result<Built> {
    let scratch = NamedTempFile::new().context("cannot make a temporary file")?;
    let file = scratch.reopen().context("cannot open it again")?;
    let outer = Hashed::new(BufWriter::with_capacity(1 << 20, file));
    let (outer, diff_id, media_type) = match spec.compression {
        Compression::None => {
            let inner = write_tar(spec, Hashed::new(outer))?;
            let diff_id = inner.digest();
            (
                inner.into_inner(),
                diff_id,
                "application/vnd.oci.image.layer.v1.tar",
            )
        }
        Compression::Gzip => {
            let encoder = flate2::write::GzEncoder::new(outer, flate2::Compression::fast());
            let inner = write_tar(spec, Hashed::new(encoder))?;
            let diff_id = inner.digest();
            (
                inner.into_inner().finish()?,
                diff_id,
                "application/vnd.oci.image.layer.v1.tar+gzip",
            )
        }
        Compression::Zstd => {
            let encoder = zstd::Encoder::new(outer, 1).context("cannot compress")?;
            let inner = write_tar(spec, Hashed::new(encoder))?;
            let diff_id = inner.digest();
            (
                inner.into_inner().finish()?,
                diff_id,
                "application/vnd.oci.image.layer.v1.tar+zstd",
            )
        }
    };
    let (digest, size) = (outer.digest(), outer.count);
    let mut file = outer
        .into_inner()
        .into_inner()
        .context("cannot write the layer")?;
    file.rewind().context("cannot rewind the layer")?;
    Ok(Built {
        file,
        digest,
        diff_id,
        size,
        media_type,
    })
}

fn write_tar<W: Write>(spec: &LayerSpec, out: W) -> Result<W> {
    let mut tar = tar::Builder::new(out);
    let mut folders = Vec::new();
    for (path, source, mode) in &spec.files {
        let parents: Vec<_> = Path::new(path)
            .ancestors()
            .skip(1)
            .filter(|p| !p.as_os_str().is_empty())
            .collect();
        for folder in parents.into_iter().rev() {
            if !folders.iter().any(|f| f == folder) {
                folders.push(folder.to_owned());
                let name = format!("{}/", folder.display());
                tar.append_data(&mut header(EntryType::Directory, 0o755, 0), name, io::empty())?;
            }
        }
        append(&mut tar, path, source, *mode).with_context(|| format!("cannot add {path} to a layer"))?;
    }
    tar.into_inner().context("cannot finish a layer")
}

fn append<W: Write>(tar: &mut tar::Builder<W>, path: &str, source: &FileSource, mode: u32) -> Result<()> {
    match source {
        FileSource::Local(local) => {
            let file = File::open(local).with_context(|| format!("cannot open {}", local.display()))?;
            let size = file.metadata()?.len();
            tar.append_data(&mut header(EntryType::Regular, mode, size), path, file)?;
        }
        FileSource::Bytes(bytes) => {
            tar.append_data(
                &mut header(EntryType::Regular, mode, bytes.len() as u64),
                path,
                bytes.as_slice(),
            )?;
        }
        FileSource::Link(target) => {
            tar.append_link(&mut header(EntryType::Symlink, mode, 0), path, target)?;
        }
        FileSource::Random { size, seed } => {
            let noise = Noise {
                rng: SmallRng::seed_from_u64(*seed),
            }
            .take(*size);
            tar.append_data(&mut header(EntryType::Regular, mode, *size), path, noise)?;
        }
    }
    Ok(())
}

/// No times and no owners: the same layer has the same digest on every machine and day.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header
}

struct Noise {
    rng: SmallRng,
}

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.rng.fill_bytes(buffer);
        Ok(buffer.len())
    }
}

/// A writer that counts and hashes what passes through.
struct Hashed<W> {
    inner: W,
    hash: Sha256,
    count: u64,
}

impl<W> Hashed<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
            count: 0,
        }
    }

    fn digest(&self) -> String {
        digest_of(self.hash.clone())
    }

    fn into_inner(self) -> W {
        self.inner
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.count += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A digest as registries write it.
pub(super) fn sha256(bytes: &[u8]) -> String {
    digest_of(Sha256::new_with_prefix(bytes))
}

fn digest_of(hash: Sha256) -> String {
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_digest_and_no_compression_helps() {
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let spec = LayerSpec::random(300_000, 7).compression(compression);
            let (a, b) = (build(&spec).unwrap(), build(&spec).unwrap());
            assert_eq!(a.digest, b.digest);
            assert!(a.size > 300_000, "{compression:?}: {}", a.size);
            let uncompressed = compression == Compression::None;
            assert_eq!(a.digest == a.diff_id, uncompressed);
        }
    }

    #[test]
    fn a_layer_holds_its_folders_files_and_links() {
        let spec = LayerSpec::default()
            .file("/a/b/c", FileSource::Bytes(b"hi".to_vec()), 0o600)
            .file("/a/d", FileSource::Link("b/c".to_owned()), 0o777)
            .compression(Compression::None);
        let built = build(&spec).unwrap();
        let mut tar = tar::Archive::new(built.file);
        let paths: Vec<_> = tar
            .entries()
            .unwrap()
            .map(|e| e.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(paths, ["a/", "a/b/", "a/b/c", "a/d"]);
    }
}
