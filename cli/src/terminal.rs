//! What the terminal can show: how wide a line may be, and the colours.
//!
//! ```text
//!                       columns                  colours
//!   a terminal          its own                  yes, unless NO_COLOR or TERM=dumb
//!   a pipe, a file      COLUMNS, or no limit     none, unless CLICOLOR_FORCE
//! ```
//!
//! **Invariants**
//! - L1. Nothing is left out for want of columns: text is filled, never cut.
//! - L2. Paragraphs are no wider than 100 columns, in a pipe and on a wide screen too. What is for
//!   programs, JSON and dumps, is never filled.
//!
//! **Not here**: tables (`table`); whether colours are written, which `anstream` knows where text
//! is printed (`failure`).

use clap::builder::styling::{AnsiColor, Style};
use rustix::termios::tcgetwinsize;
use std::io;
use textwrap::{Options, WordSplitter};

/// The row that is chosen.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// What failed.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// Columns of prose and of help.
pub(crate) const PROSE_MOST: usize = 100;
/// Where fewer remain, a text stands below its name instead of beside it.
const BESIDE_LEAST: usize = 24;
/// A narrower terminal gets what this one would.
const WIDTH_LEAST: usize = 20;

/// Columns of the terminal that standard output is; else what `COLUMNS` says; else no limit.
pub(crate) fn width() -> usize {
    let own = tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    let own = own.filter(|columns| *columns > 0);
    let said = || std::env::var("COLUMNS").ok()?.trim().parse().ok();
    let columns = own.or_else(said).filter(|columns| *columns > 0);
    columns.map_or(usize::MAX, |columns| columns.max(WIDTH_LEAST))
}

/// Paragraphs, one for each line of `text`, filled. What stands below the first line of one is
/// indented as much.
pub(crate) fn prose(text: &str) -> String {
    filled(text, width().min(PROSE_MOST))
}

/// Lines, such as headings, that are filled where the terminal is narrower, and only there.
pub(crate) fn fitted(text: &str) -> String {
    filled(text, width())
}

/// A name, and from `column` on what there is to say of it.
pub(crate) fn entry(name: &str, column: usize, text: &str) -> String {
    entry_within(name, column, text, width())
}

/// [`entry`] on so many columns.
pub(crate) fn entry_within(name: &str, column: usize, text: &str, width: usize) -> String {
    let width = width.min(PROSE_MOST);
    let indent = name.len() - name.trim_start().len();
    let is_beside = width >= column + BESIDE_LEAST;
    let hang = " ".repeat(if is_beside { column } else { indent + 2 });
    if is_beside && textwrap::core::display_width(name) < column {
        let first = format!("{name:<column$}");
        return paragraph(text, width, &first, &hang);
    }
    format!("{}{}", filled(name, width), paragraph(text, width, &hang, &hang))
}

fn filled(text: &str, width: usize) -> String {
    let paragraph = |line: &str| {
        let indent = &line[..line.len() - line.trim_start().len()];
        paragraph(line.trim_start(), width, indent, indent)
    };
    text.lines().map(paragraph).collect()
}

/// One paragraph, with a line end.
fn paragraph(text: &str, width: usize, first: &str, hang: &str) -> String {
    let options = Options::new(width)
        .initial_indent(first)
        .subsequent_indent(hang)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(text, options).trim_end().to_owned() + "\n"
}

/// The lines of a text within so many columns.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let options = Options::new(width).word_splitter(WordSplitter::NoHyphenation);
    textwrap::wrap(text, options).into_iter().map(|line| line.into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_filled_and_keeps_its_indent() {
        assert_eq!(
            filled("one two three\n  four five\n\nsix", 10),
            "one two\nthree\n  four\n  five\n\nsix\n"
        );
        assert_eq!(filled("one two three", usize::MAX), "one two three\n");
        assert_eq!(filled("", 10), "");
        assert_eq!(filled("up-to-64k up-to-2m", 12), "up-to-64k\nup-to-2m\n", "no word is split");
        let long = "x".repeat(25);
        assert!(filled(&long, 10).lines().all(|line| line.len() <= 10), "but one that is too long");
    }

    #[test]
    fn a_text_stands_beside_its_name_or_below_it() {
        let check = |width, name, expect: &str| {
            assert_eq!(entry_within(name, 10, "a text of a few words to say", width), expect);
        };
        check(80, "name", "name      a text of a few words to say\n");
        check(34, "name", "name      a text of a few words to\n          say\n");
        check(30, "name", "name\n  a text of a few words to say\n");
        check(80, "  a long name", "  a long name\n          a text of a few words to say\n");
        check(24, "  name", "  name\n    a text of a few\n    words to say\n");
    }
}
