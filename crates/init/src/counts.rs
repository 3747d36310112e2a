//! What is counted around work: the clock, and interrupts of all CPUs.
#![allow(unsafe_code)]

use std::fs;

/// The clock, which counts instructions of the guest under `-icount`.
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 has the clock, and the kernel lets programs read it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Interrupts of all CPUs since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Interrupts {
    /// Those that ask a CPU to drop translations.
    pub(crate) shootdowns: u64,
    /// Those that have a CPU call a function. On Linux shootdowns are such too, and those of its
    /// own memory such alone.
    pub(crate) calls: u64,
    /// Those that have a CPU look for a thread.
    pub(crate) wakes: u64,
    pub(crate) timer: u64,
}

impl Interrupts {
    /// A kernel that does not say so had none.
    pub(crate) fn now() -> Interrupts {
        Interrupts::of(&fs::read_to_string("/proc/interrupts").unwrap_or_default())
    }
    fn of(text: &str) -> Interrupts {
        let sum = |name: &str| {
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name));
            let numbers = line.unwrap_or_default().split_whitespace();
            numbers.map_while(|word| word.parse::<u64>().ok()).sum()
        };
        Interrupts {
            shootdowns: sum("TLB:"),
            calls: sum("CAL:"),
            wakes: sum("RES:"),
            timer: sum("LOC:"),
        }
    }
    pub(crate) fn since(self, before: Interrupts) -> Interrupts {
        Interrupts {
            shootdowns: self.shootdowns - before.shootdowns,
            calls: self.calls - before.calls,
            wakes: self.wakes - before.wakes,
            timer: self.timer - before.timer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_cpus_are_summed_up() {
        let text = "           CPU0       CPU1       \n  0:          7          0   IO-APIC   2-edge      timer\n\
                    LOC:        100         11   Local timer interrupts\n\
                    RES:          1          2   Rescheduling interrupts\n\
                    TLB:          5          4   TLB shootdowns\n";
        let all = Interrupts::of(text);
        assert_eq!(all, Interrupts { shootdowns: 9, calls: 0, wakes: 3, timer: 111 });
        assert_eq!(all.since(Interrupts { timer: 11, ..all }).timer, 100);
    }
}
