//! INVLPGB: an invalidation as instructions that reach every CPU at once.
//!
//! The operands, by AMD's manual (volume 3, INVLPGB):
//!
//! ```text
//!   rAX  63        12 11      6  5        4       3        2      1       0
//!        │ address   │ 0      │ nested │ final │ global │ ASID │ PCID │ address │
//!        └───────────┴────────┴────────┴───────┴────────┴──────┴──────┴─────────┘ bits 2..0: compared
//!   ECX  31: steps of 2 MiB, not 4 KiB     15..0: pages behind the first
//!   EDX  27..16: PCID     15..0: ASID
//! ```
//!
//! A field that is not compared matches everything, so an instruction with less detail ends more,
//! and to end more is always right. The PCID is not compared: a root has another one on each CPU
//! (`tags`), and what is kept under any of them is covered.
//!
//! **Invariants**
//! - B1. The ASID is compared, with 0: a guest's own translations, or the host's, never those of
//!   the guests that a hypervisor runs.
//! - B2. No count exceeds what the CPU says that it can do: a larger one is a fault.
//! - B3. Where the manual leaves room (removed tables, leaves of 1 GiB) all of the scope is ended.
//!
//! **Not here**: the instructions themselves (`privileged`). No machine that this was tested on has
//! them.

use crate::steps::{CEILING_ENTRIES, entries, strides};
use foliant_machine::{Invalidation, Item, Reach, Scope, Tables};
use foliant_units::{Level, Pages};

const COMPARE_ADDRESS: u64 = 1 << 0;
const COMPARE_ASID: u64 = 1 << 2;
const INCLUDE_GLOBAL: u64 = 1 << 3;
const FINAL_ONLY: u64 = 1 << 4;
const STEP_2M: u32 = 1 << 31;

/// The operands of one INVLPGB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Operation {
    pub(crate) rax: u64,
    pub(crate) ecx: u32,
    pub(crate) edx: u32,
}

/// The instructions for `what` on a CPU whose instruction covers `max` pages.
pub(crate) fn operations(what: &Invalidation, max: Pages) -> impl Iterator<Item = Operation> + '_ {
    let scope = match what.scope() {
        Scope::Space(_) => COMPARE_ASID,
        Scope::Kernel => COMPARE_ASID | INCLUDE_GLOBAL,
    };
    let wide = what.reach() == Reach::All
        || what.items().iter().any(|item| item.tables == Tables::Removed)
        || what.items().iter().any(|item| item.level > Level::SIZE_2M)
        || entries(what.items()) > CEILING_ENTRIES;
    let items = if wide { &[] } else { what.items() };
    let everything = wide.then_some(Operation { rax: scope, ecx: 0, edx: 0 });
    everything.into_iter().chain(items.iter().flat_map(move |item| pieces(*item, max, scope)))
}

/// One item in pieces of at most `max` pages.
fn pieces(item: Item, max: Pages, scope: u64) -> impl Iterator<Item = Operation> {
    let step = item.level.span();
    let first = item.range.start().align_down(step).get();
    let total = strides(&item);
    let max = max.get().clamp(1, 1 << 16);
    let stride = if item.level == Level::SIZE_2M { STEP_2M } else { 0 };
    (0..total).step_by(max as usize).map(move |done| Operation {
        rax: (first + done * step.get()) | COMPARE_ADDRESS | FINAL_ONLY | scope,
        ecx: stride | ((total - done).min(max) - 1) as u32,
        edx: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::{item, list};
    use foliant_units::Pa;
    extern crate std;
    use std::vec::Vec;

    const SPACE: Scope = Scope::Space(Pa::new(0x1000));

    fn packed(what: &Invalidation, max: u64) -> Vec<(u64, u32)> {
        operations(what, Pages::new(max))
            .map(|operation| {
                assert_eq!(operation.edx, 0, "ASID 0, no PCID");
                (operation.rax, operation.ecx)
            })
            .collect()
    }

    #[test]
    fn a_range_is_split_at_the_maximum() {
        let what = list(SPACE, &[item(0x40_0000, 10, Level::BASE, Tables::Kept)]);
        assert_eq!(packed(&what, 8), [(0x40_0015, 7), (0x40_8015, 1)]);
        assert_eq!(packed(&what, 1).len(), 10);
        assert_eq!(packed(&what, 1 << 16), [(0x40_0015, 9)]);
        assert_eq!(packed(&what, 0), packed(&what, 1), "a maximum of none is taken for one");
    }

    #[test]
    fn large_leaves_go_in_large_steps() {
        let what = list(Scope::Kernel, &[item(0x40_0000, 3, Level::SIZE_2M, Tables::Kept)]);
        assert_eq!(packed(&what, 2), [(0x40_001d, 1 << 31 | 1), (0x80_001d, 1 << 31)]);
    }

    #[test]
    fn what_is_wide_or_unclear_is_one_instruction() {
        let size_1g = item(1 << 30, 1, Level::SIZE_1G, Tables::Kept);
        let removed = item(0x40_0000, 1, Level::SIZE_2M, Tables::Removed);
        let many = item(0, CEILING_ENTRIES + 1, Level::BASE, Tables::Kept);
        for alone in [size_1g, removed, many] {
            assert_eq!(packed(&list(SPACE, &[alone]), 8), [(0b0100, 0)], "{alone:?}");
            assert_eq!(packed(&list(Scope::Kernel, &[alone]), 8), [(0b1100, 0)], "{alone:?}");
        }
        assert_eq!(packed(&Invalidation::all(SPACE), 8), [(0b0100, 0)]);
        assert_eq!(packed(&Invalidation::none(SPACE), 8), []);
    }

    #[test]
    fn pieces_cover_the_range_and_nothing_else() {
        for (count, max) in (1..=33).flat_map(|count| (1..=34).map(move |max| (count, max))) {
            let what = list(SPACE, &[item(0x1000, count, Level::BASE, Tables::Kept)]);
            let mut next = 0x1000;
            for (rax, ecx) in packed(&what, max) {
                assert_eq!(rax & !0xfff, next);
                assert!(u64::from(ecx) < max);
                next += (u64::from(ecx) + 1) * 4096;
            }
            assert_eq!(next, 0x1000 + count * 4096);
        }
    }
}
