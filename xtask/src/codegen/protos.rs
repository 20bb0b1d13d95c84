//! The gRPC contracts under `proto/kruise` become `proto/src/gen`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Files;

const FILES: [&str; 4] = [
    "kruise/task/v1/task.proto",
    "kruise/dispatch/v1/dispatch.proto",
    "kruise/inspect/v1/inspect.proto",
    "kruise/node/v1/node.proto",
];

/// The bindings and the descriptor set (for reflection) of the contracts in `proto`.
///
/// The compiler is a library, so that nobody needs `protoc` for our own contracts.
pub(super) fn files(proto: &Path) -> Result<Files> {
    let out = tempfile::tempdir().context("cannot make a temporary folder")?;
    let mut compiler = protox::Compiler::new([proto]).context("cannot set up the proto compiler")?;
    compiler.include_source_info(true).include_imports(true);
    compiler
        .open_files(FILES)
        .context("a contract does not compile")?;
    let descriptors = compiler.file_descriptor_set();
    tonic_prost_build::configure()
        .out_dir(out.path())
        .btree_map(".")
        // Whoever logs a whole message must not log a password with it.
        .skip_debug(["kruise.dispatch.v1.Credential", "kruise.dispatch.v1.TokenRenewal"])
        .compile_fds(descriptors)
        .context("cannot generate bindings")?;
    let folder = PathBuf::from("proto/src/gen");
    let mut files = Files::new();
    for entry in fs::read_dir(out.path()).context("cannot list what was generated")? {
        let entry = entry?;
        files.insert(folder.join(entry.file_name()), fs::read(entry.path())?);
    }
    files.insert(folder.join("descriptors.bin"), descriptor_set(proto)?);
    Ok(files)
}

/// Comments are for readers of the source; reflection works without them and the programs stay smaller.
fn descriptor_set(proto: &Path) -> Result<Vec<u8>> {
    let mut bare = protox::Compiler::new([proto])?;
    bare.include_source_info(false).include_imports(true);
    bare.open_files(FILES)?;
    Ok(bare.encode_file_descriptor_set())
}
