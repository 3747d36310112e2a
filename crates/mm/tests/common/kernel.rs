//! Kernel memory as the kernel sees it, on one CPU or another.

use super::AnyMm;
use foliant::table::Paging;
use foliant::vmap::Request;
use foliant_machine::KernelVa;
use foliant_sim::Sim;
use foliant_units::{Bytes, FRAME_BYTES, Va, VaRange};

pub fn huge(bytes: u64) -> Request {
    Request::of(Bytes::new(bytes)).huge()
}
pub fn base(bytes: u64) -> Request {
    Request::of(Bytes::new(bytes))
}
/// Makes all CPUs ready.
pub fn online(sim: &Sim, mm: &AnyMm<'_, impl Paging>) {
    for cpu in mm.cpus() {
        sim.on(cpu, || mm.online());
    }
}
/// Stores as the kernel does; says whether it went through.
#[allow(unsafe_code)]
pub fn put(sim: &Sim, va: Va, word: u64) -> bool {
    // SAFETY: the test mapped it, or looks whether it did.
    unsafe { sim.kernel_store(va, word) }.is_ok()
}
/// Loads as the kernel does.
#[allow(unsafe_code)]
pub fn get(sim: &Sim, va: Va) -> Option<u64> {
    // SAFETY: the test mapped it, or looks whether it did.
    unsafe { sim.kernel_load(va) }.ok()
}
/// The first addresses of its pages.
pub fn pages(range: VaRange) -> impl Iterator<Item = Va> {
    (0..range.pages().get()).map(move |n| range.start().add(n * FRAME_BYTES))
}
