//! Pages of command lines: what the programs themselves print as help.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use kruise_tests::cmd;

use super::page_head;
use crate::repo::build;

/// Pages by their name. Builds the programs.
pub(super) fn pages() -> Result<Vec<(&'static str, String)>> {
    let programs = build(&["kruise-manager", "kruise-daemon", "kruisectl"])?;
    let manager = help(&programs.join("kruise-manager"), &[])?;
    let daemon = help(&programs.join("kruise-daemon"), &[])?;
    Ok(vec![
        (
            "manager-flags",
            page("kruise-manager", &[(String::new(), manager)]),
        ),
        ("daemon-flags", page("kruise-daemon", &[(String::new(), daemon)])),
        ("kruisectl", kruisectl(&programs.join("kruisectl"))?),
    ])
}

fn kruisectl(program: &Path) -> Result<String> {
    let top = help(program, &[])?;
    let mut parts = vec![(String::new(), top.clone())];
    for command in subcommands(&top) {
        let text = help(program, &[&command])?;
        let below = subcommands(&text);
        parts.push((format!("kruisectl {command}"), text));
        for inner in below {
            let text = help(program, &[&command, &inner])?;
            parts.push((format!("kruisectl {command} {inner}"), text));
        }
    }
    Ok(page("kruisectl", &parts))
}

/// Names of the commands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    let listed = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    // Lines that go on with the description of a command are further in.
    let heads = listed
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '));
    let names = heads.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

fn page(program: &str, parts: &[(String, String)]) -> String {
    let mut page = page_head(program, &format!("`{program} --help`"));
    for (title, text) in parts {
        if !title.is_empty() {
            page.push_str(&format!("## {title}\n\n"));
        }
        page.push_str(&format!("```text\n{}\n```\n\n", text.trim_end()));
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

/// The help as a terminal of 100 columns shows it, whatever terminal this is and whatever is set around.
fn help(program: &Path, words: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command
        .args(words)
        .arg("--help")
        .env_clear()
        .env("COLUMNS", "100");
    let text = cmd::run(&mut command)?;
    Ok(text
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_a_help_text() {
        let text =
            "Usage: x\n\nCommands:\n  pull  Pull\n        more\n  tasks\n  help  Print\n\nOptions:\n  -n\n";
        assert_eq!(subcommands(text), ["pull", "tasks"]);
    }
}
