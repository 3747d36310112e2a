//! A small x86-64 kernel whose memory Foliant manages: page tables that a processor walks, translations that really go stale,
//! interrupts that really cross CPUs.
//!
//! ```text
//!   boot.s ─▶ kernel_main ─▶ cpu, trap ─▶ memory: machine, manager ─▶ smp: the other CPUs ─▶ one mode ─▶ exit code
//! ```
//!
//! | mode | what it does |
//! |---|---|
//! | `tests` | looks at what only hardware can show: stale translations, storms, guard pages, faults of ring 3 |
//! | `laws` | the law suite of `foliant-machine` |
//! | `lab` | a scenario of `foliant-lab`, one line of JSON |
//! | `shell` | a person types |
//!
//! **Locking**: `serial`, `heap`: a lock each, held with interrupts out for a few instructions; nothing is called under them.
//!
//! **Not here**: how memory is managed (`foliant`), how x86-64 does what it is asked (`foliant-x86`), scenarios (`foliant-lab`).
//! The only assembly besides `foliant-x86`'s is entry, traps and what compiled code expects of a C library.
#![no_std]
#![no_main]
#![allow(unsafe_code)]

extern crate alloc;

mod apic;
mod cpu;
mod exit;
mod heap;
mod info;
mod lab;
mod laws;
mod layout;
mod memory;
mod panic;
mod plant;
mod port;
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
use foliant_x86::{ApicId, Features, boot};
use info::{DirectMap, Info};
use spin::Once;

global_asm!(
    include_str!("boot.s"),
    direct = const layout::DIRECT,
    direct_slot = const (layout::DIRECT >> 39) & 511,
    options(att_syntax)
);
global_asm!(include_str!("memory.s"), options(att_syntax));

static COMMAND: Once<&'static str> = Once::new();

/// Where `boot.s` hands over, on the first tables and a small stack.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: u64) -> ! {
    serial::start();
    // SAFETY: the block is CPU 0's; the first stack has no guard page, so no bound is set.
    unsafe { cpu::adopt(cpu::FIRST.get(), Cpu(0), 0) };
    trap::prepare();
    trap::load();
    let info = Info::read(DirectMap, Pa::new(start_info)).expect("the loader's start information");
    symbols::start(&info);
    let command = COMMAND.call_once(|| info.command_line());
    let has = |word| command.split_whitespace().any(|w| w == word);
    quiet_old_controllers();

    let features = Features::detect();
    cpu::protect(&features);
    let mut ids = [ApicId(0); memory::CPUS_MAX];
    let listed = boot::cpus(DirectMap, info.rsdp(), &mut ids).filter(|n| *n > 0).unwrap_or(1);
    let count = listed.min(memory::CPUS_MAX);
    let wish = if has("xapic") { Wish::Memory } else { Wish::Newest };
    let apic = apic::choose(&features, wish);
    let clock = apic::measure_clock().expect("a clock that ticks");
    if let Err(trouble) = memory::start(&info, &ids[..count], features, apic, clock) {
        panic!("no memory manager: {trouble}");
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
    smp::start(&ids[..count]).unwrap_or_else(|why| panic!("a CPU does not start: {why}"));
    let (low, end) = smp::stack(Cpu(0)).unwrap_or_else(|why| panic!("no stack: {why}"));
    cpu::set_stack_low(smp::room_from(low));
    // SAFETY: the stack was mapped for CPU 0 just now.
    unsafe { smp::move_to(end, run) }
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
    let command = COMMAND.get().expect("it was read at the start");
    let mode = command.split_whitespace().find_map(|word| word.strip_prefix("mode="));
    let passed = match mode.unwrap_or("tests") {
        "tests" => tests::run(),
        "laws" => laws::check().unwrap_or_else(|why| {
            say!("the laws cannot be checked: {why}");
            false
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
            Err(lab::Trouble::Run(why)) => {
                say!("the scenario ended early: {why}");
                false
            }
        },
        "panic" => panic!("asked for on the command line"),
        other => {
            say!("mode={other} is unknown; there are tests, laws, lab, shell");
            exit::with(Code::Usage)
        }
    };
    exit::with(if passed { Code::Passed } else { Code::Failed })
}
