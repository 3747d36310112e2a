#![allow(unsafe_code)]
//! The gather itself.

use super::drops::Drops;
use super::grain::FlushGrain;
use super::target::Target;
use crate::frame::{Flushed, Unmapped};
use crate::stock::{Event, Stock};
use crate::table::{Attrs, Collapsed, Detached, Paging};
use foliant_machine::{Accessed, Invalidation, Item, Machine, Reach, Tables, Ticket};
use foliant_units::{Frame, Level, VaRange};

/// Whether a walker ever used an entry that was taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Used {
    /// Its accessed bit was set.
    Yes,
    /// It was clear.
    No,
}

impl Used {
    /// What the attributes of an entry that was taken out say.
    pub(crate) fn of(attrs: Attrs) -> Used {
        if attrs.has(Attrs::ACCESSED) { Used::Yes } else { Used::No }
    }
}

/// See the module's text.
pub(crate) struct Gather<'g, 'm, M: Machine, P: Paging> {
    stock: &'g Stock<'m, M, P>,
    target: &'g Target,
    list: Invalidation,
    entries: u64,
    /// Entries noted since the last flush, also those that a widened list no longer names.
    noted: u64,
    grain: FlushGrain,
    pending: Pending,
    issued: Option<Issued>,
    /// References and descriptors.
    drops: Drops<'m>,
    /// Tables, which readers may still walk through.
    removed: Drops<'m>,
}

/// The proof that a table was noted before it is taken out.
#[must_use = "the table that was taken out is still to be freed"]
pub(crate) struct TableNoted(());

/// A flush that was issued and not waited for.
struct Issued {
    ticket: Option<Ticket>,
    /// Whether this CPU runs the space, and has invalidated.
    here: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pending {
    No,
    Yes,
}

impl<'g, 'm, M: Machine, P: Paging> Gather<'g, 'm, M, P> {
    /// Room that an operation can make progress with.
    const ROOM_MIN: usize = 2;

    pub(crate) fn new(stock: &'g Stock<'m, M, P>, target: &'g Target) -> Self {
        Gather::of(stock, target, FlushGrain::load(stock))
    }
    /// A gather that is flushed when its owner says so, whatever grain is set: the owner counts in
    /// other units than entries.
    pub(crate) fn whole(stock: &'g Stock<'m, M, P>, target: &'g Target) -> Self {
        Gather::of(stock, target, FlushGrain::WHOLE)
    }
    fn of(stock: &'g Stock<'m, M, P>, target: &'g Target, grain: FlushGrain) -> Self {
        let list = Invalidation::none(target.scope());
        Gather {
            stock,
            target,
            list,
            entries: 0,
            noted: 0,
            grain,
            pending: Pending::No,
            issued: None,
            drops: Drops::new(),
            removed: Drops::new(),
        }
    }

    /// Whether it holds as many entries as one flush shall cover (F6).
    pub(crate) fn is_full(&self) -> bool {
        self.grain.is_reached(self.noted)
    }
    /// How many entries more one flush covers.
    pub(crate) fn left(&self) -> usize {
        self.grain.left(self.noted)
    }
    /// Flushes where it [`is_full`](Gather::is_full). It is called without a lock, as
    /// [`flush`](Gather::flush).
    pub(crate) fn relieve(&mut self) {
        if self.is_full() {
            self.release();
        }
    }

    /// Makes room for up to `count` deferred drops and for an entry, with a flush first where there
    /// is none, and says for how many drops there is. Called without a lock.
    #[inline(always)]
    pub(crate) fn room(&mut self, count: usize) -> usize {
        self.relieve();
        let room = self.drops.grow(self.stock, count);
        if room >= Gather::<M, P>::ROOM_MIN {
            return room;
        }
        self.release();
        self.drops.grow(self.stock, count)
    }
    /// Makes room for `count` tables and for an entry, and ends the tables that are there first
    /// where there is none. Called without a lock, and outside of a reader's section.
    pub(crate) fn room_for_tables(&mut self, count: usize) {
        self.relieve();
        if self.removed.grow(self.stock, count) < count {
            self.flush();
        }
    }

    /// Whether there is nothing to flush or to free.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending == Pending::No && self.drops.is_empty() && self.removed.is_empty()
    }
    /// Whether a flush is due: something was noted. The flush asks no CPU where none is announced.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending == Pending::Yes
    }
    /// Tries to have room for `count` deferred drops without a flush, and says for how many there
    /// is. Called without a lock.
    pub(crate) fn grow(&mut self, count: usize) -> usize {
        self.drops.grow(self.stock, count)
    }

    /// How many more deferred drops fit in as it is.
    pub(crate) fn room_left(&self) -> usize {
        self.drops.room()
    }
    /// Whether another table fits in as it is.
    pub(crate) fn has_room_for_table(&self) -> bool {
        self.removed.room() > 0
    }

    /// Notes that leaves of `level` in `range` were taken out or lost a permission. Called before
    /// anybody can conclude from that (F2).
    pub(crate) fn note(&mut self, range: VaRange, level: Level, used: Used) {
        let item = Item { range, level, tables: Tables::Kept };
        let rules = self.stock.machine.rules();
        if used == Used::No && rules.accessed == Accessed::SetBeforeCached {
            self.stock.count_by(Event::FlushSpared, item.entries());
            return;
        }
        self.add(item);
    }

    /// Notes that an empty table of `range` is about to be taken out of a word of level `above`:
    /// one entry, for its leaves were noted when they went (F8). Called under the table's lock,
    /// before the word is empty (F2).
    pub(crate) fn note_table(&mut self, range: VaRange, above: Level) -> TableNoted {
        self.add(Item { range, level: above, tables: Tables::Removed });
        TableNoted(())
    }
    /// Defers the end of a table that was noted and taken out. Needs one word of room.
    pub(crate) fn remove_table(&mut self, table: Detached, _: TableNoted) {
        self.removed.push_table(table.into_table());
    }

    /// Notes that a table was taken out with its leaves: as many entries as it had leaves, none of
    /// which was noted before (F8). The caller keeps the table, and waits for its readers.
    pub(crate) fn note_collapsed(&mut self, collapsed: &Collapsed) {
        let (range, level) = (collapsed.run.range(), collapsed.run.level);
        self.add(Item { range, level, tables: Tables::Removed });
    }

    /// Defers the drop of references. Needs one word of room.
    pub(crate) fn defer(&mut self, unmapped: Unmapped) {
        self.drops.push_references(unmapped);
    }

    /// The same for pages side by side, each a folio of its own, with one entry of each.
    #[inline]
    pub(crate) fn defer_pages(&mut self, unmapped: Unmapped) {
        self.drops.push_pages(unmapped);
    }

    /// Defers the end of the `n` frames from `first` on, which held descriptors. Needs one word of
    /// room.
    pub(crate) fn defer_descriptors(&mut self, first: Frame, n: u64) {
        self.drops.push_descriptors(first, n);
    }

    /// Counts as pending from here on (F2).
    fn begin(&mut self) {
        if self.pending == Pending::No {
            self.target.start();
            self.pending = Pending::Yes;
        }
    }
    fn add(&mut self, item: Item) {
        debug_assert!(!self.is_full(), "the caller asked before it took the entry (flush::F6)");
        assert!(self.issued.is_none(), "what is noted after the flush was issued is not in it");
        self.noted += item.entries();
        self.begin();
        if self.list.reach() == Reach::All {
            return;
        }
        self.entries += item.entries();
        // Leaves and the tables that they were in take turns: either goes on where its like ended.
        let goes_on = |other: &&mut Item| {
            (other.level, other.tables) == (item.level, item.tables)
                && other.range.end() == item.range.start()
        };
        if let Some(other) = self.list.items_mut().iter_mut().rev().take(2).find(goes_on) {
            other.range =
                VaRange::new(other.range.start(), item.range.end()).expect("ranges grow up");
        } else if self.list.push(item).is_err() {
            self.list.widen();
        }
        if self.entries > self.stock.machine.rules().ceiling_entries as u64 {
            self.list.widen();
        }
    }

    /// Has the coming flush cover all of the target, whatever is noted.
    pub(crate) fn cover_all(&mut self) {
        self.begin();
        self.list.widen();
    }
    /// Has the coming flush cover all of the target if another gather of it is pending. It is
    /// called where memory is freed that an entry, taken out or replaced by the other gather, may
    /// still reach.
    pub(crate) fn cover_others(&mut self) {
        if self.pending == Pending::Yes && self.target.is_pending(1) {
            self.list.widen();
        }
    }

    /// Completes the flush and does what was deferred. The caller holds no table lock, and is in no
    /// reader's section if tables were removed.
    pub(crate) fn flush(&mut self) -> Flushed {
        let flushed = self.release();
        if !self.removed.is_empty() {
            self.stock.wait_for_readers();
            self.removed.free_all(self.stock, flushed);
        }
        flushed
    }
    /// Completes the flush and does what was deferred but for the end of tables: readers may still
    /// walk through those, and are waited for once, at the end (F7).
    fn release(&mut self) -> Flushed {
        let flushed = self.shoot();
        self.drops.free_all(self.stock, flushed);
        flushed
    }

    /// Asks for the flush, and invalidates here, without waiting, so that several gathers are
    /// waited for together. Nothing may be noted until [`flush`](Gather::flush) has waited.
    pub(crate) fn issue(&mut self) {
        if self.pending == Pending::Yes && self.issued.is_none() {
            self.issued = Some(self.ask(&self.list));
        }
    }

    /// Completes the flush and keeps what was deferred: no CPU can reach it by a translation any
    /// more, but readers of removed tables may still reach it by a walk. When the gather ends it
    /// waits for those, so it ends when nobody waits for the caller (F7). The caller holds no
    /// table lock.
    pub(crate) fn shoot(&mut self) -> Flushed {
        self.issue();
        if let Some(issued) = self.issued.take() {
            if self.wait(issued) {
                self.count_local();
            }
            self.target.finish();
            self.pending = Pending::No;
            self.list.reset();
            (self.entries, self.noted) = (0, 0);
        }
        // SAFETY: nothing is pending (flush::F1).
        unsafe { Flushed::waited() }
    }

    /// Asks every other CPU that runs the space to carry `what` out, and does so here if this CPU
    /// runs it. Moved to another CPU in between, it would leave one out.
    fn ask(&self, what: &Invalidation) -> Issued {
        let (stock, machine) = (self.stock, self.stock.machine);
        machine.pinned(|me| {
            let mut others = self.target.running();
            let here = others.contains(me);
            others.remove(me);
            let ticket = (!others.is_empty()).then(|| {
                stock.count(Event::Shootdown);
                stock.count_by(Event::Interrupt, others.len() as u64);
                machine.ask(&others, what)
            });
            if here {
                machine.invalidate(what);
            }
            Issued { ticket, here }
        })
    }
    /// Returns when every CPU that was asked is done. Says whether this one runs the space.
    fn wait(&self, issued: Issued) -> bool {
        if let Some(ticket) = issued.ticket {
            self.stock.machine.wait(ticket);
        }
        issued.here
    }

    fn count_local(&self) {
        match self.list.reach() {
            Reach::All => self.stock.count(Event::LocalAll),
            Reach::Items => self.stock.count_by(Event::LocalOne, self.entries),
        }
    }

    /// Completes what other gathers of this space have pending, by a flush of the whole space,
    /// before a conclusion is drawn from an absent or read-only entry (F2, G5). Their own flush
    /// still follows.
    pub(crate) fn settle(&self) {
        let own = (self.pending == Pending::Yes) as u64;
        if self.target.is_pending(own)
            && self.wait(self.ask(&Invalidation::all(self.target.scope())))
        {
            self.stock.count(Event::LocalAll);
        }
    }
}

impl<M: Machine, P: Paging> Drop for Gather<'_, '_, M, P> {
    fn drop(&mut self) {
        // Where a CPU of a simulated machine panics, others may never answer.
        if !self.is_empty() && !crate::sync::is_unwinding() {
            self.flush(); // F4
        }
    }
}
