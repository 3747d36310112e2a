//! Every interleaving of the small protocols. Run them with `RUSTFLAGS="--cfg loom"`.

use super::loom_host::LoomHost;
use super::{AtomicU64, Grace, GraceSlot, Ordering, Sequence, Spin};
use core::cell::Cell;
use loom::sync::Arc;
use loom::thread;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// A word that was taken out of reach before the wait is seen by no section after it, on whichever
/// CPU the section ends.
fn a_period_outlasts_a_reader_that_ends_on(cpu: usize) {
    model(move || {
        let all = Arc::new((Grace::default(), [GraceSlot::default(), GraceSlot::default()]));
        let (reachable, alive) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(1)));
        let reader = {
            let (all, reachable, alive) = (all.clone(), reachable.clone(), alive.clone());
            thread::spawn(move || {
                let at = Cell::new(1);
                let _reading = all.0.enter(&LoomHost, |_| &all.1[at.get()]);
                at.set(cpu);
                if reachable.load(Ordering::Acquire) == 1 {
                    assert_eq!(
                        alive.load(Ordering::Acquire),
                        1,
                        "given back while a reader was there"
                    );
                }
            })
        };
        reachable.store(0, Ordering::SeqCst);
        all.0.wait(&LoomHost, || all.1.iter());
        alive.store(0, Ordering::Release);
        reader.join().unwrap();
    });
}

#[test]
fn a_grace_period_outlasts_every_reader() {
    a_period_outlasts_a_reader_that_ends_on(1);
}

#[test]
fn a_grace_period_outlasts_a_reader_that_moves() {
    a_period_outlasts_a_reader_that_ends_on(0);
}

/// Two threads each take a word out of reach that the other one reads next. Neither gives it back
/// too early, whether it drives the period or rides along.
#[test]
fn a_shared_grace_period_outlasts_every_reader_of_both() {
    struct World {
        grace: Grace,
        slots: [GraceSlot; 2],
        reachable: [AtomicU64; 2],
        alive: [AtomicU64; 2],
    }
    fn take_out_and_read(world: &World, mine: usize) {
        // As a manager stores it: what makes it seen in time is the period.
        world.reachable[mine].store(0, Ordering::Relaxed);
        world.grace.wait(&LoomHost, || world.slots.iter());
        world.alive[mine].store(0, Ordering::Release);
        let other = 1 - mine;
        let _reading = world.grace.enter(&LoomHost, |_| &world.slots[mine]);
        if world.reachable[other].load(Ordering::Acquire) == 1 {
            let alive = world.alive[other].load(Ordering::Acquire);
            assert_eq!(alive, 1, "given back while a reader was there");
        }
    }
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 10_000;
    builder.check(|| {
        let ones = || [AtomicU64::new(1), AtomicU64::new(1)];
        let world = Arc::new(World {
            grace: Grace::default(),
            slots: [GraceSlot::default(), GraceSlot::default()],
            reachable: ones(),
            alive: ones(),
        });
        let other = {
            let world = world.clone();
            thread::spawn(move || take_out_and_read(&world, 1))
        };
        take_out_and_read(&world, 0);
        other.join().unwrap();
    });
}

/// A reader sees both words old or both new.
#[test]
fn a_sequence_shows_no_mixture() {
    model(|| {
        let all = Arc::new((Sequence::default(), [AtomicU64::new(0), AtomicU64::new(0)]));
        let writer = {
            let all = all.clone();
            thread::spawn(move || {
                all.0.write(|| all.1.iter().for_each(|word| word.store(1, Ordering::Relaxed)))
            })
        };
        let seen =
            all.0.read(&LoomHost, || all.1.each_ref().map(|word| word.load(Ordering::Relaxed)));
        assert_eq!(seen[0], seen[1]);
        writer.join().unwrap();
    });
}

/// Two additions, each a load and a store, are both there in the end.
#[test]
fn a_spin_lock_keeps_others_out() {
    model(|| {
        let all = Arc::new((Spin::default(), AtomicU64::new(0)));
        let add = |all: &(Spin, AtomicU64)| {
            let _held = all.0.lock(&LoomHost);
            all.1.store(all.1.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        };
        let other = {
            let all = all.clone();
            thread::spawn(move || add(&all))
        };
        add(&all);
        other.join().unwrap();
        assert_eq!(all.1.load(Ordering::Relaxed), 2);
    });
}
