//! The other CPUs: who is there, starting them, and giving them work.
//!
//! ```text
//!   roll call, before there is a manager: INIT, start-up ──▶ answers, halts
//!   start: INIT, start-up ──▶ stack, tables, number ──▶ idle
//!
//!   boss: job into the seat ── WAKE ──▶ halted CPU: takes it, runs it, counts down ── WAKE ──▶ boss, halted
//! ```
//!
//! **Invariants**
//! - W1. A CPU without work halts. It looks at its seat with interrupts out and lets them in by the
//!   instruction that halts, so no wake-up falls between.
//! - W2. A job lives on its boss's stack until it has counted down to zero.
//! - W3. A CPU gets a number only if it answered the roll: numbers have no holes, and one that is
//!   silent, or listed and not there, is left out. One that answers late finds that it is not its
//!   turn, and halts (`boot.s`).
#![allow(unsafe_code)]

use crate::cpu::{self, Block};
use crate::layout::{STACK, direct};
use crate::memory::{CPUS_MAX, Trouble, machine, manager, top};
use crate::{apic, gates, port, say};
use core::arch::asm;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use foliant::vmap::{Caller, Request};
use foliant_units::{Bytes, Cpu, Pa, Va};
use foliant_x86::{Apic, ApicId, goes_along, ticks};
use spin::Once;

/// The page that the trampoline is copied to: 0x8000.
const TRAMPOLINE_PAGE: u8 = 8;
/// Microseconds after INIT.
const INIT: u64 = 10_000;
/// After the first start-up interrupt.
const STARTUP: u64 = 1_000;
/// A CPU that has not answered after so many is not there.
const SILENCE: u64 = 3_000_000;
/// Below this part of a stack an entry does not go.
const ENTRY_ROOM: u64 = 4096;

/// Ticks of the time-stamp counter per second.
static HZ: AtomicU64 = AtomicU64::new(0);
static APIC: Once<Apic> = Once::new();
static ONLINE: AtomicUsize = AtomicUsize::new(1);
/// The lowest address of each CPU's stack.
static LOWS: [AtomicU64; CPUS_MAX] = [const { AtomicU64::new(0) }; CPUS_MAX];
static SEATS: [Seat; CPUS_MAX] = [const { Seat(AtomicPtr::new(core::ptr::null_mut())) }; CPUS_MAX];

#[repr(align(64))]
struct Seat(AtomicPtr<Job<'static>>);

struct Job<'j> {
    work: &'j (dyn Fn() + Sync),
    left: AtomicUsize,
    boss: Cpu,
}

unsafe extern "C" {
    /// Top table, end of the stack and number of the CPU that starts next, and its interrupt
    /// controller. Zero during the roll call.
    static mut start_with: [u64; 4];
    /// The answer to a roll call: when, and who, and 1.
    static answer: [AtomicU64; 2];
}

/// Switches this CPU's APIC on; CPU 0 says which kind it is.
pub(crate) fn enable_apic(apic: Apic) {
    let apic = APIC.call_once(|| apic);
    // SAFETY: ring 0, and the registers are mapped where they are put.
    unsafe { apic.enable(apic::REGISTERS) };
}
fn apic() -> &'static Apic {
    APIC.get().expect("CPU 0 switched it on")
}
/// Whether nothing but other CPUs can interrupt the calling one through its controller.
pub(crate) fn is_quiet() -> bool {
    // SAFETY: this CPU's controller was switched on when it started.
    unsafe { apic().is_quiet() }
}
/// Says that an interrupt has been handled.
pub(crate) fn end_of_interrupt() {
    // SAFETY: called by handlers of interrupts that the APIC delivered.
    unsafe { apic().end_of_interrupt() };
}
/// Sends an interrupt to a CPU.
pub(crate) fn interrupt(cpu: Cpu, vector: u8) {
    // SAFETY: every vector that this kernel sends has a handler.
    unsafe { apic().send(crate::memory::apic_id(cpu), vector) };
}

/// Ticks of the controllers' timers per millisecond, as far as they were measured.
static TIMER: AtomicU64 = AtomicU64::new(0);

/// Measures how fast the controllers' timers count. CPU 0, once, with interrupts in.
pub(crate) fn measure_timer() {
    const MILLIS: u64 = 10;
    // SAFETY: the vector has a handler; it is stopped before it comes.
    unsafe { apic().start_timer(apic::TICK, u32::MAX) };
    wait(MILLIS * 1000, || false);
    // SAFETY: this CPU's controller was switched on.
    let left = unsafe { apic().timer_left() };
    // SAFETY: as above.
    unsafe { apic().start_timer(apic::TICK, 0) };
    TIMER.store(u64::from(u32::MAX - left).div_ceil(MILLIS).max(1), Ordering::Relaxed);
}
/// Has the timer interrupt this CPU in so many nanoseconds, or a little later.
pub(crate) fn interrupt_in(nanos: u64) {
    let ticks = u128::from(nanos) * u128::from(TIMER.load(Ordering::Relaxed)) / 1_000_000;
    let ticks = u32::try_from(ticks + 1).unwrap_or(u32::MAX);
    // SAFETY: this CPU's controller was switched on, and the vector has a handler.
    unsafe { apic().start_timer(apic::TICK, ticks) };
}
/// Stops the timer of this CPU.
pub(crate) fn stop_timer() {
    // SAFETY: as in `interrupt_in`.
    unsafe { apic().start_timer(apic::TICK, 0) };
}

/// A stack of its own for `cpu`: lowest and highest address. The page below it is unmapped: it is
/// the guard of the area before, and this kernel asks for no area without one.
pub(crate) fn stack(cpu: Cpu) -> Result<(Va, Va), Trouble> {
    let caller = Caller(stack as *const () as u64);
    let range = manager().vmalloc(&Request::of(STACK).called(caller));
    let range = range.map_err(|why| Trouble::NoRoom(cpu, why))?;
    LOWS[cpu.index()].store(range.start().get(), Ordering::Release);
    Ok((range.start(), range.end()))
}

/// The lowest address of a CPU's stack.
pub(crate) fn stack_of(cpu: Cpu) -> Va {
    Va::new(LOWS[cpu.index()].load(Ordering::Acquire))
}

/// What an entry may use of a stack that begins at `low`.
pub(crate) fn room_from(low: Va) -> u64 {
    low.get() + ENTRY_ROOM
}

/// The memory of a CPU's own block.
fn block(cpu: Cpu) -> Result<*mut Block, Trouble> {
    let bytes = Bytes::new(size_of::<Block>() as u64);
    let caller = Caller(block as *const () as u64);
    let range = manager().vmalloc(&Request::of(bytes).called(caller));
    let range = range.map_err(|why| Trouble::NoRoom(cpu, why))?;
    let block = range.start().get() as *mut Block;
    // SAFETY: the block is ours, large enough and page-aligned.
    unsafe { block.write(Block::new()) };
    Ok(block)
}

/// Waits for so many microseconds, or until then.
fn wait(micros: u64, until: impl Fn() -> bool) -> bool {
    let ticks_of = |micros| u128::from(HZ.load(Ordering::Relaxed)) * u128::from(micros) / 1_000_000;
    let (start, how_long) = (ticks(), ticks_of(micros));
    while u128::from(ticks() - start) < how_long {
        if until() {
            return true;
        }
        core::hint::spin_loop();
    }
    until()
}

/// Resets CPUs, all but the first of `ids`, which runs this.
fn reset(apic: &Apic, ids: &[ApicId]) {
    for id in &ids[1..] {
        // SAFETY: the CPU waits for its start since reset, or halts since the roll call.
        unsafe { apic.init(*id) };
    }
    if ids.len() > 1 {
        wait(INIT, || false);
    }
}

/// Sends a CPU through `boot.s`, and says whether `arrived` came true.
fn send(apic: &Apic, id: ApicId, arrived: impl Fn() -> bool) -> bool {
    for _ in 0..2 {
        if !arrived() {
            // SAFETY: the trampoline is in place.
            unsafe { apic.startup(id, TRAMPOLINE_PAGE) };
            wait(STARTUP, &arrived);
        }
    }
    wait(SILENCE, arrived)
}

/// Asks the CPUs that `ids` lists behind the first, which runs this, and keeps those that answer
/// and whose time-stamp counter goes with this one's. `hz` is its rate.
pub(crate) fn roll_call(apic: Apic, ids: &mut [ApicId], hz: u64) -> &[ApicId] {
    HZ.store(hz, Ordering::Relaxed);
    // SAFETY: ring 0; the registers are mapped where they are put.
    unsafe { apic.enable(apic::REGISTERS) };
    check_first_stack();
    copy_trampoline();
    let mut kept = 1;
    for n in 1..ids.len() {
        if ids[n] <= apic.highest() {
            ids[kept] = ids[n];
            kept += 1;
        } else {
            say!("the CPU with APIC {} is left out: it takes x2APIC", ids[n].0);
        }
    }
    let ids = &mut ids[..kept];
    reset(&apic, ids);
    let mut kept = 1;
    for n in 1..ids.len() {
        match call(&apic, ids[n]) {
            Ok(()) => {
                ids[kept] = ids[n];
                kept += 1;
            }
            Err(why) => say!("the CPU with APIC {} is left out: {why}", ids[n].0),
        }
    }
    &ids[..kept]
}

fn call(apic: &Apic, id: ApicId) -> Result<(), &'static str> {
    // SAFETY: words of the image, which the CPU that is asked writes.
    let [when, who] = unsafe { &answer };
    let before = ticks();
    if !send(apic, id, || who.load(Ordering::Acquire) == u64::from(id.0) + 1) {
        return Err("it does not answer");
    }
    let together = goes_along(before, when.load(Ordering::Relaxed), ticks());
    together.then_some(()).ok_or("its time-stamp counter is not where this one's is")
}

/// Starts the CPUs that `ids` lists behind the first. One at a time: what a CPU starts with has one
/// place.
pub(crate) fn start(ids: &[ApicId]) -> Result<(), Trouble> {
    reset(apic(), ids);
    for (number, id) in ids.iter().enumerate().skip(1) {
        let cpu = Cpu(number as u16);
        let (low, end) = stack(cpu)?;
        BLOCK.store(block(cpu)?, Ordering::Release);
        LOW.store(low.get() as usize, Ordering::Release);
        // SAFETY: no CPU is starting now.
        unsafe { start_with = [top().get(), end.get(), number as u64, id.0.into()] };
        if !send(apic(), *id, || ONLINE.load(Ordering::Acquire) > number) {
            return Err(Trouble::Silent(cpu, *id));
        }
    }
    Ok(())
}

static BLOCK: AtomicPtr<Block> = AtomicPtr::new(core::ptr::null_mut());
static LOW: AtomicUsize = AtomicUsize::new(0);

/// The stack of the start has no guard page, and the first tables lie below it: its last words must
/// never have been used.
fn check_first_stack() {
    let low: u64;
    // SAFETY: names an address of the low part, which code up here cannot reach relative to itself.
    unsafe {
        asm!("mov {0}, offset first_stack", out(reg) low, options(nomem, nostack, preserves_flags))
    }
    // SAFETY: the lowest page of the stack, in the direct map.
    let words = unsafe { direct(Pa::new(low)).cast::<[u64; 512]>().read_volatile() };
    assert!(
        words.iter().all(|word| *word == 0),
        "the stack of the start is used up: make it larger in boot.s"
    );
}

fn copy_trampoline() {
    let (start, end): (u64, u64);
    // SAFETY: names two addresses of the low part, which code up here cannot reach relative to
    // itself.
    unsafe {
        asm!("mov {0}, offset trampoline", "mov {1}, offset trampoline_end", out(reg) start, out(reg) end, options(nomem, nostack, preserves_flags))
    }
    let target = direct(Pa::new(u64::from(TRAMPOLINE_PAGE) << 12));
    // SAFETY: the firmware's megabyte is not handed to anybody, and the trampoline is shorter than
    // a page.
    unsafe {
        core::ptr::copy_nonoverlapping(direct(Pa::new(start)), target, (end - start) as usize)
    }
}

/// Where `boot.s` hands a started CPU over, on its own stack and tables.
#[unsafe(no_mangle)]
extern "C" fn cpu_main(number: u64) -> ! {
    let low = Va::new(LOW.load(Ordering::Acquire) as u64);
    // SAFETY: the block was made for this CPU alone.
    unsafe { cpu::adopt(BLOCK.load(Ordering::Acquire), Cpu(number as u16), room_from(low)) };
    gates::load();
    cpu::protect(machine().features());
    enable_apic(*apic());
    // SAFETY: ring 0, once on this CPU.
    unsafe { machine().online() };
    manager().online();
    ONLINE.fetch_add(1, Ordering::AcqRel);
    idle()
}

/// Waits for work, for good.
fn idle() -> ! {
    let seat = &SEATS[cpu::me().index()];
    loop {
        port::disable();
        let job = seat.0.load(Ordering::Acquire);
        if job.is_null() {
            port::enable_and_halt(); // W1
            continue;
        }
        port::enable();
        // SAFETY: W2.
        let job = unsafe { &*job };
        (job.work)();
        seat.0.store(core::ptr::null_mut(), Ordering::Release);
        let boss = job.boss;
        job.left.fetch_sub(1, Ordering::AcqRel); // the job may be gone from here on
        interrupt(boss, apic::WAKE);
    }
}

/// Halts until `done` says so. Whoever makes it true wakes this CPU.
pub(crate) fn halt_until(done: impl Fn() -> bool) {
    loop {
        port::disable();
        if done() {
            port::enable();
            return;
        }
        port::enable_and_halt();
    }
}

/// Runs `work` on the CPUs named, all at once, and returns when all are done.
fn give(cpus: impl Iterator<Item = Cpu> + Clone, work: &(dyn Fn() + Sync)) {
    let me = cpu::me();
    let others = cpus.clone().filter(|cpu| *cpu != me);
    let job = Job { work, left: AtomicUsize::new(others.clone().count()), boss: me };
    for cpu in others {
        let seat = &SEATS[cpu.index()].0;
        let own = (&raw const job).cast_mut().cast::<Job<'static>>();
        while seat
            .compare_exchange(core::ptr::null_mut(), own, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            core::hint::spin_loop(); // somebody else's job is there
        }
        interrupt(cpu, apic::WAKE);
    }
    if cpus.clone().any(|cpu| cpu == me) {
        work();
    }
    halt_until(|| job.left.load(Ordering::Acquire) == 0);
}

/// Runs `work` on `cpu`.
pub(crate) fn on(cpu: Cpu, work: &(dyn Fn() + Sync)) {
    give(core::iter::once(cpu), work);
}

/// Runs `work` on CPUs 0 to `count - 1` at once.
pub(crate) fn together(count: usize, work: &(dyn Fn(Cpu) + Sync)) {
    let count = count.min(online());
    give((0..count).map(|n| Cpu(n as u16)), &|| work(cpu::me()));
}

/// CPUs that run.
pub(crate) fn online() -> usize {
    ONLINE.load(Ordering::Acquire)
}

/// Goes on with `next` on another stack, for good.
///
/// # Safety
/// The stack is mapped and nobody else's.
pub(crate) unsafe fn move_to(end: Va, next: extern "C" fn() -> !) -> ! {
    // SAFETY: the caller's promise; the frame that is left is never returned to.
    unsafe {
        asm!("mov rsp, {}", "xor ebp, ebp", "call {}", "ud2", in(reg) end.get(), in(reg) next, options(noreturn))
    }
}
