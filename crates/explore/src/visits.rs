//! Which branches would repeat another one.
//!
//! A lane is left at a point and goes on later: all that other lanes touch between is the *visit*
//! of the point. Two accesses *meet* if they touch one location and one of them changes it. Where
//! nothing that the lane touches from the point to a later point meets the visit, the visit may as
//! well come at the later point: if the lane is left there, the lanes make the same schedule again.
//! So it is not left there.
//!
//! ```text
//!   A: ──p──x──y──q──      left at p:  ..p  [ B: u v w ]  x y q..
//!                          left at q:  ..p x y  [ B: u v w ]  q..    the same, unless x or y meets u, v or w
//! ```
//!
//! The reasons are in [record 093](../../../docs/records/093-a-visit-is-made-once.md).
//!
//! **Invariants**
//! - N1. A visit lists what all its schedules touched, those of every branch in it. One that ended
//!   before its time, or that there was no room for, meets everything.
//! - N2. Besides words it lists what checkers and judges relate to them: the owner of a frame, the
//!   meaning of a kernel address.
//! - N3. What a lane touched is forgotten when another one goes on: only one uninterrupted stretch
//!   is compared.

use crate::host::shared_words;
use crate::mix::{LANES_MAX, Mixers, Touched, mix};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::collections::{HashMap, HashSet};

/// Visits of a scene, and what they touched, at most.
const VISITS: usize = 1 << 17;
const TOUCHED: usize = 1 << 22;
/// How many places are looked at for a key.
const PROBES: usize = 16;
/// In a word of the list: the location was changed.
const WRITES: u64 = 1 << 59;
/// Instead of a visit's newest line: it meets everything.
const EVERYTHING: u64 = u64::MAX;
/// The line before the first one: the list ends here.
const NOTHING: u64 = 0;

/// What visits touched, for all processes of a scene: one of them is at work at a time.
///
/// A visit is a pair of words, its key and its newest line; a line is what was touched, and the
/// line before.
#[derive(Clone, Copy)]
pub(crate) struct Book {
    visits: &'static [AtomicU64],
    lines: &'static [AtomicU64],
    used: &'static AtomicU64,
}

/// A visit's place in the book.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Visit(usize);

/// What a visit touched, and whether it was changed; `None` meets everything.
type Met = Option<HashMap<u64, bool, Mixers>>;

impl Book {
    pub(crate) fn new() -> Book {
        Book {
            visits: shared_words(2 * VISITS),
            lines: shared_words(2 * TOUCHED),
            used: &shared_words(1)[0],
        }
    }
    fn places(key: u64) -> impl Iterator<Item = usize> {
        let first = mix(key, 11) as usize;
        (0..PROBES).map(move |n| (first + n) % VISITS)
    }
    /// The visit that began at this key.
    pub(crate) fn visit(self, key: u64) -> Option<Visit> {
        let key = key | 1;
        let is_it = |place: &usize| self.visits[2 * place].load(Relaxed) == key;
        Book::places(key).find(is_it).map(Visit)
    }
    fn open(self, key: u64) -> Option<Visit> {
        let key = key | 1;
        let is_free = |place: &usize| self.visits[2 * place].load(Relaxed) == 0;
        let place = Book::places(key).find(is_free)?;
        self.visits[2 * place].store(key, Relaxed);
        Some(Visit(place))
    }
    fn newest(self, visit: Visit) -> &'static AtomicU64 {
        &self.visits[2 * visit.0 + 1]
    }
    /// From now on the visit meets everything.
    fn spoil(self, visit: Visit) {
        self.newest(visit).store(EVERYTHING, Relaxed);
    }
    fn add(self, visit: Visit, word: u64) {
        let before = self.newest(visit).load(Relaxed);
        if before == EVERYTHING {
            return;
        }
        let line = 1 + self.used.load(Relaxed);
        if line as usize >= TOUCHED {
            return self.spoil(visit);
        }
        self.used.store(line, Relaxed);
        self.lines[2 * line as usize].store(word, Relaxed);
        self.lines[2 * line as usize + 1].store(before, Relaxed);
        self.newest(visit).store(line, Relaxed);
    }
    fn met(self, visit: Visit) -> Met {
        let mut met: HashMap<u64, bool, Mixers> = HashMap::default();
        let mut line = self.newest(visit).load(Relaxed);
        if line == EVERYTHING {
            return None;
        }
        while line != NOTHING {
            let word = self.lines[2 * line as usize].load(Relaxed);
            *met.entry(word & !WRITES).or_default() |= word & WRITES != 0;
            line = self.lines[2 * line as usize + 1].load(Relaxed);
        }
        Some(met)
    }
}

/// A visit that goes on: what other lanes than the one that was left touch is listed.
struct Open {
    left: usize,
    visit: Visit,
    listed: HashSet<u64, Mixers>,
}

/// What the lane at work has touched since a point at which it could be left.
struct Since {
    visit: Visit,
    met: Option<Met>,
    touched: Vec<Touched>,
}

impl Since {
    /// Whether something of it meets the visit.
    fn meets(&mut self, book: Book) -> bool {
        if self.touched.is_empty() {
            return false;
        }
        let met = self.met.get_or_insert_with(|| book.met(self.visit));
        let meets = |touched: &Touched| match met {
            None => true,
            Some(met) => met.get(&touched.location).is_some_and(|writes| *writes || touched.writes),
        };
        let any = self.touched.iter().any(meets);
        self.touched.clear();
        any
    }
}

/// What a process knows of visits.
pub(crate) struct Visits {
    book: Book,
    open: Vec<Open>,
    /// For each lane that the lane at work could have been left for.
    since: [Option<Since>; LANES_MAX],
}

impl Visits {
    pub(crate) fn new(book: Book) -> Visits {
        Visits { book, open: Vec::new(), since: [const { None }; LANES_MAX] }
    }
    /// The lane touches this.
    pub(crate) fn note(&mut self, lane: usize, touched: Touched) {
        let word = touched.location | if touched.writes { WRITES } else { 0 };
        for open in self.open.iter_mut().filter(|open| open.left != lane) {
            if open.listed.insert(word) {
                self.book.add(open.visit, word);
            }
        }
        self.since.iter_mut().flatten().for_each(|since| since.touched.push(touched));
    }
    /// What happens can not be told by locations.
    pub(crate) fn note_everything(&mut self, lane: usize) {
        self.left_out(lane);
        self.since = [const { None }; LANES_MAX];
    }
    /// The process ends before its time.
    pub(crate) fn spoil(&self) {
        self.open.iter().for_each(|open| self.book.spoil(open.visit));
    }
    /// Whether the lane at work, left for `next` here, would do what it did when it was left
    /// before.
    pub(crate) fn is_known(&mut self, next: usize, key: u64) -> bool {
        if self.look(next, key) {
            self.left_out(next);
            return true;
        }
        if self.since[next].as_mut().is_some_and(|since| since.meets(self.book)) {
            self.since[next] = None;
        }
        self.since[next].is_some()
    }
    /// The lane is left: this process makes the visit.
    pub(crate) fn begin(&mut self, left: usize, key: u64) {
        let visit = self.book.open(key);
        self.open.extend(visit.map(|visit| Open { left, visit, listed: HashSet::default() }));
    }
    /// Looks whether the lane at work was left for `next` here, in another process: what it touches
    /// from now on counts.
    pub(crate) fn look(&mut self, next: usize, key: u64) -> bool {
        let visit = self.book.visit(key);
        if let Some(visit) = visit {
            self.since[next] = Some(Since { visit, met: None, touched: Vec::new() });
        }
        visit.is_some()
    }
    /// What `next` does is not listed here, because the branch was made elsewhere or because it can
    /// not be told by locations: only the visits for which `next` itself was left still list
    /// everything (N1).
    pub(crate) fn left_out(&self, next: usize) {
        self.open
            .iter()
            .filter(|open| open.left != next)
            .for_each(|open| self.book.spoil(open.visit));
    }
    /// The process of a branch died.
    pub(crate) fn died(&self, key: u64) {
        self.spoil();
        self.book.visit(key).into_iter().for_each(|visit| self.book.spoil(visit));
    }
    /// Another lane goes on.
    pub(crate) fn switch(&mut self, next: usize) {
        self.open.retain(|open| open.left != next);
        self.since = [const { None }; LANES_MAX];
    }
}
