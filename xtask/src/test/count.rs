//! Runs tests with their output shown as it comes, and counts them.

use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// How many tests there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Runs a command that prints what `cargo test` prints. All its tests run, whatever fails; one that does not even compile counts as one failure.
pub(crate) fn run_tests(command: &mut Command) -> Result<Counts> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo")?;
    let mut counts = Counts::default();
    let output = child.stdout.take().context("the output was asked for")?;
    for line in BufReader::new(output).lines() {
        let line = line.context("cannot read the output of cargo")?;
        println!("{line}");
        if let Some(result) = summary(&line) {
            counts += result;
        }
    }
    if !child.wait()?.success() && counts.failed == 0 {
        counts.failed = 1;
    }
    Ok(counts)
}

/// "test result: ok. 24 passed; 0 failed; ..."
fn summary(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |word: &str| {
        let before = rest.split(word).next()?;
        before.split_whitespace().next_back()?.parse().ok()
    };
    Some(Counts {
        passed: number(" passed")?,
        failed: number(" failed")?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Counts, summary};

    #[test]
    fn closing_lines_are_read() {
        let line = "test result: FAILED. 23 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.58s";
        assert_eq!(
            summary(line),
            Some(Counts {
                passed: 23,
                failed: 1
            })
        );
        assert_eq!(summary("running 3 tests"), None);
    }
}
