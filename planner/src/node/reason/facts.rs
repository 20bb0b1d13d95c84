//! What people should know of each reason.

use crate::task::Reason;

/// What follows when an attempt ends for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The task has failed: nothing that the node can do helps.
    Never,
    /// After 1, 2, 4 … 30 s, and it counts against the limit of retries.
    Counted,
    /// After half a minute or more, and it counts: asking sooner makes it worse.
    Slowly,
    /// Not counted while bytes came in at the wanted rate: the next attempt goes on where this one stopped.
    FreeWhileGrowing,
    /// Not counted the first ten times: the runtime is to blame, not the image.
    FreeAtFirst,
    /// Not counted where the order names a space to be left free: then the task waits until its deadline. Else after half a minute,
    /// and it counts.
    FreeIfGuarded,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// What has happened.
    pub meaning: &'static str,
    /// What the agent does.
    pub retry: Retry,
    /// What people can do.
    pub advice: &'static str,
}

/// Of one reason.
#[must_use]
pub fn facts(reason: Reason) -> Facts {
    let (meaning, retry, advice) = match reason {
        Reason::NotFound
        | Reason::Denied
        | Reason::InvalidReference
        | Reason::Unsupported
        | Reason::TooLarge
        | Reason::DeadlineExceeded
        | Reason::NodeUnreachable => of_ends(reason),
        Reason::Unreachable | Reason::Throttled | Reason::RegistryError | Reason::Corrupt => {
            of_registry(reason)
        }
        Reason::NoSpace
        | Reason::Timeout
        | Reason::Stalled
        | Reason::RuntimeUnavailable
        | Reason::Unknown => of_node(reason),
    };
    Facts {
        meaning,
        retry,
        advice,
    }
}

type Row = (&'static str, Retry, &'static str);

fn of_ends(reason: Reason) -> Row {
    match reason {
        Reason::NotFound => (
            "the registry says that the repository, tag or digest does not exist",
            Retry::Never,
            "check the image for a slip; a private repository may look as if it did not exist, so check the pull secret too",
        ),
        Reason::Denied => (
            "the registry refused every log-in that was sent, or wants one and none fits the image",
            Retry::Never,
            "check `pullSecrets`, the secret's host and path, and the node's credential provider; a new order reads the secret again",
        ),
        Reason::InvalidReference => (
            "the image reference cannot be parsed",
            Retry::Never,
            "write it as registry.example.com/team/app:1.2 or with @sha256:…, the repository in lower case",
        ),
        Reason::Unsupported => (
            "there is no image for the node's platform, the content is not an image, or the node's policy rejects it",
            Retry::Never,
            "build for the platform of the node, or select other nodes; the message says what was found",
        ),
        Reason::TooLarge => (
            "the image is larger than the job allows",
            Retry::Never,
            "raise the job's size limit, or make the image smaller; sizes are compressed, of the node's platform",
        ),
        Reason::DeadlineExceeded => (
            "`activeDeadlineSeconds` passed before the image was there; the message has what the last attempt said",
            Retry::Never,
            "raise the deadline, or look at what the message says of the last attempt; a task never lives longer than a day",
        ),
        _ => (
            "the node's agent was away for too long; decided by the manager",
            Retry::Never,
            "look at the node and at the agent's pod on it; a later job or round tries the node again",
        ),
    }
}

fn of_registry(reason: Reason) -> Row {
    match reason {
        Reason::Unreachable => (
            "name look-up, connection or TLS to the registry failed, or the connection broke",
            Retry::Counted,
            "check DNS, network and certificates from the node, and the runtime's mirror settings",
        ),
        Reason::Throttled => (
            "the registry asked to slow down (429)",
            Retry::Slowly,
            "log in for a higher limit, use a mirror, or lower `parallelism`; the agent holds back all pulls from this registry for at least 30 s and then makes fewer at once",
        ),
        Reason::RegistryError => (
            "the registry answered with a server error, or with one that makes no sense",
            Retry::Counted,
            "look at the registry's own log; raise `backoffLimit` if it is often overloaded",
        ),
        _ => (
            "what arrived is not what its digest or size promised, or went missing before it was unpacked",
            Retry::Counted,
            "what was wrong has been thrown away; if it stays, a proxy or the registry's store damages content",
        ),
    }
}

fn of_node(reason: Reason) -> Row {
    match reason {
        Reason::NoSpace => (
            "the file system of images is full, or the pull would leave less space than is to be kept free",
            Retry::FreeIfGuarded,
            "free space on the node or let the kubelet collect images; the task goes on by itself, without a restart",
        ),
        Reason::Timeout => (
            "one attempt was longer than `timeoutSeconds`",
            Retry::FreeWhileGrowing,
            "nothing, while bytes come; else raise `timeoutSeconds`, or look at the way to the registry",
        ),
        Reason::Stalled => (
            "fewer bytes than `--pull-min-rate` came for `--pull-stall-timeout`, or the runtime ended a pull without progress",
            Retry::Counted,
            "look at the network between node and registry, or lower `--pull-min-rate` where links are that slow",
        ),
        Reason::RuntimeUnavailable => (
            "the container runtime was away, starts up, or broke off the call",
            Retry::FreeAtFirst,
            "look at the runtime on the node (`systemctl status containerd`); pulls go on once it answers",
        ),
        _ => (
            "none of the others; the message has the runtime's own words",
            Retry::Counted,
            "read the message; if it should have a reason of its own, report it with the runtime's name and version",
        ),
    }
}
