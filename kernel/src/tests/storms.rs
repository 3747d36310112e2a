//! Interrupts at full speed, while others fault, fork and unmap.

use super::{Verdict, check, part, peek, poke};
use crate::memory::manager;
use crate::{apic, smp, storm, user};
use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicUsize, Ordering};
use foliant::Policy;
use foliant::fault::{Access, Orders};
use foliant::space::SpaceId;
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Order, Va, VaRange};
use spin::Mutex;

const STRIKES: u64 = 10_000;
/// The same where more CPUs than this wait for each other: hosts have few, and each strike takes a
/// turn of all of them.
const STRIKES_OF_MANY: u64 = 2_000;
const MANY: usize = 5;
/// What each CPU does meanwhile, at least.
const ROUNDS: u64 = 20;
const PAGE: Bytes = Bytes::new(FRAME_BYTES);
/// Looks at the number of strikes before the next ones are sent anyway.
const PATIENCE: u64 = 10_000;
/// What each CPU works on at a time.
const PART: Bytes = Bytes::new(256 << 10);

/// Floating point in registers, over and over: the same bits every time, unless somebody changed a
/// register.
fn arithmetic() -> u64 {
    let (mut a, mut b, mut c, mut d) = (1.25f64, 2.5f64, 3.75f64, 5.0f64);
    for n in 0..200 {
        let k = f64::from(n);
        a = a * 1.5 - k;
        b = b * 0.5 + a;
        c -= b * 0.25;
        d = (d + c) * 0.125;
    }
    a.to_bits()
        ^ b.to_bits().rotate_left(7)
        ^ c.to_bits().rotate_left(13)
        ^ d.to_bits().rotate_left(29)
}

/// One round: touch from ring 3, fork, write on one side, compare both, unmap.
fn round(space: SpaceId, range: VaRange) -> Result<(), String> {
    let want = arithmetic();
    user::inside(space, || user::touch(range, PAGE, Access::Write))
        .map_err(|e| format!("{e}"))?
        .map_err(|s| format!("{s}"))?;
    let child = manager().fork(space).map_err(|error| format!("{error}"))?;
    let pages =
        || (range.start().get()..range.end().get()).step_by(FRAME_BYTES as usize).map(Va::new);
    let wrong_in_child = user::inside(child, || {
        for va in pages() {
            poke(va, va.get() ^ 1);
        }
        pages().filter(|va| peek(*va) != va.get() ^ 1).count()
    });
    let wrong_in_child = wrong_in_child.map_err(|error| format!("{error}"))?;
    let wrong = user::inside(space, || pages().filter(|va| peek(*va) != va.get()).count());
    let wrong = wrong.map_err(|error| format!("{error}"))?;
    manager().end(child).map_err(|error| format!("{error}"))?;
    manager().unmap(space, range).map_err(|error| format!("{error}"))?;
    check(wrong + wrong_in_child == 0, || format!("{wrong} and {wrong_in_child} wrong pages"))?;
    let request = foliant::space::MapRequest {
        place: foliant::space::Place::NoReplace(range.start()),
        bytes: range.bytes(),
        flags: foliant::space::Flags::READ_WRITE,
        tag: 0,
    };
    manager().map(space, &request).map_err(|error| format!("{error}"))?;
    check(arithmetic() == want, || "registers changed".into())
}

pub(super) fn a_storm_of_interrupts_corrupts_nothing() -> Verdict {
    let cpus = smp::online();
    let workers = cpus - 1;
    let before = storm::strikes();
    let wanted = if cpus < MANY { STRIKES } else { STRIKES_OF_MANY };
    let (busy, rounds) = (AtomicUsize::new(workers), AtomicUsize::new(0));
    let trouble = Mutex::new(None);
    let policy =
        Policy::always(Orders::up_to(Order::fitting(Bytes::new(64 << 10)).expect("64 KiB")));
    super::with_area(policy, Bytes::new(PART.get() * workers as u64), |space, range| {
        smp::together(cpus, &|cpu| {
            if cpu.index() == 0 {
                let mut quarter = 1;
                while busy.load(Ordering::Acquire) > 0 {
                    let all = storm::strikes() - before;
                    if all * 4 >= wanted * quarter && quarter < 4 {
                        crate::say!("  {all} of {wanted} interrupts");
                        quarter = all * 4 / wanted + 1;
                    }
                    let before = storm::strikes();
                    for target in 1..cpus {
                        smp::interrupt(Cpu(target as u16), apic::STORM);
                    }
                    // The next ones when these have struck: interrupts that are still pending
                    // become one.
                    (0..PATIENCE).find(|_| storm::strikes() - before >= workers as u64);
                }
                return;
            }
            let own = part(range, cpu.index() - 1, workers);
            let mut own_rounds = 0;
            while (storm::strikes() - before < wanted || own_rounds < ROUNDS)
                && trouble.lock().is_none()
            {
                if let Err(why) = round(space, own) {
                    *trouble.lock() = Some(format!("CPU {}: {why}", cpu.0));
                }
                own_rounds += 1;
                rounds.fetch_add(1, Ordering::Relaxed);
            }
            busy.fetch_sub(1, Ordering::AcqRel);
        });
        trouble.into_inner().map_or(Ok(()), Err)
    })?;
    let strikes = storm::strikes() - before;
    Ok(format!(
        "{strikes} interrupts during {} rounds of faults, forks and unmaps",
        rounds.into_inner()
    ))
}
