//! Where a container runtime may listen.

/// Places of the socket, the likeliest first. Those below `/hostvarrun` are where OpenKruise's chart mounts the node's `/var/run`.
pub const SEARCH: [&str; 10] = [
    "/run/containerd/containerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/hostvarrun/containerd.sock",
    "/hostvarrun/containerd/containerd.sock",
    "/hostvarrun/crio.sock",
    "/hostvarrun/crio/crio.sock",
    "/hostvarrun/cri-dockerd.sock",
    "/hostvarrun/cri-dockerd/cri-dockerd.sock",
];

/// Sockets to try, in order, for the value of `--socket-file`: all known places when it is empty, that file alone when it is a
/// path from the root, else that name in every known directory.
#[must_use]
pub fn candidates(file: &str) -> Vec<String> {
    if file.is_empty() {
        return SEARCH.map(str::to_owned).into();
    }
    if file.starts_with('/') {
        return vec![file.to_owned()];
    }
    let mut found = Vec::new();
    for known in SEARCH {
        let directory = known.rsplit_once('/').map_or("", |(directory, _)| directory);
        let candidate = format!("{directory}/{file}");
        if !found.contains(&candidate) {
            found.push(candidate);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried() {
        assert_eq!(candidates("").len(), SEARCH.len());
        assert_eq!(candidates("/x/y.sock"), ["/x/y.sock"]);
        let named = candidates("my.sock");
        assert_eq!(
            &named[..2],
            ["/run/containerd/my.sock", "/run/k3s/containerd/my.sock"]
        );
        assert!(named.contains(&"/hostvarrun/my.sock".to_owned()));
        assert!(
            candidates("containerd/containerd.sock")
                .contains(&"/hostvarrun/containerd/containerd.sock".to_owned())
        );
    }
}
