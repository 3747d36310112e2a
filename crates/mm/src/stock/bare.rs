#![allow(unsafe_code)]
//! A stock without a manager around it, for the tests of what rests on it.

use super::{PerCpu, Stock, Stretches, records};
use crate::folio::{CpuCount, Folios, Word};
use crate::sync::AtomicU64;
use crate::table::{Half, Tables, X86_64};
use foliant_machine::{Owner, Witness};
use foliant_sim::Sim;
use foliant_units::{FRAME_BYTES, FrameRange, Pages, Va};

/// A stock on a simulated machine.
pub(crate) type Bare<'m> = Stock<'m, Sim, X86_64<4>>;

/// One on a machine that has nothing else, without a manager around it.
pub(crate) fn stock(sim: &Sim) -> Bare<'_> {
    let memory = sim.config().memory.clone();
    let frames = Folios::layout(&memory, CpuCount(1)).unwrap().0 * 8 / FRAME_BYTES + 4;
    let home = FrameRange::new(memory[0].start(), Pages::new(frames)).unwrap();
    super::clear_range(sim, home);
    sim.owned(home, Owner::Records);
    let pa = home.start().pa();
    let cpus: &[PerCpu] = records(sim, pa, 1);
    let described: &[AtomicU64] = records(sim, pa.add(FRAME_BYTES), 8);
    let meta: &[Word] =
        records(sim, pa.add(2 * FRAME_BYTES), ((frames - 2) * FRAME_BYTES / 8) as usize);
    let folios = Folios::new(&memory, CpuCount(1), meta).unwrap();
    folios.reserve(home).unwrap();
    // SAFETY: the frame is cleared, and nobody else's.
    let kernel = unsafe { Tables::adopt(sim, pa, Half::Kernel) };
    Stock::new(sim, folios, kernel, Va::new(0), Stretches::new(described), cpus)
}
