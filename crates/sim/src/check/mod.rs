//! Checkers: they watch what the machine does and what the manager states, and know nothing else.
//!
//! The machine tells an [`Event`] for everything it does; [`Watch`] hands it to every checker. A
//! checker sees events and memory, never the manager, and never another checker: each keeps its own
//! picture, so that a mistake in one hides nothing from the others. What they find is recorded, not
//! panicked.
//!
//! | checker | it demands |
//! |---|---|
//! | `frames_conserved` | every frame has exactly one stated owner; free frames are not used |
//! | `no_shared_owner` | no frame gets a second owner without being given up first |
//! | `no_stale_translation` | nothing cached and no reachable word names a freed frame; nothing cached outlives what changed its word |
//! | `zeroed_before_user` | nothing of an earlier owner is left where a user first reaches a frame |
//! | `counters_recount` | what the manager counts equals a recount |
//! | `quiescent` | at the end nothing is outstanding, no user frame is left, and every table is in use |
//! | `small_and_large` | a user's leaf becomes a table, and a table a leaf, when no CPU can use the old one any more |
//! | `bbm` | break-before-make, where the machine demands it |
//! | `groups` | entries that may be cached as one are alike, and change as one |
//!
//! **Locking**: one lock around all of them, taken under core locks; a checker calls nothing back.

mod bbm;
mod counters_recount;
mod frames_conserved;
mod groups;
mod no_shared_owner;
mod no_stale_translation;
mod quiescent;
mod small_and_large;
mod spans;
mod sparse;
mod words;
mod zeroed_before_user;

use crate::access::{Access, PageFault};
use crate::cache::Cached;
use crate::config::Config;
use crate::memory::Memory;
use core::fmt;
use core::hash::{Hash, Hasher};
use foliant_machine::{Invalidation, Owner, Replace, Retired, Root};
use foliant_units::{Cpu, CpuSet, FrameRange, Pa, Va, VaRange};

/// So many violations are kept; later ones are dropped.
const KEPT_MAX: usize = 256;

/// The names of all checkers.
pub const CHECKERS: [&str; 9] = [
    "frames_conserved",
    "no_shared_owner",
    "no_stale_translation",
    "zeroed_before_user",
    "counters_recount",
    "quiescent",
    "small_and_large",
    "bbm",
    "groups",
];

/// Something that must not happen, and did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The checker that saw it; one of [`CHECKERS`].
    pub checker: &'static str,
    /// The CPU that did it.
    pub cpu: Cpu,
    /// What happened.
    pub text: String,
    /// The number of the event at which it was seen.
    pub step: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: cpu {}, step {}: {}", self.checker, self.cpu.0, self.step, self.text)
    }
}

/// An invalidation, comparable by what it lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct What<'a>(pub(crate) &'a Invalidation);

impl Hash for What<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.scope().hash(state);
        self.0.reach().hash(state);
        self.0.items().hash(state);
    }
}

/// Something that the machine did or was told. Loads are told of frames that are stated to be free;
/// who looks at memory leaves it as it was.
#[derive(Clone, Hash, Debug)]
pub(crate) enum Event<'a> {
    Owned { frames: FrameRange, owner: Owner },
    Retired { range: VaRange, how: Retired },
    Stored { pa: Pa, old: u64, new: u64 },
    Loaded { pa: Pa },
    Reached { pa: Pa, bytes: u64 },
    Looked { pa: Pa, bytes: u64 },
    Cleared { pa: Pa, bytes: u64 },
    Copied { from: Pa, to: Pa, bytes: u64 },
    Written { pa: Pa, bytes: u64 },
    Walked { va: Va, level: u8, word: Pa },
    Filled { entry: Cached },
    Dropped { entry: Cached },
    Outlived { entry: Cached },
    Used { entry: Cached, pa: Pa, access: Access, user: bool },
    Faulted { fault: PageFault },
    KernelFaulted { va: Va, present: bool },
    Activated { root: Root },
    Invalidated { what: What<'a> },
    Asked { targets: CpuBits, what: What<'a>, number: u64 },
    Waited { number: u64 },
    Recounted { name: &'static str, stated: u64, counted: u64 },
    Outstanding { tickets: usize },
    Finished,
}

/// A set of CPUs that can be hashed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuBits(pub(crate) CpuSet);

impl Hash for CpuBits {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for cpu in self.0.iter() {
            cpu.0.hash(state);
        }
    }
}

/// What a checker is shown of the machine besides events.
pub(crate) struct Seen<'a> {
    pub(crate) cpu: Cpu,
    pub(crate) memory: &'a Memory,
}

/// Where a checker says what it found.
pub(crate) type Report<'a> = dyn FnMut(String) + 'a;

/// One checker.
pub(crate) trait Checker: Send + fmt::Debug {
    fn name(&self) -> &'static str;
    fn event(&mut self, seen: &Seen<'_>, event: &Event<'_>, report: &mut Report<'_>);

    /// How many frames are stated to be `owner`'s, from the checker that keeps the books.
    fn stated(&self, owner: Owner) -> Option<u64> {
        let _ = owner;
        None
    }
}

/// A short digest of the event log.
#[derive(Clone, Copy, Debug)]
struct Digest(u64);

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    // Each is hashed as a word, not byte by byte: an event has a dozen of them.
    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }
    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// All checkers of one machine and what they found.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The checkers, with their names.
    checkers: Vec<(&'static str, Box<dyn Checker>)>,
    found: Vec<Violation>,
    step: u64,
    digest: Digest,
}

impl Watch {
    pub(crate) fn new(config: &Config) -> Watch {
        let mut checkers: Vec<Box<dyn Checker>> = vec![
            Box::new(frames_conserved::FramesConserved::new()),
            Box::new(no_shared_owner::NoSharedOwner::new()),
            Box::new(no_stale_translation::NoStaleTranslation::new(config.format)),
            Box::new(zeroed_before_user::ZeroedBeforeUser::new()),
            Box::new(counters_recount::CountersRecount),
            Box::new(quiescent::Quiescent::new(config.format)),
            Box::new(small_and_large::SmallAndLarge::new(config.format)),
        ];
        if config.rules.replace == Replace::BreakBeforeMake {
            checkers.push(Box::new(bbm::BreakBeforeMake::new(config.format)));
        }
        if config.format.has_groups() {
            checkers.push(Box::new(groups::Groups::new(config.format, config.rules.replace)));
        }
        let checkers = checkers.into_iter().map(|checker| (checker.name(), checker)).collect();
        Watch { checkers, found: Vec::new(), step: 0, digest: Digest(1) }
    }

    pub(crate) fn event(&mut self, cpu: Cpu, memory: &Memory, event: &Event<'_>) {
        self.step += 1;
        cpu.hash(&mut self.digest);
        event.hash(&mut self.digest);
        let seen = Seen { cpu, memory };
        let (found, step) = (&mut self.found, self.step);
        for (name, checker) in &mut self.checkers {
            checker.event(&seen, event, &mut |text| {
                if found.len() < KEPT_MAX {
                    found.push(Violation { checker: name, cpu, text, step });
                }
            });
        }
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.found.clone()
    }

    pub(crate) fn stated(&self, owner: Owner) -> u64 {
        let mut told = self.checkers.iter().filter_map(|(_, checker)| checker.stated(owner));
        told.next().expect("one of them keeps the books")
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant_machine::{Item, Scope, Tables};
    use foliant_units::{Level, Pages};
    use std::collections::BTreeMap;

    /// An invalidation of the page at `va`.
    fn page(va: u64, level: Level, tables: Tables) -> Invalidation {
        let mut what = Invalidation::none(Scope::Kernel);
        let range = VaRange::sized(Va::new(va), level.span()).expect("a page");
        what.push(Item { range, level, tables }).expect("the first");
        what
    }

    #[test]
    fn a_digest_tells_by_every_part_of_an_event() {
        let (pa, va) = (Pa::new(0x1000), Va::new(0x1000));
        let frames = |n| FrameRange::new(pa.frame(), Pages::new(n)).expect("frames");
        let (space, size_2m) = (Scope::Space(pa), Va::new(0x40_0000));
        let whats = [
            Invalidation::none(space),
            Invalidation::none(Scope::Kernel),
            Invalidation::all(space),
            page(0x40_0000, Level::BASE, Tables::Kept),
            page(0x60_0000, Level::BASE, Tables::Kept),
            page(0x40_0000, Level::SIZE_2M, Tables::Kept),
            page(0x40_0000, Level::BASE, Tables::Removed),
        ];
        let root = |user, kernel| Root { user: Pa::new(user), kernel: Pa::new(kernel) };
        let mut events = vec![
            Event::Owned { frames: frames(1), owner: Owner::Free },
            Event::Owned { frames: frames(2), owner: Owner::Free },
            Event::Owned { frames: frames(1), owner: Owner::User },
            Event::Stored { pa, old: 0, new: 1 },
            Event::Stored { pa, old: 0, new: 2 },
            Event::Stored { pa, old: 1, new: 1 },
            Event::Loaded { pa },
            Event::Loaded { pa: Pa::new(0) },
            Event::Reached { pa, bytes: 1 },
            Event::Reached { pa, bytes: 2 },
            Event::Looked { pa, bytes: 1 },
            Event::Looked { pa, bytes: 2 },
            Event::Cleared { pa, bytes: 1 },
            Event::Copied { from: pa, to: pa, bytes: 1 },
            Event::Copied { from: pa, to: Pa::new(0), bytes: 1 },
            Event::Written { pa, bytes: 1 },
            Event::Written { pa, bytes: 2 },
            Event::Walked { va, level: 0, word: pa },
            Event::Walked { va, level: 1, word: pa },
            Event::Walked { va: size_2m, level: 1, word: pa },
            Event::KernelFaulted { va, present: true },
            Event::KernelFaulted { va, present: false },
            Event::Activated { root: root(1, 2) },
            Event::Activated { root: root(1, 3) },
            Event::Activated { root: root(2, 2) },
            Event::Waited { number: 1 },
            Event::Waited { number: 2 },
            Event::Recounted { name: "pages", stated: 1, counted: 1 },
            Event::Recounted { name: "tables", stated: 1, counted: 1 },
            Event::Recounted { name: "pages", stated: 1, counted: 2 },
            Event::Outstanding { tickets: 0 },
            Event::Outstanding { tickets: 1 },
            Event::Finished,
        ];
        for what in &whats {
            events.push(Event::Invalidated { what: What(what) });
        }
        for cpus in 0..3 {
            let targets = CpuBits(CpuSet::first(cpus));
            events.push(Event::Asked { targets, what: What(&whats[0]), number: 1 });
        }
        let mut seen = BTreeMap::new();
        for event in &events {
            let mut digest = Digest(1);
            event.hash(&mut digest);
            if let Some(other) = seen.insert(digest.finish(), event) {
                panic!("{other:?} and {event:?} have one digest");
            }
        }
    }
}
