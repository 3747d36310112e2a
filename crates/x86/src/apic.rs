//! The local interrupt controller: interrupts to other CPUs.
//!
//! Two ways to the same registers: model-specific registers (x2APIC), or a mapped page (xAPIC).
//!
//! ```text
//!   command  31       20 19  18 17    15 14    13 12       11   10    8 7      0
//!           │           │ CPUs │        │ level │ │ pending │    │ kind  │ vector │
//!           └───────────┴──────┴────────┴───────┴─┴─────────┴────┴───────┴────────┘
//!            00: the CPU that the upper half names     kind 000: fixed, 101: INIT, 110: start-up
//!            11: all but this one
//! ```
//!
//! **Invariants**
//! - A1. The two halves of an xAPIC command are written with interrupts off: a handler that sends
//!   in between would change the CPU that the second half reaches.
//! - A2. Stores before a command are visible before its interrupt: a write of an x2APIC register
//!   does not wait for them by itself.
//!
//! **Not here**: external interrupts, which CPUs there are, how fast the timer counts.
#![allow(unsafe_code)]

use crate::control::quiet;
use crate::privileged::{full_fence, read_msr, write_msr};
use core::arch::x86_64::{__cpuid_count, CpuidResult};
use core::ptr::NonNull;
use foliant_units::Pa;

/// The vector of spurious interrupts, which [`Apic::enable`] sets. Its handler does nothing, and
/// signals no end of interrupt.
pub const SPURIOUS_VECTOR: u8 = 0xff;

const BASE_MSR: u32 = 0x1b;
const BASE_ENABLED: u64 = 1 << 11;
const BASE_X2: u64 = 1 << 10;
/// The bits of the base register that say where the registers are.
const BASE_AT: u64 = 0x000f_ffff_ffff_f000;
const X2_MSR: u32 = 0x800;

const ID: usize = 0x20;
const VERSION: usize = 0x30;
const TASK_PRIORITY: usize = 0x80;
const END_OF_INTERRUPT: usize = 0xb0;
const SPURIOUS: usize = 0xf0;
const COMMAND: usize = 0x300;
const COMMAND_HIGH: usize = 0x310;
const CORRECTED: usize = 0x2f0;
const TIMER: usize = 0x320;
const TIMER_COUNT: usize = 0x380;
const TIMER_LEFT: usize = 0x390;
const TIMER_DIVISOR: usize = 0x3e0;
/// Each 16th tick of its clock counts.
const BY_16: u32 = 0b0011;
const HEAT: usize = 0x330;
const COUNTERS: usize = 0x340;
const PIN_0: usize = 0x350;
const PIN_1: usize = 0x360;
const ERROR: usize = 0x370;

const MASKED: u32 = 1 << 16;

const SPURIOUS_ENABLE: u32 = 1 << 8;
const PENDING: u32 = 1 << 12;

/// The number of a CPU's interrupt controller, as the firmware's tables give it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ApicId(pub u32);

impl ApicId {
    /// The calling CPU's own, which needs no access to its controller.
    pub fn own() -> ApicId {
        ApicId::read(&|leaf, sub| __cpuid_count(leaf, sub))
    }

    /// Reads it from the leaves of `cpuid`: 32 bits where leaf 0xb is there and is not empty, else
    /// 8.
    fn read(cpuid: &dyn Fn(u32, u32) -> CpuidResult) -> ApicId {
        const WIDE: u32 = 0xb;
        let wide = (cpuid(0, 0).eax >= WIDE).then(|| cpuid(WIDE, 0)).filter(|leaf| leaf.ebx != 0);
        ApicId(wide.map_or_else(|| cpuid(1, 0).ebx >> 24, |leaf| leaf.edx))
    }
}

/// How the registers of the calling CPU's interrupt controller are reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Apic {
    /// By model-specific registers.
    X2,
    /// In memory: the mapped, uncached 4 KiB of registers. Each CPU finds its own there.
    X1(NonNull<u8>),
}

// SAFETY: the registers behind the address are those of whichever CPU looks; A1 keeps commands
// whole.
unsafe impl Send for Apic {}
// SAFETY: as above.
unsafe impl Sync for Apic {}

/// What a command does to its target.
#[derive(Clone, Copy)]
enum Command {
    Fixed(u8),
    Init,
    Startup(u8),
}

/// The CPUs that a command reaches.
#[derive(Clone, Copy)]
enum Whom {
    One(ApicId),
    Others,
}

impl Apic {
    /// Switches the calling CPU's controller on, in this mode, open to every vector from other CPUs
    /// and to nothing else: the vectors that a firmware gave its timer, its pins and its own errors
    /// are masked. Registers in memory are put at `registers`, wherever a firmware had them; `X2`
    /// has no use for it.
    ///
    /// # Safety
    /// Ring 0. The mode is supported (`X1`: its page is mapped to `registers`, a page boundary
    /// where there is no memory and no other device) and not locked by the firmware, and a handler
    /// stands at [`SPURIOUS_VECTOR`].
    pub unsafe fn enable(&self, registers: Pa) {
        // SAFETY: ring 0 by the caller; every x86-64 CPU has the register.
        let base = unsafe { read_msr(BASE_MSR) };
        let plain = match self {
            Apic::X2 => base,
            Apic::X1(_) => base & !BASE_AT | registers.get() & BASE_AT,
        } & !(BASE_X2 | BASE_ENABLED);
        // The CPU refuses a direct way from off to x2APIC and from x2APIC to xAPIC (Intel SDM 3A,
        // 10.12.5).
        let way: &[u64] = match (self, base & BASE_X2 != 0) {
            (Apic::X2, true) => &[],
            (Apic::X2, false) => &[BASE_ENABLED, BASE_ENABLED | BASE_X2],
            (Apic::X1(_), true) => &[0, BASE_ENABLED],
            (Apic::X1(_), false) => &[BASE_ENABLED],
        };
        for state in way {
            // SAFETY: a legal step, by the caller in a supported mode.
            unsafe { write_msr(BASE_MSR, plain | state) };
        }
        // SAFETY: on by now. No vector is held back.
        unsafe { self.write(TASK_PRIORITY, 0) };
        // SAFETY: on by now; the handler is the caller's.
        unsafe { self.write(SPURIOUS, SPURIOUS_ENABLE | u32::from(SPURIOUS_VECTOR)) };
        // SAFETY: on by now; reading has no effect.
        let version = unsafe { self.read(VERSION) };
        for register in local_vectors(version) {
            // SAFETY: the controller has it. Masked it raises nothing.
            unsafe { self.write(register, MASKED | u32::from(SPURIOUS_VECTOR)) };
        }
    }

    /// Whether everything that the controller itself could raise is masked.
    ///
    /// # Safety
    /// As for [`id`](Apic::id).
    pub unsafe fn is_quiet(&self) -> bool {
        // SAFETY: the caller's promise; reading has no effect.
        let version = unsafe { self.read(VERSION) };
        // SAFETY: as above; the controller has them.
        local_vectors(version).all(|register| unsafe { self.read(register) } & MASKED != 0)
    }

    /// The highest number that a controller can be reached by in this mode; the next one means all
    /// controllers.
    pub const fn highest(&self) -> ApicId {
        match self {
            Apic::X2 => ApicId(u32::MAX - 1),
            Apic::X1(_) => ApicId(0xfe),
        }
    }

    /// The number of the calling CPU's controller.
    ///
    /// # Safety
    /// Ring 0, after [`enable`](Apic::enable) on this CPU.
    pub unsafe fn id(&self) -> ApicId {
        // SAFETY: the caller's promise; reading has no effect.
        let word = unsafe { self.read(ID) };
        match self {
            Apic::X2 => ApicId(word),
            Apic::X1(_) => ApicId(word >> 24),
        }
    }

    /// Says that the interrupt in service has been handled.
    ///
    /// # Safety
    /// As for [`id`](Apic::id), in the handler of an interrupt that the controller delivered.
    pub unsafe fn end_of_interrupt(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.write(END_OF_INTERRUPT, 0) };
    }

    /// Has the controller's timer interrupt the calling CPU with `vector` after so many of its
    /// ticks, once; 0 stops it.
    ///
    /// # Safety
    /// As for [`id`](Apic::id), and a handler for `vector` stands on this CPU.
    pub unsafe fn start_timer(&self, vector: u8, ticks: u32) {
        // SAFETY: the caller's promise; every controller has the timer.
        unsafe { self.write(TIMER_DIVISOR, BY_16) };
        // SAFETY: as above.
        unsafe { self.write(TIMER, vector.into()) };
        // SAFETY: as above.
        unsafe { self.write(TIMER_COUNT, ticks) };
    }
    /// Ticks until the timer interrupts; 0 where it does not run.
    ///
    /// # Safety
    /// As for [`id`](Apic::id).
    pub unsafe fn timer_left(&self) -> u32 {
        // SAFETY: the caller's promise; reading has no effect.
        unsafe { self.read(TIMER_LEFT) }
    }

    /// Interrupts the CPU `to` with `vector`.
    ///
    /// # Safety
    /// As for [`id`](Apic::id), and a handler for `vector` stands on that CPU.
    pub unsafe fn send(&self, to: ApicId, vector: u8) {
        // SAFETY: the caller's promise.
        unsafe { self.command(Whom::One(to), Command::Fixed(vector)) };
    }

    /// Interrupts every CPU but this one with `vector`.
    ///
    /// # Safety
    /// As for [`send`](Apic::send), for each CPU whose controller is on.
    pub unsafe fn send_others(&self, vector: u8) {
        // SAFETY: the caller's promise.
        unsafe { self.command(Whom::Others, Command::Fixed(vector)) };
    }

    /// Resets the CPU `to`, which then waits to be started.
    ///
    /// # Safety
    /// As for [`id`](Apic::id), and nothing that is needed runs there.
    pub unsafe fn init(&self, to: ApicId) {
        // SAFETY: the caller's promise.
        unsafe { self.command(Whom::One(to), Command::Init) };
    }

    /// Starts the CPU `to` in real mode at physical address `page` times 4096.
    ///
    /// # Safety
    /// As for [`init`](Apic::init), and the code there is made for it.
    pub unsafe fn startup(&self, to: ApicId, page: u8) {
        // SAFETY: the caller's promise.
        unsafe { self.command(Whom::One(to), Command::Startup(page)) };
    }

    unsafe fn command(&self, whom: Whom, command: Command) {
        let low = encode(whom, command);
        let to = match whom {
            Whom::One(ApicId(to)) => to,
            Whom::Others => 0,
        };
        full_fence(); // A2
        match self {
            Apic::X2 => {
                let word = u64::from(to) << 32 | u64::from(low);
                // SAFETY: the caller's promise; the whole command is one register.
                unsafe { write_msr(X2_MSR + (COMMAND >> 4) as u32, word) };
            }
            // SAFETY: ring 0 by the caller.
            Apic::X1(_) => unsafe { quiet(|| self.command_in_memory(to, low)) }, // A1
        }
    }

    fn command_in_memory(&self, to: u32, low: u32) {
        // SAFETY: `command`'s caller; the controller accepts one command at a time.
        while unsafe { self.read(COMMAND) } & PENDING != 0 {
            core::hint::spin_loop();
        }
        // SAFETY: `command`'s caller. Only the low half acts.
        unsafe { self.write(COMMAND_HIGH, to << 24) };
        // SAFETY: `command`'s caller.
        unsafe { self.write(COMMAND, low) };
    }

    unsafe fn read(&self, register: usize) -> u32 {
        match self {
            // SAFETY: the caller's promise; the registers are in the same order, one per 16 bytes.
            Apic::X2 => unsafe { read_msr(X2_MSR + (register >> 4) as u32) as u32 },
            Apic::X1(window) => {
                // SAFETY: `register` lies in the mapped page.
                let word = unsafe { window.byte_add(register) };
                // SAFETY: mapped by the caller; 16-byte aligned, as `Settings` are checked.
                unsafe { word.cast::<u32>().read_volatile() }
            }
        }
    }

    unsafe fn write(&self, register: usize, value: u32) {
        match self {
            // SAFETY: the caller's promise.
            Apic::X2 => unsafe { write_msr(X2_MSR + (register >> 4) as u32, value.into()) },
            Apic::X1(window) => {
                // SAFETY: as in `read`.
                let word = unsafe { window.byte_add(register) };
                // SAFETY: as in `read`; the caller answers for the effect.
                unsafe { word.cast::<u32>().write_volatile(value) };
            }
        }
    }
}

/// The registers of the vectors that a controller of this version raises by itself; its version
/// register holds the number of the last one (Intel SDM 3A, 10.4.8 and 10.5.1).
fn local_vectors(version: u32) -> impl Iterator<Item = usize> {
    const ALL: [(usize, u32); 7] =
        [(TIMER, 0), (PIN_0, 1), (PIN_1, 2), (ERROR, 3), (COUNTERS, 4), (HEAT, 5), (CORRECTED, 6)];
    let last = version >> 16 & 0xff;
    ALL.into_iter().filter(move |(_, number)| *number <= last).map(|(register, _)| register)
}

/// The low half of a command.
fn encode(whom: Whom, command: Command) -> u32 {
    const ASSERT: u32 = 1 << 14;
    const OTHERS: u32 = 0b11 << 18;
    let (kind, vector) = match command {
        Command::Fixed(vector) => (0b000, vector),
        Command::Init => (0b101, 0),
        Command::Startup(page) => (0b110, page),
    };
    let whom = match whom {
        Whom::One(_) => 0,
        Whom::Others => OTHERS,
    };
    whom | ASSERT | kind << 8 | u32::from(vector)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privileged::Told::{self, *};
    use crate::privileged::{told, with as with_processor};
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn finding_x14_only_what_a_controller_has_is_masked() {
        let of = |version| local_vectors(version).collect::<std::vec::Vec<_>>();
        assert_eq!(of(0x0003_0010), [TIMER, PIN_0, PIN_1, ERROR]);
        assert_eq!(of(0x0005_0014), [TIMER, PIN_0, PIN_1, ERROR, COUNTERS, HEAT]);
        assert_eq!(of(0x0106_0015).last(), Some(&CORRECTED));
    }

    #[test]
    fn finding_x5_a_cpu_knows_its_own_number() {
        let cpuid = |highest, ebx, edx| {
            move |leaf, sub| match leaf {
                _ if sub != 0 => CpuidResult { eax: 1, ebx: 1 << 24, ecx: 0, edx: 1 },
                0 => CpuidResult { eax: highest, ebx: 0, ecx: 0, edx: 0 },
                1 => CpuidResult { eax: 0, ebx: 0x0712_3456, ecx: 0, edx: 0 },
                _ => CpuidResult { eax: 0, ebx, ecx: 0, edx },
            }
        };
        assert_eq!(ApicId::read(&cpuid(0xb, 1, 300)), ApicId(300));
        assert_eq!(ApicId::read(&cpuid(0xb, 0, 300)), ApicId(7), "the leaf is empty");
        assert_eq!(ApicId::read(&cpuid(0xa, 1, 300)), ApicId(7), "the leaf is not there");
    }

    /// Registers of a controller in memory, as the manual numbers them (Intel SDM 3A, table 10-1).
    #[repr(C, align(4096))]
    struct Registers([u32; 1024]);

    /// What `work` leaves in the registers, and what it says.
    fn with<R>(set: &[(usize, u32)], work: impl FnOnce(&Apic) -> R) -> (Registers, R) {
        let mut registers = Registers([0; 1024]);
        set.iter().for_each(|(register, value)| registers.0[register / 4] = *value);
        let said = work(&Apic::X1(NonNull::from(&mut registers).cast()));
        (registers, said)
    }

    #[test]
    fn registers_in_memory_are_those_that_the_manual_lists() {
        // SAFETY: of this and those below: the registers are plain memory of ours.
        let (_, id) = with(&[(0x20, 0x0900_0000)], |apic| unsafe { apic.id() });
        assert_eq!(id, ApicId(9));
        // SAFETY: as above.
        let (left, ()) = with(&[(0xb0, 7)], |apic| unsafe { apic.end_of_interrupt() });
        assert_eq!(left.0[0xb0 / 4], 0);
        let (left, ()) = with(&[], |apic| apic.command_in_memory(3, 0x40f0));
        assert_eq!((left.0[0x310 / 4], left.0[0x300 / 4]), (0x0300_0000, 0x40f0));
    }

    /// What a processor is told when a controller whose base register holds `base` is switched on.
    fn enabled(apic: Apic, base: u64) -> Vec<Told> {
        with_processor(|cpu| {
            cpu.msrs.insert(0x1b, base);
            cpu.msrs.insert(0x803, 0x0005_0014); // its version
        });
        // SAFETY: the processor is the tests'; the window is plain memory of ours.
        unsafe { apic.enable(Pa::new(0xfee0_0000)) };
        told()
    }

    #[test]
    fn a_controller_is_switched_on_by_legal_steps() {
        const AT: u64 = 0xfee0_0100; // where it is, and that this is the first CPU
        let all: Vec<Told> = [0x832, 0x835, 0x836, 0x837, 0x834, 0x833]
            .map(|vector| WriteMsr(vector, 0x1_00ff))
            .into_iter()
            .chain([WriteMsr(0x808, 0), WriteMsr(0x80f, 0x1ff)])
            .collect();
        for (base, steps) in [
            (AT, &[AT | 0x800, AT | 0xc00][..]),
            (AT | 0x800, &[AT | 0x800, AT | 0xc00]),
            (AT | 0xc00, &[]),
            (0xfed0_0900, &[0xfed0_0900, 0xfed0_0d00]), // where it is not looked for
        ] {
            let done = enabled(Apic::X2, base);
            let (first, others) = done.split_at(steps.len());
            let steps: Vec<Told> = steps.iter().map(|step| WriteMsr(0x1b, *step)).collect();
            assert_eq!(first, steps, "{base:#x}");
            assert_eq!(others[..2], all[6..], "open to all, and spurious ones have a vector");
            assert_eq!(others.len(), all.len());
            assert!(all.iter().all(|told| others.contains(told)), "{others:x?}");
        }
        let version = (0x30, 0x0003_0010);
        for (base, steps) in [
            (AT, &[AT | 0x800][..]),
            (AT | 0x800, &[AT | 0x800]),
            (AT | 0xc00, &[AT, AT | 0x800]),
            (0xfed0_0900, &[AT | 0x800]), // elsewhere
        ] {
            let (left, done) = with(&[version, (0x80, 9)], |apic| enabled(*apic, base));
            let steps: Vec<Told> = steps.iter().map(|step| WriteMsr(0x1b, *step)).collect();
            assert_eq!(done, steps, "{base:#x}");
            let left = |register: usize| left.0[register / 4];
            assert_eq!([0x80, 0xf0, 0x320, 0x370].map(left), [0, 0x1ff, 0x1_00ff, 0x1_00ff]);
            assert_eq!([0x340, 0x330, 0x2f0].map(left), [0; 3], "it has no others");
        }
    }

    #[test]
    fn a_command_comes_behind_what_was_stored() {
        let to = ApicId(0x1_0003);
        // SAFETY: of this and those below: the processor is the tests', the window plain memory of
        // ours.
        unsafe { Apic::X2.send(to, 0xf0) };
        assert_eq!(told(), [FullFence, WriteMsr(0x830, 0x1_0003_0000_40f0)]);
        // SAFETY: as above.
        unsafe { Apic::X2.send_others(0xf0) };
        assert_eq!(told(), [FullFence, WriteMsr(0x830, 0xc_40f0)]);
        // SAFETY: as above.
        unsafe { Apic::X2.init(to) };
        assert_eq!(told(), [FullFence, WriteMsr(0x830, 0x1_0003_0000_4500)]);
        // SAFETY: as above.
        unsafe { Apic::X2.startup(to, 8) };
        assert_eq!(told(), [FullFence, WriteMsr(0x830, 0x1_0003_0000_4608)]);
        with_processor(|cpu| cpu.msrs.insert(0x802, 0x1_0003));
        // SAFETY: as above.
        assert_eq!(unsafe { Apic::X2.id() }, to);
        // SAFETY: as above.
        unsafe { Apic::X2.end_of_interrupt() };
        assert_eq!(told(), [WriteMsr(0x80b, 0)]);

        with_processor(|cpu| cpu.interrupts = true);
        // SAFETY: as above.
        let (left, ()) = with(&[], |apic| unsafe { apic.startup(ApicId(3), 8) });
        assert_eq!((left.0[0x310 / 4], left.0[0x300 / 4]), (0x0300_0000, 0x4608));
        assert_eq!(told(), [FullFence, InterruptsOff, InterruptsOn], "A1");
    }

    #[test]
    fn a_controller_is_quiet_where_all_that_it_has_is_masked() {
        let masked = [TIMER, PIN_0, PIN_1, ERROR].map(|register| (register, MASKED));
        let quiet = |open: Option<usize>| {
            let mut set = std::vec![(VERSION, 0x0003_0010)];
            set.extend(masked.iter().filter(|(register, _)| Some(*register) != open));
            // SAFETY: the registers are plain memory of ours.
            with(&set, |apic| unsafe { apic.is_quiet() }).1
        };
        assert!(quiet(None), "it has no others");
        for (register, _) in masked {
            assert!(!quiet(Some(register)), "{register:#x}");
        }
    }

    #[test]
    fn commands_are_what_the_manual_lists() {
        let one = Whom::One(ApicId(3));
        assert_eq!(encode(one, Command::Fixed(0xf0)), 0x40f0);
        assert_eq!(encode(Whom::Others, Command::Fixed(0xf0)), 0xc40f0);
        assert_eq!(encode(one, Command::Init), 0x4500);
        assert_eq!(encode(one, Command::Startup(8)), 0x4608);
    }
}
