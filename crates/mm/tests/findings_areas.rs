//! What outsiders proved of areas, their limits and what a space is charged for; docs/findings.md tells of each.

mod common;
use common::*;
use foliant::Policy;
use foliant::space::{Flags, MapRequest, Place, SpaceId};
use foliant_machine::{Around, PhysMem};
use foliant_sim::Sim;
use foliant_units::{Bytes, Pa, Va};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

type Hook = Box<dyn FnOnce() + Send>;

/// The simulator, which counts how often records are reached for, lets a test act at one of these points, and refuses what
/// is no memory.
struct Watcher {
    sim: Sim,
    reached: AtomicU64,
    due: Mutex<Option<(u64, Hook)>>,
}

impl Watcher {
    fn new(sim: Sim) -> Watcher {
        Watcher { sim, reached: AtomicU64::new(0), due: Mutex::new(None) }
    }
    /// Runs `hook` once, when records are reached for the `nth` time from now on, 1 being the next.
    fn at_reach(&self, nth: u64, hook: impl FnOnce() + Send + 'static) {
        let at = self.reached.load(Ordering::Relaxed) + nth;
        *self.due.lock().unwrap() = Some((at, Box::new(hook)));
    }
}

#[allow(unsafe_code)]
// SAFETY: everything is the simulator's.
unsafe impl Around for Watcher {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        &self.sim
    }
    unsafe fn reach(&self, pa: Pa, bytes: Bytes) -> NonNull<u8> {
        let memory = self.sim.config().memory[0];
        assert!(memory.contains(pa.frame()), "a record is looked for at {pa}, which is no memory");
        let count = self.reached.fetch_add(1, Ordering::Relaxed) + 1;
        let due = self.due.lock().unwrap().take_if(|(at, _)| *at == count);
        if let Some((_, hook)) = due {
            hook();
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.reach(pa, bytes) }
    }
}

type Watched = Mm<'static, Watcher>;

fn watched(megabytes: u64) -> (&'static Watcher, &'static Watched) {
    let machine: &'static Watcher = Box::leak(Box::new(Watcher::new(sim(1, megabytes))));
    let memory = machine.sim.config().memory.clone();
    (machine, Box::leak(Box::new(manager_on(machine, &memory, Policy::BASE_ONLY))))
}

/// Page-sized areas with a page between them, from number `from` on.
fn scatter(mm: &Watched, id: SpaceId, numbers: std::ops::Range<u64>, tag: u64) {
    for n in numbers {
        let place = Place::NoReplace(Va::new(BASE + n * 8192));
        let request = MapRequest { place, bytes: Bytes::new(4096), flags: Flags::READ_WRITE, tag };
        mm.map(id, &request).unwrap();
    }
}

/// A reader stands between two loads while a writer takes the top of the tree away and makes a leaf of that frame. What was
/// a child's frame number is a tag by then.
#[test]
fn finding_f_a_reader_follows_only_words_that_name_nodes() {
    const AREAS: u64 = 16_500;
    const WILD: u64 = 0x5555_5555_5555;
    let (machine, mm) = watched(64);
    let id = mm.create(None).unwrap();
    scatter(mm, id, 0..AREAS, WILD);
    for target in [0, AREAS - 1] {
        for nth in 1..=12 {
            machine.at_reach(nth, move || {
                mm.unmap(id, range(BASE, 8192 * (AREAS / 2 + 150))).unwrap();
                scatter(mm, id, 0..AREAS / 2 + 150, WILD);
            });
            let va = Va::new(BASE + target * 8192);
            let found = mm.area(id, va).expect("the reader looks again after the writer");
            assert_eq!(found.range.start(), va);
            machine.due.lock().unwrap().take();
        }
    }
    mm.end(id).unwrap();
}
