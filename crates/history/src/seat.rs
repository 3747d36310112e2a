//! One seat of a partitioned history: the address ranges that one CPU at a time works on, and what
//! it knows of them.
//!
//! The spaces are shared by all seats; a seat's window in each of them is its own, so its models
//! are exact while the others work next to it, in the same tables and the same folios. Between
//! phases the seats change CPUs, so that what a CPU cached as a seat's former holder shows.
//!
//! A space that a seat forked is its own until it ends. Of the other seats' windows in it nothing
//! is known but this: each word is zero or was stored in this line of spaces, at this address or
//! where it was moved from, and it never changes.

use crate::model::{Model, Page, Stretch, WORDS, page_of, value, word_of};
use crate::rng::Rng;
use crate::world::{Got, World};
use foliant::fault::Refusal;
use foliant::space::{Flags, SpaceId};
use foliant::table::{Attrs, Paging};
use foliant::{Access, Outcome};
use foliant_units::{FRAME_BYTES, Va};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a seat knows of one space.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) id: SpaceId,
    /// Number of the space; part of every value stored in it.
    pub(crate) lineage: u64,
    /// The numbers of the spaces it was forked from, and its own.
    pub(crate) line: Vec<u64>,
    pub(crate) limit: u64,
    /// Forked by this seat, and its own.
    pub(crate) private: bool,
    pub(crate) model: Model,
    /// What was seen in other seats' windows of a private space.
    pub(crate) seen: BTreeMap<u64, Got>,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) rng: Rng,
    /// Its pages in every space.
    pub(crate) window: Stretch,
    /// The pages of all seats.
    pub(crate) all: Stretch,
    pub(crate) spaces: Vec<Known>,
    pub(crate) dead: Vec<SpaceId>,
    pub(crate) at: usize,
    pub(crate) serial: u64,
    /// Where it was at work last: half of its operations come back there.
    pub(crate) last: Stretch,
}

/// Gives every space a number.
#[derive(Debug, Default)]
pub(crate) struct Lineages {
    next: AtomicU64,
}

impl Lineages {
    pub(crate) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Whether a value may have come to `va`: it was stored there, or moved there within its window, or
/// from outside of all windows.
fn is_from(value: u64, va: u64, all: &Stretch, pages: u64) -> bool {
    let word = word_of(va) as u64;
    let stored = value >> 32 & 0xffff;
    let nth = |page: u64| page.wrapping_sub(all.start) % 0x1_0000 / pages;
    let outside = nth(stored) * pages >= all.end - all.start;
    (outside || nth(stored) == nth(page_of(va) & 0xffff)) && value >> 31 & 1 == word
}

impl Known {
    /// Judges an access that did not give what it should: memory may be short, or it was refused
    /// for the right reason.
    fn judge<P: Paging>(
        &self,
        world: &World<'_, P>,
        what: &str,
        va: u64,
        got: Got,
        expected: Result<&Page, Refusal>,
    ) {
        match (got, expected) {
            (Got::Not(outcome), _) if world.is_short(self.limit, outcome) => {}
            (Got::Not(Outcome::Refused(why)), Err(expected)) if why == expected => {}
            _ if world.stopped() => {}
            (got, expected) => {
                let expected = expected.map(|page| page.flags);
                let (cpu, space) = (world.sim_cpu().0, self.lineage);
                let text = format!(
                    "{what} {va:#x} in space {space} by cpu {cpu}: {got:x?}, expected {expected:?}"
                );
                world.wrong("answers", text);
            }
        }
    }
}

impl Seat {
    pub(crate) fn known(&self) -> &Known {
        &self.spaces[self.at]
    }
    pub(crate) fn model(&mut self) -> &mut Model {
        let at = self.at;
        &mut self.spaces[at].model
    }

    /// A word to access: mostly in an area.
    pub(crate) fn target(&mut self) -> u64 {
        let near = if self.rng.once_in(4) { &self.window } else { &self.last };
        let random = near.start + self.rng.below(near.end - near.start);
        let model = &self.spaces[self.at].model;
        let wide = self.rng.once_in(10);
        let page = match wide {
            true => random,
            false => model.pages.range(random..).next().map_or(random, |(page, _)| *page),
        };
        page * FRAME_BYTES + *self.rng.pick(&WORDS)
    }

    /// Loads a word and compares.
    pub(crate) fn load<P: Paging>(&self, world: &World<'_, P>, nth: usize, va: u64) {
        let known = &self.spaces[nth];
        let got = world.load(known.id, va);
        let page = known.model.get(va);
        match (got, expect(page, va, Access::Read)) {
            (Got::Value(value), Ok(page)) => {
                let word = word_of(va);
                if value != page.words[word] {
                    let text = format!(
                        "load of {va:#x} in space {} gives {value:#x}, stored was {:#x} (cpu {})",
                        known.lineage,
                        page.words[word],
                        world.sim_cpu().0
                    );
                    world.wrong("contents", text);
                }
            }
            (got, expected) => known.judge(world, "load of", va, got, expected),
        }
    }

    /// Fetches an instruction.
    pub(crate) fn fetch<P: Paging>(&self, world: &World<'_, P>, nth: usize, va: u64) {
        let known = &self.spaces[nth];
        let got = world.fetch(known.id, va);
        match (got, expect(known.model.get(va), va, Access::Execute)) {
            (Got::Value(_), Ok(_)) => {}
            (got, expected) => known.judge(world, "fetch at", va, got, expected),
        }
    }

    /// Stores a word and compares.
    pub(crate) fn store<P: Paging>(&mut self, world: &World<'_, P>, nth: usize, va: u64) {
        self.serial += 1;
        let known = &mut self.spaces[nth];
        let value = value(known.lineage, va, self.serial);
        let got = world.store(known.id, va, value);
        match (got, expect(known.model.get(va), va, Access::Write)) {
            (Got::Value(_), Ok(_)) => {
                if let Some(page) = known.model.pages.get_mut(&page_of(va)) {
                    page.words[word_of(va)] = value;
                    (page.dirty, page.written) = (true, true);
                }
            }
            (got, expected) => known.judge(world, "store to", va, got, expected),
        }
    }

    /// A page of any seat's window.
    pub(crate) fn any_page(&mut self) -> u64 {
        (self.all.start + self.rng.below(self.all.end - self.all.start)) * FRAME_BYTES
    }
    /// Loads a word of another seat's window in a private space: no other seat is there.
    pub(crate) fn peek<P: Paging>(&mut self, world: &World<'_, P>) {
        let page = self.any_page() / FRAME_BYTES;
        let va = page * FRAME_BYTES + *self.rng.pick(&WORDS);
        let at = self.at;
        if self.window.contains(&page) || !self.spaces[at].private {
            return self.load(
                world,
                at,
                page_of(va).clamp(self.window.start, self.window.end - 1) * FRAME_BYTES,
            );
        }
        world.count("peek");
        let pages = self.window.end - self.window.start;
        let known = &mut self.spaces[at];
        let got = world.load(known.id, va);
        match got {
            Got::Value(0) | Got::Not(Outcome::Refused(_)) => {}
            Got::Value(value)
                if is_from(value, va, &self.all, pages) && known.line.contains(&(value >> 48)) => {}
            Got::Not(outcome) if world.is_short(known.limit, outcome) => return,
            got => {
                let text = format!("load of {va:#x} in the fork {}: {got:x?}", known.lineage);
                return world.wrong("contents", text);
            }
        }
        if let Some(before) = known.seen.insert(va, got)
            && before != got
        {
            let text =
                format!("{va:#x} in the fork {} was {before:x?} and is {got:x?}", known.lineage);
            world.wrong("contents", text);
        }
    }

    /// Compares what it knows, on the calling CPU; no other one is at work.
    pub(crate) fn compare<P: Paging>(&mut self, world: &World<'_, P>) {
        for nth in 0..self.spaces.len() {
            let id = self.spaces[nth].id;
            if world.run(id).is_err() {
                return world.wrong("answers", format!("{id:?} is gone"));
            }
            let pages: Vec<(u64, Page)> =
                self.spaces[nth].model.pages.iter().map(|(n, page)| (*n, *page)).collect();
            for (page, what) in pages {
                let touched = what.words != [0; 2];
                for (was, what) in [(what.dirty, Attrs::DIRTY), (what.written, Attrs::SOFT_DIRTY)] {
                    let what = what.and(P::KEEPS);
                    if was && !world.noted(id, page * FRAME_BYTES).is_some_and(|n| n.has(what)) {
                        let va = page * FRAME_BYTES;
                        let text = format!("{va:#x} was stored to, and its entry lacks {what:?}");
                        world.wrong("dirty_kept", text);
                    }
                }
                // Untouched pages are many, and all alike.
                if touched || self.rng.once_in(8) {
                    let word = *self.rng.pick(&WORDS);
                    self.load(world, nth, page * FRAME_BYTES + word);
                }
                if !what.flags.has(Flags::WRITE) && self.rng.once_in(4) {
                    self.store(world, nth, page * FRAME_BYTES);
                }
                if self.rng.once_in(8) {
                    self.fetch(world, nth, page * FRAME_BYTES);
                }
                if world.stopped() {
                    return;
                }
            }
        }
    }
}

/// What an access must be answered with.
fn expect(page: Option<&Page>, va: u64, access: Access) -> Result<&Page, Refusal> {
    let va = Va::new(va & !(FRAME_BYTES - 1));
    let page = page.ok_or(Refusal::NoArea(va))?;
    let right = match access {
        Access::Read => Flags::READ,
        Access::Write => Flags::WRITE,
        Access::Execute => Flags::EXEC,
    };
    if !page.flags.has(right) {
        return Err(Refusal::NoRight(va, access));
    }
    if page.guard {
        return Err(Refusal::Guard(va));
    }
    Ok(page)
}
