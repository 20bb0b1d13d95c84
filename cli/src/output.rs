//! Listings as tables, JSON and YAML.

use std::io::Write as _;

use anyhow::Result;
use comfy_table::{Table, presets};
use serde::Serialize;

use crate::args::Format;

/// What can be one line of a table.
pub(crate) trait Row {
    /// Heads of the columns; the second list comes with `wide`.
    const HEADS: (&'static [&'static str], &'static [&'static str]);

    /// Cells in the order of the heads.
    fn cells(&self) -> Vec<String>;
    /// Cells of the further columns.
    fn wide(&self) -> Vec<String>;
}

/// Writes to standard output. A reader that went away is an error like any other, and `exit` ends quietly on it.
pub(crate) fn put(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// A whole listing as text, with a line break at its end.
pub(crate) fn listing<T: Row + Serialize>(rows: &[T], format: Format) -> Result<String> {
    Ok(match format {
        Format::Table | Format::Wide => table(rows, format == Format::Wide),
        Format::Json => serde_json::to_string_pretty(rows)? + "\n",
        Format::Yaml => serde_norway::to_string(rows)?,
    })
}

/// One thing as a document.
pub(crate) fn document<T: Serialize>(thing: &T, format: Format) -> Result<String> {
    Ok(match format {
        Format::Yaml => serde_norway::to_string(thing)?,
        Format::Table | Format::Wide | Format::Json => serde_json::to_string_pretty(thing)? + "\n",
    })
}

/// As kubectl shows it: no lines, columns apart by spaces, so that scripts can split it.
fn table<T: Row>(rows: &[T], wide: bool) -> String {
    let mut table = plain_table();
    let (heads, more) = T::HEADS;
    table.set_header(heads.iter().chain(more.iter().filter(|_| wide)));
    for row in rows {
        let more = if wide { row.wide() } else { Vec::new() };
        table.add_row(row.cells().into_iter().chain(more));
    }
    trimmed(&table)
}

/// A table without lines around its cells.
pub(crate) fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// The table's text without the spaces around each line.
pub(crate) fn trimmed(table: &Table) -> String {
    let mut text: String = table
        .lines()
        .map(|line| line.trim_end().trim_start_matches(' ').to_owned() + "\n")
        .collect();
    if text.is_empty() {
        text.push('\n');
    }
    text
}

/// A cell that is never empty, so that columns stay where they are.
pub(crate) fn cell(text: impl Into<String>) -> String {
    let text = text.into();
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Thing(&'static str);

    impl Row for Thing {
        const HEADS: (&'static [&'static str], &'static [&'static str]) = (&["NAME", "SIZE"], &["MORE"]);

        fn cells(&self) -> Vec<String> {
            vec![self.0.to_owned(), cell("")]
        }

        fn wide(&self) -> Vec<String> {
            vec!["m".to_owned()]
        }
    }

    #[test]
    fn columns_can_be_split() {
        let text = listing(&[Thing("one"), Thing("three")], Format::Wide).unwrap();
        let cells: Vec<Vec<_>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            cells,
            [["NAME", "SIZE", "MORE"], ["one", "-", "m"], ["three", "-", "m"]]
        );
        assert!(!text.contains(" \n"), "{text:?}");
    }

    #[test]
    fn an_empty_listing_is_a_head_or_an_empty_document() {
        assert_eq!(listing::<Thing>(&[], Format::Table).unwrap().lines().count(), 1);
        assert_eq!(listing::<Thing>(&[], Format::Json).unwrap(), "[]\n");
        assert_eq!(listing::<Thing>(&[], Format::Yaml).unwrap(), "[]\n");
    }
}
