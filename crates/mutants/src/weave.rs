//! A file with mutants in it.
//!
//! Everything that is added is on the line where it is added, so a line keeps its number. Mutants
//! nest: what a mutant repeats with its mistake is the text of the file, without the mutants inside
//! of it, since only one of them is ever on.

use crate::mutant::Edit;
use std::ops::Range;

/// The name that a mutant's number has in the text of an edit.
pub(crate) const ID: &str = "__ID__";

/// A file with its mutants, and where each of them stands.
#[derive(Debug)]
pub(crate) struct Woven {
    pub(crate) text: String,
    /// What stands for each edit: the text that it added, and all of its region.
    pub(crate) places: Vec<Place>,
}

/// Bytes of the text that was written.
#[derive(Clone, Default, Debug)]
pub(crate) struct Place {
    pub(crate) added: Vec<Range<usize>>,
    pub(crate) region: Range<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Close,
    Insert,
    Open,
    Token,
}

/// Weaves edits with their numbers into the text of a file.
pub(crate) fn weave(text: &str, edits: &[(u32, &Edit)]) -> Woven {
    let mut steps = Vec::new();
    for (n, (_, edit)) in edits.iter().enumerate() {
        let Range { start, end } = edit.region;
        if start == end {
            steps.push((start, What::Insert, 0, n as isize, n));
        } else {
            // Of regions that end together the inner one, which began last, is closed first.
            steps.push((end, What::Close, -(start as isize), -(n as isize), n));
            steps.push((start, What::Open, -(end as isize), n as isize, n));
        }
        if let Some((range, _)) = &edit.token {
            steps.push((range.start, What::Token, 0, 0, n));
        }
    }
    steps.sort_unstable();
    let mut woven = Woven { text: String::new(), places: vec![Place::default(); edits.len()] };
    let mut from = 0;
    for (at, what, _, _, n) in steps {
        let (id, edit) = edits[n];
        woven.text.push_str(&text[from..at]);
        from = at;
        let begun = woven.text.len();
        let added = match what {
            What::Open | What::Insert => &edit.before,
            What::Close => &edit.after,
            What::Token => edit.token.as_ref().map_or(&edit.before, |(range, token)| {
                from = range.end;
                token
            }),
        };
        woven.text.push_str(&added.replace(ID, &id.to_string()));
        let ended = woven.text.len();
        let place = &mut woven.places[n];
        place.added.push(begun..ended);
        match what {
            What::Open => place.region.start = begun,
            What::Close => place.region.end = ended,
            What::Insert => place.region = begun..ended,
            What::Token => {}
        }
    }
    woven.text.push_str(&text[from..]);
    woven
}
