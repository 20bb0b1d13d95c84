//! The documents say how many cases each section has.

use super::{claims, numbers, order, predownload, progress, revisions, scaling, shrinking, updating, upkeep};

const DOCUMENT: &str = include_str!("../../../../docs/cloneset.md");

#[test]
fn the_documents_count_the_cases() {
    for (section, count) in [
        ("Limits", numbers::limit_cases().len()),
        ("Numbers", numbers::number_cases().len()),
        ("Claims", claims::cases().len()),
        ("Revisions", revisions::cases().len()),
        ("Scaling", scaling::cases().len()),
        ("Which pods go first", shrinking::cases().len()),
        ("Update order", order::cases().len()),
        ("Budget of updates", updating::walk_cases().len()),
        ("Policies and states of an update", updating::policy_cases().len()),
        ("Lifecycle states", upkeep::cases().len()),
        ("Progressing", progress::cases().len()),
        ("Pre-download", predownload::cases().len()),
    ] {
        let row = format!("| {section} | {count} |");
        assert!(DOCUMENT.contains(&row), "docs/cloneset.md lacks this row:\n{row}");
    }
}
