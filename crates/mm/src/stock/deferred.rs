//! Folios that may be worth splitting: partly unmapped ones, and large ones that may hold little
//! but zeros.
//!
//! ```text
//!   shard of the folio's 2 MiB block:   first ─▶ head ◀─▶ head ◀─▶ head ◀─ last        words 2 and 3 of the heads
//!     put    at the end, when a folio of 2 MiB is made, or one of four pages and more has lost a page
//!     turn   the first one that nobody holds is pinned and goes to the end: whatever becomes of its split, it waits
//!     out    when it is given back or made pieces of; by a holder that found it to be used; when it is broken
//! ```
//!
//! **Invariants**
//! - L1. A folio is on its list exactly while it has `Flag::Deferred`; both change under the list's
//!   lock.
//! - L2. A folio leaves the list before its descriptor becomes another one's. A CPU that takes a
//!   turn pins the folio under the lock, and passes over one that nobody keeps any more: that one
//!   is about to be taken out.
//! - L3. A folio that is worth splitting leaves the list by being split or given back, or because
//!   its memory is broken, and by nothing else. One that is busy when its turn comes is passed
//!   over, and one that cannot be split is at the end already: nobody has to remember to put it
//!   back. A holder that takes a used one off asks again under the lock whether it has lost a page:
//!   the CPU that unmapped the page found the folio on the list, and left it there.
//!
//! **Locking.** There is one leaf lock for each of a few shards, chosen by the frame, so
//! that faults and unmaps seldom meet.
//!
//! **Not here**: whether a folio is worth it, splitting (`split`).

use super::{Event, Held, Reference, SizeEvent, Stock};
use crate::frame::{Flag, Link, References};
use crate::sync::{AtomicU64, Ordering, Spin};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Frame, Order};

/// How many lists there are.
const SHARDS: usize = 8;

/// One list. Links hold a frame with 1 added, or 0.
///
/// Key: `[l]` `lock` held.
#[derive(Default)]
#[repr(C, align(64))]
struct Shard {
    lock: Spin,
    first: AtomicU64,  // [l]
    last: AtomicU64,   // [l]
    listed: AtomicU64, // [l], read at any time
}

/// See the module's text.
///
/// Key: `[a]` atomic.
#[derive(Default)]
pub(crate) struct Deferred {
    shards: [Shard; SHARDS],
    /// Counts the lists that were asked, so that they take turns.
    turn: AtomicU64, // [a]
}

impl Deferred {
    fn of(&self, head: Frame) -> &Shard {
        &self.shards[(head.get() >> Order::SIZE_2M.get()) as usize % SHARDS]
    }
}

impl<'m, M: Machine, P: Paging> Stock<'m, M, P> {
    /// Puts a folio that somebody keeps at the end of its list, unless it is on it.
    pub(crate) fn defer(&self, head: Frame) {
        let shard = self.deferred.of(head);
        let _held = shard.lock.lock(self.machine);
        if !self.flag(head, Flag::Deferred) {
            return;
        }
        self.append(shard, head);
        shard.listed.fetch_add(1, Ordering::Relaxed);
    }
    /// Does so for a new folio of 2 MiB: most of it may stay untouched, so a shrinker may want to
    /// look at it.
    pub(super) fn defer_unused(&self, head: Frame, order: Order) {
        if order == Order::SIZE_2M {
            self.defer(head);
        }
    }
    fn append(&self, shard: &Shard, head: Frame) {
        let last = shard.last.load(Ordering::Relaxed);
        self.set_link(head, Link::Next, 0);
        self.set_link(head, Link::Before, last);
        match last.checked_sub(1).map(Frame::new) {
            Some(before) => self.set_link(before, Link::Next, head.get() + 1),
            None => shard.first.store(head.get() + 1, Ordering::Relaxed),
        }
        shard.last.store(head.get() + 1, Ordering::Relaxed);
    }
    /// Takes a folio that ends off its list, where it was seen to be on it.
    pub(super) fn undefer(&self, head: Frame) {
        let shard = self.deferred.of(head);
        let _held = shard.lock.lock(self.machine);
        if self.identity(head).has(Flag::Deferred) {
            self.take_off(shard, head);
        }
    }
    /// Takes a folio that was found to be used off its list; one that has lost a page meanwhile
    /// goes on waiting (L3).
    pub(crate) fn undefer_used(&self, held: &Held<'_, 'm, M, P>) {
        let head = held.head();
        let shard = self.deferred.of(head);
        let _held = shard.lock.lock(self.machine);
        let identity = self.identity(head);
        if identity.has(Flag::Deferred) && !identity.has(Flag::PartlyMapped) {
            self.take_off(shard, head);
        }
    }
    fn take_off(&self, shard: &Shard, head: Frame) {
        self.unlink(shard, head);
        shard.listed.fetch_sub(1, Ordering::Relaxed);
        self.unflag(head, Flag::Deferred);
    }
    fn unlink(&self, shard: &Shard, head: Frame) {
        let link = |link| self.link(head, link);
        let (next, before) = (link(Link::Next), link(Link::Before));
        match next.checked_sub(1).map(Frame::new) {
            Some(next) => self.set_link(next, Link::Before, before),
            None => shard.last.store(before, Ordering::Relaxed),
        }
        match before.checked_sub(1).map(Frame::new) {
            Some(before) => self.set_link(before, Link::Next, next),
            None => shard.first.store(next, Ordering::Relaxed),
        }
    }

    /// How many folios are on the lists.
    pub(crate) fn deferred(&self) -> u64 {
        self.deferred.shards.iter().map(|shard| shard.listed.load(Ordering::Relaxed)).sum()
    }
    /// Pins the folio that has waited longest on one of the lists, and puts it at the end of its
    /// list. The lists take turns. A folio that somebody holds keeps its place; one of broken
    /// memory waits no longer.
    pub(crate) fn next_deferred(&self) -> Option<Reference<'_, 'm, M, P>> {
        for _ in 0..SHARDS {
            let turn = self.deferred.turn.fetch_add(1, Ordering::Relaxed);
            let shard = &self.deferred.shards[turn as usize % SHARDS];
            let _held = shard.lock.lock(self.machine);
            let mut next = shard.first.load(Ordering::Relaxed);
            while let Some(head) = next.checked_sub(1).map(Frame::new) {
                next = self.link(head, Link::Next);
                let identity = self.identity(head);
                if identity.has(Flag::Poisoned) {
                    self.take_off(shard, head);
                } else if !identity.has(Flag::Locked)
                    && let Some(reference) = self.pin(head, References::PINS_MAX)
                {
                    self.unlink(shard, head);
                    self.append(shard, head);
                    return Some(reference);
                }
            }
        }
        None
    }

    /// Marks the folio as partly mapped, and counts that once per folio. One of four pages and more
    /// waits to be split from then on. The caller keeps it meanwhile.
    pub(crate) fn mark_partly_mapped(&self, head: Frame, order: Order) {
        if !self.keep_partly_mapped(head, order) {
            return;
        }
        self.count_thp(order, SizeEvent::SplitDeferred, Event::ThpDeferredSplitPage);
    }
    /// Does the same for a folio that waited before it moved: it is not counted as one more that
    /// waits. Says whether it was not marked yet.
    pub(crate) fn keep_partly_mapped(&self, head: Frame, order: Order) -> bool {
        if !self.flag(head, Flag::PartlyMapped) {
            return false;
        }
        self.count_size(order, SizeEvent::NrAnonPartiallyMapped);
        if order.get() >= 2 {
            self.defer(head);
        }
        true
    }

    /// Sets a flag of a head, and says whether it was clear.
    fn flag(&self, head: Frame, flag: Flag) -> bool {
        loop {
            let old = self.identity(head);
            if old.has(flag) {
                return false;
            }
            if self.replace_identity(head, old, old.with(flag)) {
                return true;
            }
        }
    }
    /// Clears a flag of a head.
    pub(super) fn unflag(&self, head: Frame, flag: Flag) {
        loop {
            let old = self.identity(head);
            if self.replace_identity(head, old, old.without(flag)) {
                return;
            }
        }
    }

    /// Which of the lists is that of the folio at `head`.
    #[cfg(test)]
    pub(crate) fn list_of(&self, head: Frame) -> usize {
        let own: *const Shard = self.deferred.of(head);
        let mut shards = self.deferred.shards.iter();
        shards.position(|shard| core::ptr::eq(shard, own)).expect("it is one of them")
    }
    /// Holds every list but the one of the folio at `head`.
    #[cfg(test)]
    pub(crate) fn hold_other_lists(
        &self,
        head: Frame,
    ) -> alloc::vec::Vec<crate::sync::SpinGuard<'_>> {
        let own: *const Shard = self.deferred.of(head);
        let others = self.deferred.shards.iter().filter(|shard| !core::ptr::eq(*shard, own));
        others.map(|shard| shard.lock.lock(self.machine)).collect()
    }

    /// Counts the folios that the links of the lists lead to; the error is one that should not be
    /// there. Nobody is at work.
    #[cfg(feature = "verify")]
    pub(crate) fn recount_deferred(&self) -> Result<u64, Frame> {
        let mut all = 0;
        for shard in &self.deferred.shards {
            let (mut next, mut before) = (shard.first.load(Ordering::Relaxed), 0);
            let mut here = 0;
            while let Some(head) = next.checked_sub(1).map(Frame::new) {
                let identity = self.identity(head);
                let right =
                    identity.kind() == crate::frame::Kind::Anon && identity.has(Flag::Deferred);
                let linked = self.link(head, Link::Before) == before;
                here += 1;
                if !right || !linked || here > shard.listed.load(Ordering::Relaxed) {
                    return Err(head);
                }
                (before, next) = (next, self.link(head, Link::Next));
            }
            all += here;
        }
        Ok(all)
    }
}
