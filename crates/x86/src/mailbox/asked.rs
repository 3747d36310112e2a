//! What a ticket's number says: which CPUs were asked, and where the answer will be.
//!
//! ```text
//!    63   61 60           13 12  10 9        0
//!   │ kind  │ generation    │ slot │ CPU       │
//!   └───────┴───────────────┴──────┴───────────┘
//! ```

use super::SLOTS;
use foliant_machine::Ticket;
use foliant_units::{CPUS_MAX, Cpu};

const CPU_BITS: u32 = 10;
const SLOT_BITS: u32 = 3;
const KIND_SHIFT: u32 = 61;
const _: () = assert!(CPUS_MAX <= 1 << CPU_BITS && SLOTS <= 1 << SLOT_BITS);

/// The CPUs that a ticket stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// No CPU: there is nothing to wait for.
    Nobody,
    /// The CPUs that the request in a slot of `cpu`'s line asks.
    Slot { cpu: Cpu, slot: usize, generation: u64 },
    /// Every CPU, by a broadcast that `cpu` sent and that only `cpu` can see completed.
    Broadcast { cpu: Cpu },
}

impl Asked {
    /// Generations wrap after this one, years of requests later.
    pub(crate) const GENERATION_MAX: u64 = (1 << (KIND_SHIFT - CPU_BITS - SLOT_BITS)) - 1;

    /// The ticket that says so.
    pub(crate) fn ticket(self) -> Ticket {
        let (kind, cpu, slot, generation) = match self {
            Asked::Nobody => (0, 0, 0, 0),
            Asked::Slot { cpu, slot, generation } => (1, cpu.0, slot as u64, generation),
            Asked::Broadcast { cpu } => (2, cpu.0, 0, 0),
        };
        let place = slot << CPU_BITS | u64::from(cpu);
        Ticket::new(kind << KIND_SHIFT | generation << (CPU_BITS + SLOT_BITS) | place)
    }

    /// What `ticket` says; a number that no machine of this crate gives stands for no CPU.
    pub(crate) fn of(ticket: &Ticket) -> Asked {
        let number = ticket.number();
        let cpu = Cpu((number & ((1 << CPU_BITS) - 1)) as u16);
        match number >> KIND_SHIFT {
            1 => Asked::Slot {
                cpu,
                slot: (number >> CPU_BITS & ((1 << SLOT_BITS) - 1)) as usize,
                generation: number >> (CPU_BITS + SLOT_BITS) & Asked::GENERATION_MAX,
            },
            2 => Asked::Broadcast { cpu },
            _ => Asked::Nobody,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_says_what_it_was_told() {
        let last = Cpu(CPUS_MAX as u16 - 1);
        for asked in [
            Asked::Nobody,
            Asked::Slot { cpu: Cpu(0), slot: 0, generation: 0 },
            Asked::Slot { cpu: last, slot: SLOTS - 1, generation: Asked::GENERATION_MAX },
            Asked::Slot { cpu: Cpu(5), slot: 1, generation: 7 },
            Asked::Broadcast { cpu: last },
        ] {
            assert_eq!(Asked::of(&asked.ticket()), asked);
        }
        assert_eq!(Asked::of(&Ticket::new(u64::MAX)), Asked::Nobody);
    }
}
