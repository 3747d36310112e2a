//! Every interleaving of who puts, takes, wakes and halts. Run them with `RUSTFLAGS="--cfg loom"`.
//! A CPU that halts for ever is a deadlock, which loom tells.

use super::{Came, Queues, Standing, Task};
use foliant_sync::{AtomicU64, Ordering};
use foliant_units::Cpu;
use loom::sync::{Arc, Notify};
use loom::thread;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 10_000;
    builder.check(body);
}

#[derive(Clone, Copy)]
struct It;
impl Task for It {
    fn allowed(&self) -> u64 {
        u64::MAX
    }
    fn last(&self) -> Cpu {
        Cpu(0)
    }
}

/// CPUs that halt until they are interrupted.
struct World<T> {
    queues: Queues<T, Box<dyn Fn(Cpu) + Send + Sync>>,
    interrupts: Arc<[Notify; 2]>,
}

impl<T: Task> World<T> {
    fn new() -> Arc<World<T>> {
        let interrupts = Arc::new([Notify::new(), Notify::new()]);
        let own = interrupts.clone();
        let interrupt: Box<dyn Fn(Cpu) + Send + Sync> =
            Box::new(move |cpu| own[cpu.index()].notify());
        Arc::new(World { queues: Queues::new(2, interrupt), interrupts })
    }
    /// A CPU's round until it has a task. What `take` does before is a part of what `rest` does.
    fn next(&self, me: Cpu) -> T {
        loop {
            if let Some(task) = self.queues.rest(me) {
                return task;
            }
            self.interrupts[me.index()].wait();
            self.queues.rouse(me);
        }
    }
}

#[test]
fn interleavings_of_a_put_and_a_halt() {
    model(|| {
        let world = World::<It>::new();
        let other = {
            let world = world.clone();
            thread::spawn(move || drop(world.next(Cpu(1))))
        };
        world.queues.put(It, Came::Woken);
        other.join().unwrap();
    });
}

/// One of two tasks waits already when two CPUs come to rest. Neither halts for ever, whoever finds
/// which: no task ends.
#[test]
fn interleavings_of_a_put_and_two_halts() {
    model(|| {
        let world = World::<It>::new();
        world.queues.put(It, Came::Woken);
        let cpus = [Cpu(0), Cpu(1)].map(|cpu| {
            let world = world.clone();
            thread::spawn(move || drop(world.next(cpu)))
        });
        world.queues.put(It, Came::Woken);
        cpus.map(|cpu| cpu.join().unwrap());
    });
}

/// A task waits until a word is set. It goes on, and is queued once.
#[test]
fn interleavings_of_a_wake_and_a_wait() {
    struct Waits {
        standing: Standing,
        word: AtomicU64,
    }
    impl Task for Arc<Waits> {
        fn allowed(&self) -> u64 {
            u64::MAX
        }
        fn last(&self) -> Cpu {
            Cpu(0)
        }
    }
    model(|| {
        let world = World::new();
        let task = Arc::new(Waits { standing: Standing::new(), word: AtomicU64::new(0) });
        world.queues.put(task.clone(), Came::Woken);
        let cpu = {
            let world = world.clone();
            thread::spawn(move || {
                loop {
                    let task = world.next(Cpu(1));
                    if task.word.load(Ordering::Acquire) == 1 {
                        break;
                    }
                    world.queues.left(Cpu(1));
                    if !task.standing.park() {
                        world.queues.put(task, Came::Woken); // Q1
                    }
                }
                assert!(world.queues.take(Cpu(1)).is_none(), "it was queued twice");
            })
        };
        task.word.store(1, Ordering::Release);
        if task.standing.wake() {
            world.queues.put(task, Came::Woken);
        }
        cpu.join().unwrap();
    });
}
