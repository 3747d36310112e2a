//! The border between ring 3 and ring 0: no register crosses it but those that are meant to.
//!
//! Programs mark every register they have, or note what they find; the kernel looks at its own
//! (`storm`, `cpu::State`).
#![allow(unsafe_code)]

use super::{Verdict, check, on_cpu, peek, poke, with_area};
use crate::cpu::{Controls, State};
use crate::{apic, smp, storm, trap, user};
use alloc::format;
use alloc::string::String;
use core::arch::asm;
use core::sync::atomic::AtomicU8;
use foliant::Policy;
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Va};
use user::Stop;

const PAGE: Bytes = Bytes::new(FRAME_BYTES);
/// Rounds up, takes what is tiny for zero, and raises no exception.
const MXCSR: u64 = 0x1f80 | 0x4000 | 0x8040;
/// Rounds towards zero, in single precision, and raises no exception.
const CONTROL: u64 = 0x0c3f;
/// Direction, nested task, alignment check, identification: all that a program may set but the trap
/// flag.
const FLAGS: u64 = 1 << 10 | 1 << 14 | 1 << 18 | 1 << 21;
const TRAP_FLAG: u64 = 1 << 8;
const INTERRUPTS: u64 = 1 << 9;
const ALWAYS: u64 = 1 << 1;
/// Carry, parity, adjust, zero, sign, overflow: the last comparison's.
const RESULTS: u64 = 0x8d5;
const MARK: u64 = 0x0f01_1a47_5ec2_e75d;
/// Strikes that the waiting program takes.
const STRIKES: u64 = 100;

/// The page of notes, as in `trap.s`.
struct Notes(Va);

impl Notes {
    const GO_ON: u64 = 32;
    const FLAGS: u64 = 40;
    const SEGMENTS: u64 = 48;
    const REGISTERS: u64 = 64;
    /// rax rcx rdx rbx rsp rbp rsi, r8 to r15.
    const COUNT: u64 = 15;
    const STACK: u64 = 4;
    const BEFORE: u64 = 512;
    const AFTER: u64 = 1024;
    const IMAGE: u64 = 512;

    /// What a program that marks its registers is to set. It goes on at once where `go_on` is 1.
    fn write(&self, flags: u64, go_on: u64) {
        for (at, word) in
            [(0, MXCSR | CONTROL << 32), (8, flags), (16, MARK), (24, MARK), (Self::GO_ON, go_on)]
        {
            poke(self.0.add(at), word);
        }
    }
    fn word(&self, at: u64) -> u64 {
        peek(self.0.add(at))
    }
    /// The words of an image of x87 and SSE registers.
    fn image(&self, at: u64) -> impl Iterator<Item = u64> + '_ {
        (at..at + Self::IMAGE).step_by(8).map(|at| self.word(at))
    }
    /// Whether the marks are as they were set.
    fn are_kept(&self) -> Result<(), String> {
        for n in (0..Self::COUNT).filter(|n| *n != Self::STACK) {
            let found = self.word(Self::REGISTERS + 8 * n);
            check(found == MARK, || format!("register {n} is {found:#x}"))?;
        }
        let (found, want) = (self.word(Self::FLAGS) & !RESULTS, FLAGS | INTERRUPTS | ALWAYS);
        check(found == want, || format!("flags are {found:#x}, {want:#x} were set"))?;
        check(self.image(Self::BEFORE).eq(self.image(Self::AFTER)), || {
            "the image of x87 and SSE registers changed".into()
        })
    }
    /// Whether a program found what a fresh one may.
    fn are_fresh(&self) -> Result<(), String> {
        for n in 0..Self::COUNT {
            let found = self.word(Self::REGISTERS + 8 * n);
            check(found == 0, || format!("register {n} is {found:#x}"))?;
        }
        let flags = self.word(Self::FLAGS);
        check(flags == INTERRUPTS | ALWAYS, || format!("flags are {flags:#x}"))?;
        let segments = self.word(Self::SEGMENTS);
        check(segments == 0, || format!("DS, ES, FS, GS are {segments:#x}"))?;
        // Behind the mask of MXCSR all is 0; the mask is the CPU's.
        for (n, found) in self.image(Self::AFTER).enumerate() {
            let (want, cares) = match n {
                0 => (0x37f, u64::MAX),
                3 => (0x1f80, u64::from(u32::MAX)),
                _ => (0, u64::MAX),
            };
            check(found & cares == want, || {
                format!("word {n} of x87 and SSE is {found:#x}, not {want:#x}")
            })?;
        }
        Ok(())
    }
}

/// Runs `work` on CPU 0, in a space with one page of notes.
fn with_notes(work: impl Fn(&Notes) -> Verdict + Sync) -> Verdict {
    with_area(Policy::BASE_ONLY, PAGE, |space, range| {
        on_cpu(0, space, || work(&Notes(range.start())))
    })
}

fn ended(run: Result<(), Stop>) -> Result<(), String> {
    run.map_err(|stop| format!("{stop}"))
}

pub(super) fn finding_x2_a_program_starts_with_nothing_of_the_one_before() -> Verdict {
    with_notes(|notes| {
        ended(user::look(notes.0))?;
        notes.are_fresh()?;
        for turn in 0..2 {
            notes.write(FLAGS, 1);
            ended(user::keep(notes.0))?;
            notes.are_kept().map_err(|why| format!("turn {turn}, marking: {why}"))?;
            ended(user::look(notes.0))?;
            notes.are_fresh().map_err(|why| format!("turn {turn}: {why}"))?;
        }
        Ok("general, x87, SSE and segment registers and flags, two programs in turn".into())
    })
}

/// The x87 and SSE registers of the calling CPU.
fn own_image() -> [u64; 64] {
    #[repr(align(16))]
    struct Image([u64; 64]);
    let mut image = Image([0; 64]);
    // SAFETY: stores registers into memory of the right size and alignment.
    unsafe { asm!("fxsave64 [{}]", in(reg) &raw mut image, options(nostack, preserves_flags)) }
    image.0
}

pub(super) fn finding_x2_a_program_leaves_the_kernel_its_state() -> Verdict {
    let third = || (core::hint::black_box(1.0f64) / core::hint::black_box(3.0f64)).to_bits();
    let want = third();
    with_notes(|notes| {
        notes.write(FLAGS, 1);
        ended(user::keep(notes.0))?;
        let (image, state) = (own_image(), State::now());
        check(state == State::KERNEL, || format!("the kernel goes on with {state:x?}"))?;
        let tags = image[0] >> 32 & 0xff;
        check(tags == 0, || format!("x87 registers are in use: {tags:#x}"))?;
        let marks = image.iter().filter(|word| **word == MARK).count();
        check(marks == 0, || format!("{marks} words of SSE registers are the program's"))?;
        let got = third();
        check(got == want, || format!("1/3 was {want:#x} and is {got:#x}"))?;
        Ok("rounding, exceptions, flags, x87 stack and SSE registers".into())
    })
}

pub(super) fn finding_x2_a_single_step_ends_the_program_only() -> Verdict {
    with_notes(|notes| {
        notes.write(FLAGS | TRAP_FLAG, 1);
        let run = user::keep(notes.0);
        check(matches!(run, Err(Stop::Exception(1, _))), || format!("it ended with {run:?}"))?;
        let state = State::now();
        check(state == State::KERNEL, || format!("the kernel goes on with {state:x?}"))?;
        ended(user::look(notes.0))?;
        notes.are_fresh()?;
        Ok("the trap flag stopped it".into())
    })
}

pub(super) fn finding_x2_a_handler_runs_on_the_kernels_state() -> Verdict {
    with_area(Policy::BASE_ONLY, PAGE, |space, range| {
        let notes = Notes(range.start());
        on_cpu(0, space, || notes.write(FLAGS, 0));
        let strange = storm::strange();
        let run = spin::Mutex::new(Ok(()));
        user::inside_together(space, 2, &|cpu| {
            if cpu.index() == 1 {
                *run.lock() = user::keep(notes.0);
                return;
            }
            while notes.word(Notes::GO_ON) >> 32 == 0 {
                core::hint::spin_loop();
            }
            for _ in 0..STRIKES {
                let before = storm::strikes();
                smp::interrupt(Cpu(1), apic::STORM);
                while storm::strikes() == before {
                    core::hint::spin_loop();
                }
            }
            poke(notes.0.add(Notes::GO_ON), 1);
        });
        ended(run.into_inner())?;
        let strange = storm::strange() - strange;
        check(strange == 0, || format!("{strange} of {STRIKES} handlers ran on the program's"))?;
        on_cpu(0, space, || notes.are_kept())?;
        Ok(format!("{STRIKES} interrupts, and the program's registers as it set them"))
    })
}

pub(super) fn finding_x2_every_cpu_has_the_same_protection() -> Verdict {
    let features = crate::cpu::features();
    let want = Controls::of(&features);
    for cpu in (0..smp::online()).map(|n| Cpu(n as u16)) {
        let found = spin::Mutex::new(None);
        smp::on(cpu, &|| *found.lock() = Some((Controls::now(), State::now())));
        let found = found.into_inner();
        check(found == Some((want, State::KERNEL)), || {
            format!("CPU {} has {found:x?}, not {want:x?}", cpu.0)
        })?;
    }
    Ok(format!("{want:x?} on {} CPUs", smp::online()))
}

extern "C" fn load_from(at: usize) {
    // SAFETY: none: the test wants to know whether it faults, and catches that.
    core::hint::black_box(unsafe { (at as *const u64).read_volatile() });
}

extern "C" fn call_at(at: usize) {
    // SAFETY: none: as above. Where it does not fault there is one instruction, which returns.
    let code = unsafe { core::mem::transmute::<usize, extern "C" fn()>(at) };
    code();
}

/// Whether each access ends in a fault: what CPUs of this kind stop, and what every CPU does.
pub(super) fn finding_x2_the_kernel_does_not_stray_into_user_memory() -> Verdict {
    static RETURN: AtomicU8 = AtomicU8::new(0xc3);
    let features = crate::cpu::features();
    with_area(Policy::BASE_ONLY, PAGE, |space, range| {
        let page = range.start();
        on_cpu(0, space, || {
            poke(page, MARK);
            let told = user::find_tables(page);
            check(features.umip == matches!(told, Err(Stop::Exception(13, _))), || {
                format!("ring 3 asked where the tables are: {told:?}")
            })?;
            let data = RETURN.as_ptr() as u64;
            for (what, work, at, stops) in [
                ("a load of user memory", load_from as extern "C" fn(usize), page, features.smap),
                ("a call of user code", call_at, user::return_only(), features.smep),
                ("a call of data", call_at, Va::new(data), true),
            ] {
                let fault = trap::attempt_access(work, at.get() as usize);
                check(fault == stops.then_some(at), || format!("{what} at {at}: {fault:?}"))?;
            }
            check(peek(page) != 0, || "a load that is meant reads nothing".into())?;
            let state = State::now();
            check(state == State::KERNEL, || format!("the kernel goes on with {state:x?}"))
        })?;
        Ok(format!("SMEP {}, SMAP {}, UMIP {}", features.smep, features.smap, features.umip))
    })
}
