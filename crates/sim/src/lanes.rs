//! Lanes: CPUs of a seeded run that take turns on one thread of the host, each on a stack of its
//! own.
//!
//! A host thread for each CPU costs two calls of the host's scheduler for each change of hands,
//! more than all that the CPU does in between. Which CPU goes on is the baton's choice here as
//! there, so a seed gives the same history either way.
//!
//! **Invariants**
//! - L1. A lane is left in [`leave`] and at its end alone.
//! - L2. All lanes of a run have ended when [`run`] returns.
//! - L3. What a thread keeps for itself and the manager relies on changes hands with the lane: see
//!   [`Trade`].
#![allow(unsafe_code)]

use crate::current;
use core::cell::Cell;
use core::ptr;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};

/// Bytes of a CPU's stack.
pub(crate) const STACK_BYTES: usize = 2 << 20;

/// Called before a CPU goes on and after it was left; there is one for each CPU. It exchanges what
/// the thread keeps for itself and what the CPU keeps.
pub type Trade = Box<dyn FnMut()>;

thread_local! {
    /// How the lane at work is left; null where none is.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
}

/// Whether the thread is at work for a lane.
pub(crate) fn are_at_work() -> bool {
    !YIELDER.get().is_null()
}

/// Lets other lanes go on until it is this one's turn again.
pub(crate) fn leave() {
    let yielder = YIELDER.get();
    assert!(!yielder.is_null(), "only a lane is left");
    let places = current::take();
    // SAFETY: it was set by the lane at work, on whose stack the yielder is (L1).
    unsafe { &*yielder }.suspend(());
    current::put(places);
    YIELDER.set(yielder);
}

/// Runs `bodies`, each on a lane: always the one that `next` names, until it names none, when all
/// have ended.
pub(crate) fn run<'a>(
    bodies: Vec<impl FnOnce() + 'a>,
    trade: fn() -> Trade,
    next: impl Fn() -> Option<usize>,
) {
    let places = current::take();
    let outer = YIELDER.get();
    let mut lanes: Vec<(Coroutine<(), (), ()>, Trade)> =
        bodies.into_iter().map(|body| (lane(body), trade())).collect();
    while let Some(nth) = next() {
        let (lane, trade) = &mut lanes[nth];
        trade();
        lane.resume(());
        trade();
    }
    YIELDER.set(outer);
    current::put(places);
}

fn lane<'a>(body: impl FnOnce() + 'a) -> Coroutine<(), (), ()> {
    let stack = DefaultStack::new(STACK_BYTES).expect("the host has a stack for each CPU");
    let body = move |yielder: &Yielder<(), ()>, ()| {
        YIELDER.set(ptr::from_ref(yielder));
        body();
    };
    // SAFETY: what the body borrows outlives `run`, which drives the lane to its end (L2).
    unsafe { Coroutine::with_stack_unchecked(stack, body) }
}
