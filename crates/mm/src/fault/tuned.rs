//! Which sizes the manager chooses by itself: as large as a budget for memory that nobody touches
//! has room for. And whether a read takes a page as a write does.
//!
//! ```text
//!   u  pages of guessed folios that are not known to be used     t  anonymous pages that are, m their most so far
//!   S  pages that guesses saved a fault     L  that were lost    b  pages that came alone
//!   room    m/50 + 1 MiB + (m - t) - u                                   sizes below 2 MiB: half of it at most, 64 KiB in any case
//!   limit   m/50 + 1 MiB + (m - t) + (m/12 + 8 MiB) (1 - 7 L/(S + 4 MiB))  no guess that takes u above it
//!   pays    L + u <= 5/4 S + (m - t)                                     nor one that puts more at stake, and
//!           L + u <= 5/4 S + (m - t) + 4 MiB + b/256                     where memory grows: four pages side by side are there,
//!                                               eight where b > 16 S + 16 MiB
//! ```
//!
//! A guess is a folio whose size the manager chose (`Policy::choice`). All its pages but the one
//! that faulted count as idle until a look finds something in them (`split::tend`); where nothing
//! more is found for long it is split, and its pages of zeros are given back. So what is guessed
//! wrongly comes back into the room, and what is guessed rightly costs a look. Of small guesses a
//! few stand for all (`stock::deferred::L5`).
//!
//! A read of memory that nobody wrote to is shown zeros. Where writes follow nearly always it takes
//! what a write would, and saves that one's fault and flush (`stock::reads`).
//!
//! **Invariants**
//! - U1. No guess takes the pages that count as idle above the limit that it saw, nor puts more at
//!   stake than guesses paid for (`GuessCounts`). CPUs that guess at once see the same counts: each
//!   may go beyond by one folio.
//! - U2. Which sizes come out depends on what is counted, on the area, and on the tables around the
//!   fault, and on nothing else: the same history takes the same sizes.
//!
//! **Not here**: looking, and giving back (`split`); what is counted (`stock::deferred`,
//! `stock::reads`).

use super::{Access, Fault, Orders, Purpose};
use crate::space::{Area, Flags};
use crate::stock::GuessCounts;
use crate::table::{Entry, Found, Paging};
use core::cell::OnceCell;
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Level, Order, Va};

/// The size below 2 MiB that needs no room: 64 KiB.
const SMALL: u8 = 4;
/// Those of `choice` that a fault may take; `is_beside` says whether the 2 MiB around it are empty
/// and those before or behind are not, `grows` whether memory grows there.
fn sizes(
    counts: GuessCounts,
    choice: Orders,
    is_beside: impl Fn() -> bool,
    grows: impl Fn() -> bool,
) -> Orders {
    let [anywhere, growing] = [false, true].map(|grows| counts.admitted(grows));
    let (room, is_growing) = (counts.room(), OnceCell::new());
    let is_taken = |order: &Order| {
        let (pages, rest) = (order.pages().get(), order.pages().get() - 1);
        let has_room = order.get() <= SMALL || 2 * pages <= room;
        rest <= growing
            && (has_room || *order == Order::SIZE_2M && is_beside())
            && (rest <= anywhere || *is_growing.get_or_init(&grows))
    };
    let taken = choice.largest_first().filter(is_taken);
    taken.fold(Orders::NONE, |sizes, order| sizes.with(Orders::of(order)))
}

impl<'f, 'm, M: Machine, P: Paging> Fault<'f, 'm, M, P> {
    /// The sizes that the manager may choose in an area.
    #[inline(never)] // most switches leave no choice
    fn choice(&self, area: &Area) -> Orders {
        self.switches.policy().choice(area.flags, self.space.thp_off())
    }
    /// Whether there are any.
    #[inline]
    pub(super) fn may_choose(&self, area: &Area) -> bool {
        self.switches.has_auto() && !self.choice(area).is_empty()
    }
    /// Those that it chooses for the fault.
    #[inline]
    pub(super) fn guess(&self, area: &Area, found: &Found) -> Orders {
        if self.may_choose(area) { self.chosen(area, found) } else { Orders::NONE }
    }
    #[inline(never)] // most switches leave no choice
    fn chosen(&self, area: &Area, found: &Found) -> Orders {
        let counts = self.stock.guess_counts();
        sizes(counts, self.choice(area), || self.is_beside(found), || self.grows(counts.run()))
    }
    /// Whether the fault is in a block of 2 MiB in which nothing is, beside one where something is.
    fn is_beside(&self, found: &Found) -> bool {
        let bytes = Order::SIZE_2M.bytes();
        let block = self.va.align_down(bytes).get();
        let is_begun = |va: Option<u64>| va.is_some_and(|va| self.view.is_begun(Va::new(va)));
        found.level > Level::BASE
            && (is_begun(block.checked_sub(1)) || is_begun(block.checked_add(bytes.get())))
    }
    /// Whether so many pages before the fault are there, or so many behind.
    fn grows(&self, run: u64) -> bool {
        let is_there = |va: Option<u64>| {
            let entry = va.map(|va| self.view.walk(Va::new(va)).entry);
            matches!(entry, Some(Entry::Leaf { .. }))
        };
        let (va, mut run) = (self.va.get(), (1..=run).map(|nth| nth * FRAME_BYTES));
        run.clone().all(|bytes| is_there(va.checked_sub(bytes)))
            || run.all(|bytes| is_there(va.checked_add(bytes)))
    }

    /// Whether the fault is a program's read of one page that may be written to, where the manager
    /// may choose: what is counted of reads.
    #[inline(never)] // most switches leave no choice
    pub(super) fn may_be_written(&self, area: &Area) -> bool {
        let is_read = self.access == Access::Read && self.purpose == Purpose::Access;
        is_read && self.is_alone() && area.flags.has(Flags::WRITE) && self.may_choose(area)
    }
    /// Whether such a read takes a page, as a write does.
    #[inline(never)]
    pub(super) fn takes_page(&self) -> bool {
        let counts = self.stock.guess_counts();
        self.stock.reads.counts().admit(counts.used, counts.room())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: GuessCounts =
        GuessCounts { idle: 0, used: 50_000, most: 50_000, saved: 40_000, lost: 0, single: 0 };

    fn largest(counts: GuessCounts, is_beside: bool) -> Option<u8> {
        largest_where(counts, is_beside, true)
    }
    fn largest_where(counts: GuessCounts, is_beside: bool, grows: bool) -> Option<u8> {
        sizes(counts, Orders::ANON, || is_beside, || grows).largest_first().next().map(Order::get)
    }

    #[test]
    fn sizes_are_as_large_as_there_is_room_for() {
        // The allowance is 1,000 + 256 pages.
        for (idle, size) in [
            (0, 9),
            (232, 9),
            (233, 8),
            (744, 8),
            (745, 7),
            (1000, 7),
            (1001, 6),
            (1192, 5),
            (1193, 4),
        ] {
            let counts = GuessCounts { idle, ..QUIET };
            assert_eq!(largest(counts, false), Some(size), "{idle}");
            assert_eq!(largest(counts, true), Some(9), "{idle}: beside memory it needs none");
        }
        let fallen = GuessCounts { idle: 1193, used: 49_500, ..QUIET };
        assert_eq!(largest(fallen, false), Some(8), "what was used once may be idle now");
    }

    #[test]
    fn no_guess_goes_beyond_the_limit() {
        let limit = 1256 + 50_000 / 12 + 2048;
        for (order, pages) in [(9, 511), (4, 15), (3, 7), (2, 3)] {
            let at = |idle| largest(GuessCounts { idle, ..QUIET }, true);
            assert_eq!(at(limit - pages), Some(order));
            assert!(at(limit - pages + 1) < Some(order));
        }
        assert_eq!(largest(GuessCounts { idle: limit, ..QUIET }, true), None);
    }

    #[test]
    fn what_was_lost_lowers_the_limit() {
        let limit = |lost, saved| GuessCounts { lost, saved, ..QUIET }.limit();
        assert_eq!(limit(0, 0), 1256 + 6214);
        assert_eq!(limit(128, 0), 1256 + 6214 / 8, "seven eighths of a seventh of 1,024");
        assert_eq!(limit(147, 0), 1256);
        assert_eq!(limit(1 << 40, 0), 1256);
        assert_eq!(limit(256, 2560), 1256 + 6214 / 2, "what was saved is set against it");
    }

    #[test]
    fn guesses_pay_or_end() {
        let at = |idle, lost, saved, single| {
            let counts = GuessCounts { idle, used: 1000, most: 1000, saved, lost, single };
            largest(counts, true)
        };
        let most = 1024 - 511;
        assert_eq!(at(most, 0, 0, 0), Some(9), "511 more pages are at stake");
        assert_eq!(at(most + 1, 0, 0, 0), Some(4), "there is no room for 128 KiB");
        assert_eq!(at(0, most + 1, 0, 0), Some(7), "what was lost is as good as what may be");
        assert_eq!(at(most + 5, 0, 4, 0), Some(9), "four that were saved pay for five");
        assert_eq!(at(most + 6, 0, 4, 0), Some(4));
        assert_eq!(at(most + 1, 0, 0, 255), Some(4));
        assert_eq!(at(most + 1, 0, 0, 256), Some(9), "it is tried again");
        assert_eq!(at(0, 1022, 0, 0), None);
    }

    #[test]
    fn where_memory_does_not_grow_guesses_pay_first() {
        let at = |idle, saved, single| {
            let counts = GuessCounts { idle, used: 1000, most: 1000, saved, lost: 0, single };
            largest_where(counts, true, false)
        };
        assert_eq!(at(0, 0, 1 << 20), None, "however many pages came alone");
        assert_eq!(at(0, 2, 0), None);
        assert_eq!(at(0, 3, 0), Some(2), "three that were saved pay for three");
        assert_eq!(at(3, 12, 0), Some(3));
        assert_eq!(at(1, 12, 0), Some(3));
        assert_eq!(at(0, 12, 0), Some(4));
    }

    #[test]
    fn of_very_many_pages_alone_four_lie_side_by_side_by_chance() {
        let run = |single, saved| GuessCounts { single, saved, ..QUIET }.run();
        assert_eq!(run(16 * 257 - 1, 0), 4);
        assert_eq!(run(16 * 257, 0), 8);
        assert_eq!(run(16 * 257, 1), 4, "guesses pay");
        assert_eq!(run(1 << 20, 1 << 16), 4);
    }

    #[test]
    fn what_is_old_goes_back_where_more_is_idle_than_may_be() {
        let old = |idle, age| GuessCounts { idle, ..QUIET }.is_old(age);
        for (idle, age) in [(1256, 3125), (1381, 2842), (1256 * 2, 2560), (1 << 40, 2560)] {
            assert!(!old(idle, age - 10) && old(idle, age + 1), "{idle} {age}");
        }
        assert!(!old(1255, 1 << 40), "there is room");
    }

    #[test]
    fn only_sizes_of_the_choice_are_taken() {
        let choice = Orders::of(Order::SIZE_2M).with(Orders::up_to(Order::new(3).unwrap()));
        let of = |choice| sizes(QUIET, choice, || true, || true);
        assert_eq!(of(choice), choice);
        assert_eq!(of(Orders::NONE), Orders::NONE);
    }
}
