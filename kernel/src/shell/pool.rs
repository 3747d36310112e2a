//! Huge pages that are kept: the manager's pools.

use super::Shell;
use super::words::{Complaint, Words, count};
use crate::memory::manager;
use crate::say;
use foliant::pool::{Budget, Folding, PoolCounters, Resized, SIZES};
use foliant_linux::controls::{CONTROLS, Control, Scope, Wrote};
use foliant_units::{Bytes, Order};

/// The lines of `meminfo`, which are those of 2 MiB.
pub(super) fn meminfo() {
    let pool: PoolCounters = manager().pool(Order::SIZE_2M).unwrap_or_default();
    for (name, pages) in [
        ("HugePages_Total:", pool.nr_hugepages),
        ("HugePages_Free:", pool.free_hugepages),
        ("HugePages_Rsvd:", pool.resv_hugepages),
        ("HugePages_Surp:", pool.surplus_hugepages),
    ] {
        say!("{name:<19}{pages:>5}");
    }
}

/// Gives all pages back.
pub(super) fn release() {
    for order in SIZES {
        let done = manager().resize_pool(order, 0, Budget::ALL);
        if let Err(why) = done {
            say!("a kept page: {why}");
        }
    }
    manager().set_folding(Folding::Off);
}

/// Every control that can be read, as the file that a kernel would publish.
fn show() {
    let scopes = SIZES.into_iter().map(Scope::Pool).chain([Scope::Machine]);
    for scope in scopes {
        for control in CONTROLS.iter().filter(|control| control.is_at(scope)) {
            let Ok(value) = control.read(&manager().pools(), scope) else { continue };
            match scope {
                Scope::Pool(order) | Scope::Node(order, _) => {
                    say!("hugepages-{}/{} {value}", super::thp::Kilobytes(order), control.name());
                }
                Scope::Machine => say!("{} {value}", control.name()),
            }
        }
    }
}

/// Writes a control.
fn write<'w>(control: Control, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let scope = match control {
        Control::HugetlbOptimizeVmemmap => Scope::Machine,
        _ => {
            let word = words.need("SIZE")?;
            Scope::Pool(order(word)?)
        }
    };
    let value = words.need("VALUE")?;
    words.end()?;
    match control.write(&manager().pools(), scope, value) {
        Ok(Wrote::Set) => {}
        Ok(Wrote::Resized(Resized { reached, .. })) => say!("{reached} pages are kept"),
        Ok(Wrote::Demoted(demoted)) => {
            say!("{} pages of 1g are {} of 2m now", demoted.demoted, demoted.made);
        }
        Err(why) => say!("hugepages: {why}"),
    }
    Ok(())
}

fn order(word: &str) -> Result<Order, Complaint<'_>> {
    let bytes = super::words::size(word)?;
    let order = SIZES.into_iter().find(|order| order.bytes() == bytes);
    order.ok_or(Complaint::Unknown(word, "2m, 1g"))
}

/// `hugepages`.
pub(super) fn hugepages<'w>(_: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let Some(word) = words.next() else {
        show();
        return Ok(());
    };
    if let Some(control) = Control::named(word) {
        return write(control, words);
    }
    let (size, order) = (word, order(word)?);
    let want = count(words.need("COUNT")?)?;
    words.end()?;
    let kept = match manager().resize_pool(order, want, Budget::ALL) {
        Ok(done) => done.reached,
        Err(why) => {
            say!("hugepages: {why}");
            return Ok(());
        }
    };
    let bytes = Bytes::new(kept * order.bytes().get());
    if kept == want {
        say!("{size}: {kept} pages are kept, {bytes}");
    } else {
        let none = foliant::NoBlock { order };
        say!("{size}: {kept} of {want} pages are kept, {bytes}: {none}");
    }
    Ok(())
}
