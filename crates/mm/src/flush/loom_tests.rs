//! Every interleaving of a flush with a CPU that leaves the space and comes back (F3).

use super::Target;
use crate::sync::{AtomicU64, Ordering};
use foliant_units::Cpu;
use loom::sync::{Arc, Mutex};
use loom::thread;

const CPU: Cpu = Cpu(0);
const OLD: u64 = 1;
const NEW: u64 = 2;

/// One page-table word, and what the one CPU has cached of it under the root's tag.
struct World {
    target: Target,
    word: AtomicU64,
    cached: Mutex<Option<u64>>,
}

impl World {
    /// The CPU is in the space and has the word cached.
    fn new() -> Arc<World> {
        let world = World::unvisited();
        world.target.announce(CPU);
        *world.cached.lock().unwrap() = Some(OLD);
        world
    }
    /// No CPU was ever in the space.
    fn unvisited() -> Arc<World> {
        Arc::new(World {
            target: Target::default(),
            word: AtomicU64::new(OLD),
            cached: Mutex::new(None),
        })
    }

    /// s1 to s5. The request is carried out in the CPU's stead, at the moment of the asking.
    fn flush(&self, word: u64) {
        self.word.store(word, Ordering::Relaxed);
        self.target.start();
        if self.target.running().contains(CPU) {
            *self.cached.lock().unwrap() = None;
        }
        self.target.finish();
    }

    /// l1 to l3.
    fn leave(&self) -> Option<u64> {
        let quiet = self.target.quiet();
        self.target.leave(CPU);
        quiet
    }

    /// r1 to r3.
    fn come(&self, remembered: Option<u64>) {
        self.target.announce(CPU);
        let flushes = self.target.started();
        if remembered != Some(flushes) {
            *self.cached.lock().unwrap() = None;
        }
    }

    /// What the CPU uses: what is cached, or what a walk finds and caches.
    fn used(&self) -> u64 {
        let mut cached = self.cached.lock().unwrap();
        *cached.get_or_insert_with(|| self.word.load(Ordering::Relaxed))
    }
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// The CPU is away once or twice while the word changes; when the flush is done it uses the new
/// word.
fn comes_back_right(visits: usize) {
    model(move || {
        let world = World::new();
        let flusher = {
            let world = world.clone();
            thread::spawn(move || world.flush(NEW))
        };
        for _ in 0..visits {
            let remembered = world.leave();
            world.come(remembered);
            world.used();
        }
        flusher.join().unwrap();
        assert_eq!(world.used(), NEW, "stale after the flush");
    });
}

#[test]
fn a_cpu_that_comes_back_during_a_flush_is_right_after_it() {
    comes_back_right(1);
}

#[test]
fn a_cpu_that_comes_back_twice_during_a_flush_is_right_after_it() {
    comes_back_right(2);
}

/// The CPU is the first of its word of CPUs in the space.
#[test]
fn a_cpu_that_comes_for_the_first_time_during_a_flush_is_right_after_it() {
    model(|| {
        let world = World::unvisited();
        let flusher = {
            let world = world.clone();
            thread::spawn(move || world.flush(NEW))
        };
        world.come(None);
        world.used();
        flusher.join().unwrap();
        assert_eq!(world.used(), NEW, "stale after the flush");
    });
}

/// The CPU is away during the whole flush, or only at its edges: when it returns after the end of
/// the flush it uses the new word.
#[test]
fn a_cpu_that_stays_away_until_the_flush_is_done_is_right() {
    model(|| {
        let world = World::new();
        let flusher = {
            let world = world.clone();
            thread::spawn(move || world.flush(NEW))
        };
        let remembered = world.leave();
        flusher.join().unwrap();
        world.come(remembered);
        assert_eq!(world.used(), NEW, "stale after the flush");
    });
}

/// Where nothing was flushed the CPU keeps what it had cached: so the model does not prove a
/// protocol that never keeps anything.
#[test]
fn a_cpu_that_comes_back_to_a_quiet_space_keeps_what_it_had() {
    model(|| {
        let world = World::new();
        let remembered = world.leave();
        world.come(remembered);
        assert_eq!(*world.cached.lock().unwrap(), Some(OLD));
    });
}
