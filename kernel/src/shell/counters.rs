//! What was counted since the start.

use super::Shell;
use super::words::{Complaint, Words};
use crate::memory::{apic_id, manager};
use crate::{say, serial, smp};
use foliant::{Event, SizeEvent};
use foliant_units::{Cpu, Order};

/// `stats`: `vmstat`'s lines, then one row of `hugepages-*kB/stats` for each folio size.
pub(super) fn stats<'w>(_: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    words.end()?;
    for event in Event::ALL {
        say!("{} {}", event.label(), manager().total(*event));
    }
    serial::print(format_args!("{:<16}", "size"));
    for event in SizeEvent::ALL {
        serial::print(format_args!(" {}", event.label()));
    }
    say!("");
    for order in Order::all().take(Order::SIZE_2M.index() + 1) {
        let stats = manager().size_stats(order);
        serial::print(format_args!("hugepages-{:<6}", super::thp::Kilobytes(order)));
        for event in SizeEvent::ALL {
            serial::print(format_args!(" {:>1$}", stats.get(*event), event.label().len()));
        }
        say!("");
    }
    Ok(())
}

/// `cpus`.
pub(super) fn cpus<'w>(_: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    words.end()?;
    for number in 0..smp::online() {
        say!("processor {number} apicid {}", apic_id(Cpu(number as u16)).0);
    }
    Ok(())
}
