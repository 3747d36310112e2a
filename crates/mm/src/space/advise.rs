//! Advice: wishes for folio sizes, contents dropped, guards.

use super::area::{Area, Flags};
use super::huge;
use super::ops::{RangeError, change_entries, check, hole};
use super::record::Space;
use super::zap::{Guards, Zap, behind};
use crate::flush::Gather;
use crate::stock::Stock;
use crate::table::{Attrs, Blocked, Entry, Paging, Slot, Soft, SoftKind, Spare, Tables};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Level, VaRange};

/// What a program says of a range of its memory. Names follow Linux's `madvise`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Large folios are welcome.
    HugePage,
    /// No large folios.
    NoHugePage,
    /// Missing pages are handed to the program.
    UserfaultArm,
    /// They no longer are.
    UserfaultDisarm,
    /// The contents are dropped now; the next touch finds zeros.
    DontNeed,
    /// The contents may be dropped; until they are, they stay. Nothing is reclaimed yet, so they always stay.
    Free,
    /// Every page is made present for reading, as faults would.
    PopulateRead,
    /// Every page is made present for writing, as faults would.
    PopulateWrite,
    /// The contents are dropped, and a touch is refused from now on.
    GuardInstall,
    /// Guards are taken out.
    GuardRemove,
}

/// Carries advice out, but for the two kinds of populating, which are the face's (they fault).
pub(crate) fn advise<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    range: VaRange,
    advice: Advice,
) -> Result<(), RangeError> {
    check::<P>(range)?;
    let _writer = space.writer.lock(stock.machine);
    if let Some(va) = hole(stock, space, range) {
        return Err(RangeError::Hole(va));
    }
    match advice {
        Advice::DontNeed => huge::whole(stock, space, range)?,
        Advice::PopulateRead | Advice::PopulateWrite => {}
        _ => huge::none(stock, space, range)?,
    }
    let flags = |set: Flags, clear: Flags| -> Result<(), RangeError> {
        let change = |a: Area| Some((a.flags.without(clear).with(set), a.tag));
        space.areas.admit(stock.machine, range, change, None, 0)?;
        space.areas.prepare(stock)?;
        space.areas.change(stock.machine, range, change);
        Ok(())
    };
    let mut gather = Gather::new(stock, &space.member.target);
    match advice {
        Advice::HugePage => flags(Flags::HUGEPAGE, Flags::NOHUGEPAGE)?,
        Advice::NoHugePage => flags(Flags::NOHUGEPAGE, Flags::HUGEPAGE)?,
        Advice::UserfaultArm => flags(Flags::USERFAULT, Flags::NONE)?,
        Advice::UserfaultDisarm => flags(Flags::NONE, Flags::USERFAULT)?,
        Advice::DontNeed => Zap::new(stock, space, Guards::Keep).range(&mut gather, range),
        Advice::Free => {
            let clean = |old: Attrs| old.without(Attrs::DIRTY);
            change_entries(stock, space, range, &mut gather, clean);
            gather.settle();
        }
        Advice::PopulateRead | Advice::PopulateWrite => {}
        Advice::GuardInstall => {
            Zap::new(stock, space, Guards::Drop).range(&mut gather, range);
            gather.flush();
            guard(stock, space, range)?;
        }
        Advice::GuardRemove => unguard(stock, space, range),
    }
    gather.flush();
    Ok(())
}

/// Puts guards where nothing is. A page that a fault brought in meanwhile is taken out again. Without memory for a
/// table the guards put in so far stay: each is as good alone.
fn guard<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    range: VaRange,
) -> Result<(), RangeError> {
    let tables: Tables<'_, M, P> = space.tables(stock);
    let word = Soft { kind: SoftKind::Guard, payload: 0 }.word();
    let mut spare = Spare::new();
    let mut va = range.start();
    while va < range.end() {
        match tables.ensure(va, Level::BASE, &mut spare) {
            Ok(()) => {}
            Err(Blocked::NeedTable(_)) => {
                if stock.refill(&mut spare, 1).is_err() {
                    return Err(RangeError::NoMemory);
                }
                continue;
            }
            Err(_) => {
                zap_again(stock, space, VaRange::new(va, behind(va, Level::MEGA)), range);
                continue;
            }
        }
        let Ok(locked) = tables.lock(va, Level::BASE) else { continue };
        let end = behind(va, Level::MEGA).min(range.end());
        while va < end {
            let slot = Slot::of(va, Level::BASE);
            match locked.entry(slot) {
                Entry::None => locked.set(slot, word),
                Entry::Soft(soft) if soft.kind == SoftKind::Guard => {}
                _ => break,
            }
            va = va.add(FRAME_BYTES);
        }
        drop(locked);
        if va < end {
            zap_again(stock, space, VaRange::new(va, end), range);
        }
    }
    stock.drain(&mut spare);
    Ok(())
}

fn zap_again<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    part: Option<VaRange>,
    range: VaRange,
) {
    let part = part.map_or(range, |p| range.intersect(p));
    let mut gather = Gather::new(stock, &space.member.target);
    Zap::new(stock, space, Guards::Keep).range(&mut gather, part);
    gather.flush();
}

fn unguard<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, space: &Space, range: VaRange) {
    let tables: Tables<'_, M, P> = space.tables(stock);
    let mut va = range.start();
    while va < range.end() {
        va = match tables.lock(va, Level::BASE) {
            Ok(locked) => {
                let end = behind(va, Level::MEGA).min(range.end());
                while va < end {
                    let slot = Slot::of(va, Level::BASE);
                    if matches!(locked.entry(slot), Entry::Soft(s) if s.kind == SoftKind::Guard) {
                        locked.set(slot, 0);
                    }
                    va = va.add(FRAME_BYTES);
                }
                end
            }
            Err(missing) => behind(va, missing.level),
        };
    }
}
