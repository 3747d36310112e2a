//! Running threads: stacks, turns, and what is to be done at a time. Which of them runs where is
//! `foliant-sched`'s: a queue for each CPU.
//!
//! ```text
//!              ┌───────────────── its time is over ────────────────┐
//!   wake ─▶ queues ─▶ a CPU takes it: space, stack ─▶ runs ────────┤
//!     ▲                                              │ waits       │ ends
//!     └──────────────────── parked ◀─────────────────┘             ▼
//! ```
//!
//! A CPU goes round on a stack of its own: it takes a thread, goes on on that thread's stack, and
//! comes back when the thread waits, ends, or has run for its time. The kernel is not interrupted
//! for another thread.
//!
//! **Invariants**
//! - S1. A thread is in one queue, or runs, or is parked. One that was woken while it ran is put
//!   into a queue when it parks: no wake-up is lost.
//! - S2. A thread that left its stack is found by others only when its CPU runs its space no more,
//!   so the last one that lets go of a process's memory can end it.
//! - S4. Between two stacks interrupts are out: an entry asks how low the stack goes.
//! - S5. An alarm rings once, on any CPU, with no lock held; one that is put off may still ring.
//! - S6. A CPU that is about to halt sets its timer while interrupts are out: one that came before
//!   it halts would be the last.
//!
//! **Locking**: the sleepers' lock for a few instructions, with the heap's under it. No lock is
//! taken with interrupts out but those of the queues, under which there is nothing.
#![allow(unsafe_code)]

use super::clock;
use super::signal::Info;
use super::turns::{Turns, Wishes};
use crate::memory::{CPUS_MAX, manager};
use crate::{apic, cpu, port, smp};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use foliant_linux::Errno;
use foliant_linux::credentials::Credentials;
use foliant_sched::{Came, Queues, Standing, Task, bit_of};
use foliant_units::{Cpu, Va};
use spin::{Lazy, Mutex};

/// Nanoseconds that a thread runs while others want to.
const TURN: u64 = 10_000_000;
/// Nanoseconds that it runs at least, whatever is to be done.
const TURN_MIN: u64 = 20_000;
/// A CPU without work looks after so many nanoseconds at the latest.
const LOOK: u64 = 100_000_000;
/// A thread's stack in the kernel: as large as a CPU's. A collapse that splits what it finds takes
/// more than half of it.
pub(super) use crate::layout::STACK;

/// Those that can run.
static QUEUES: Lazy<Queues<Ready, fn(Cpu)>> =
    Lazy::new(|| Queues::new(smp::online(), |cpu| smp::interrupt(cpu, apic::WAKE)));

/// A thread that can run.
struct Ready(Arc<dyn Runs>);

impl Task for Ready {
    fn allowed(&self) -> u64 {
        self.0.scheduled().allowed()
    }
    fn last(&self) -> Cpu {
        Cpu(self.0.scheduled().last.load(Ordering::Relaxed))
    }
}

/// What is to be done at a time, by that and a number of its own.
static SLEEPERS: Mutex<BTreeMap<Due, Sleeper>> = Mutex::new(BTreeMap::new());
static SLEEPS: AtomicU64 = AtomicU64::new(0);
/// When the first of it is to be done.
static FIRST: AtomicU64 = AtomicU64::new(u64::MAX);
/// Nothing is to be run any more.
static IS_OVER: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn switch_stack(from: *mut u64, to: u64);
}

/// What a CPU has for going round. Its own CPU alone uses it.
struct Round {
    /// Where its own stack was left.
    stack: Cell<u64>,
    running: RefCell<Option<Arc<dyn Runs>>>,
}
// SAFETY: each CPU uses its own.
unsafe impl Sync for Round {}
static ROUNDS: [Round; CPUS_MAX] =
    [const { Round { stack: Cell::new(0), running: RefCell::new(None) } }; CPUS_MAX];

fn own() -> &'static Round {
    &ROUNDS[cpu::me().index()]
}

/// The thread that the calling CPU runs.
pub(super) fn current() -> Arc<dyn Runs> {
    own().running.borrow().clone().expect("a thread runs")
}

/// What runs: a thread.
pub(super) trait Runs: Send + Sync {
    fn scheduled(&self) -> &Scheduled;
    /// Makes the calling CPU run its space, and answer for it.
    fn load(&self);
    /// Ends that.
    fn unload(&self);
    /// Runs it to its end.
    fn run(self: Arc<Self>);
    /// Whether it goes on no more.
    fn is_over(&self) -> bool;
    /// Who it is.
    fn credentials(&self) -> Arc<Credentials>;
    /// Whether a wait of it ends early.
    fn is_interrupted(&self) -> bool;
    /// Waits for as long as its process is stopped.
    fn rest(&self);
    /// The number of its process, and the signals that wait until it wants them.
    fn process_id(&self) -> u32;
    fn blocked(&self) -> u64;
    /// Whether a signal of a set waits for it.
    fn has_signal(&self, of: u64) -> bool;
    /// Takes one of them.
    fn take_signal(&self, of: u64) -> Option<Info>;
}

/// What happens at a time, without a thread of its own.
pub(super) trait Alarm: Send + Sync {
    fn ring(self: Arc<Self>);
}
/// When something is to be done, and a number of its own.
pub(super) type Due = (u64, u64);

enum Sleeper {
    /// It is woken.
    Thread(Arc<dyn Runs>),
    /// It rings, if it is still there.
    Alarm(Weak<dyn Alarm>),
}

/// Why a thread left its stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    /// Another one's turn has come.
    Turn,
    /// It waits.
    Waits,
    /// It has ended.
    Ended,
}

/// How a thread is scheduled.
pub(super) struct Scheduled {
    /// Its lowest address.
    low: Va,
    end: Va,
    /// Where it was left.
    at: Cell<u64>,
    left: Cell<Left>,
    standing: Standing,
    /// The CPU that ran it last, or made it.
    last: AtomicU16,
    /// What it had of CPUs.
    pub(super) turns: Turns,
    /// What it wishes for.
    pub(super) wishes: Wishes,
}

impl Scheduled {
    /// A stack on which a thread begins.
    pub(super) fn new() -> Result<Scheduled, Errno> {
        use foliant::vmap::{Caller, Request};
        let caller = Caller(Scheduled::new as *const () as u64);
        let range = manager().vmalloc(&Request::of(STACK).called(caller));
        let range = range.map_err(|_| Errno::NOMEM)?;
        let (low, end) = (range.start(), range.end());
        // Six registers, where to go, and a word that keeps the stack aligned as behind a call.
        let first = end.get() - 8 * 8;
        let words = first as *mut [u64; 8];
        // SAFETY: the end of a stack that is nobody else's.
        unsafe { words.write([0, 0, 0, 0, 0, 0, begin as *const () as u64, 0]) };
        Ok(Scheduled {
            low,
            end,
            at: Cell::new(first),
            left: Cell::new(Left::Turn),
            standing: Standing::new(),
            last: AtomicU16::new(cpu::me().0),
            turns: Turns::new(),
            wishes: Wishes::new(),
        })
    }
    /// CPUs that may run it, a bit each.
    pub(super) fn allowed(&self) -> u64 {
        self.wishes.allowed.load(Ordering::Relaxed)
    }
    /// How nice it is.
    pub(super) fn nice(&self) -> i32 {
        self.wishes.nice.load(Ordering::Relaxed)
    }
    /// Whether it waits.
    pub(super) fn is_parked(&self) -> bool {
        self.standing.is_parked()
    }
}

impl Drop for Scheduled {
    fn drop(&mut self) {
        debug_assert!(self.end > self.low);
        manager().vfree(self.low).expect("the stack was mapped, and nobody is on it");
    }
}

/// Where a thread begins, with interrupts out.
extern "C" fn begin() -> ! {
    port::enable();
    current().run();
    leave(Left::Ended);
    unreachable!("what has ended is not run")
}

/// Leaves the running thread's stack.
fn leave(why: Left) {
    let (from, to) = {
        let running = own().running.borrow();
        let place = running.as_ref().expect("a thread runs").scheduled();
        place.left.set(why);
        (place.at.as_ptr(), own().stack.get())
    };
    port::disable(); // S4
    // SAFETY: the CPU's own stack was left by `go`, and this one is gone on with by `go` alone.
    unsafe { switch_stack(from, to) };
    port::enable();
}

/// Runs a thread until it leaves its stack.
fn go(thread: Arc<dyn Runs>, low: u64) {
    thread.load();
    let place: *const Scheduled = thread.scheduled();
    *own().running.borrow_mut() = Some(thread);
    // SAFETY: the thread is kept until it is taken out below.
    let place = unsafe { &*place };
    interrupt_in_turn();
    place.turns.begin();
    port::disable(); // S4
    cpu::set_stack_low(smp::room_from(place.low));
    // SAFETY: the thread's stack, which nobody is on.
    unsafe { switch_stack(own().stack.as_ptr(), place.at.get()) };
    cpu::set_stack_low(low);
    port::enable();
    let thread = own().running.borrow_mut().take().expect("it ran until now");
    place.turns.end(place.left.get() == Left::Turn);
    place.last.store(cpu::me().0, Ordering::Relaxed);
    thread.unload(); // S2
    QUEUES.left(cpu::me());
    match place.left.get() {
        Left::Turn => QUEUES.put(Ready(thread), Came::Over),
        Left::Waits if place.standing.park() => {}
        Left::Waits => QUEUES.put(Ready(thread), Came::Woken), // S1
        Left::Ended => {}
    }
}

/// Lets a new thread run.
pub(super) fn start(thread: Arc<dyn Runs>) {
    QUEUES.put(Ready(thread), Came::Woken);
}
/// Lets a thread go on that waits, or is about to.
pub(super) fn wake(thread: Arc<dyn Runs>) {
    if thread.scheduled().standing.wake() {
        QUEUES.put(Ready(thread), Came::Woken);
    }
}
/// Goes on on a CPU that may run it.
pub(super) fn move_on() {
    leave(Left::Turn);
}
/// Goes on on another CPU, and comes back when it has run there.
pub(super) fn visit(cpu: Cpu) {
    let thread = current();
    let allowed = &thread.scheduled().wishes.allowed;
    let here = bit_of(cpu);
    let before = allowed.swap(here, Ordering::Relaxed);
    leave(Left::Turn);
    // One that was set meanwhile stays; otherwise it is as before.
    let _ = allowed.compare_exchange(here, before, Ordering::Relaxed, Ordering::Relaxed);
}
/// Lets others run that want to, and comes back.
pub(super) fn give_way() {
    if QUEUES.is_wanted(cpu::me()) || FIRST.load(Ordering::Acquire) <= clock::uptime() {
        leave(Left::Turn);
    } else {
        interrupt_in_turn();
    }
}
/// Has the running thread interrupted when its turn is over, or when something is to be done.
fn interrupt_in_turn() {
    let due = FIRST.load(Ordering::Acquire).saturating_sub(clock::uptime());
    smp::interrupt_in(due.clamp(TURN_MIN, TURN));
}

/// Waits to be woken, or until a time. Something else may wake it as well.
pub(super) fn park(until: Option<u64>) {
    let Some(until) = until else { return leave(Left::Waits) };
    let due = list(until, Sleeper::Thread(current()));
    leave(Left::Waits);
    put_off(due);
}
fn list(at: u64, sleeper: Sleeper) -> Due {
    let due = (at, SLEEPS.fetch_add(1, Ordering::Relaxed));
    SLEEPERS.lock().insert(due, sleeper);
    FIRST.fetch_min(at, Ordering::AcqRel);
    due
}
/// Has an alarm ring at a time.
pub(super) fn ring_at(at: u64, alarm: Weak<dyn Alarm>) -> Due {
    let due = list(at, Sleeper::Alarm(alarm));
    interrupt_in_turn();
    due
}
/// Takes away what was to be done; it may be too late (S5).
pub(super) fn put_off(due: Due) {
    let taken = SLEEPERS.lock().remove(&due);
    drop(taken);
}
/// Does what is due; says when the next of it is.
fn wake_sleepers() -> u64 {
    let now = clock::uptime();
    if FIRST.load(Ordering::Acquire) > now {
        return FIRST.load(Ordering::Acquire);
    }
    let mut due = Vec::new();
    {
        let mut sleepers = SLEEPERS.lock();
        while let Some(first) = sleepers.first_entry() {
            if first.key().0 > now {
                break;
            }
            due.push(first.remove());
        }
        let next = sleepers.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
        FIRST.store(next, Ordering::Release);
    }
    for sleeper in due {
        match sleeper {
            Sleeper::Thread(thread) => wake(thread),
            Sleeper::Alarm(alarm) => {
                if let Some(alarm) = alarm.upgrade() {
                    alarm.ring();
                }
            }
        }
    }
    FIRST.load(Ordering::Acquire)
}

/// Goes round on the calling CPU until it is over.
pub(super) fn go_round() {
    let low = smp::room_from(smp::stack_of(cpu::me()));
    while !IS_OVER.load(Ordering::Acquire) {
        let next = wake_sleepers();
        let me = cpu::me();
        if let Some(Ready(thread)) = QUEUES.take(me) {
            go(thread, low);
            continue;
        }
        port::disable(); // S6
        smp::interrupt_in(next.saturating_sub(clock::uptime()).min(LOOK));
        let found = QUEUES.rest(me);
        if found.is_none() && !IS_OVER.load(Ordering::SeqCst) {
            port::enable_and_halt();
        } else {
            port::enable();
        }
        QUEUES.rouse(me);
        if let Some(Ready(thread)) = found {
            go(thread, low);
        }
    }
    smp::stop_timer();
}
/// Ends the rounds of all CPUs.
pub(super) fn end_rounds() {
    IS_OVER.store(true, Ordering::SeqCst);
    wake_cpus();
}
/// Has every CPU look whether something changed.
pub(super) fn wake_cpus() {
    for cpu in (0..smp::online()).map(|cpu| Cpu(cpu as u16)).filter(|cpu| *cpu != cpu::me()) {
        smp::interrupt(cpu, apic::WAKE);
    }
}
