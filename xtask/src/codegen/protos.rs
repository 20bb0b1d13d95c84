//! The gRPC contracts under `proto/kruise` become `proto/src/gen`.

use std::path::Path;

use anyhow::{Context, Result};

const FILES: [&str; 4] = [
    "kruise/task/v1/task.proto",
    "kruise/dispatch/v1/dispatch.proto",
    "kruise/inspect/v1/inspect.proto",
    "kruise/node/v1/node.proto",
];

/// Generates the bindings and the descriptor set (for reflection) of the contracts in `proto`.
///
/// The compiler is a library, so that nobody needs `protoc` on their machine.
pub fn protos(proto: &Path) -> Result<()> {
    let out = proto.join("src/gen");
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut compiler = protox::Compiler::new([proto]).context("cannot set up the proto compiler")?;
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(FILES).context("a contract does not compile")?;
    let descriptors = compiler.file_descriptor_set();
    tonic_prost_build::configure()
        .out_dir(&out)
        .btree_map(".")
        // Whoever logs a whole message must not log a password with it.
        .skip_debug(["kruise.dispatch.v1.Credential", "kruise.dispatch.v1.TokenRenewal"])
        .compile_fds(descriptors)
        .context("cannot generate bindings")?;
    // Comments are for readers of the source; reflection works without them and the programs stay smaller.
    let mut bare = protox::Compiler::new([proto])?;
    bare.include_source_info(false).include_imports(true);
    bare.open_files(FILES)?;
    let path = out.join("descriptors.bin");
    std::fs::write(&path, bare.encode_file_descriptor_set())
        .with_context(|| format!("cannot write {}", path.display()))
}
