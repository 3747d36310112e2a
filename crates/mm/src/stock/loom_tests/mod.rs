//! Every interleaving of the protocols over a few words of descriptors: the real stock on a machine
//! that has nothing else.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p foliant --lib --release loom_tests`. How a walker meets
//! folded and released descriptors is in `memmap`.

mod world;

pub(crate) use world::{
    BLOCK, Mapping, Model, PAGE, all_is_free, claim, explore, flushed, folio, on, origin,
};

use super::*;
use crate::folio::Class;
use crate::frame::{Flag, Identity, Kind, Link};
use foliant_machine::Cpus;
use foliant_units::{Frame, FrameRange, Order, Pages};
use std::vec::Vec;

fn page(nth: u64) -> Frame {
    PAGE.add(Pages::new(nth))
}

// What a walker gets.

/// A folio of two pages is split beside a walker that asks for the second one: what the walker gets
/// is the folio that the page is in, as long as the walker keeps it.
#[test]
fn a_reference_is_to_the_folio_that_holds_the_page() {
    explore(4, |stock| {
        let head = folio(stock, 1);
        let walker = on(1, || {
            if let Some(kept) = stock.get_unless_zero(page(1)) {
                let identity = stock.identity(page(1));
                assert!(matches!(identity.kind(), Kind::Anon | Kind::Tail), "{identity:?}");
                assert_eq!(identity.head(page(1)), kept.head());
            }
        });
        let held = stock.hold(head).unwrap();
        match stock.freeze(held, 2) {
            Ok(frozen) => {
                stock.folios.split(head, frozen.order(), Order::BASE).unwrap();
                stock.retire_head(frozen);
                for nth in 0..2 {
                    stock.publish((page(nth), Order::BASE), origin(), 1);
                }
                for nth in 0..2 {
                    stock.drop_unused(page(nth), 1);
                }
            }
            Err(held) => {
                drop(held);
                stock.drop_unused(head, 2);
            }
        }
        walker.join().unwrap();
        all_is_free(stock);
    });
}

/// Pages that came together end together beside a walker that asks for one of them: what it gets
/// stays that page as long as it keeps it, and both come back.
#[test]
fn pages_that_end_together_are_each_kept_by_a_pin() {
    explore(None, |stock| {
        let first = stock.enlist_pages(claim(stock, 1), |_| origin());
        let walker = on(1, || {
            if let Some(kept) = stock.get_unless_zero(page(1)) {
                let identity = stock.identity(page(1));
                assert_eq!((identity.kind(), kept.head()), (Kind::Anon, page(1)));
            }
        });
        stock.drop_pages(first, 2, flushed());
        walker.join().unwrap();
        all_is_free(stock);
    });
}

/// A page of kernel memory ends, and its frame becomes a program's page: a walker that asks for
/// kernel memory never gets that one.
#[test]
fn a_hold_of_kernel_memory_is_of_kernel_memory() {
    explore(None, |stock| {
        let pages = stock.enlist_kernel(claim(stock, 0));
        let walker = on(1, || {
            if let Some(kept) = stock.hold_kernel(PAGE) {
                assert_eq!(stock.identity(PAGE).kind(), Kind::Kernel);
                stock.set_link(kept.head(), Link::Next, 7);
                assert_eq!(stock.identity(PAGE).kind(), Kind::Kernel);
            }
        });
        stock.drop_kernel(pages);
        let next = folio(stock, 0);
        stock.set_link(next, Link::Next, 0);
        assert_eq!(stock.link(next, Link::Next), 0, "a stranger's page is written to");
        stock.drop_unused(next, 1);
        walker.join().unwrap();
        all_is_free(stock);
    });
}

/// A page ends, and its frame becomes kernel memory: a walker that counted it on the way, and is
/// the last one to let go, gives back what it is by then.
#[test]
fn finding_az_a_walker_lets_go_of_what_a_page_has_become() {
    for kernel in [false, true] {
        explore(None, move |stock| {
            let first = if kernel { None } else { Some(folio(stock, 0)) };
            let pages = kernel.then(|| stock.enlist_kernel(claim(stock, 0)));
            let walker = on(1, move || match kernel {
                false => drop(stock.get_unless_zero(PAGE)),
                true => drop(stock.hold_kernel(PAGE)),
            });
            first.into_iter().for_each(|head| stock.drop_unused(head, 1));
            pages.into_iter().for_each(|pages| stock.drop_kernel(pages));
            let next = stock.enlist_kernel(claim(stock, 0));
            stock.drop_kernel(next);
            walker.join().unwrap();
            all_is_free(stock);
        });
    }
}

// Pages on their way back.

/// Takes what came back.
fn taken(stock: &Model) -> Vec<Frame> {
    let mut next = stock.take_returned();
    let mut all = Vec::new();
    while let Some(head) = next.checked_sub(1).map(Frame::new) {
        next = stock.link(head, Link::Next);
        all.push(head);
    }
    all
}

/// Huge pages of the smallest order there is, each with one reference.
fn huge_pages(stock: &Model, count: u64) {
    for nth in 0..count {
        stock.set_identity(page(nth), Identity::new(Kind::Huge, Order::BASE));
        assert!(stock.enlist_huge(FrameRange::new(page(nth), Pages::new(1)).unwrap(), 1, origin()));
    }
}

/// A huge page moves, or stays after all, beside a report that its memory is broken and the end of
/// its last entry: it is marked before it is held or after that, and comes back once.
#[test]
fn a_huge_page_is_not_marked_while_it_is_held() {
    for moves in [false, true] {
        explore(None, move |stock| {
            huge_pages(stock, 1);
            let reporter = on(1, || assert!(stock.poison(page(0))));
            let mut has_entry = true;
            if let Ok(held) = stock.hold_huge(page(0)) {
                // A swap meets the newest word, where a load may find an older one.
                let is_marked = || {
                    stock.unflag(page(0), Flag::Deferred);
                    stock.identity(page(0)).has(Flag::Poisoned)
                };
                match stock.freeze(held, 1) {
                    Ok(frozen) if moves => {
                        assert!(!is_marked());
                        stock.delist_frozen_huge(frozen);
                        has_entry = false;
                    }
                    Ok(frozen) => {
                        let held = stock.thaw(frozen);
                        assert!(!is_marked());
                        drop(held);
                    }
                    Err(_) => unreachable!("nobody else has it"),
                }
            }
            if has_entry {
                stock.drop_unused(page(0), 1);
            }
            reporter.join().unwrap();
            assert!(stock.identity(page(0)).has(Flag::Poisoned));
            assert!(!stock.identity(page(0)).has(Flag::Locked));
            assert_eq!(taken(stock).len(), usize::from(has_entry));
        });
    }
}

/// Two CPUs drop the last references of two pages while a third one takes what came back: each page
/// is taken once.
#[test]
fn a_page_that_comes_back_is_taken_once() {
    explore(None, |stock| {
        huge_pages(stock, 2);
        let drops = |nth| on(nth as u16 + 1, move || stock.drop_unused(page(nth), 1));
        let others = [drops(0), drops(1)];
        let mut all = taken(stock);
        others.into_iter().for_each(|other| other.join().unwrap());
        let rest = taken(stock);
        let filled = [&all, &rest].iter().filter(|some| !some.is_empty()).count();
        assert_eq!(stock.total(Event::HugeWork), filled as u64, "R2");
        all.extend(rest);
        all.sort();
        assert_eq!(all, [page(0), page(1)]);
    });
}

/// A page is taken, handed out and given back again while another one is being put on top of it.
#[test]
fn a_page_that_comes_back_twice_is_no_danger() {
    explore(None, |stock| {
        huge_pages(stock, 3);
        stock.drop_unused(page(0), 1);
        let other = on(1, || stock.drop_unused(page(1), 1));
        let mut all = taken(stock);
        // All but the first go elsewhere, and that one comes back on top of a new one.
        if all.contains(&page(0)) {
            all.retain(|head| *head != page(0));
            assert!(stock.enlist_huge(
                FrameRange::new(page(0), Pages::new(1)).unwrap(),
                1,
                origin()
            ));
            stock.drop_unused(page(2), 1);
            stock.drop_unused(page(0), 1);
        }
        other.join().unwrap();
        all.extend(taken(stock));
        all.sort();
        assert_eq!(all, [page(0), page(1), page(2)]);
    });
}

// Folios that wait to be split.

/// Folios of one page, so many, all on the list.
fn deferred<const N: usize>(stock: &Model) -> [Frame; N] {
    let all = core::array::from_fn(|_| folio(stock, 0));
    all.iter().for_each(|head| stock.defer(*head));
    all
}

/// The list leads to so many folios, and to nothing else.
fn listed(stock: &Model, count: u64) {
    assert_eq!((stock.recount_deferred(), stock.deferred()), (Ok(count), count));
}

/// A folio goes on the list while those that were there end: what is linked is what waits.
#[test]
fn folios_come_and_go_beside_each_other() {
    explore(None, |stock| {
        let [first, last] = deferred(stock);
        let new = folio(stock, 0);
        let other = on(1, move || stock.drop_unused(last, 1));
        stock.defer(new);
        stock.drop_unused(first, 1);
        other.join().unwrap();
        listed(stock, 1);
        stock.drop_unused(new, 1);
        listed(stock, 0);
        all_is_free(stock);
    });
}

/// A folio ends beside a turn: the CPU that takes the turn keeps a folio, or has none
/// (stock::deferred::L2).
#[test]
fn a_turn_is_had_of_a_folio_that_lives() {
    explore(None, |stock| {
        let [first, last] = deferred(stock);
        let other = on(1, move || stock.drop_unused(first, 1));
        let turn = stock.next_deferred().expect("the last one is there");
        let identity = stock.identity(turn.head());
        assert!(identity.kind() == Kind::Anon && identity.has(Flag::Deferred), "{identity:?}");
        drop(turn);
        other.join().unwrap();
        listed(stock, 1);
        stock.drop_unused(last, 1);
        all_is_free(stock);
    });
}

/// Two CPUs drop a page of a folio each: the folio waits once.
#[test]
fn a_folio_waits_once() {
    explore(None, |stock| {
        let head = folio(stock, 2);
        let other = on(1, move || stock.drop_unused(head, 1));
        stock.drop_unused(head, 1);
        other.join().unwrap();
        listed(stock, 1);
        assert_eq!(stock.size_stats(Order::new(2).unwrap()).get(SizeEvent::SplitDeferred), 1);
        stock.drop_unused(head, 2);
        all_is_free(stock);
    });
}

/// Two CPUs give up half of a folio each: it waits no more, and nobody marks what has ended.
#[test]
fn a_folio_that_ends_waits_no_more() {
    explore(None, |stock| {
        let head = folio(stock, 2);
        let other = on(1, move || stock.drop_unused(head, 2));
        stock.drop_unused(head, 2);
        other.join().unwrap();
        listed(stock, 0);
        all_is_free(stock);
    });
}

/// A folio is taken off because it is used, and loses a page at that moment: it waits
/// (stock::deferred::L3).
#[test]
fn a_used_folio_that_loses_a_page_waits() {
    explore(4, |stock| {
        let head = folio(stock, 2);
        stock.defer(head);
        let other = on(1, move || stock.drop_unused(head, 1));
        stock.undefer_used(&stock.hold(head).unwrap());
        other.join().unwrap();
        assert!(stock.identity(head).has(Flag::PartlyMapped));
        listed(stock, 1);
        stock.drop_unused(head, 3);
        all_is_free(stock);
    });
}

/// A folio becomes pieces beside a turn: none of them waits, and nobody keeps what is no more.
#[test]
fn a_turn_beside_a_split_keeps_nothing_of_it() {
    explore(None, |stock| {
        let [first, last] = deferred(stock);
        let other = on(1, move || {
            let turn = stock.next_deferred().expect("the last one is there");
            assert!(stock.identity(turn.head()).has(Flag::Deferred));
        });
        match stock.freeze(stock.hold(first).unwrap(), 1) {
            Ok(frozen) => stock.release(stock.delist_frozen(frozen)),
            Err(held) => {
                drop(held);
                stock.drop_unused(first, 1);
            }
        }
        other.join().unwrap();
        listed(stock, 1);
        stock.drop_unused(last, 1);
        all_is_free(stock);
    });
}

/// One CPU opens the only block for its seat, one for another seat, and the third wants it whole:
/// each that gets something gives it back, and in the end the block can be had whole.
#[test]
fn three_that_open_a_block_and_take_it_whole_leave_it_to_anybody() {
    explore(2, |stock| {
        let turn = |order, class| {
            let cpu = stock.machine.me();
            if let Ok(frame) = stock.folios.alloc(cpu, order, class) {
                stock.folios.free(cpu, frame, order).unwrap();
            }
        };
        let others = [
            on(1, move || turn(Order::BASE, Class::Table)),
            on(2, move || turn(Order::SIZE_2M, Class::Movable)),
        ];
        turn(Order::BASE, Class::Movable);
        others.into_iter().for_each(|other| other.join().unwrap());
        stock.folios.validate().unwrap();
        assert_eq!(stock.folios.free_frames(), Order::SIZE_2M.pages());
        let whole = stock.folios.alloc(stock.machine.me(), Order::SIZE_2M, Class::Movable);
        assert_eq!(whole, Ok(PAGE));
    });
}
