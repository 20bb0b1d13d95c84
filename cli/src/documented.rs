//! Runs the commands that a page of the documentation shows, and holds their output against what it shows.

use std::path::PathBuf;

use clap::Parser as _;

use crate::args::{Cli, Command};
use crate::{convert, inplace, validate};

const PAGE: &str = include_str!("../../docs/offline.md");

/// A command of the page, and the lines below it.
fn shown() -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in PAGE.lines() {
        match (line, line.strip_prefix("$ ")) {
            ("```console", _) => inside = true,
            ("```", _) => inside = false,
            (_, Some(command)) if inside => found.push((command.to_owned(), String::new())),
            (line, None) if inside => {
                let (_, output) = found.last_mut().expect("output belongs to a command");
                output.push_str(line);
                output.push('\n');
            }
            _ => {}
        }
    }
    found
}

/// Tests run in the crate's folder, the commands of the page at the root of the tree.
fn at_root(files: &mut [PathBuf]) {
    for file in files {
        *file = PathBuf::from("..").join(&*file);
    }
}

fn run(command: &str) -> String {
    match Cli::parse_from(command.split_whitespace()).command {
        Command::Validate(mut args) => {
            at_root(&mut args.files);
            at_root(&mut args.old);
            validate::told(&args).unwrap().0
        }
        Command::InPlace(mut args) => {
            at_root(std::slice::from_mut(&mut args.from));
            at_root(std::slice::from_mut(&mut args.to));
            inplace::told(&args).unwrap()
        }
        Command::Convert(mut args) => {
            at_root(&mut args.files);
            convert::told(&args).unwrap().0
        }
        other => panic!("{command}: {other:?} is not run here"),
    }
}

#[test]
fn the_page_shows_what_the_commands_print() {
    let shown = shown();
    assert!(shown.len() >= 6, "{} commands", shown.len());
    for (command, output) in shown {
        let printed = run(&command);
        assert_eq!(
            output, printed,
            "docs/offline.md is not true for: {command}\n{printed}"
        );
    }
}
