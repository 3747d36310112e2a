//! Folios that may be worth splitting: partly unmapped ones, and large ones that may hold little
//! but zeros.
//!
//! ```text
//!   shard of the folio's 2 MiB block:   first ─▶ head ◀─▶ head ◀─▶ head ◀─ last        words 2 and 3 of the heads
//!     put    at the end, when a folio of 2 MiB or of a guessed size is made, or one of four pages and more has lost a page
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
//! - L4. A guessed folio that is watched (`Flag::Guessed`) is on its list. The list's count of idle
//!   pages is that of its watched folios together (`Guess`), each as often as its `weight` says;
//!   both change under the lock.
//! - L5. Of each 64 guessed pages one decides which folio is watched, at a place that depends on
//!   nothing but how many were guessed before: a folio of 64 pages and more always is, and one of
//!   n pages stands for 64 / n of its size.
//! - L6. Each page that was idle counts once, as saved when a look finds it used, or as lost when
//!   its folio ends or is split: a watched folio is looked at then, too. Of broken memory nothing
//!   is known.
//!
//! **Locking.** There is one leaf lock for each of a few shards, chosen by the frame, so
//! that faults and unmaps seldom meet.
//!
//! **Not here**: whether a folio is worth it, splitting (`split`).

use super::{Event, GuessCounts, Held, Reference, SizeEvent, Stock, or_none};
use crate::frame::{Flag, Guess, Identity, Link, References};
use crate::sync::{AtomicU64, Ordering, Spin};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Frame, Order};

/// Guessed pages of which one decides what is watched.
const WINDOW: u64 = 64;
/// Folios of a list that are passed over because they are not due yet.
const PASSED_MOST: u32 = 16;
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
    idle: AtomicU64,   // [l], read at any time
}

/// See the module's text.
///
/// Key: `[a]` atomic.
#[derive(Default)]
pub(crate) struct Deferred {
    shards: [Shard; SHARDS],
    /// Counts the lists that were asked, so that they take turns.
    turn: AtomicU64, // [a]
    /// Pages of all folios whose size was guessed so far, watched or not.
    guessed: AtomicU64, // [a]
    /// The list where the last one is.
    latest: AtomicU64, // [a]
    /// The most anonymous pages that were known to be used.
    most: AtomicU64, // [a]
    /// Pages of guesses that were found to be used, and that were idle at the end (L6).
    saved: AtomicU64, // [a]
    lost: AtomicU64, // [a]
}

/// A fixed mixing of bits: places that no program has in mind.
pub(super) fn mix(n: u64) -> u64 {
    let n = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^ n >> 29
}
/// How many guesses a watched one of this size stands for (L5).
fn weight(order: Order) -> u64 {
    (WINDOW >> order.get()).max(1)
}
/// Whether a guess is watched that takes the count of guessed pages from `before` to `now` (L5).
fn is_watched(before: u64, now: u64) -> bool {
    let deciding = |window: u64| window * WINDOW + mix(window) % WINDOW;
    let has = |window| (before..now).contains(&deciding(window));
    now - before >= WINDOW || has(before / WINDOW) || has(now / WINDOW)
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
    /// Puts a new folio on its list whose size the manager guessed, if it is watched: all pages but
    /// one may stay untouched.
    pub(super) fn defer_guessed(&self, head: Frame, order: Order) {
        let (shard, pages) = (self.deferred.of(head), order.pages().get());
        let before = self.deferred.guessed.fetch_add(pages, Ordering::Relaxed);
        if !is_watched(before, before + pages) {
            return;
        }
        self.deferred.latest.store(head.get() >> Order::SIZE_2M.get(), Ordering::Relaxed);
        let _held = shard.lock.lock(self.machine);
        self.flag(head, Flag::Deferred);
        self.flag(head, Flag::Guessed);
        self.append(shard, head);
        shard.listed.fetch_add(1, Ordering::Relaxed);
        let guess = Guess::new(order, self.guess_time());
        self.set_guess(head, guess);
        shard.idle.fetch_add(guess.idle * weight(order), Ordering::Relaxed);
    }
    /// Notes how many pages of a guessed folio a holder found to be idle. One that has none was a
    /// good guess: nothing more is to be known of it.
    pub(crate) fn note_idle(&self, held: &Held<'_, 'm, M, P>, idle: u64) {
        let (head, shard) = (held.head(), self.deferred.of(held.head()));
        let _held = shard.lock.lock(self.machine);
        if !self.identity(head).has(Flag::Guessed) {
            return;
        }
        let (old, weight) = (self.guess_of(head), weight(held.order()));
        self.note_saved(old.idle.saturating_sub(idle) * weight);
        if idle == 0 {
            self.end_guess(shard, head);
            if !self.identity(head).has(Flag::PartlyMapped) {
                self.take_off(shard, head);
            }
            return;
        }
        shard.idle.fetch_add(idle.wrapping_sub(old.idle).wrapping_mul(weight), Ordering::Relaxed);
        let looked = self.guess_time();
        let since = if idle < old.idle { looked } else { old.since };
        self.set_guess(head, Guess { idle, since, looked });
    }
    /// Pages that a watched guess adds to the count of idle ones.
    fn idle_of(&self, head: Frame) -> u64 {
        self.guess_of(head).idle * weight(self.identity(head).order())
    }
    fn end_guess(&self, shard: &Shard, head: Frame) {
        if self.identity(head).has(Flag::Guessed) {
            shard.idle.fetch_sub(self.idle_of(head), Ordering::Relaxed);
            self.unflag(head, Flag::Guessed);
        }
    }
    fn note_saved(&self, pages: u64) {
        self.deferred.saved.fetch_add(pages, Ordering::Relaxed);
    }
    /// Looks at a folio that ends, if it is a watched guess, and notes what it was (L6).
    fn note_end(&self, head: Frame) {
        let identity = self.identity(head);
        if !identity.has(Flag::Guessed) || identity.has(Flag::Poisoned) {
            return;
        }
        let (known, order) = (self.guess_of(head).idle, identity.order());
        let idle = self.estimate_idle(head, order).min(known);
        self.note_saved((known - idle) * weight(order));
        self.deferred.lost.fetch_add(idle * weight(order), Ordering::Relaxed);
    }
    /// Pages of guessed folios that are not known to be used.
    pub(crate) fn idle(&self) -> u64 {
        or_none(self.idle_by_lists())
    }
    /// The same, also where they are less than none.
    pub(crate) fn idle_by_lists(&self) -> u64 {
        let all = self.deferred.shards.iter().map(|shard| shard.idle.load(Ordering::Relaxed));
        all.fold(0, u64::wrapping_add)
    }
    /// Memory as a guess sees it.
    pub(crate) fn guess_counts(&self) -> GuessCounts {
        let (idle, reads) = (self.idle(), self.reads.counts());
        let used = self.anonymous().saturating_sub(idle);
        let read = reads.idle(used);
        let (idle, used) = (idle + read, used - read);
        let most = self.deferred.most.fetch_max(used, Ordering::Relaxed).max(used);
        let [saved, lost] =
            [&self.deferred.saved, &self.deferred.lost].map(|sum| sum.load(Ordering::Relaxed));
        GuessCounts { idle, used, most, saved, lost, single: self.single() }
    }
    /// The time by which guesses are looked at: pages that were guessed, and that came alone.
    pub(crate) fn guess_time(&self) -> u32 {
        Guess::time(self.deferred.guessed.load(Ordering::Relaxed) + self.single())
    }
    /// Anonymous pages that came alone so far.
    fn single(&self) -> u64 {
        self.size_total(Order::BASE, SizeEvent::AnonFaultAlloc)
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
        self.note_end(head);
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
        if identity.has(Flag::Deferred)
            && !identity.has(Flag::PartlyMapped)
            && !identity.has(Flag::Guessed)
        {
            self.take_off(shard, head);
        }
    }
    fn take_off(&self, shard: &Shard, head: Frame) {
        self.end_guess(shard, head);
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
        (0..SHARDS).find_map(|_| self.next_of(self.next_turn(), |_, _| true))
    }
    /// Does so with one that is due, by what is known of its use: of the list where a guess came
    /// last, else of one of the next few.
    pub(crate) fn next_due(
        &self,
        is_due: impl Fn(Identity, Guess) -> bool,
    ) -> Option<Reference<'_, 'm, M, P>> {
        let is_due = |head, identity| is_due(identity, self.guess_of(head));
        let latest = self.deferred.latest.load(Ordering::Relaxed);
        let next = || (0..SHARDS / 2).find_map(|_| self.next_of(self.next_turn(), is_due));
        self.next_of(latest, is_due).or_else(next)
    }
    fn next_turn(&self) -> u64 {
        self.deferred.turn.fetch_add(1, Ordering::Relaxed)
    }
    fn next_of(
        &self,
        list: u64,
        is_due: impl Fn(Frame, Identity) -> bool,
    ) -> Option<Reference<'_, 'm, M, P>> {
        let shard = &self.deferred.shards[list as usize % SHARDS];
        let _held = shard.lock.lock(self.machine);
        let mut next = shard.first.load(Ordering::Relaxed);
        let mut passed = 0;
        while let Some(head) = next.checked_sub(1).map(Frame::new) {
            next = self.link(head, Link::Next);
            let identity = self.identity(head);
            if identity.has(Flag::Poisoned) {
                self.take_off(shard, head);
            } else if !is_due(head, identity) {
                passed += 1;
                if passed == PASSED_MOST {
                    break;
                }
            } else if !identity.has(Flag::Locked)
                && let Some(reference) = self.pin(head, References::PINS_MAX)
            {
                self.unlink(shard, head);
                self.append(shard, head);
                return Some(reference);
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
    pub(crate) fn flag(&self, head: Frame, flag: Flag) -> bool {
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
    pub(crate) fn unflag(&self, head: Frame, flag: Flag) {
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
    /// What is known of a folio, if it is a guess; the error is what no guess says of itself (L4).
    /// Nobody is at work.
    #[cfg(feature = "verify")]
    pub(crate) fn recount_guess(&self, head: Frame) -> Result<u64, Guess> {
        let identity = self.identity(head);
        if !identity.has(Flag::Guessed) {
            return Ok(0);
        }
        let guess = self.guess_of(head);
        let is_some = (1..identity.order().pages().get()).contains(&guess.idle);
        let is_listed = identity.has(Flag::Deferred);
        if is_some && is_listed { Ok(self.idle_of(head)) } else { Err(guess) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of guesses in turn, of which some cross the edge of a window.
    #[test]
    fn of_every_window_of_guessed_pages_one_guess_is_watched() {
        let sizes = [[4, 4, 4], [8, 8, 8], [16, 16, 16], [32, 32, 32], [4, 32, 16], [16, 4, 8]];
        for pages in sizes {
            let (mut now, mut seen) = (0, 0);
            while now < 1 << 16 {
                for pages in pages {
                    seen += u64::from(is_watched(now, now + pages));
                    now += pages;
                }
            }
            let windows = now / WINDOW;
            // One may decide two windows; of the last one the rest may have come or not.
            assert!((windows - windows / 8..=windows + 1).contains(&seen), "{pages:?} {seen}");
            assert!(pages[0] != pages[1] || seen >= windows, "{pages:?} {seen}");
        }
        assert!((0..100).all(|nth| is_watched(nth * 7, nth * 7 + 64)), "large ones are");
    }

    #[test]
    fn a_watched_guess_stands_for_a_window() {
        for (order, expect) in [(2, 16), (3, 8), (4, 4), (5, 2), (6, 1), (8, 1), (9, 1)] {
            assert_eq!(weight(Order::new(order).unwrap()), expect, "{order}");
        }
    }

    /// What is watched does not follow a program that touches memory in some rhythm.
    #[test]
    fn no_rhythm_of_four_is_watched_more_than_others() {
        let mut seen = [0; 4];
        for nth in 0..1 << 14 {
            seen[nth as usize % 4] += u64::from(is_watched(nth * 16, nth * 16 + 16));
        }
        assert!(seen.iter().all(|seen| (900..1150).contains(seen)), "{seen:?}");
    }
}
