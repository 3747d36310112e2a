//! What all processes of one scene write down together.
//!
//! A table of *footprints* (which lane touches which location, how, and up to which of its steps),
//! a set of states that were seen, a set of observations that some serial order shows, counts, and
//! the text of what was found.

use crate::host::{shared_bytes, shared_words};
use crate::mix::{LANES_MAX, NEIGHBOURS, place_of, word_of};
use crate::visits::Book;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

const FOOTPRINTS: usize = 1 << 19;
const STATES: usize = 1 << 19;
const OBSERVATIONS: usize = 1 << 12;
const TEXT: usize = 1 << 16;
/// How many places are looked at for a key.
const PROBES: usize = 64;

/// A set of words.
#[derive(Clone, Copy)]
pub(crate) struct Set(&'static [AtomicU64]);

impl Set {
    fn new(places: usize) -> Set {
        Set(shared_words(places))
    }
    fn places(self, key: u64) -> impl Iterator<Item = &'static AtomicU64> {
        let first = (key >> 3) as usize;
        (0..PROBES).map(move |n| &self.0[(first + n) % self.0.len()])
    }
    /// Puts `key` in; says whether it is new. Where the set is full everything is new.
    pub(crate) fn insert(self, key: u64) -> bool {
        let key = key | 1;
        for place in self.places(key) {
            match place.load(Relaxed) {
                0 => {
                    place.store(key, Relaxed);
                    return true;
                }
                other if other == key => return false,
                _ => {}
            }
        }
        true
    }
    pub(crate) fn has(self, key: u64) -> bool {
        let key = key | 1;
        self.places(key).map(|place| place.load(Relaxed)).take_while(|k| *k != 0).any(|k| k == key)
    }
}

/// What lanes have done to one location.
pub(crate) struct Footprint(&'static [AtomicU64]);

impl Footprint {
    const WORDS: usize = 2 + LANES_MAX;

    fn bit(lane: usize, writes: bool) -> u64 {
        1 << (2 * lane + usize::from(writes))
    }
    /// Notes an access of `lane` at its n-th step; says whether it is one more that conflicts with
    /// another lane's.
    pub(crate) fn note(&self, lane: usize, writes: bool, step: u64) -> bool {
        let old = self.0[1].load(Relaxed);
        let new = old | Footprint::bit(lane, writes);
        self.0[1].store(new, Relaxed);
        let last = &self.0[2 + lane];
        last.store(last.load(Relaxed).max(step), Relaxed);
        old != new && (0..LANES_MAX).any(|other| self.meets(lane, writes, other))
    }
    /// Whether the access conflicts with one that `other` makes.
    fn meets(&self, lane: usize, writes: bool, other: usize) -> bool {
        let mask = self.0[1].load(Relaxed);
        other != lane
            && (mask & Footprint::bit(other, true) != 0
                || writes && mask & Footprint::bit(other, false) != 0)
    }
    /// Whether it conflicts with one that `other` makes at `step` or later, as far as is known.
    pub(crate) fn conflicts(&self, lane: usize, writes: bool, other: usize, step: u64) -> bool {
        /// A lane takes some steps more where others got in its way.
        const SLACK: u64 = 8;
        self.meets(lane, writes, other) && self.0[2 + other].load(Relaxed) + SLACK >= step
    }
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Count {
    Schedules,
    /// Schedules that differ from all before them in what they touch in which order.
    Orders,
    Failures,
    /// Branches that lead to a state seen before.
    Pruned,
    /// Moments at which another lane could have gone on.
    Points,
    /// Footprints that grew by a conflict in this round.
    Grown,
    /// Schedules until the first failure.
    FirstFailure,
    /// Whether something was left out.
    Cut,
}

impl Count {
    const ALL: usize = 8;
}

/// See the module's text.
#[derive(Clone, Copy)]
pub(crate) struct Board {
    counts: &'static [AtomicU64],
    footprints: &'static [AtomicU64],
    pub(crate) seen: Set,
    pub(crate) orders: Set,
    pub(crate) book: Book,
    pub(crate) legal: Set,
    failures: Set,
    length: &'static [AtomicU64],
    text: &'static [AtomicU8],
}

impl Board {
    pub(crate) fn new() -> Board {
        Board {
            counts: shared_words(Count::ALL),
            footprints: shared_words(FOOTPRINTS * Footprint::WORDS),
            seen: Set::new(STATES),
            orders: Set::new(STATES),
            book: Book::new(),
            legal: Set::new(OBSERVATIONS),
            failures: Set::new(OBSERVATIONS),
            length: shared_words(1),
            text: shared_bytes(TEXT),
        }
    }
    pub(crate) fn count(self, what: Count) -> u64 {
        self.counts[what as usize].load(Relaxed)
    }
    pub(crate) fn add(self, what: Count) {
        self.counts[what as usize].fetch_add(1, Relaxed);
    }
    pub(crate) fn set(self, what: Count, value: u64) {
        self.counts[what as usize].store(value, Relaxed);
    }
    /// The footprint of a location; `None` where the table is full.
    pub(crate) fn footprint(self, location: u64) -> Option<Footprint> {
        let first = place_of(location) as usize % FOOTPRINTS;
        for n in 0..PROBES {
            let at = (first + n * NEIGHBOURS as usize) % FOOTPRINTS * Footprint::WORDS;
            let words = &self.footprints[at..at + Footprint::WORDS];
            match words[0].load(Relaxed) {
                0 => words[0].store(location, Relaxed),
                other if other != location => continue,
                _ => {}
            }
            return Some(Footprint(words));
        }
        self.set(Count::Cut, 1);
        None
    }
    /// Notes a failure; its text and how to come there again are kept where no other is like it.
    pub(crate) fn fail(self, text: &str, switches: &str) {
        let nth = self.count(Count::Schedules) + 1;
        self.add(Count::Failures);
        if self.count(Count::FirstFailure) == 0 {
            self.set(Count::FirstFailure, nth);
        }
        let plain: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        if self.failures.insert(word_of(&plain)) {
            let text: String = text.replace('\n', " ").chars().take(600).collect();
            // So long a list is that of a lane that spins; there is no room for many of them.
            let again = match switches.len() {
                0..2000 => format!("--replay '{switches}'"),
                _ => format!(
                    "{} choices, beginning with {}",
                    switches.split(',').count(),
                    &switches[..200]
                ),
            };
            self.write(&format!("{text}\n    again: {again}\n"));
        }
    }
    fn write(self, text: &str) {
        let at = self.length[0].load(Relaxed) as usize;
        if at + text.len() <= self.text.len() {
            for (byte, place) in text.bytes().zip(&self.text[at..]) {
                place.store(byte, Relaxed);
            }
            self.length[0].store((at + text.len()) as u64, Relaxed);
        }
    }
    /// What was found.
    pub(crate) fn text(self) -> String {
        let length = self.length[0].load(Relaxed) as usize;
        let bytes: Vec<u8> = self.text[..length].iter().map(|byte| byte.load(Relaxed)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
