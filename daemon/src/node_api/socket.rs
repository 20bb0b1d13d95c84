//! The unix socket of the node service. The file's mode is the access control.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

use tokio::net::UnixListener;

/// Listens at `path`, readable and writable for the owner only. A socket that an earlier run left there is removed; anything else
/// there is an error.
///
/// # Errors
/// The directory cannot be made, something else is at `path`, or it cannot be bound.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is no socket is there",
            ));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Between bind and chmod the mask keeps others out.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = bound?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_socket_is_for_its_owner_and_may_be_left_over() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("run/agent.sock");
        let first = bind(&path).expect("bound");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(first);
        assert!(path.exists(), "as after a kill -9");
        bind(&path).expect("bound again");
    }

    #[tokio::test]
    async fn another_file_is_not_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("agent.sock");
        fs::write(&path, b"precious").expect("written");
        assert!(bind(&path).is_err());
        assert_eq!(fs::read(&path).expect("still there"), b"precious");
    }
}
