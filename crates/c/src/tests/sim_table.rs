//! A simulated machine behind a table of functions: its context is the machine.
#![allow(unsafe_code)]

use crate::machine::{CpuSet, FrameOwner, Invalidation, Item, Machine, Translations};
use core::ffi::c_void;
use core::ptr;
use foliant_machine::{
    Caching, Clock, Cpus, Invalidation as What, Item as Listed, Kept, KernelVa, Owner, PhysMem,
    Refusal, Retired, Root, Scope, Tables, Ticket, Tlb, Witness,
};
use foliant_sim::Sim;
use foliant_units::{Bytes, Frame, FrameRange, Level, Pa, Pages, Va, VaRange};

/// The table that leads to `sim`.
pub(super) fn table(sim: &Sim) -> Machine {
    Machine {
        context: ptr::from_ref(sim).cast_mut().cast(),
        cpus: sim.count() as u32,
        ceiling_entries: sim.rules().ceiling_entries,
        reach: Some(reach),
        load: Some(load),
        store: Some(store),
        compare_exchange: Some(compare_exchange),
        clear: Some(clear),
        copy: Some(copy),
        kernel_load: Some(kernel_load),
        kernel_store: Some(kernel_store),
        kernel_compare_exchange: Some(kernel_compare_exchange),
        activate: Some(activate),
        invalidate: Some(invalidate),
        ask: Some(ask),
        wait: Some(wait),
        me: Some(me),
        pin: Some(me),
        unpin: Some(unpin),
        relax: Some(relax),
        now: Some(now),
        yield_now: Some(yield_now),
        owned: Some(owned),
        retired: Some(retired),
        refuse: Some(refuse),
    }
}

fn sim<'a>(context: *mut c_void) -> &'a Sim {
    // SAFETY: `table` put it there, and the test keeps it for as long as it calls.
    unsafe { &*context.cast::<Sim>().cast_const() }
}

unsafe extern "C" fn reach(context: *mut c_void, pa: u64, bytes: u64) -> *mut c_void {
    // SAFETY: the promise of the table's caller.
    unsafe { sim(context).reach(Pa::new(pa), Bytes::new(bytes)) }.as_ptr().cast()
}
unsafe extern "C" fn load(context: *mut c_void, pa: u64) -> u64 {
    // SAFETY: the promise of the table's caller.
    unsafe { sim(context).load(Pa::new(pa)) }
}
unsafe extern "C" fn store(context: *mut c_void, pa: u64, word: u64) {
    // SAFETY: the promise of the table's caller.
    unsafe { sim(context).store(Pa::new(pa), word) }
}
unsafe extern "C" fn compare_exchange(context: *mut c_void, pa: u64, old: u64, new: u64) -> u64 {
    // SAFETY: the promise of the table's caller.
    match unsafe { sim(context).compare_exchange(Pa::new(pa), old, new) } {
        Ok(word) | Err(word) => word,
    }
}
unsafe extern "C" fn clear(context: *mut c_void, pa: u64, bytes: u64, used_soon: u32) {
    let caching = if used_soon == 0 { Caching::NonTemporal } else { Caching::Cached };
    // SAFETY: the promise of the table's caller.
    unsafe { sim(context).clear(Pa::new(pa), Bytes::new(bytes), caching) }
}
unsafe extern "C" fn copy(context: *mut c_void, from: u64, to: u64, bytes: u64) {
    // SAFETY: the promise of the table's caller.
    unsafe { sim(context).copy(Pa::new(from), Pa::new(to), Bytes::new(bytes)) }
}
unsafe extern "C" fn kernel_load(context: *mut c_void, va: u64, word: *mut u64) -> u32 {
    // SAFETY: the promise of the table's caller.
    let loaded = unsafe { sim(context).kernel_load(Va::new(va)) };
    let Ok(loaded) = loaded else { return 1 };
    // SAFETY: a place of the table's caller.
    unsafe { word.write(loaded) };
    0
}
unsafe extern "C" fn kernel_store(context: *mut c_void, va: u64, word: u64) -> u32 {
    // SAFETY: the promise of the table's caller.
    unsafe { sim(context).kernel_store(Va::new(va), word) }.is_err().into()
}
unsafe extern "C" fn kernel_compare_exchange(
    context: *mut c_void,
    va: u64,
    old: u64,
    new: u64,
    found: *mut u64,
) -> u32 {
    // SAFETY: the promise of the table's caller.
    let done = unsafe { sim(context).kernel_compare_exchange(Va::new(va), old, new) };
    let Ok(Ok(word) | Err(word)) = done else { return 1 };
    // SAFETY: a place of the table's caller.
    unsafe { found.write(word) };
    0
}
unsafe extern "C" fn activate(context: *mut c_void, user: u64, kernel: u64, unchanged: u32) {
    let kept = if unchanged == 0 { Kept::Nothing } else { Kept::Unchanged };
    sim(context).activate(Root { user: Pa::new(user), kernel: Pa::new(kernel) }, kept);
}
/// What C is told, as the machine takes it.
fn what(given: *const Invalidation) -> What {
    // SAFETY: a value of the table's caller.
    let given = unsafe { &*given };
    let scope = match given.scope {
        Translations::Space => Scope::Space(Pa::new(given.root)),
        Translations::Kernel => Scope::Kernel,
    };
    if given.count == 0 {
        return What::all(scope);
    }
    let mut what = What::none(scope);
    for Item { va, bytes, level, removed_tables } in &given.items[..given.count as usize] {
        let range = VaRange::sized(Va::new(*va), Bytes::new(*bytes)).unwrap();
        let tables = if *removed_tables == 0 { Tables::Kept } else { Tables::Removed };
        what.push(Listed { range, level: Level(*level as u8), tables }).unwrap();
    }
    what
}
unsafe extern "C" fn invalidate(context: *mut c_void, given: *const Invalidation) {
    sim(context).invalidate(&what(given));
}
unsafe extern "C" fn ask(
    context: *mut c_void,
    cpus: *const CpuSet,
    given: *const Invalidation,
) -> u64 {
    let sim = sim(context);
    // SAFETY: a value of the table's caller.
    let cpus = unsafe { &*cpus };
    assert_eq!(cpus.beyond(sim.count()), None);
    sim.ask(&cpus.below(sim.count()), &what(given)).number()
}
unsafe extern "C" fn wait(context: *mut c_void, ticket: u64) {
    sim(context).wait(Ticket::new(ticket));
}
unsafe extern "C" fn me(context: *mut c_void) -> u32 {
    sim(context).me().0.into()
}
unsafe extern "C" fn unpin(_: *mut c_void) {}
unsafe extern "C" fn relax(context: *mut c_void) {
    sim(context).relax();
}
unsafe extern "C" fn now(context: *mut c_void) -> u64 {
    sim(context).now().0
}
unsafe extern "C" fn yield_now(context: *mut c_void) {
    sim(context).yield_now();
}
unsafe extern "C" fn owned(context: *mut c_void, first: u64, pages: u64, owner: FrameOwner) {
    let owner = match owner {
        FrameOwner::Free => Owner::Free,
        FrameOwner::Claimed => Owner::Claimed,
        FrameOwner::Table => Owner::Table,
        FrameOwner::Records => Owner::Records,
        FrameOwner::Kept => Owner::Kept,
        FrameOwner::User => Owner::User,
        FrameOwner::Kernel => Owner::Kernel,
        FrameOwner::Zero => Owner::Zero,
        FrameOwner::Reserved => Owner::Reserved,
    };
    let frames = FrameRange::new(Frame::new(first), Pages::new(pages)).unwrap();
    sim(context).owned(frames, owner);
}
unsafe extern "C" fn retired(context: *mut c_void, va: u64, bytes: u64, purged: u32) {
    let range = VaRange::sized(Va::new(va), Bytes::new(bytes)).unwrap();
    let how = if purged == 0 { Retired::Lazily } else { Retired::Purged };
    sim(context).retired(range, how);
}
unsafe extern "C" fn refuse(context: *mut c_void) -> u32 {
    (sim(context).refusal() == Refusal::Refuse).into()
}
