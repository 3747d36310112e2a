//! Which sizes the manager chooses by itself: as large as a budget for memory that nobody touches
//! has room for.
//!
//! ```text
//!   u  pages of guessed folios that are not known to be used      t  anonymous pages that are, and their most so far
//!   room    2 % of the most + 1 MiB + (most - t) - u               sizes below 2 MiB: half of it at most, 64 KiB in any case
//!   limit   25 % of the most + 8 MiB + (most - t)                  no guess that takes u above it
//!   pays    lost <= 3/2 saved + 4 MiB + 1/64 of the single pages    no guess while more was lost than saved
//! ```
//!
//! A guess is a folio whose size the manager chose (`Policy::choice`). All its pages but the one
//! that faulted count as idle until a look finds something in them (`split::tend`); where nothing
//! more is found for long it is split, and its pages of zeros are given back. So what is guessed
//! wrongly comes back into the room, and what is guessed rightly costs a look.
//!
//! **Invariants**
//! - U1. No guess takes the pages that count as idle above the limit that it saw, nor is one made
//!   while guesses do not pay (`GuessCounts`). CPUs that guess at once see the same counts: each
//!   may go beyond by one folio.
//! - U2. Which sizes come out depends on what is counted, on the area and on the space, and on
//!   nothing else: the same history takes the same sizes.
//!
//! **Not here**: looking, and giving back (`split`); what is counted (`stock::deferred`).

use super::Orders;
use crate::stock::GuessCounts;
use foliant_units::Order;

/// The size below 2 MiB that needs no room: 64 KiB.
const SMALL: u8 = 4;
/// The largest below 2 MiB.
const MIDDLE: u8 = 8;

/// Those of `choice` that a fault may take in a space that maps so many pages.
pub(super) fn sizes(counts: GuessCounts, choice: Orders, space: u64) -> Orders {
    let is_worth = |order: Order| match order.get() {
        // A space that is smaller than a leaf does not begin with one.
        9 => space >= order.pages().get(),
        n => n <= SMALL || n <= MIDDLE && 2 * order.pages().get() <= counts.room(),
    };
    let taken = |order: &Order| counts.admits(order.pages().get() - 1) && is_worth(*order);
    let orders = choice.largest_first().filter(taken);
    orders.fold(Orders::NONE, |sizes, order| sizes.with(Orders::of(order)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: GuessCounts =
        GuessCounts { idle: 0, used: 50_000, most: 50_000, saved: 0, lost: 0, single: 0 };

    fn largest(counts: GuessCounts, space: u64) -> Option<u8> {
        sizes(counts, Orders::ANON, space).largest_first().next().map(Order::get)
    }

    #[test]
    fn sizes_are_as_large_as_there_is_room_for() {
        // The allowance is 1,000 + 256 pages.
        for (idle, middle) in
            [(0, 8), (744, 8), (745, 7), (1000, 7), (1001, 6), (1192, 5), (1193, 4)]
        {
            assert_eq!(largest(GuessCounts { idle, ..QUIET }, 511), Some(middle), "{idle}");
            assert_eq!(
                largest(GuessCounts { idle, ..QUIET }, 512),
                Some(9),
                "{idle}: a leaf needs none"
            );
        }
        let fallen = GuessCounts { idle: 1193, used: 49_000, ..QUIET };
        assert_eq!(largest(fallen, 0), Some(8), "what was used once may be idle now");
    }

    #[test]
    fn no_guess_goes_beyond_the_limit() {
        let limit = 50_000 / 4 + 2048;
        for (order, pages) in [(9, 511), (4, 15), (3, 7), (2, 3)] {
            let at = |idle| largest(GuessCounts { idle, ..QUIET }, 512);
            assert_eq!(at(limit - pages), Some(order));
            assert!(at(limit - pages + 1) < Some(order));
        }
        assert_eq!(largest(GuessCounts { idle: limit, ..QUIET }, 512), None);
    }

    #[test]
    fn guesses_pay_or_end() {
        let lost = |lost, saved, single| GuessCounts { lost, saved, single, ..QUIET };
        assert_eq!(largest(lost(1024, 0, 0), 512), Some(9));
        assert_eq!(largest(lost(1025, 0, 0), 512), None);
        assert_eq!(largest(lost(1025, 1, 0), 512), Some(9));
        assert_eq!(largest(lost(1024 + 150, 100, 0), 512), Some(9));
        assert_eq!(largest(lost(1024 + 151, 100, 0), 512), None);
        assert_eq!(largest(lost(1025, 0, 63), 512), None);
        assert_eq!(largest(lost(1025, 0, 64), 512), Some(9));
    }

    #[test]
    fn only_sizes_of_the_choice_are_taken() {
        let choice = Orders::of(Order::SIZE_2M).with(Orders::up_to(Order::new(3).unwrap()));
        assert_eq!(sizes(QUIET, choice, 512), choice);
        assert_eq!(sizes(QUIET, Orders::NONE, 512), Orders::NONE);
    }
}
