//! Requests between CPUs: which CPU asked, for what, and which CPUs have not done it yet.
//!
//! Each CPU has a [`Line`]: a few slots for what it asks of others, and a bitmap of the CPUs that
//! ask it. There is no interrupt and no assembly here: [`post`] says which CPUs must be
//! interrupted, and the caller interrupts them.
//!
//! ```text
//!   line of CPU 1 (asks)                            line of CPU 2 (is asked)
//!     slot 0  state: generation, left = 1             askers: bit 1 ──┐
//!             waiting: bit 2   request: ...   ◀────────── looks up ───┘
//!     slot 1  state: generation, left = 0   (free)
//!
//!   state:  63                  16 15     0
//!          │ generation           │ left   │     left: CPUs that have not carried it out; CLAIMED while
//!          └──────────────────────┴────────┘           the asker fills the slot; 0 is free
//! ```
//!
//! A ticket names line, slot and generation. A slot is free again once no CPU is left in it,
//! whether or not its ticket was waited for, and a ticket of an older generation is done by that.
//! So a ticket that is never waited for costs nothing, and a CPU may hold more tickets than it has
//! slots.
//!
//! **Invariants**
//! - B1. A slot is filled by the post that moved its state from 0 left to `CLAIMED`, and by no
//!   other.
//! - B2. A request is read only by a CPU that took its own bit out of `waiting`, until it counts
//!   itself out of `left`. So the slot is not free meanwhile, and no reader sees it filled anew.
//!   This holds also where a handler serves in the midst of a serve: the inner one finds the bit
//!   gone.
//! - B3. The asker's bit in `askers` is set after its slot is complete, and a reader clears the
//!   bits before it looks at slots. A bit that it missed is still set when it is done.
//! - B4. The CPU that makes a word of `askers` nonzero must send the interrupt, before it waits for
//!   anything. A bit that is added to a nonzero word needs none: the target has not read the word
//!   since, so that interrupt is still to be handled. Either the target reads the word before the
//!   interrupt arrives, or the handler does; both find the bit.
//!
//! **Locking**: none. [`post`] finds no free slot at worst, and says so.
//!
//! **Not here**: interrupts, waiting, what a request means.
#![allow(unsafe_code)]

mod asked;
#[cfg(all(loom, test))]
mod loom_tests;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use asked::Asked;

use crate::tags::Tags;
use foliant_machine::{Invalidation, Scope};
use foliant_units::{CPUS_MAX, Cpu, CpuSet, Pa};
use sync::{AtomicU64, Cell, Ordering};

/// Slots of a line: requests of one CPU that may be under way at once.
pub(crate) const SLOTS: usize = if cfg!(all(loom, test)) { 2 } else { 4 };
/// Words of a bitmap of CPUs.
const WORDS: usize = if cfg!(all(loom, test)) { 1 } else { CPUS_MAX / 64 };

const LEFT: u64 = 0xffff;
const CLAIMED: u64 = LEFT;
const GENERATION: u64 = LEFT + 1;
/// What a slot holds before its first request.
const NOTHING: Invalidation = Invalidation::none(Scope::Space(Pa::new(0)));
const _: () = assert!(CPUS_MAX < CLAIMED as usize);

/// The mailbox of one CPU, and beside it the table of its tags. The kernel lends one per CPU, by
/// number.
#[repr(align(128))]
pub struct Line {
    /// CPUs that ask the owner of this line.
    askers: [AtomicU64; WORDS],
    /// What the owner asks of others.
    slots: [Slot; SLOTS],
    /// The owner's, for itself alone.
    pub(crate) tags: Tags,
}

struct Slot {
    state: AtomicU64,
    /// CPUs that have not taken the request up.
    waiting: [AtomicU64; WORDS],
    request: Cell<Invalidation>,
}

// SAFETY: B1 and B2: the request is written by one CPU, and read only between that write and the
// next.
unsafe impl Sync for Slot {}

/// A request that is on its way once those in `interrupt` are interrupted.
pub(crate) struct Posted {
    pub(crate) asked: Asked,
    pub(crate) interrupt: CpuSet,
    /// How many those are.
    pub(crate) interrupts: usize,
}

impl Line {
    /// A line without requests.
    #[cfg(not(all(loom, test)))]
    pub const fn new() -> Line {
        Line {
            askers: [const { AtomicU64::new(0) }; WORDS],
            slots: [const {
                Slot {
                    state: AtomicU64::new(0),
                    waiting: [const { AtomicU64::new(0) }; WORDS],
                    request: Cell::new(NOTHING),
                }
            }; SLOTS],
            tags: Tags::new(),
        }
    }
    /// A line without requests, of loom's atomics, which no constant can hold.
    #[cfg(all(loom, test))]
    pub fn new() -> Line {
        let zeros = || core::array::from_fn(|_| AtomicU64::new(0));
        let slot =
            |_| Slot { state: AtomicU64::new(0), waiting: zeros(), request: Cell::new(NOTHING) };
        Line { askers: zeros(), slots: core::array::from_fn(slot), tags: Tags::new() }
    }
}

impl Default for Line {
    fn default() -> Line {
        Line::new()
    }
}

/// Writes `what` for `targets`, on the line of `me`, and says which CPUs must be interrupted (B4).
/// `None` where no slot is free. `me` and numbers without a line are no targets.
pub(crate) fn post(
    lines: &[Line],
    me: Cpu,
    targets: &CpuSet,
    what: &Invalidation,
) -> Option<Posted> {
    // Few words are used where few CPUs are asked, however many there are.
    let used = targets.used().len().min(lines.len().div_ceil(64)).min(WORDS);
    let word = |n: usize| targets.used()[n] & mask(n, lines.len()) & !bit_in(n, me);
    let left = (0..used).map(word).filter(|word| *word != 0).map(u64::count_ones).sum::<u32>();
    let mut posted = Posted { asked: Asked::Nobody, interrupt: CpuSet::EMPTY, interrupts: 0 };
    if left == 0 {
        return Some(posted);
    }
    let own = &lines[me.index()];
    let (number, generation) =
        own.slots.iter().enumerate().find_map(|(n, slot)| Some((n, slot.claim()?)))?;
    own.slots[number].fill(generation, left.into(), (0..used).map(word), what);
    posted.asked = Asked::Slot { cpu: me, slot: number, generation };
    for n in 0..used {
        let mut bits = word(n);
        while bits != 0 {
            let cpu = n * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let askers = &lines[cpu].askers[me.index() / 64];
            // B3, B4. Release: with the bit comes the filled slot.
            if askers.fetch_or(1 << (me.index() % 64), Ordering::AcqRel) == 0 {
                posted.interrupt.insert(Cpu(cpu as u16));
                posted.interrupts += 1;
            }
        }
    }
    Some(posted)
}

/// Whether another CPU may be asking `me`. A hint: the bit of a post just now may be missed.
pub(crate) fn has_mail(lines: &[Line], me: Cpu) -> bool {
    let used = lines.len().div_ceil(64);
    lines.get(me.index()).is_some_and(|line| {
        line.askers.iter().take(used).any(|word| word.load(Ordering::Relaxed) != 0)
    })
}

/// Hands every request for `me` to `carry_out` and counts it done. The caller stays on CPU `me` all
/// along.
pub(crate) fn serve(lines: &[Line], me: Cpu, mut carry_out: impl FnMut(&Invalidation)) {
    let Some(own) = lines.get(me.index()) else { return };
    for (index, word) in own.askers.iter().enumerate().take(lines.len().div_ceil(64)) {
        if word.load(Ordering::Relaxed) == 0 {
            continue;
        }
        let mut bits = word.swap(0, Ordering::AcqRel); // B3
        while bits != 0 {
            let asker = index * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let Some(asker) = lines.get(asker) else { continue };
            asker.slots.iter().for_each(|slot| slot.take(me, &mut carry_out));
        }
    }
}

/// Whether all CPUs have carried out what `asked` names.
pub(crate) fn is_done(lines: &[Line], asked: Asked) -> bool {
    let Asked::Slot { cpu, slot, generation } = asked else { return true };
    let slot = lines.get(cpu.index()).and_then(|line| line.slots.get(slot));
    slot.is_none_or(|slot| {
        // Acquire: what others did before they counted themselves out is done. A newer generation
        // was claimed by a post that saw that.
        let state = slot.state.load(Ordering::Acquire);
        state & LEFT == 0 || state / GENERATION != generation
    })
}

impl Slot {
    /// Takes the slot if it is free, and returns its new generation (B1).
    fn claim(&self) -> Option<u64> {
        let state = self.state.load(Ordering::Relaxed);
        if state & LEFT != 0 {
            return None;
        }
        let generation = (state / GENERATION + 1) & Asked::GENERATION_MAX;
        let claimed = (generation * GENERATION) | CLAIMED;
        // Acquire: the readers of the last request are done with it. Release: a waiter that sees
        // this generation sees that, too.
        self.state
            .compare_exchange(state, claimed, Ordering::AcqRel, Ordering::Relaxed)
            .ok()
            .map(|_| generation)
    }

    fn fill(
        &self,
        generation: u64,
        left: u64,
        targets: impl Iterator<Item = u64>,
        what: &Invalidation,
    ) {
        // SAFETY: B1: the caller claimed the slot; B2: no CPU's bit is set, so none reads.
        self.request.with_mut(|request| unsafe { (*request).assign(what) });
        self.state.store((generation * GENERATION) | left, Ordering::Release);
        for (word, targets) in self.waiting.iter().zip(targets) {
            if targets != 0 {
                word.store(targets, Ordering::Release);
            }
        }
    }

    fn take(&self, me: Cpu, carry_out: &mut impl FnMut(&Invalidation)) {
        let (word, bit) = (&self.waiting[me.index() / 64], 1 << (me.index() % 64));
        // Acquire: with the bit comes the request.
        if word.load(Ordering::Relaxed) & bit == 0
            || word.fetch_and(!bit, Ordering::Acquire) & bit == 0
        {
            return;
        }
        // SAFETY: B2: the bit was ours, and we count ourselves out below.
        self.request.with(|request| carry_out(unsafe { &*request }));
        // Release: the asker, and the post that fills the slot next, see that it is carried out and
        // read.
        self.state.fetch_sub(1, Ordering::Release);
    }
}

/// The bits of the `n`th word that stand for CPUs below `count`.
fn mask(n: usize, count: usize) -> u64 {
    match count.saturating_sub(n * 64) {
        0 => 0,
        few @ 1..64 => (1 << few) - 1,
        _ => !0,
    }
}
/// The bit of `cpu` in the `n`th word, if it is there.
fn bit_in(n: usize, cpu: Cpu) -> u64 {
    if cpu.index() / 64 == n { 1 << (cpu.index() % 64) } else { 0 }
}
