//! A thread of a program: its registers, ring 3 and back.
//!
//! ```text
//!   run ─▶ signals ─▶ ring 3 ─▶ a call, or a fault that nobody served: registers kept ─▶ answer ─▶ again
//! ```
//!
//! **Invariants**
//! - T1. The CPU that runs a thread alone looks at its registers.
#![allow(unsafe_code)]

use super::clock;
use super::credentials::Seat;
use super::events::Events;
use super::process::{Member, Process};
use super::sched::{Runs, STACK, Scheduled};
use super::sequence::Sequence;
use super::signal::{Info, Pending, SIGNALS, bit};
use super::timers::Target;
use super::usage::Usage;
use crate::cpu::{self, USER_CODE, USER_DATA};
use crate::frame::{Floats, Frame, Kept, Uppers};
use crate::heap;
use crate::memory::{managed, manager};
use crate::port::write_msr;
use crate::running::{Origin, Program};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use foliant::fault::Access;
use foliant_linux::credentials::Credentials;
use foliant_linux::mempolicy::Mempolicy;
use foliant_linux::{Errno, Fault};
use foliant_units::Va;
use spin::Mutex;

const FS_BASE: u32 = 0xc000_0100;
/// Ring 3's, while the kernel's is in place.
const KERNEL_GS_BASE: u32 = 0xc000_0102;

/// The processor's own vector for what it refuses.
const GENERAL: u64 = 13;

/// The flags that a program may set: arithmetic, direction, trap, alignment check, identification.
const FLAGS: u64 = 0x24_0dd5;
/// Those that every thread has: interrupts come in.
const FLAGS_ON: u64 = 1 << 9 | 1 << 1;

unsafe extern "C" {
    fn enter_ring_3(kept: *const Kept);
}

/// Path, arguments and environment of a program.
pub(super) type Begins = (Vec<u8>, Vec<Vec<u8>>, Vec<Vec<u8>>);

/// What a thread does from its beginning to its end.
pub(super) type Life = fn(&Arc<Thread>);

/// Threads that there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A thread that counts. All together have an eighth of the memory for their stacks, as on Linux.
struct Counted;

impl Counted {
    fn new() -> Result<Counted, Errno> {
        let most = managed().bytes().get() / (8 * STACK.get());
        if COUNT.fetch_add(1, Ordering::Relaxed) as u64 >= most {
            COUNT.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::AGAIN);
        }
        Ok(Counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread.
pub(super) struct Thread {
    _count: Counted,
    pub(super) id: u32,
    pub(super) process: Arc<Process>,
    /// Who it is (credentials).
    pub(super) credentials: Arc<Seat>,
    scheduled: Scheduled,
    pub(super) signals: Pending,
    kept: Kept,
    /// What the access got that made it leave ring 3.
    pub(super) refused: Cell<Option<Fault>>,
    /// Bases of FS and GS.
    bases: Cell<[u64; 2]>,
    /// A word that becomes 0 when it ends, and whose waiters are woken.
    pub(super) clears: Cell<u64>,
    /// A word that gets its number before it begins.
    pub(super) notes: Cell<u64>,
    /// The list of locks that it holds.
    pub(super) robust: Cell<u64>,
    /// Which node its memory comes from.
    pub(super) policy: Mutex<Option<Mempolicy>>,
    /// Where it is told which CPU it runs on.
    pub(super) sequence: Sequence,
    /// The program that it begins with: path, arguments, environment.
    pub(super) first: Mutex<Option<Begins>>,
    /// The number of the call that a signal cut short.
    pub(super) cut: Cell<Option<u64>>,
    /// Faults of it that were served.
    faults: AtomicU64,
    /// It ends by itself: another thread starts a program, or this one said so.
    ends: AtomicBool,
    /// What it does from its beginning to its end.
    pub(super) runs: Life,
}

// SAFETY: T1; what others reach is atomic or locked.
unsafe impl Send for Thread {}
// SAFETY: as above.
unsafe impl Sync for Thread {}

impl Thread {
    /// A thread of a process, which knows it from now on.
    pub(super) fn of(process: Arc<Process>, id: u32, runs: Life) -> Result<Arc<Thread>, Errno> {
        let count = Counted::new()?;
        let is_first = id == process.id;
        let credentials = if is_first { process.credentials.clone() } else { Seat::of_root() };
        let thread = Arc::new(Thread {
            _count: count,
            id,
            credentials,
            scheduled: Scheduled::new()?,
            signals: Pending::new(),
            kept: Kept::new(registers(0, 0)),
            refused: Cell::new(None),
            bases: Cell::new([0; 2]),
            clears: Cell::new(0),
            notes: Cell::new(0),
            robust: Cell::new(0),
            policy: Mutex::new(None),
            sequence: Sequence::new(),
            first: Mutex::new(None),
            cut: Cell::new(None),
            faults: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            runs,
            process,
        });
        thread.process.threads.lock().push(thread.clone());
        Ok(thread)
    }
    /// Who it is now.
    pub(super) fn credentials(&self) -> Arc<Credentials> {
        self.credentials.get()
    }
    /// Gives a thread that has not begun the registers, the credentials and the wishes of this one.
    pub(super) fn copy_to(&self, other: &Thread) {
        other.credentials.set(self.credentials.get());
        let registers = self.registers();
        other.set_registers(|all| *all = registers);
        other.set_floats(self.floats());
        // SAFETY: T1: it has not begun.
        unsafe { *other.kept.uppers.get() = cpu::uppers() };
        other.bases.set(self.bases.get());
        other.scheduled.wishes.take_from(&self.scheduled.wishes);
        *other.policy.lock() = *self.policy.lock();
    }

    /// Its registers.
    pub(super) fn registers(&self) -> Frame {
        // SAFETY: T1.
        unsafe { *self.kept.registers.get() }
    }
    /// Changes its registers.
    pub(super) fn set_registers(&self, change: impl FnOnce(&mut Frame)) {
        // SAFETY: T1.
        change(unsafe { &mut *self.kept.registers.get() });
    }
    /// What it has in x87 and SSE.
    pub(super) fn floats(&self) -> Floats {
        // SAFETY: T1.
        unsafe { *self.kept.floats.get() }
    }
    /// Gives it others. No bit is set that the processor refuses.
    pub(super) fn set_floats(&self, mut floats: Floats) {
        floats.0[26..28].fill(0); // the upper half of MXCSR
        // SAFETY: T1.
        unsafe { *self.kept.floats.get() = floats };
    }
    /// Makes it begin a program there, with nothing in any register.
    pub(super) fn begin(&self, at: u64, stack: u64) {
        self.set_registers(|all| *all = registers(at, stack));
        self.set_floats(Floats::FRESH);
        cpu::set_uppers(&Uppers::FRESH);
        self.set_bases([0; 2]);
        self.clears.set(0);
        self.robust.set(0);
        self.sequence.clear();
    }

    /// Bases of FS and GS.
    pub(super) fn bases(&self) -> [u64; 2] {
        self.bases.get()
    }
    /// Sets them. The calling CPU runs the thread.
    pub(super) fn set_bases(&self, bases: [u64; 2]) {
        self.bases.set(bases);
        // SAFETY: ring 3's base; addresses of the user half.
        unsafe { write_msr(FS_BASE, bases[0]) };
        // SAFETY: as above.
        unsafe { write_msr(KERNEL_GS_BASE, bases[1]) };
    }
    /// The base of a thread that runs nowhere yet.
    pub(super) fn will_have_base(&self, base: u64) {
        self.bases.set([base, self.bases.get()[1]]);
    }

    /// Has it begin with a program.
    pub(super) fn starts(&self, path: Vec<u8>, arguments: Vec<Vec<u8>>, environment: Vec<Vec<u8>>) {
        *self.first.lock() = Some((path, arguments, environment));
    }
    /// Has it note its number there before it begins.
    pub(super) fn will_note(&self, at: u64) {
        self.notes.set(at);
    }
    /// Tells it which CPU it runs on, where it asked for that.
    pub(super) fn note_cpu(&self) -> Result<(), Errno> {
        if self.sequence.is_due() {
            let rip = self.sequence.tell(self.registers().rip)?;
            self.set_registers(|registers| registers.rip = rip);
        }
        Ok(())
    }
    /// Goes on at the abort of a sequence that was interrupted.
    pub(super) fn abort_sequence(&self) -> Result<(), Errno> {
        let rip = self.sequence.abort(self.registers().rip)?;
        self.set_registers(|registers| registers.rip = rip);
        Ok(())
    }
    /// Goes to ring 3, and comes back when it is left.
    pub(super) fn enter(&self) {
        self.refused.set(None);
        // Ring 3 is entered by an instruction that faults in the kernel for such an address.
        if self.registers().rip >> 47 != 0 {
            self.set_registers(|registers| registers.vector = GENERAL);
            return;
        }
        // SAFETY: T1; every way out of ring 3 keeps the registers here (`load`).
        unsafe { enter_ring_3(&raw const self.kept) };
    }
}

impl Runs for Thread {
    fn scheduled(&self) -> &Scheduled {
        &self.scheduled
    }
    fn load(&self) {
        if let Some(space) = self.process.space() {
            manager().switch(Some(space)).expect("a process's memory is there");
        }
        self.set_bases(self.bases.get());
        self.sequence.note_moved();
        let own: &dyn Program = self;
        // SAFETY: the CPU that runs the thread keeps it until `unload`.
        let own: &'static dyn Program = unsafe { core::mem::transmute(own) };
        cpu::user().set_program(Some(own));
        // SAFETY: as above.
        unsafe { cpu::keep(Some(&self.kept)) };
        // SAFETY: T1.
        cpu::set_uppers(unsafe { &*self.kept.uppers.get() });
    }
    fn unload(&self) {
        // SAFETY: T1.
        unsafe { *self.kept.uppers.get() = cpu::uppers() };
        // SAFETY: none are kept.
        unsafe { cpu::keep(None) };
        cpu::user().set_program(None);
        manager().switch(None).expect("leaving a space is always possible");
    }
    fn run(self: Arc<Thread>) {
        (self.runs)(&self);
    }
    fn is_over(&self) -> bool {
        self.ends.load(Ordering::Acquire) || self.process.ended().is_some()
    }
    fn credentials(&self) -> Arc<Credentials> {
        self.credentials.get()
    }
    fn is_interrupted(&self) -> bool {
        let due = (self.signals.own.set() | self.process.signals.set()) & !self.signals.blocked();
        let does = |number: &u32| due & bit(*number) != 0 && !self.process.ignores(*number);
        self.is_over() || due != 0 && (1..=SIGNALS).any(|number| does(&number))
    }
    fn rest(&self) {
        self.process.rest(|| self.is_over());
    }
    fn process_id(&self) -> u32 {
        self.process.id
    }
    fn blocked(&self) -> u64 {
        self.signals.blocked()
    }
    fn has_signal(&self, of: u64) -> bool {
        (self.signals.own.set() | self.process.signals.set()) & of != 0
    }
    fn take_signal(&self, of: u64) -> Option<Info> {
        self.signals.own.take(of).or_else(|| self.process.signals.take(of))
    }
}

impl Member for Thread {
    fn id(&self) -> u32 {
        self.id
    }
    fn signals(&self) -> &Pending {
        &self.signals
    }
    fn usage(&self) -> Usage {
        let turns = &self.scheduled.turns;
        let (time, (waits, cut)) = (turns.time(), turns.counts());
        let user = clock::nanos(self.kept.user.load(Ordering::Relaxed)).min(time);
        let faults = self.faults.load(Ordering::Relaxed);
        Usage { user, system: time - user, faults, waits, turns: cut, ..Usage::default() }
    }
    fn policy(&self) -> Option<Mempolicy> {
        *self.policy.lock()
    }
    fn end(&self) {
        self.ends.store(true, Ordering::Release);
    }
    fn target(self: Arc<Thread>) -> Weak<dyn Target> {
        Arc::downgrade(&self) as _
    }
}

impl Target for Thread {
    fn has(&self, number: u32) -> bool {
        self.signals.own.set() & bit(number) != 0
    }
    fn tell(&self, info: Info) {
        self.signals.own.put(info);
        self.process.call_threads();
        self.process.signalled.wake_for(Events::IN);
    }
}

impl Program for Thread {
    fn fault(&self, va: Va, access: Access, origin: Origin) -> bool {
        let va = va.get();
        if heap::is_scarce() {
            // What is left is the kernel's; the access is made again, or the process ends (`life`).
            self.refused.set(Some(Fault::OutOfMemory));
            return false;
        }
        let memory = self.process.memory().expect("a program runs (process::P1)");
        let mut answer = memory.fault(va, access);
        while origin == Origin::Kernel
            && let Fault::Told(told) = answer
        {
            // A copy waits where it is, as Linux does: the handler is another thread.
            if memory.wait_told(&told, origin).is_err() {
                break;
            }
            answer = memory.fault(va, access);
        }
        let is_done = answer == Fault::Done;
        self.faults.fetch_add(u64::from(is_done), Ordering::Relaxed);
        self.refused.set((!is_done).then_some(answer));
        is_done
    }
}

/// The registers of a thread that begins.
fn registers(rip: u64, rsp: u64) -> Frame {
    let (cs, ss) = (USER_CODE.into(), USER_DATA.into());
    Frame { rip, rsp, cs, ss, rflags: FLAGS_ON, ..Frame::CLEAN }
}
/// Flags as ring 3 may have them.
pub(super) fn flags(asked: u64) -> u64 {
    asked & FLAGS | FLAGS_ON
}
