//! Exit codes that scripts can tell apart, and how errors are shown.

use std::io;
use std::process::ExitCode;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Everything that was asked for is so.
    Success,
    /// The job is over and at least one node failed.
    NodesFailed,
    /// The rollout failed, or its set is gone.
    RolloutFailed,
    /// At least one object is refused.
    Refused,
    /// The command line does not make sense. The argument parser uses the same number.
    Usage,
    /// The job is not over within the time that was given; it goes on.
    TimedOut,
    /// It could not be done: no cluster, no rights, no manager.
    Unable,
    /// The user pressed Ctrl-C; the job goes on.
    Interrupted,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(match code {
            Code::Success => 0,
            Code::NodesFailed | Code::RolloutFailed | Code::Refused => 1,
            Code::Usage => 2,
            Code::TimedOut => 3,
            Code::Unable => 4,
            Code::Interrupted => 130,
        })
    }
}

/// An error of the user's, found after the arguments were parsed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// Shows an error with its causes and answers how to end.
pub(crate) fn report(error: &anyhow::Error) -> Code {
    if error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    {
        // Whoever read the output has enough, as with `| head`.
        return Code::Success;
    }
    eprintln!("error: {}", chain(error));
    if error.is::<Usage>() {
        Code::Usage
    } else {
        Code::Unable
    }
}

/// An error and its causes on one line. A cause that the text before it repeats already is left out.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    // What tonic wraps around a failed connection says nothing by itself.
    let causes = error
        .chain()
        .map(ToString::to_string)
        .filter(|cause| cause != "transport error");
    for cause in causes {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow::anyhow!("no route")
            .context("cannot connect: no route")
            .context("cannot list agents");
        assert_eq!(chain(&error), "cannot list agents: cannot connect: no route");
        let error = anyhow::anyhow!("no route")
            .context("transport error")
            .context("cannot connect");
        assert_eq!(chain(&error), "cannot connect: no route");
    }

    #[test]
    fn usage_errors_are_told_apart() {
        assert_eq!(report(&Usage("x".into()).into()), Code::Usage);
        assert_eq!(report(&anyhow::anyhow!("x")), Code::Unable);
    }
}
