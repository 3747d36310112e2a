//! Every interleaving of the mailbox: run with `RUSTFLAGS="--cfg loom"`.

use super::*;
use loom::sync::Arc;
use loom::thread;

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

/// An invalidation that is told apart by its space.
fn request(number: u64) -> Invalidation {
    Invalidation::all(Scope::Space(Pa::new(number << 12)))
}

fn set(cpu: u16) -> CpuSet {
    let mut set = CpuSet::EMPTY;
    set.insert(Cpu(cpu));
    set
}

/// What was stored before a post is seen by the CPU that carries it out, and what that CPU did is
/// seen after the wait. The slot is used twice, so that an old request meets a new one.
#[test]
fn a_request_carries_stores_there_and_back() {
    model(3, || {
        let lines = Arc::new([Line::new(), Line::new()]);
        let (table, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let target = {
            let (lines, table, seen) = (lines.clone(), table.clone(), seen.clone());
            thread::spawn(move || {
                let mut served = 0;
                while served < 2 {
                    serve(&*lines, Cpu(1), |what| {
                        served += 1;
                        let Scope::Space(root) = what.scope() else { panic!("another scope") };
                        assert_eq!(root.get() >> 12, served, "each request once, in order");
                        assert!(table.load(Ordering::Relaxed) >= served);
                        seen.store(served, Ordering::Relaxed);
                    });
                    thread::yield_now();
                }
            })
        };
        for number in 1..=2 {
            table.store(number, Ordering::Relaxed);
            let posted = post(&*lines, Cpu(0), &set(1), &request(number)).expect("free by then");
            while !is_done(&*lines, posted.asked) {
                thread::yield_now();
            }
            assert_eq!(seen.load(Ordering::Relaxed), number, "carried out before it is done");
        }
        target.join().unwrap();
    });
}

/// No ticket is waited for: a serve for one request may meet the next one before the next one's bit
/// is set, and a post fills a slot again for no other reason than that it sees it free.
#[test]
fn slots_are_used_again_without_a_wait() {
    const REQUESTS: u64 = SLOTS as u64 + 1;
    model(2, || {
        let lines = Arc::new([Line::new(), Line::new()]);
        let target = {
            let lines = lines.clone();
            thread::spawn(move || {
                let mut seen = 0;
                while seen != (1 << REQUESTS) - 1 {
                    serve(&*lines, Cpu(1), |what| {
                        let Scope::Space(root) = what.scope() else { panic!("another scope") };
                        let bit = 1 << (root.get() >> 12);
                        assert_eq!(seen & bit, 0, "each request once");
                        seen |= bit;
                    });
                    thread::yield_now();
                }
            })
        };
        for number in 0..REQUESTS {
            while post(&*lines, Cpu(0), &set(1), &request(number)).is_none() {
                thread::yield_now();
            }
        }
        target.join().unwrap();
    });
}

/// Two CPUs ask each other, and both get through because each serves while it waits.
#[test]
fn two_that_ask_each_other_get_through() {
    model(3, || {
        let lines = Arc::new([Line::new(), Line::new()]);
        let run = |lines: &[Line; 2], me: u16| {
            let posted = post(lines, Cpu(me), &set(1 - me), &request(me.into())).expect("free");
            let mut served = 0;
            while served == 0 || !is_done(lines, posted.asked) {
                serve(lines, Cpu(me), |_| served += 1);
                thread::yield_now();
            }
            assert_eq!(served, 1);
        };
        let other = {
            let lines = lines.clone();
            thread::spawn(move || run(&lines, 1))
        };
        run(&lines, 0);
        other.join().unwrap();
    });
}

/// B4: a CPU that looks only when it is interrupted, once per interrupt, carries out both requests.
#[test]
fn who_looks_only_when_interrupted_misses_nothing() {
    model(3, || {
        let lines = Arc::new([Line::new(), Line::new(), Line::new()]);
        let interrupts = Arc::new(AtomicU64::new(0));
        let ask = |lines: &[Line; 3], interrupts: &AtomicU64, me: u16| {
            let posted = post(lines, Cpu(me), &set(2), &request(me.into())).expect("free");
            if !posted.interrupt.is_empty() {
                interrupts.fetch_add(1, Ordering::AcqRel);
            }
        };
        let other = {
            let (lines, interrupts) = (lines.clone(), interrupts.clone());
            thread::spawn(move || ask(&lines, &interrupts, 1))
        };
        let target = {
            let (lines, interrupts) = (lines.clone(), interrupts.clone());
            thread::spawn(move || {
                let mut served = 0;
                while served < 2 {
                    // A handler takes what is pending, however many were sent.
                    if interrupts.swap(0, Ordering::AcqRel) != 0 {
                        serve(&*lines, Cpu(2), |_| served += 1);
                    }
                    thread::yield_now();
                }
            })
        };
        ask(&lines, &interrupts, 0);
        other.join().unwrap();
        target.join().unwrap();
    });
}
