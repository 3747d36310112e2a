//! The mailbox under real threads, and its corners one by one.

use super::*;
use foliant_machine::Reach;
extern crate std;
use core::sync::atomic::{AtomicBool, AtomicU64};
use std::{thread, vec::Vec};

fn lines(count: usize) -> Vec<Line> {
    (0..count).map(|_| Line::new()).collect()
}

fn set(cpus: impl IntoIterator<Item = u16>) -> CpuSet {
    let mut set = CpuSet::EMPTY;
    cpus.into_iter().for_each(|cpu| set.insert(Cpu(cpu)));
    set
}

/// An invalidation that is told apart by its space, and torn apart visibly: every item repeats the
/// number.
fn request(number: u64) -> Invalidation {
    use foliant_machine::{Item, Tables};
    use foliant_units::{Level, Va, VaRange};
    let mut what = Invalidation::none(Scope::Space(Pa::new(number)));
    let range = VaRange::new(Va::new(number), Va::new(number + 1)).unwrap();
    while what.push(Item { range, level: Level::BASE, tables: Tables::Kept }).is_ok() {}
    what
}

/// The number of a request that is whole.
fn number(what: &Invalidation) -> u64 {
    let Scope::Space(root) = what.scope() else { panic!("torn scope") };
    assert_eq!(what.reach(), Reach::Items);
    assert_eq!(what.items().len(), Invalidation::ITEMS_MAX);
    let starts = what.items().iter().map(|item| item.range.start().get());
    starts.for_each(|start| assert_eq!(start, root.get(), "a torn request"));
    root.get()
}

fn served(lines: &[Line], me: u16) -> Vec<u64> {
    let mut numbers = Vec::new();
    serve(lines, Cpu(me), |what| numbers.push(number(what)));
    numbers
}

#[test]
fn everybody_asked_is_waited_for() {
    let lines = lines(70);
    let posted = post(&lines, Cpu(69), &set([0, 3, 64, 69]), &request(7)).unwrap();
    assert_eq!(posted.interrupt, set([0, 3, 64]), "the asker is no target");
    for cpu in [3, 64, 0] {
        assert!(!is_done(&lines, posted.asked));
        assert!(has_mail(&lines, Cpu(cpu)));
        assert_eq!(served(&lines, cpu), [7]);
        assert!(!has_mail(&lines, Cpu(cpu)));
        assert_eq!(served(&lines, cpu), [], "once only");
    }
    assert!(is_done(&lines, posted.asked));
}

#[test]
fn the_last_cpu_is_heard_however_many_there_are() {
    for count in [2, 63, 64, 65, 66, 128, 129, 193] {
        let lines = lines(count);
        post(&lines, Cpu(count as u16 - 1), &set([0]), &request(5)).unwrap();
        assert!(has_mail(&lines, Cpu(0)), "{count} CPUs");
        assert_eq!(served(&lines, 0), [5], "{count} CPUs");
    }
}

/// B1.
#[test]
fn a_slot_that_is_claimed_is_nobody_elses() {
    let lines = lines(1);
    let slot = &lines[0].slots[0];
    let generation = slot.claim().expect("it is free");
    assert_eq!(slot.claim(), None, "it is not filled yet");
    slot.fill(generation, 1, [0; WORDS].into_iter(), &request(1));
    assert_eq!(slot.claim(), None, "somebody has not carried it out");
    slot.fill(generation, 0, [0; WORDS].into_iter(), &request(1));
    assert!(slot.claim().is_some_and(|newer| newer != generation));
}

#[test]
fn asking_nobody_takes_no_slot() {
    let lines = lines(2);
    for targets in [set([]), set([0]), set([2, 63, 1023])] {
        for _ in 0..2 * SLOTS {
            let posted = post(&lines, Cpu(0), &targets, &request(1)).unwrap();
            assert_eq!(posted.asked, Asked::Nobody);
            assert!(posted.interrupt.is_empty() && is_done(&lines, posted.asked));
        }
    }
}

/// B4.
#[test]
fn one_interrupt_stands_for_all_bits_of_a_word() {
    let lines = lines(66);
    let interrupts = |me: u16| {
        post(&lines, Cpu(me), &set([1]), &request(me.into())).unwrap().interrupt == set([1])
    };
    assert!(interrupts(0));
    assert!(!interrupts(2), "that of CPU 0 is under way");
    assert!(!interrupts(0), "a second request of the same CPU");
    assert!(interrupts(65), "another word");
    assert_eq!(served(&lines, 1), [0, 0, 2, 65]);
    assert!(interrupts(2), "nothing is under way any more");
}

#[test]
fn a_ticket_may_outlive_its_slot() {
    let lines = lines(2);
    let mut asked = Vec::new();
    for n in 0..SLOTS as u64 {
        asked.push(post(&lines, Cpu(0), &set([1]), &request(n)).unwrap().asked);
    }
    assert!(post(&lines, Cpu(0), &set([1]), &request(99)).is_none(), "no slot is free");
    assert_eq!(served(&lines, 1).len(), SLOTS);
    let newer = post(&lines, Cpu(0), &set([1]), &request(4)).unwrap().asked;
    for old in asked.iter().rev() {
        assert!(is_done(&lines, *old), "{old:?}, though its slot may be in use again");
    }
    assert!(!is_done(&lines, newer));
    assert_eq!(served(&lines, 1), [4], "the refused request was not left behind");
}

/// B2: an interrupt's handler serves in the midst of a serve, and the asker uses the slot again at
/// once.
#[test]
fn a_serve_within_a_serve_does_nothing_twice() {
    let lines = lines(2);
    let first = post(&lines, Cpu(0), &set([1]), &request(1)).unwrap().asked;
    let mut outer = Vec::new();
    serve(&lines, Cpu(1), |what| {
        outer.push(number(what));
        assert!(!is_done(&lines, first), "not done while it is being carried out");
        // The handler finds the first request taken; all slots but that one come and go meanwhile.
        for round in 0..10 * SLOTS as u64 {
            let posted = post(&lines, Cpu(0), &set([1]), &request(10 + round)).unwrap();
            assert_eq!(served(&lines, 1), [10 + round]);
            assert!(is_done(&lines, posted.asked));
        }
        assert_eq!(number(what), 1, "the request that is being carried out stays what it was");
    });
    assert_eq!(outer, [1]);
    assert!(is_done(&lines, first));
    assert_eq!(served(&lines, 1), []);
}

#[test]
fn numbers_from_elsewhere_are_harmless() {
    let lines = lines(2);
    serve(&lines, Cpu(7), |_| panic!("CPU 7 has no line"));
    assert!(!has_mail(&lines, Cpu(7)));
    for (cpu, slot) in [(7, 0), (0, SLOTS)] {
        assert!(is_done(&lines, Asked::Slot { cpu: Cpu(cpu), slot, generation: 0 }));
    }
}

/// What the CPUs of the test below share.
struct Board {
    lines: Vec<Line>,
    /// How often each request was carried out, by CPU.
    carried: Vec<[AtomicU64; Board::CPUS]>,
    interrupts: [AtomicBool; Board::CPUS],
    running: AtomicU64,
}

impl Board {
    const CPUS: usize = 4;
    const ROUNDS: u64 = 3000;

    fn serve(&self, me: Cpu) {
        serve(&self.lines, me, |what| {
            self.carried[number(what) as usize][me.index()].fetch_add(1, Ordering::Relaxed);
        });
        thread::yield_now();
    }

    fn ask(&self, me: Cpu, targets: &CpuSet, id: u64) -> Asked {
        loop {
            if let Some(posted) = post(&self.lines, me, targets, &request(id)) {
                let interrupts = posted.interrupt.iter().map(|cpu| &self.interrupts[cpu.index()]);
                interrupts.for_each(|flag| flag.store(true, Ordering::Release));
                return posted.asked;
            }
            self.serve(me);
        }
    }

    fn wait(&self, me: Cpu, (id, targets, asked): (u64, CpuSet, Asked)) {
        while !is_done(&self.lines, asked) {
            self.serve(me);
        }
        for (cpu, count) in (0..).map(Cpu).zip(&self.carried[id as usize]) {
            let want = u64::from(cpu != me && targets.contains(cpu));
            assert_eq!(count.load(Ordering::Relaxed), want, "request {id} on {cpu:?}");
        }
    }

    fn handle(&self, me: Cpu) {
        if self.interrupts[me.index()].swap(false, Ordering::AcqRel) {
            self.serve(me);
        }
    }

    fn run(&self, me: Cpu) {
        let mut seed = u64::from(me.0) + 1;
        let mut held = Vec::new();
        for round in 0..Board::ROUNDS {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let id = round * Board::CPUS as u64 + u64::from(me.0);
            let targets = set((0..Board::CPUS as u16).filter(|cpu| seed >> (32 + cpu) & 1 == 1));
            held.push((id, targets, self.ask(me, &targets, id)));
            // At times there are more tickets than slots, and they are waited for in any order.
            let keep = (seed >> 40) as usize & 7;
            while held.len() > keep {
                let next = (seed >> 48) as usize % held.len();
                self.wait(me, held.swap_remove(next));
            }
            self.handle(me);
        }
        held.into_iter().for_each(|held| self.wait(me, held));
        self.running.fetch_sub(1, Ordering::AcqRel);
        // From here on only an interrupt makes this CPU look (B4).
        while self.running.load(Ordering::Acquire) > 0 {
            self.handle(me);
            thread::yield_now();
        }
    }
}

/// All CPUs ask random others at once, hold several tickets, wait in another order, and serve only
/// when interrupted or while they wait. Each request is carried out once by each target before it
/// counts as done.
#[test]
fn threads_that_ask_each_other_all_get_through() {
    let board = Board {
        lines: lines(Board::CPUS),
        carried: (0..Board::ROUNDS as usize * Board::CPUS).map(|_| Default::default()).collect(),
        interrupts: Default::default(),
        running: AtomicU64::new(Board::CPUS as u64),
    };
    thread::scope(|scope| {
        for me in 0..Board::CPUS as u16 {
            let board = &board;
            scope.spawn(move || board.run(Cpu(me)));
        }
    });
}
