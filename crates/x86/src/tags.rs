//! Which root has which process-context identifier (PCID) on one CPU.
//!
//! ```text
//!   slot   63        12 11   1  0                 CR3   63                      12 11    0
//!         │ top table  │  0   │ stale │ ──▶          │ keep │ 0 │   top table    │ PCID  │    PCID = slot + 1
//!         └────────────┴──────┴───────┘              └──────┴───┴────────────────┴───────┘
//! ```
//!
//! A root that is activated without a slot takes the slot whose turn it is. PCID 0 is what the CPU
//! ran before [`online`](crate::X86::online), and is given to no root.
//!
//! **Invariants**
//! - G1. No two slots name one root, so all that a CPU cached through a root is under one PCID.
//! - G2. A slot that is given to another root is loaded without *keep* (bit 63), which ends what it
//!   holds.
//! - G3. A root is loaded with *keep* only where it has its slot still, the caller says that
//!   nothing changed, and no invalidation came for it while another root ran.
//!
//! **Locking**: none. Only the CPU itself uses its table, with interrupts off from the look at the
//! table to the load of CR3: an invalidation that came between would be lost.
//!
//! **Not here**: what the instructions reach (`steps`), the instructions (`control`).

use core::sync::atomic::{AtomicU64, Ordering};
use foliant_machine::Kept;
use foliant_units::Pa;

/// How many roots have a PCID at a time: as many as Linux gives out, which found more to be of no
/// use.
const SLOTS: usize = 6;
/// What was cached through the root may be stale.
const STALE: u64 = 1;
/// The load of CR3 ends nothing.
const KEEP: u64 = 1 << 63;

/// Whether this machine's CPUs tag what they cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tagging {
    Off,
    On,
}

/// The table of one CPU. Its words need no atomic access (see **Locking**); they are atomics
/// because they change behind a shared reference.
pub(crate) struct Tags {
    /// 0 is free: nothing runs a table at address 0.
    slots: [AtomicU64; SLOTS],
    turn: AtomicU64,
}

impl Tags {
    pub(crate) const fn new() -> Tags {
        Tags { slots: [const { AtomicU64::new(0) }; SLOTS], turn: AtomicU64::new(0) }
    }

    /// What CR3 is loaded with to run `root`.
    pub(crate) fn activate(&self, root: Pa, kept: Kept) -> u64 {
        let slot = self.find(root);
        let keep = match slot {
            Some(slot) if self.get(slot) & STALE == 0 && kept == Kept::Unchanged => KEEP, // G3
            _ => 0,                                                                       // G2
        };
        let slot = slot.unwrap_or_else(|| self.next());
        self.slots[slot].store(root.get(), Ordering::Relaxed);
        keep | root.get() | (slot as u64 + 1)
    }

    /// An invalidation came for `root`, which does not run: what is under its PCID is not kept.
    pub(crate) fn outdate(&self, root: Pa) {
        if let Some(slot) = self.find(root) {
            self.slots[slot].store(root.get() | STALE, Ordering::Relaxed);
        }
    }

    fn get(&self, slot: usize) -> u64 {
        self.slots[slot].load(Ordering::Relaxed)
    }
    fn find(&self, root: Pa) -> Option<usize> {
        (0..SLOTS).find(|slot| self.get(*slot) & !STALE == root.get())
    }
    /// The slot whose turn it is: all free ones first, then the one given out longest ago.
    fn next(&self) -> usize {
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
        (turn % SLOTS as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::collections::BTreeMap;

    const fn root(n: u64) -> Pa {
        Pa::new(n << 12)
    }

    #[test]
    fn a_root_keeps_its_pcid_and_what_is_under_it() {
        let tags = Tags::new();
        assert_eq!(tags.activate(root(7), Kept::Unchanged), 0x7001, "nothing is known of it yet");
        assert_eq!(tags.activate(root(8), Kept::Nothing), 0x8002);
        assert_eq!(tags.activate(root(7), Kept::Unchanged), KEEP | 0x7001);
        assert_eq!(tags.activate(root(7), Kept::Nothing), 0x7001);
        assert_eq!(tags.activate(root(7), Kept::Unchanged), KEEP | 0x7001);
    }

    #[test]
    fn an_invalidation_while_another_root_runs_counts_once() {
        let tags = Tags::new();
        for n in [7, 8] {
            tags.activate(root(n), Kept::Nothing);
        }
        tags.outdate(root(7));
        tags.outdate(root(9));
        assert_eq!(tags.activate(root(8), Kept::Unchanged), KEEP | 0x8002, "it was not meant");
        assert_eq!(tags.activate(root(7), Kept::Unchanged), 0x7001);
        assert_eq!(tags.activate(root(7), Kept::Unchanged), KEEP | 0x7001);
    }

    #[test]
    fn the_seventh_root_takes_the_slot_of_the_first() {
        let tags = Tags::new();
        for n in 1..=7 {
            tags.activate(root(n), Kept::Nothing);
        }
        assert_eq!(tags.activate(root(2), Kept::Unchanged), KEEP | 0x2002);
        assert_eq!(tags.activate(root(7), Kept::Unchanged), KEEP | 0x7001);
        assert_eq!(tags.activate(root(1), Kept::Unchanged), 0x1002, "it lost its slot");
        assert_eq!(tags.activate(root(2), Kept::Unchanged), 0x2003, "and took another's");
    }

    /// The table against a twin, which knows for each PCID what entries, stale or fresh, hardware
    /// would have under it.
    #[test]
    fn no_root_ever_finds_what_it_must_not() {
        let tags = Tags::new();
        // For each PCID: the root that its entries were cached through, and whether they are stale.
        let mut cached: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
        let mut random = 1u64;
        let (mut runs, mut kept_often) = (0, 0);
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (n, act) = (1 + (random >> 33) % 9, random >> 40 & 3);
            if act == 0 && n != runs {
                // This is a change that the CPU is asked about while another root runs: it carries
                // that out.
                cached.values_mut().filter(|(of, _)| *of == n).for_each(|entry| entry.1 = true);
                tags.outdate(root(n));
                continue;
            }
            // At a change that the CPU is not asked about the caller does not vouch for the root.
            let unasked = act == 1;
            if unasked {
                cached.values_mut().filter(|(of, _)| *of == n).for_each(|entry| entry.1 = true);
            }
            let cr3 = tags.activate(root(n), if unasked { Kept::Nothing } else { Kept::Unchanged });
            let pcid = cr3 & 0xfff;
            assert!((1..=SLOTS as u64).contains(&pcid));
            assert_eq!(cr3 & !KEEP & !0xfff, root(n).get());
            if cr3 & KEEP == 0 {
                cached.remove(&pcid);
            } else {
                kept_often += 1;
            }
            assert_eq!(*cached.entry(pcid).or_insert((n, false)), (n, false));
            runs = n;
        }
        assert!(kept_often > 1000, "{kept_often}");
    }
}
