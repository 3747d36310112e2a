//! Every interleaving of a walker of frame numbers with a block that is given back, folded, unfolded, released and born
//! folded (TR-H1). The grace period and the states of stretches are the real ones; a mapping is a word that says what an
//! access would meet.

use crate::stock::{Block, Stretch, Stretches};
use crate::sync::loom_host::LoomHost;
use crate::sync::{AtomicU64, Grace, GraceSlot, Ordering};
use loom::sync::Arc;
use loom::thread;

const BLOCK: Block = Block(3);

const UNMAPPED: u64 = 0;
const WRITABLE: u64 = 1;
const SHARED: u64 = 2;

const ANON: u64 = 1;
const HUGE: u64 = 2;

/// One frame of a block, its descriptor, and the entry that maps the descriptor.
struct World {
    grace: Grace,
    slots: [GraceSlot; 2],
    states: [AtomicU64; 2],
    entry: AtomicU64,
    kind: AtomicU64,
    references: AtomicU64,
}

impl World {
    /// A base page with one reference.
    fn new() -> Arc<World> {
        let world = World {
            grace: Grace::default(),
            slots: [GraceSlot::default(), GraceSlot::default()],
            states: [AtomicU64::new(0), AtomicU64::new(0)],
            entry: AtomicU64::new(WRITABLE),
            kind: AtomicU64::new(ANON),
            references: AtomicU64::new(1),
        };
        assert!(world.stretches().change(BLOCK, Stretch::Absent, Stretch::Ready));
        Arc::new(world)
    }
    fn stretches(&self) -> Stretches<'_> {
        Stretches::new(&self.states)
    }

    /// A load: something must be mapped.
    fn load(&self, word: &AtomicU64) -> u64 {
        assert_ne!(self.entry.load(Ordering::SeqCst), UNMAPPED, "a walker reads what is gone");
        word.load(Ordering::Acquire)
    }
    /// A compare-and-exchange: even where it fails the entry must be writable.
    fn exchange(&self, word: &AtomicU64, old: u64, new: u64) -> bool {
        let writable = || self.entry.load(Ordering::SeqCst) == WRITABLE;
        assert!(writable(), "a walker writes through a shared entry");
        word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// `Stock::get_unless_zero`, and the drop of what it gave.
    fn walk(&self) {
        loop {
            let reading = self.grace.enter(&self.slots[1]);
            match self.stretches().get(BLOCK) {
                Stretch::Absent => return,
                Stretch::Moving => {}
                Stretch::Ready => {
                    if self.load(&self.kind) != ANON {
                        return;
                    }
                    let mut before = self.load(&self.references);
                    while before > 0 && !self.exchange(&self.references, before, before + 1) {
                        before = self.load(&self.references);
                    }
                    if before > 0 {
                        self.references.fetch_sub(1, Ordering::AcqRel);
                    }
                    return;
                }
            }
            drop(reading);
            thread::yield_now();
        }
    }

    /// The page's owner gives it up. Where a walker has a reference it is the walker's to give back, and the rest is not
    /// done.
    fn give_up(&self) -> bool {
        if self.references.fetch_sub(1, Ordering::AcqRel) != 1 {
            return false;
        }
        self.kind.store(HUGE, Ordering::Release);
        true
    }
    fn wait(&self) {
        self.grace.wait(&LoomHost, || self.slots.iter());
    }
    fn fold(&self) {
        self.wait();
        self.entry.store(SHARED, Ordering::SeqCst);
    }
    fn unfold(&self) {
        self.entry.store(WRITABLE, Ordering::SeqCst);
    }
    fn release(&self) {
        assert!(self.stretches().change(BLOCK, Stretch::Ready, Stretch::Moving));
        self.wait();
        self.entry.store(UNMAPPED, Ordering::SeqCst);
        assert!(self.stretches().change(BLOCK, Stretch::Moving, Stretch::Absent));
    }
    fn be_born(&self) {
        assert!(self.stretches().change(BLOCK, Stretch::Absent, Stretch::Moving));
        self.entry.store(SHARED, Ordering::SeqCst);
        assert!(self.stretches().change(BLOCK, Stretch::Moving, Stretch::Ready));
    }
}

/// Without a bound on preemptions; `bounded` is for what would take minutes.
fn model(owner: impl Fn(&World) + Sync + Send + 'static) {
    bounded(None, owner);
}
fn bounded(preemptions: Option<usize>, owner: impl Fn(&World) + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let world = World::new();
        let walker = {
            let world = world.clone();
            thread::spawn(move || world.walk())
        };
        if world.give_up() {
            owner(&world);
        }
        walker.join().unwrap();
    });
}

#[test]
fn a_walker_never_writes_what_is_folded() {
    model(|world| world.fold());
}

#[test]
fn a_walker_never_reads_what_is_released() {
    model(|world| world.release());
}

#[test]
fn a_walker_meets_folding_unfolding_and_releasing() {
    bounded(Some(3), |world| {
        world.fold();
        world.unfold();
        world.release();
    });
}

#[test]
fn a_walker_meets_a_page_that_is_released_and_born_folded() {
    model(|world| {
        world.release();
        world.be_born();
    });
}

/// Breaking before making: gone and there again.
#[test]
fn a_walker_waits_where_entries_are_broken() {
    model(|world| {
        assert!(world.stretches().change(BLOCK, Stretch::Ready, Stretch::Moving));
        world.wait();
        world.entry.store(UNMAPPED, Ordering::SeqCst);
        world.entry.store(SHARED, Ordering::SeqCst);
        assert!(world.stretches().change(BLOCK, Stretch::Moving, Stretch::Ready));
    });
}

/// The model finds what it is for: without the grace period a walker is between its look and its count.
#[test]
#[should_panic(expected = "a walker writes through a shared entry")]
fn folding_without_a_grace_period_is_found() {
    model(|world| world.entry.store(SHARED, Ordering::SeqCst));
}

#[test]
#[should_panic(expected = "a walker reads what is gone")]
fn releasing_without_a_grace_period_is_found() {
    model(|world| {
        assert!(world.stretches().change(BLOCK, Stretch::Ready, Stretch::Moving));
        world.entry.store(UNMAPPED, Ordering::SeqCst);
    });
}
