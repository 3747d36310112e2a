//! What a guest's first process says of the rounds: lines of words, `NAME=VALUE` each.
//!
//! **Not here**: what the words mean (`foliant-init`, its room `round`).

use crate::failure::{Done, Failure};
use crate::shown::shown;
use foliant_units::Bytes;
use std::collections::BTreeMap;

/// One run of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Round {
    /// Of all CPUs, from before the program to behind its end.
    pub(super) instructions: u64,
    /// Those of ring 3, as the kernel counted them.
    pub(super) own: u64,
    pub(super) faults: u64,
    pub(super) peak: Bytes,
    pub(super) shootdowns: u64,
    pub(super) end: End,
}

/// How a run ended, and what it said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct End {
    /// `exit=0`, `signal=9`.
    pub(super) how: String,
    length: u64,
    hash: String,
}

/// What one kernel measured.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) name: String,
    /// Runs for each size, in order.
    pub(super) rounds: BTreeMap<u64, Vec<Round>>,
    /// Folios that faults made: at this size, of that size, so many.
    pub(super) folios: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// What the program said where it failed, the first lines.
    pub(super) said: Vec<String>,
    is_whole: bool,
}

impl Measured {
    pub(super) fn of(name: &str) -> Measured {
        let (rounds, folios) = (BTreeMap::new(), BTreeMap::new());
        Measured { name: name.to_owned(), rounds, folios, said: Vec::new(), is_whole: false }
    }
    /// Reads a line; says whether it was one of ours.
    pub(super) fn read(&mut self, line: &str) -> Done<bool> {
        let Some((kind, rest)) = line.split_once(' ') else {
            self.is_whole |= line == "measured";
            return Ok(line == "measured");
        };
        match kind {
            "round" => {
                let words = Words::of(line, rest);
                let how = ["exit", "signal"].into_iter().find(|name| words.get(name).is_ok());
                let how = how.ok_or_else(|| unread(line))?;
                let end = End {
                    how: format!("{how}={}", words.get(how)?),
                    length: words.number("length")?,
                    hash: words.get("output")?.to_owned(),
                };
                let round = Round {
                    instructions: words.number("ticks")?,
                    own: words.number("user")?.saturating_mul(1000), // a tick is a nanosecond
                    faults: words.number("faults")?,
                    peak: Bytes::new(words.number("peak")?.saturating_mul(1024)),
                    shootdowns: words.number("shootdowns")?,
                    end,
                };
                self.rounds.entry(words.number("size")?).or_default().push(round);
            }
            "made" => {
                let words = Words::of(line, rest);
                let (size, of) = (words.number("size")?, words.number("of")?);
                let count = words.number("folios")?;
                self.folios.entry(size).or_default().insert(of, count);
            }
            "said" if !self.said.iter().any(|line| line == rest) => self.said.push(rest.to_owned()),
            "said" => {}
            "init" => {
                return Err(Failure::new(format_args!(
                    "{} cannot measure the program: {}",
                    self.name,
                    shown(rest)
                )));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
    /// Whether it said that all is measured.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }
    /// How many runs there were.
    pub(super) fn count(&self) -> usize {
        self.rounds.values().map(Vec::len).sum()
    }
}

/// The words of a line.
struct Words<'l> {
    line: &'l str,
    words: BTreeMap<&'l str, &'l str>,
}

impl<'l> Words<'l> {
    fn of(line: &'l str, rest: &'l str) -> Words<'l> {
        let words = rest.split_whitespace().filter_map(|word| word.split_once('='));
        Words { line, words: words.collect() }
    }
    fn get(&self, name: &str) -> Done<&'l str> {
        self.words.get(name).copied().ok_or_else(|| unread(self.line))
    }
    fn number(&self, name: &str) -> Done<u64> {
        self.get(name)?.parse().map_err(|_| unread(self.line))
    }
}

fn unread(line: &str) -> Failure {
    let start: String = line.chars().take(60).collect();
    Failure::new(format_args!("a line of the guest's first process cannot be read: {start}"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::boot::compare) fn measured(name: &str, lines: &[&str]) -> Measured {
        let mut measured = Measured::of(name);
        for line in lines {
            measured.read(line).unwrap();
        }
        measured
    }

    #[test]
    fn lines_become_rounds() {
        let all = measured(
            "Linux",
            &[
                "[    0.1] booting",
                "round size=4096 nth=0 ticks=10000 user=4 faults=7 peak=8 shootdowns=1 exit=3 length=5 output=ab",
                "round size=4096 nth=1 ticks=9000 user=4 faults=7 peak=8 shootdowns=0 signal=9 length=0 output=0",
                "made size=4096 of=65536 folios=2",
                "",
            ],
        );
        assert!(!all.is_whole());
        assert_eq!((all.count(), all.folios[&4096][&65536]), (2, 2));
        let [one, two] = &all.rounds[&4096][..] else { panic!("{all:?}") };
        assert_eq!((one.instructions, one.own, one.faults), (10_000, 4000, 7));
        assert_eq!((one.peak, one.shootdowns), (Bytes::new(8192), 1));
        assert_eq!((one.end.how.as_str(), two.end.how.as_str()), ("exit=3", "signal=9"));
        let failed = measured("Linux", &["said no", "said never", "said no"]);
        assert_eq!(failed.said, ["no", "never"]);
        assert!(measured("Linux", &["measured"]).is_whole());
    }

    #[test]
    fn a_line_that_is_broken_is_told() {
        let said = |line: &str| Measured::of("Foliant").read(line).unwrap_err().sentence();
        assert!(said("round size=4096 nth=0").contains("cannot be read: round size=4096"));
        assert!(said("made size=a of=1 folios=1").contains("cannot be read"));
        let refused = said("init no folios\x1b");
        assert!(refused.contains("Foliant cannot measure the program: no folios\\u{1b}"));
    }
}
