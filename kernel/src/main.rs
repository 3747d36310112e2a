//! A small x86-64 kernel whose memory Foliant manages: page tables that a processor walks,
//! translations that really go stale, interrupts that really cross CPUs.
//!
//! ```text
//!   boot.s ─▶ kernel_main ─▶ cpu, trap ─▶ clock ─▶ smp: the roll call ─▶ memory: machine, manager ─▶ smp: the other CPUs ─▶ one mode ─▶ exit code
//! ```
//!
//! | mode | what it does |
//! |---|---|
//! | `tests` | looks at what only hardware can show: stale translations, storms, guard pages, faults of ring 3 |
//! | `laws` | the law suite of `foliant-machine` |
//! | `lab` | a scenario of `foliant-lab`, one line of JSON |
//! | `shell` | a person types |
//! | `linux` | a program made for Linux runs (`linux`) |
//! | `boot` | nothing more |
//! | `panic` | every CPU gives up at once |
//!
//! **Locking**: `serial`, `heap`: a lock each (`lock`), held with interrupts out for a few
//! instructions; nothing is called under them.
//!
//! **Not here**: how memory is managed (`foliant`), how x86-64 does what it is asked
//! (`foliant-x86`), scenarios (`foliant-lab`). The only assembly besides `foliant-x86`'s is entry,
//! traps and what compiled code expects of a C library.
#![no_std]
#![no_main]
#![allow(unsafe_code)]

extern crate alloc;

mod apic;
mod archive;
mod clock;
mod cpu;
mod exit;
mod frame;
mod gates;
mod giving_up;
mod heap;
mod info;
mod interrupts;
mod lab;
mod laws;
mod layout;
mod linux;
mod lock;
mod memory;
mod panic;
mod plant;
mod port;
mod programs;
mod reach;
mod running;
mod serial;
mod shell;
mod smp;
mod storm;
mod symbols;
mod tables;
mod tests;
mod trap;
mod user;

use apic::Wish;
use core::arch::global_asm;
use exit::Code;
use foliant_units::{Cpu, Pa};
use foliant_x86::boot::PowerTimer;
use foliant_x86::{ApicId, TscClock, boot};
use info::{DirectMap, Info};
use spin::Once;

global_asm!(
    include_str!("boot.s"),
    direct = const layout::DIRECT,
    direct_slot = const (layout::DIRECT >> 39) & 511,
    options(att_syntax)
);
global_asm!(include_str!("memory.s"), options(att_syntax));

/// The command line: a copy, as it lies in memory that is handed over.
static COMMAND: Once<Text> = Once::new();

struct Text {
    bytes: [u8; boot::TEXT_MAX],
    len: usize,
}

impl Text {
    fn of(text: &str) -> Text {
        let mut bytes = [0; boot::TEXT_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Text { bytes, len: text.len() }
    }
    fn get(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).expect("it was a text before")
    }
}

/// Where `boot.s` hands over, on the first tables and a small stack.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: u64) -> ! {
    serial::start();
    // SAFETY: the block is CPU 0's; the first stack has no guard page, so no bound is set.
    unsafe { cpu::adopt(cpu::FIRST.get(), Cpu(0), 0) };
    trap::prepare();
    gates::load();
    let features = cpu::features();
    cpu::protect(&features);
    let given = DirectMap::of(&features);
    let info = info(given, Pa::new(start_info));
    archive::start(&info);
    let command = COMMAND.call_once(|| Text::of(info.command_line())).get();
    let has = |word| command.split_whitespace().any(|w| w == word);
    quiet_old_controllers();

    let rate =
        clock::find(PowerTimer::find(given, info.rsdp())).unwrap_or_else(|why| exit::unfit(why));
    let mut ids = [ApicId(0); memory::CPUS_MAX];
    let listed = boot::cpus(given, info.rsdp(), ApicId::own(), &mut ids);
    let count = listed.min(memory::CPUS_MAX);
    let wish = if has("xapic") { Wish::Memory } else { Wish::Newest };
    let apic = apic::choose(&features, wish);
    let ids = smp::roll_call(apic::before_the_window(apic), &mut ids[..count], rate.hz);
    let clock = TscClock::new(rate.hz).expect("a rate is not 0");
    if let Err(trouble) = memory::start(&info, ids, features, apic, clock) {
        exit::unfit(trouble);
    }
    smp::enable_apic(apic);
    port::enable();
    if listed > count {
        say!(
            "{} CPUs are left asleep: this kernel starts {} at most",
            listed - count,
            memory::CPUS_MAX
        );
    }
    smp::start(ids).unwrap_or_else(|why| exit::unfit(why));
    let (low, end) = smp::stack(Cpu(0)).unwrap_or_else(|why| exit::unfit(why));
    cpu::set_stack_low(smp::room_from(low));
    say!("clock: {} kHz, by {}", (rate.hz + 500) / 1000, rate.source);
    // SAFETY: the stack was mapped for CPU 0 just now.
    unsafe { smp::move_to(end, run) }
}

/// What the loader says at `at`, or at the address of which the command line there says
/// `start=ADDRESS`: a loader that can do nothing but put bytes somewhere gives its own words so.
fn info(given: DirectMap, at: Pa) -> Info {
    let read = |at| {
        Info::read(given, at).unwrap_or_else(|| {
            exit::unfit(format_args!("there is no start information of the PVH protocol at {at}"))
        })
    };
    let info = read(at);
    let mut words = info.command_line().split_whitespace();
    let elsewhere = words.find_map(|word| word.strip_prefix("start=0x"));
    let elsewhere = elsewhere.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    elsewhere.map_or(info, |at| read(Pa::new(at)))
}

/// Masks the interrupt controllers of old: nothing here listens to them.
fn quiet_old_controllers() {
    port::out8(0x21, 0xff);
    port::out8(0xa1, 0xff);
}

/// What the command line asks for, on CPU 0's guarded stack.
extern "C" fn run() -> ! {
    let memory = memory::manager().memory();
    say!(
        "foliant: {} CPUs, {} MiB managed, {} MiB free",
        smp::online(),
        memory.managed.get() >> 8,
        memory.free.get() >> 8
    );
    let command = COMMAND.get().expect("it was read at the start").get();
    let mode = command.split_whitespace().find_map(|word| word.strip_prefix("mode="));
    let passed = match mode.unwrap_or("tests") {
        "tests" => tests::run(),
        "laws" => laws::check().unwrap_or_else(|why| {
            exit::unfit(format_args!("the laws cannot be checked: {why}"));
        }),
        "shell" => shell::run(),
        "lab" => match lab::run(command) {
            Ok(report) => {
                say!("{}", report.line());
                true
            }
            Err(lab::Trouble::Words(why)) => {
                say!("{why}");
                exit::with(Code::Usage)
            }
            Err(lab::Trouble::Scarce(free)) => exit::unfit(lab::Scarce(free)),
            Err(lab::Trouble::Run(why)) => {
                say!("the scenario ended early: {why}");
                false
            }
        },
        "linux" => linux::run(command),
        "boot" => true,
        "panic" => {
            smp::together(smp::online(), &|_| panic!("asked for on the command line"));
            false
        }
        other => {
            say!("mode={other} is unknown; there are tests, laws, lab, shell, linux, boot, panic");
            exit::with(Code::Usage)
        }
    };
    exit::with(if passed { Code::Passed } else { Code::Failed })
}
