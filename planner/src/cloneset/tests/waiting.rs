//! Reasons: that all of them are in the documents, and that each can happen.

use crate::cloneset::Reason;

const DOCUMENT: &str = include_str!("../../../../docs/cloneset.md");

#[test]
fn the_documents_have_every_reason_and_no_other() {
    for reason in Reason::ALL {
        let row = format!("| `{}` | {} |", reason.name(), reason.meaning());
        assert!(DOCUMENT.contains(&row), "docs/cloneset.md lacks this row:\n{row}");
    }
    let table = DOCUMENT
        .split("| Reason | What it means |")
        .nth(1)
        .expect("the table");
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .count();
    assert_eq!(rows, Reason::ALL.len());
}
