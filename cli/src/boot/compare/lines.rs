//! What a guest's first process says of the rounds: lines of words, `NAME=VALUE` each.
//!
//! **Not here**: what the words mean (`foliant-init`, its rooms `round` and `experiments`).

use crate::failure::{Done, Failure};
use crate::shown::shown;
use foliant_units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
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

/// What an experiment took in one setting, of all CPUs.
#[derive(Serialize, JsonSchema, Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Counted {
    /// How many operations it was.
    pub(super) operations: u64,
    /// Instructions of the thread that did it, where several did of all CPUs; of a compilation
    /// those of the kernel alone.
    pub(super) instructions: u64,
    /// Nanoseconds of the guest's clock from before to behind: an instruction of any CPU is one,
    /// and so is what passes while all of them wait.
    pub(super) elapsed: u64,
    /// Page faults.
    pub(super) faults: u64,
    /// Folios of 2 MiB that faults made.
    pub(super) folios: u64,
    /// Interrupts that asked CPUs to drop translations.
    pub(super) shootdowns: u64,
    /// Interrupts that had CPUs call a function: on Linux all that ask for a flush are such, those
    /// of its own memory such alone.
    pub(super) calls: u64,
    /// Interrupts that had CPUs look for a thread.
    pub(super) wakes: u64,
    /// Interrupts of the CPUs' timers.
    pub(super) timer: u64,
}

/// What one kernel measured.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) name: String,
    /// Runs for each size, in order.
    pub(super) rounds: BTreeMap<u64, Vec<Round>>,
    /// Folios that faults made: at this size, of that size, so many.
    pub(super) folios: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// What experiments took, by the row and by `before` or `after`.
    pub(super) counted: BTreeMap<(String, String), Counted>,
    /// Why a row, or all of an experiment that are left, cannot be had.
    pub(super) cannot: BTreeMap<String, String>,
    /// What the program said where it failed, the first lines.
    pub(super) said: Vec<String>,
    is_whole: bool,
}

impl Measured {
    pub(super) fn of(name: &str) -> Measured {
        Measured {
            name: name.to_owned(),
            rounds: BTreeMap::new(),
            folios: BTreeMap::new(),
            counted: BTreeMap::new(),
            cannot: BTreeMap::new(),
            said: Vec::new(),
            is_whole: false,
        }
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
            "did" => {
                let words = Words::of(line, rest);
                let counted = Counted {
                    operations: words.number("operations")?,
                    instructions: words.number("instructions")?,
                    elapsed: words.number("ticks")?,
                    faults: words.number("faults")?,
                    folios: words.number("folios")?,
                    shootdowns: words.number("shootdowns")?,
                    calls: words.number("calls")?,
                    wakes: words.number("wakes")?,
                    timer: words.number("timer")?,
                };
                let key = (words.get("row")?.to_owned(), words.get("at")?.to_owned());
                self.counted.insert(key, counted);
            }
            "cannot" => {
                let (row, why) = rest.split_once(' ').ok_or_else(|| unread(line))?;
                self.cannot.insert(row.to_owned(), why.to_owned());
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
    /// How far it came.
    pub(super) fn progress(&self) -> String {
        match self.counted.len() {
            0 => format!("{} rounds", self.count()),
            counted => format!("{counted} counts"),
        }
    }
    /// How many runs there were.
    fn count(&self) -> usize {
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
    fn lines_become_counts_of_experiments() {
        let all = measured(
            "Linux",
            &[
                "did row=pool-grow at=after operations=64 instructions=800 ticks=900 faults=1 folios=2 shootdowns=3 calls=4 wakes=5 timer=6",
                "cannot touch-1g the pool has 0 pages of 1",
                "did row=pool-shrink at=after operations=64 instructions=8 ticks=9 faults=0 folios=0 shootdowns=0 calls=0 wakes=0 timer=0",
            ],
        );
        let counted = &all.counted[&("pool-grow".to_owned(), "after".to_owned())];
        let expect = Counted {
            operations: 64,
            instructions: 800,
            elapsed: 900,
            faults: 1,
            folios: 2,
            shootdowns: 3,
            calls: 4,
            wakes: 5,
            timer: 6,
        };
        assert_eq!(*counted, expect);
        assert_eq!(all.cannot["touch-1g"], "the pool has 0 pages of 1");
        assert_eq!(all.progress(), "2 counts");
    }

    #[test]
    fn a_line_that_is_broken_is_told() {
        let said = |line: &str| Measured::of("Foliant").read(line).unwrap_err().sentence();
        assert!(said("round size=4096 nth=0").contains("cannot be read: round size=4096"));
        assert!(said("made size=a of=1 folios=1").contains("cannot be read"));
        assert!(said("did row=split at=before operations=1").contains("cannot be read"));
        let refused = said("init no folios\x1b");
        assert!(refused.contains("Foliant cannot measure the program: no folios\\u{1b}"));
    }
}
