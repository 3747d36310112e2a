//! The law suite of the machine contract, on this machine.
#![allow(unsafe_code)]

use crate::layout::{self, LAWS};
use crate::memory::{Format, Trouble, machine, manager, top};
use crate::{say, smp};
use foliant::table::{Attrs, Entry, Paging, Slot};
use foliant_machine::Root;
use foliant_machine::laws::{self, Bench, Right, SCRATCH_FRAMES, WINDOW_PAGES};
use foliant_units::{Cpu, Frame, FrameRange, Level, Order, Pa, Va, VaRange};
use foliant_x86::X86;

/// The block that the laws use: 8 MiB, of which they need 4.25.
const SCRATCH: Order = match Order::new(11) {
    Some(order) => order,
    None => panic!("8 MiB is an order"),
};
/// The window's 2 MiB leaf, behind the table of its pages.
const SIZE_2M: Va = LAWS.add(8 << 20);

struct OnSilicon {
    scratch: Frame,
    /// The base-level table of the window, and the 2 MiB word.
    words: Pa,
    size_2m: Pa,
    other_top: Pa,
}

impl OnSilicon {
    fn new() -> Result<OnSilicon, Trouble> {
        let scratch = manager().lend(SCRATCH)?;
        let other_top = manager().lend(Order::BASE)?.pa();
        // SAFETY: a frame that is lent to us, and a top table, whose words do not change any more.
        unsafe {
            core::ptr::copy_nonoverlapping(layout::direct(top()), layout::direct(other_top), 4096)
        };
        for (va, level) in [(LAWS, Level::BASE), (SIZE_2M, Level::SIZE_2M)] {
            manager().reach_kernel(va, level)?;
        }
        let at = |va| manager().kernel_tables().walk(va).at;
        Ok(OnSilicon { scratch, words: at(LAWS), size_2m: at(SIZE_2M), other_top })
    }
}

impl Bench for OnSilicon {
    type Machine = X86<'static, crate::memory::Here>;

    fn machine(&self) -> &Self::Machine {
        machine()
    }
    fn scratch(&self) -> FrameRange {
        FrameRange::new(self.scratch, SCRATCH_FRAMES).expect("lent memory")
    }
    fn root(&self) -> Root {
        Root { user: top(), kernel: top() }
    }
    fn other_root(&self) -> Root {
        Root { user: self.other_top, kernel: top() }
    }
    fn window(&self) -> VaRange {
        layout::range(LAWS, WINDOW_PAGES.bytes())
    }
    fn word(&self, page: Va) -> Pa {
        self.words.add(Slot::of(page, Level::BASE).index() as u64 * 8)
    }
    fn size_2m(&self) -> (Va, Pa) {
        (SIZE_2M, self.size_2m)
    }
    fn leaf(&self, level: Level, frame: Frame, right: Right) -> u64 {
        let attrs = match right {
            Right::ReadOnly => Attrs::NONE,
            Right::Writable => Attrs::WRITE,
        };
        Format::leaf(frame.pa(), level, attrs)
    }
    fn table(&self, frame: Frame) -> u64 {
        Format::table(frame.pa())
    }
    fn accessed(&self, leaf: u64) -> Option<bool> {
        self.attr(leaf, Attrs::ACCESSED)
    }
    fn dirty(&self, leaf: u64) -> Option<bool> {
        self.attr(leaf, Attrs::DIRTY)
    }
    fn on(&self, cpu: Cpu, work: &(dyn Fn() + Sync)) {
        smp::on(cpu, work);
    }
    fn together(&self, work: &(dyn Fn(Cpu) + Sync)) {
        smp::together(smp::online(), work);
    }
}

impl OnSilicon {
    fn attr(&self, leaf: u64, attr: Attrs) -> Option<bool> {
        match Format::decode(leaf, Level::BASE, Slot::FIRST) {
            Entry::Leaf { attrs, .. } => Some(attrs.has(attr)),
            _ => None,
        }
    }
}

/// Checks every law and reports each. Says whether all held.
pub(crate) fn check() -> Result<bool, Trouble> {
    let bench = OnSilicon::new()?;
    let tally = laws::run(&bench, &mut |name, verdict| match verdict {
        Ok(()) => say!("law {name}: held"),
        Err(seen) => say!("law {name}: BROKEN: {seen}"),
    });
    say!("laws: {} held, {} broken, {} CPUs", tally.held, tally.broken, smp::online());
    Ok(tally.broken == 0)
}
