//! Where tasks go, on one thread.

use super::{Came, Queues, Standing, Task, bit_of};
use core::cell::{Cell, RefCell};
use foliant_units::Cpu;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Debug)]
struct It {
    name: u32,
    allowed: u64,
    last: u16,
}
impl Task for It {
    fn allowed(&self) -> u64 {
        self.allowed
    }
    fn last(&self) -> Cpu {
        Cpu(self.last)
    }
}
fn it(name: u32, last: u16) -> It {
    It { name, allowed: u64::MAX, last }
}

fn quiet(cpus: usize) -> Queues<It, impl Fn(Cpu)> {
    Queues::new(cpus, |_| {})
}

#[test]
fn a_task_stays_where_it_ran_until_others_wait_there() {
    let queues = quiet(2);
    queues.put(it(1, 1), Came::Woken);
    assert!(queues.is_wanted(Cpu(1)) && !queues.is_wanted(Cpu(0)));
    queues.put(it(2, 1), Came::Woken);
    assert!(queues.is_wanted(Cpu(0)));
    assert_eq!(queues.take(Cpu(1)).unwrap().name, 1);
    queues.put(it(3, 1), Came::Woken); // one waits on 0, one runs on 1
    assert!(queues.is_wanted(Cpu(1)));
}

#[test]
fn three_on_two_cpus_get_as_many_turns() {
    let queues = quiet(2);
    let mut turns = BTreeMap::new();
    (1..=3).for_each(|name| queues.put(it(name, 0), Came::Woken));
    let mut running = [0, 1].map(|cpu| queues.take(Cpu(cpu)));
    for turn in 0..600 {
        let cpu = turn % 2;
        let task = running[cpu].take().unwrap();
        *turns.entry(task.name).or_insert(0) += 1;
        queues.left(Cpu(cpu as u16));
        queues.put(it(task.name, cpu as u16), Came::Over);
        running[cpu] = queues.take(Cpu(cpu as u16));
    }
    assert_eq!(turns, [(1, 200), (2, 200), (3, 200)].into());
}

#[test]
fn a_task_alone_on_its_cpu_stays_there() {
    let queues = quiet(2);
    queues.put(it(1, 1), Came::Over);
    assert!(queues.is_wanted(Cpu(1)));
}

#[test]
fn each_that_rests_is_interrupted_once() {
    let interrupted = RefCell::new(Vec::new());
    let queues = Queues::new(3, |cpu: Cpu| interrupted.borrow_mut().push(cpu.0));
    assert!(queues.rest(Cpu(1)).is_none() && queues.rest(Cpu(2)).is_none());
    (0..4).for_each(|name| queues.put(it(name, 0), Came::Woken));
    interrupted.borrow_mut().sort_unstable();
    assert_eq!(*interrupted.borrow(), [1, 2]);
    queues.rouse(Cpu(2));
    assert!(queues.take(Cpu(2)).is_some());
}

#[test]
fn what_a_cpu_may_not_run_goes_elsewhere() {
    let interrupted = Cell::new(None);
    let queues = Queues::new(2, |cpu| interrupted.set(Some(cpu)));
    let only = |cpu| It { name: 7, allowed: bit_of(Cpu(cpu)), last: 0 };
    queues.put(only(1), Came::Woken);
    assert_eq!(queues.take(Cpu(0)), None);
    assert_eq!(queues.rest(Cpu(0)), None);
    queues.put(only(1), Came::Woken);
    assert_eq!(interrupted.get(), None, "CPU 0 may not run it");
    assert_eq!(queues.take(Cpu(1)), Some(only(1)));
    assert_eq!(queues.take(Cpu(1)), Some(only(1)));
}

#[test]
fn one_that_is_barred_while_it_waits_is_put_again() {
    #[derive(PartialEq, Debug)]
    struct Changes<'c>(&'c Cell<u64>);
    impl Task for Changes<'_> {
        fn allowed(&self) -> u64 {
            self.0.get()
        }
        fn last(&self) -> Cpu {
            Cpu(0)
        }
    }
    let (allowed, only_0) = (Cell::new(0b01), Cell::new(0b01));
    let queues = Queues::new(2, |_| {});
    queues.put(Changes(&allowed), Came::Woken);
    queues.put(Changes(&only_0), Came::Woken);
    allowed.set(0b10);
    assert_eq!(queues.take(Cpu(0)), Some(Changes(&only_0)));
    assert!(!queues.is_wanted(Cpu(0)) && queues.is_wanted(Cpu(1)));
    assert_eq!(queues.take(Cpu(1)), Some(Changes(&allowed)));
}

#[test]
fn cpus_behind_the_64th_run_all() {
    let queues = quiet(70);
    queues.put(It { name: 1, allowed: 1, last: 69 }, Came::Woken);
    assert!(queues.take(Cpu(69)).is_some());
    queues.put(It { name: 1, allowed: 1, last: 5 }, Came::Woken);
    assert!(queues.take(Cpu(5)).is_none() && queues.take(Cpu(0)).is_some());
}

#[test]
fn one_that_is_woken_before_it_parks_goes_on() {
    let standing = Standing::new();
    assert!(!standing.wake());
    assert!(!standing.park(), "woken meanwhile");
    assert!(standing.park() && standing.is_parked());
    assert!(standing.wake() && !standing.is_parked());
    assert!(standing.park(), "one wake-up is one");
}

#[test]
fn all_that_are_put_are_taken_in_order() {
    let queues = quiet(1);
    (0..1000).for_each(|name| queues.put(it(name, 0), Came::Woken));
    let names: Vec<u32> = core::iter::from_fn(|| queues.take(Cpu(0))).map(|it| it.name).collect();
    assert!(names.into_iter().eq(0..1000));
}
