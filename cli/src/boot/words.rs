//! What the kernel says of a program, in words of its own beside the program's streams.
//!
//! ```text
//!   ended exit=N                   the program's exit code
//!   ended signal=N                 the signal that killed it
//!   missing call 425 io_uring_setup   a system call that the kernel does not have
//!   {"faults":{"minor":3},...}     what it counted
//!   anything else                  told where the program's end is not
//! ```
//!
//! The last line of the first two kinds counts, and the last one of counts.
//!
//! **Not here**: what a program itself says (`program`); the list of calls (`calls`).

use crate::document::{self, Document};
use crate::failure::{Done, Failure};
use crate::shown::shown;
use crate::table::{columns, count};
use nix::sys::signal::Signal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use std::collections::BTreeMap;

/// So many lines are told where the program's end is not.
const LAST: usize = 30;

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// With this code of its own.
    Exit(u8),
    /// By this signal.
    Signal(u8),
}

impl End {
    fn of(line: &str) -> Option<End> {
        let end = line.strip_prefix("ended ")?.trim();
        match end.split_once('=')? {
            ("exit", code) => code.parse().ok().map(End::Exit),
            ("signal", number) => {
                let number = number.parse().ok().filter(|number| (1..=127).contains(number));
                number.map(End::Signal)
            }
            _ => None,
        }
    }

    /// The code of the command, where the kernel has none of its own.
    pub(super) fn code(self) -> u8 {
        match self {
            End::Exit(code) => code,
            End::Signal(number) => 128 + number,
        }
    }

    /// Success, or the exit code, with a sentence where there is something to say.
    pub(super) fn verdict(self, program: &str) -> Done {
        match self {
            End::Exit(0) => Ok(()),
            End::Exit(code) => Err(Failure::Code(code)),
            End::Signal(number) => {
                let name = Signal::try_from(i32::from(number));
                let name = name.map_or(String::new(), |name| format!(" ({name})"));
                let said = format!("{program} was killed by signal {number}{name}");
                Err(Failure::Coded(self.code(), said))
            }
        }
    }
}

/// The kernel's words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Words(Vec<String>);

impl Words {
    pub(super) fn read(text: &[u8]) -> Words {
        let text = String::from_utf8_lossy(text);
        Words(text.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect())
    }

    /// How the program ended, if it did.
    pub(super) fn end(&self) -> Option<End> {
        self.0.iter().rev().find_map(|line| End::of(line))
    }

    /// What the program asked for and is not there, each once: a sentence.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut sentences: Vec<String> = Vec::new();
        for what in self.0.iter().filter_map(|line| line.strip_prefix("missing ")) {
            let sentence = sentence(what.trim());
            if !sentences.contains(&sentence) {
                sentences.push(sentence);
            }
        }
        sentences
    }

    /// What the kernel counted; nothing where it did not.
    pub(super) fn counts(&self) -> Done<Option<Counts>> {
        let Some(line) = self.0.iter().rev().find(|line| line.starts_with('{')) else {
            return Ok(None);
        };
        let counts = serde_json::from_str(line).map(|counts| Some(Counts { counts }));
        counts.map_err(|e| {
            let start: String = line.chars().take(60).collect();
            Failure::new(format_args!("the kernel's counts cannot be read ({e}): {start}"))
        })
    }

    /// The last lines, as they may be shown.
    pub(super) fn last(&self) -> impl Iterator<Item = String> {
        self.0[self.0.len().saturating_sub(LAST)..].iter().map(|line| shown(line))
    }
}

/// That something is not there; `what` is a kind and its name, of a call the number first.
fn sentence(what: &str) -> String {
    let call = what.strip_prefix("call ").and_then(|call| call.split_once(' '));
    match call {
        Some((number, name)) if number.parse::<u32>().is_ok() => format!(
            "the program asked for {} ({number}), which is not there; it got ENOSYS",
            shown(name.trim())
        ),
        _ => format!("the program asked for {}, which is not there", shown(what)),
    }
}

/// What the kernel counted while a program ran.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub(crate) struct Counts {
    /// Each by its name, in the words of the kernel that ran.
    counts: BTreeMap<String, Count>,
}

impl Document for Counts {
    const NAME: &'static str = "boot-stats";
    const COMMAND: &'static str = "foliant boot --stats json -- COMMAND";
}

/// A number, or several of one kind.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(untagged)]
enum Count {
    One(Number),
    Several(BTreeMap<String, Number>),
}

impl Counts {
    /// For programs: one line.
    pub(super) fn line(&self) -> Done<String> {
        document::line(self)
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let number = |number: &Number| number.as_u64().map_or(number.to_string(), count);
        let mut rows = Vec::new();
        for (name, counted) in &self.counts {
            match counted {
                Count::One(n) => rows.push(vec![shown(name), number(n)]),
                Count::Several(all) => {
                    let row = |(of, n): (&String, &Number)| {
                        vec![shown(&format!("{name} {of}")), number(n)]
                    };
                    rows.extend(all.iter().map(row));
                }
            }
        }
        columns(&["count", "value"], rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Words {
        Words::read(text.as_bytes())
    }

    #[test]
    fn the_last_end_counts() {
        for (text, end) in [
            ("", None),
            ("booting\nended exit=0\n", Some(End::Exit(0))),
            ("ended exit=1\r\nended exit=255\r\nbye\r\n", Some(End::Exit(255))),
            ("ended exit=0\nended signal=11", Some(End::Signal(11))),
            ("ended exit=7\nended exit=256\nended signal=0\n", Some(End::Exit(7))),
            ("ended exit=-1\nended exit=\nended\nended well=1\n", None),
            ("it ended exit=1\nendedexit=1\n", None),
            ("ended signal=128\nended signal=9x\n", None),
        ] {
            assert_eq!(words(text).end(), end, "{text:?}");
        }
        // Bytes that are no text do not hide it.
        assert_eq!(Words::read(b"\xff\xfe\nended exit=3\n").end(), Some(End::Exit(3)));
    }

    #[test]
    fn an_end_is_a_code_and_for_a_signal_a_sentence() {
        let said = |end: End| match end.verdict("tool") {
            Ok(()) => (0, String::new()),
            Err(Failure::Code(code)) => (code, String::new()),
            Err(Failure::Coded(code, said)) => (code, said),
            Err(other) => panic!("{other:?}"),
        };
        for (end, code, words) in [
            (End::Exit(0), 0, ""),
            (End::Exit(200), 200, ""),
            (End::Signal(11), 139, "tool was killed by signal 11 (SIGSEGV)"),
            (End::Signal(64), 192, "tool was killed by signal 64"),
            (End::Signal(127), 255, "tool was killed by signal 127"),
        ] {
            assert_eq!(said(end), (code, words.to_owned()));
            assert_eq!(end.code(), code);
        }
    }

    #[test]
    fn what_is_missing_is_said_once() {
        let text = "missing call 425 io_uring_setup\nmissing ioctl 0x5401 on a file\n\
            missing call 425 io_uring_setup\r\nmissing call 9\x1b[m x\nnothing missing here\n";
        let expect = [
            "the program asked for io_uring_setup (425), which is not there; it got ENOSYS",
            "the program asked for ioctl 0x5401 on a file, which is not there",
            "the program asked for call 9\\u{1b}[m x, which is not there",
        ];
        assert_eq!(words(text).missing(), expect);
        assert!(words("").missing().is_empty());
    }

    #[test]
    fn counts_are_a_table_or_a_document() {
        let text = "{\"old\":1}\n{\"faults\":1234567,\"folios\":{\"64k\":3,\"2m\":0},\"share\":0.5}\nend\n";
        let counts = words(text).counts().unwrap().unwrap();
        document::tests::holds(&counts);
        let table = counts.table();
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        let expect: [&[&str]; 5] = [
            &["count", "value"],
            &["faults", "1,234,567"],
            &["folios", "2m", "0"],
            &["folios", "64k", "3"],
            &["share", "0.5"],
        ];
        assert_eq!(rows, expect);
        let line = counts.line().unwrap();
        assert_eq!(line.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["schema"], "foliant boot-stats 1");
        assert_eq!(value["counts"]["folios"]["64k"], 3);
        assert_eq!(words("no counts\n").counts().unwrap(), None);
        for bad in ["{", "{\"a\":\"text\"}", "{\"a\":{\"b\":{}}}"] {
            let said = words(bad).counts().unwrap_err().sentence();
            assert!(said.contains("cannot be read") && said.contains(bad), "{said}");
        }
    }

    #[test]
    fn the_last_lines_are_told_as_they_may_be_shown() {
        let text: String = (0..40).map(|n| format!("line {n}\x1b\n")).collect();
        let last: Vec<String> = words(&text).last().collect();
        assert_eq!(last.len(), LAST);
        assert_eq!((last[0].as_str(), last[29].as_str()), ("line 10\\u{1b}", "line 39\\u{1b}"));
        assert_eq!(words("one\n").last().count(), 1);
    }
}
