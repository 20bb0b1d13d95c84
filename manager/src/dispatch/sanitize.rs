//! Bounds of what an agent may say, however long its texts are.

use kruise_proto::dispatch::{Hello, ProbeAnswer};
use kruise_proto::task::{Runtime, TaskStatus};

/// Most tasks of one node.
const MAX_TASKS: usize = 10_000;
/// A task id has four parts with UIDs and hashes.
const MAX_ID: usize = 512;
const MAX_IMAGE: usize = 640;
const MAX_MESSAGE: usize = 1024;
const MAX_WORD: usize = 256;

/// Cuts the texts of a Hello.
///
/// # Errors
/// Too many tasks, for people.
pub(super) fn hello(hello: &mut Hello) -> Result<(), &'static str> {
    if hello.tasks.len() > MAX_TASKS {
        return Err("more than 10000 tasks");
    }
    cut(&mut hello.boot_id, MAX_WORD);
    cut(&mut hello.agent_version, MAX_WORD);
    if let Some(runtime) = &mut hello.runtime {
        self::runtime(runtime);
    }
    hello.tasks.iter_mut().for_each(status);
    Ok(())
}

pub(super) fn runtime(runtime: &mut Runtime) {
    for text in [&mut runtime.name, &mut runtime.version, &mut runtime.socket] {
        cut(text, MAX_WORD);
    }
}

pub(super) fn status(status: &mut TaskStatus) {
    cut(&mut status.task_id, MAX_ID);
    cut(&mut status.image, MAX_IMAGE);
    cut(&mut status.image_id, MAX_IMAGE);
    cut(&mut status.message, MAX_MESSAGE);
}

pub(super) fn answer(answer: &mut ProbeAnswer) {
    cut(&mut answer.image, MAX_IMAGE);
    cut(&mut answer.image_id, MAX_IMAGE);
}

/// Cuts at a boundary of characters.
fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut long = TaskStatus {
            message: "é".repeat(1_000),
            ..TaskStatus::default()
        };
        status(&mut long);
        assert_eq!(long.message.len(), 1_024);
        let mut odd = format!("a{}", "é".repeat(1_000));
        cut(&mut odd, MAX_MESSAGE);
        assert_eq!(odd.len(), 1_023);
    }

    #[test]
    fn a_hello_with_too_many_tasks_is_refused() {
        let mut long = Hello {
            tasks: vec![TaskStatus::default(); MAX_TASKS + 1],
            ..Hello::default()
        };
        assert!(hello(&mut long).is_err());
        long.tasks.pop();
        assert!(hello(&mut long).is_ok());
    }
}
