//! Which sizes the manager chooses by itself: as large as a budget for memory that nobody touches
//! has room for.
//!
//! ```text
//!   u  pages of guessed folios that are not known to be used     t  anonymous pages that are, m their most so far
//!   S  pages that guesses saved a fault     L  that were lost    b  pages that came alone
//!   room    m/50 + 1 MiB + (m - t) - u                                   sizes below 2 MiB: half of it at most, 64 KiB in any case
//!   limit   m/50 + 1 MiB + (m - t) + (m/8 + 8 MiB) (1 - 4 L/(S + 4 MiB))  no guess that takes u above it
//!   pays    L + u <= 5/4 S + 2 MiB + b/256 + (m - t)                     nor one that puts more at stake
//! ```
//!
//! A guess is a folio whose size the manager chose (`Policy::choice`). All its pages but the one
//! that faulted count as idle until a look finds something in them (`split::tend`); where nothing
//! more is found for long it is split, and its pages of zeros are given back. So what is guessed
//! wrongly comes back into the room, and what is guessed rightly costs a look. Of small guesses a
//! few stand for all (`stock::deferred::L5`).
//!
//! **Invariants**
//! - U1. No guess takes the pages that count as idle above the limit that it saw, nor puts more at
//!   stake than guesses paid for (`GuessCounts`). CPUs that guess at once see the same counts: each
//!   may go beyond by one folio.
//! - U2. Which sizes come out depends on what is counted, on the area, and on the tables around the
//!   fault, and on nothing else: the same history takes the same sizes.
//!
//! **Not here**: looking, and giving back (`split`); what is counted (`stock::deferred`).

use super::Orders;
use crate::stock::GuessCounts;
use foliant_units::Order;

/// The size below 2 MiB that needs no room: 64 KiB.
const SMALL: u8 = 4;

/// Those of `choice` that a fault may take; `is_beside` says whether the 2 MiB around it are empty
/// and those before or behind are not.
pub(super) fn sizes(counts: GuessCounts, choice: Orders, is_beside: impl Fn() -> bool) -> Orders {
    let (admitted, room) = (counts.admitted(), counts.room());
    let is_taken = |order: &Order| {
        let pages = order.pages().get();
        let has_room = order.get() <= SMALL || 2 * pages <= room;
        pages - 1 <= admitted && (has_room || *order == Order::SIZE_2M && is_beside())
    };
    let taken = choice.largest_first().filter(is_taken);
    taken.fold(Orders::NONE, |sizes, order| sizes.with(Orders::of(order)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: GuessCounts =
        GuessCounts { idle: 0, used: 50_000, most: 50_000, saved: 40_000, lost: 0, single: 0 };

    fn largest(counts: GuessCounts, is_beside: bool) -> Option<u8> {
        sizes(counts, Orders::ANON, || is_beside).largest_first().next().map(Order::get)
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
        let limit = 1256 + 50_000 / 8 + 2048;
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
        assert_eq!(limit(0, 0), 1256 + 8298);
        assert_eq!(limit(128, 0), 1256 + 8298 / 2, "half of a quarter of 1,024");
        assert_eq!(limit(256, 0), 1256);
        assert_eq!(limit(1 << 40, 0), 1256);
        assert_eq!(limit(256, 1024), 1256 + 8298 / 2, "what was saved is set against it");
    }

    #[test]
    fn guesses_pay_or_end() {
        let at = |idle, lost, saved, single| {
            let counts = GuessCounts { idle, used: 1000, most: 1000, saved, lost, single };
            largest(counts, true)
        };
        assert_eq!(at(0, 0, 0, 0), Some(9), "511 pages are at stake");
        assert_eq!(at(1, 0, 0, 0), Some(9));
        assert_eq!(at(2, 0, 0, 0), Some(7));
        assert_eq!(at(0, 2, 0, 0), Some(7), "what was lost is as good as what may be");
        assert_eq!(at(6, 0, 4, 0), Some(9), "four that were saved pay for five");
        assert_eq!(at(7, 0, 4, 0), Some(7));
        assert_eq!(at(2, 0, 0, 255), Some(7));
        assert_eq!(at(2, 0, 0, 256), Some(9), "it is tried again");
        assert_eq!(at(0, 510, 0, 0), None);
    }

    #[test]
    fn what_is_old_goes_back_where_more_is_idle_than_may_be() {
        let old = |idle, age| GuessCounts { idle, ..QUIET }.is_old(age);
        for (idle, age) in [(1256, 5000), (1256 * 3 / 2, 3333), (1256 * 2, 2560), (1 << 40, 2560)] {
            assert!(!old(idle, age - 10) && old(idle, age + 1), "{idle} {age}");
        }
        assert!(!old(1255, 1 << 40), "there is room");
    }

    #[test]
    fn only_sizes_of_the_choice_are_taken() {
        let choice = Orders::of(Order::SIZE_2M).with(Orders::up_to(Order::new(3).unwrap()));
        assert_eq!(sizes(QUIET, choice, || true), choice);
        assert_eq!(sizes(QUIET, Orders::NONE, || true), Orders::NONE);
    }
}
