//! The way to a table: making what is missing of it, and taking the lock at its end.

use super::attrs::Entry;
use super::lock::{Gap, Locked, Missing};
use super::paging::Paging;
use super::spare::Spare;
use super::tables::{Blocked, Reached, Refused, Spot, Tables};
use super::word::TableAt;
use foliant_machine::{Cpus, PhysMem};
use foliant_sync::{Ordering, fence};
use foliant_units::{Level, Va};

impl<'m, M: PhysMem + Cpus, P: Paging> Tables<'m, M, P> {
    /// Makes the tables exist down to the one that holds entries of `level` for `va`.
    ///
    /// Needs no flush: a word that was 0 is not cached (machine::M2). On a machine that breaks
    /// before it makes, this holds once the entry that the word had before is flushed; the caller
    /// knows that nothing is pending there.
    pub fn ensure(&self, va: Va, level: Level, spare: &mut Spare) -> Result<(), Blocked> {
        self.ensure_settled(va, level, spare, &|| true)
    }
    /// The same for a caller that does not know that: `is_settled` says whether nothing is pending.
    /// It is asked after the word was seen empty under the lock of the table that it stands in, so
    /// it tells of the entry that was taken out under that lock, or of the table that was noted
    /// before the word was emptied. It is not asked for a word of the top table, which is emptied
    /// with [`Prune::All`](super::Prune::All) alone (I5).
    pub fn ensure_settled(
        &self,
        va: Va,
        level: Level,
        spare: &mut Spare,
        is_settled: &impl Fn() -> bool,
    ) -> Result<(), Blocked> {
        self.check_va(va).map_err(Blocked::Refused)?;
        if level > P::TOP {
            return Err(Blocked::Refused(Refused::Level(level)));
        }
        loop {
            let spot = self.lowest(va, level);
            if spot.level == level {
                return Ok(());
            }
            match spot.entry {
                Entry::Leaf { .. } => return Err(Blocked::Leaf(spot.level)),
                Entry::Soft(_) => return Err(Blocked::Soft(spot.level)),
                Entry::Table(_) => {}
                Entry::None => self.install(va, &spot, spare, is_settled)?,
            }
        }
    }
    /// Hangs a table into the empty word of `spot`, unless another CPU does so first.
    fn install(
        &self,
        va: Va,
        spot: &Spot,
        spare: &mut Spare,
        is_settled: &impl Fn() -> bool,
    ) -> Result<(), Blocked> {
        let made = spot.level.down().expect("a missing table is above the base");
        let claim = spare.pop().ok_or(Blocked::NeedTable(made))?;
        let word = P::table(claim.frame().pa());
        let done = match spot.above {
            None => {
                let done = spot.table.word(spot.slot).swap(self.machine(), 0, word).is_ok();
                fence(Ordering::SeqCst); // what is looked at behind it is looked at again (I10)
                Ok(done)
            }
            Some(above) => match Locked::acquire(*self, va, (spot.table, spot.level), above) {
                Some(lock) if lock.get(spot.slot) == 0 && is_settled() => {
                    lock.put(spot.slot, word);
                    Ok(true)
                }
                Some(lock) if lock.get(spot.slot) == 0 => Err(Blocked::Pending(spot.level)),
                _ => Ok(false),
            },
        };
        if done == Ok(true) {
            TableAt::claimed(claim);
        } else {
            spare.push(claim).expect("it was popped just now");
        }
        done.map(|_| ())
    }
    /// [`lock`](Tables::lock) for a caller that has come to a table, the one that is wanted or
    /// another, and has kept removed tables from reuse since then (table::I6). Gives `None` where
    /// there is no such table.
    #[inline(always)]
    pub fn lock_at(
        &self,
        reached: Option<Reached>,
        va: Va,
        level: Level,
    ) -> Option<Locked<'m, M, P>> {
        if let Some(Reached { table, above, level: of, base }) = reached
            && of == level
            && base == va.align_down(level.up().span())
            && let Some(lock) = Locked::acquire(*self, va, (table, level), above)
        {
            return Some(lock);
        }
        self.lock_anew(va, level)
    }
    #[inline(never)]
    fn lock_anew(&self, va: Va, level: Level) -> Option<Locked<'m, M, P>> {
        self.lock(va, level).ok()
    }
    /// Locks the table that holds the entries of `level` for `va`.
    #[inline]
    pub fn lock(&self, va: Va, level: Level) -> Result<Locked<'m, M, P>, Missing> {
        if self.check_va(va).is_err() {
            return Err(Missing { level: P::TOP, what: Gap::Outside });
        }
        loop {
            let spot = self.lowest(va, level);
            let what = match (spot.above, spot.entry) {
                (Some(above), _) if spot.level == level => {
                    match Locked::acquire(*self, va, (spot.table, spot.level), above) {
                        Some(lock) => return Ok(lock),
                        None => continue,
                    }
                }
                (None, _) if level >= P::TOP => Gap::TopTable,
                (_, Entry::None) => Gap::None,
                (_, Entry::Leaf { .. }) => Gap::Leaf,
                (_, Entry::Soft(_)) => Gap::Soft,
                (_, Entry::Table(_)) => unreachable!("a walk descends into tables above its floor"),
            };
            return Err(Missing { level: spot.level, what });
        }
    }
}
