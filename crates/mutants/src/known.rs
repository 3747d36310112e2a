//! The list of mutants that are no mistakes, with the reasons: a table in Markdown, keyed by words
//! that a change elsewhere in the file leaves as they are.

use crate::mutant::{Mutant, Name};
use std::collections::BTreeMap;

/// Reasons by name.
pub(crate) type Known = BTreeMap<Name, String>;

/// Reads the list. Each row is `| file | function | before | after | why |`, the first four in
/// backquotes.
pub(crate) fn read(text: &str) -> Result<Known, String> {
    let mut known = Known::new();
    for (n, line) in text.lines().enumerate() {
        let Some(row) = line.trim().strip_prefix("| `") else { continue };
        let cells = cells(&format!("`{row}"));
        let [file, function, before, after, why] = &cells[..] else {
            return Err(format!(
                "line {}: {} cells and not five: `\\|` is a bar in a cell",
                n + 1,
                cells.len()
            ));
        };
        if why.is_empty() {
            return Err(format!("line {}: no reason is given", n + 1));
        }
        let quoted = |cell: &String| cell.trim_matches('`').trim().to_owned();
        let name = Name {
            file: quoted(file),
            function: quoted(function),
            before: quoted(before),
            after: quoted(after),
        };
        known.insert(name, why.clone());
    }
    Ok(known)
}

/// The entries with a name that no mutant has.
pub(crate) fn strangers<'a>(known: &'a Known, mutants: &[Mutant]) -> Vec<&'a Name> {
    known.keys().filter(|name| !mutants.iter().any(|mutant| mutant.name == **name)).collect()
}

/// A row of the list, for a reader to complete.
pub(crate) fn row(name: &Name) -> String {
    let cell = |text: &str| format!("`{}`", text.replace('|', "\\|"));
    let Name { file, function, before, after } = name;
    format!("| {} | {} | {} | {} | why |", cell(file), cell(function), cell(before), cell(after))
}

/// Cells of a row, without the escapes.
fn cells(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut characters = row.chars().peekable();
    while let Some(c) = characters.next() {
        match (c, cells.last_mut()) {
            ('\\', Some(cell)) if characters.peek() == Some(&'|') => {
                cell.push('|');
                characters.next();
            }
            ('|', _) => cells.push(String::new()),
            (c, Some(cell)) => cell.push(c),
            (_, None) => {}
        }
    }
    if cells.last().is_some_and(|last| last.trim().is_empty()) {
        cells.pop();
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}
