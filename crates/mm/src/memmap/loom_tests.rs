//! Every interleaving of a walker of frame numbers with a block that is given back, folded,
//! unfolded, released and born folded (TR-H1). The walker is the real one, on a machine where a
//! word says what an access to a descriptor meets.

use crate::frame::{Identity, Kind};
use crate::stock::Stretch;
use crate::stock::loom_tests::{BLOCK, Mapping, Model, PAGE, claim, explore, folio, on};
use foliant_units::Order;

/// The page's owner gives it up, and its block becomes a huge page. Where a walker has a reference,
/// the page is the walker's to give back, and the rest is not done.
fn give_up(stock: &Model) -> bool {
    let Some(claim) = stock.delist(PAGE, 1) else { return false };
    let (head, _) = claim.into_raw();
    stock.set_identity(head, Identity::new(Kind::Huge, Order::SIZE_2M));
    true
}
fn fold(stock: &Model) {
    stock.wait_for_readers();
    stock.machine.map(Mapping::Shared);
}
fn unfold(stock: &Model) {
    stock.machine.map(Mapping::Own);
}
fn release(stock: &Model) {
    turn(stock, Stretch::Ready, Stretch::Moving);
    stock.wait_for_readers();
    stock.machine.map(Mapping::Nothing);
    turn(stock, Stretch::Moving, Stretch::Absent);
}
fn be_born(stock: &Model) {
    turn(stock, Stretch::Absent, Stretch::Moving);
    stock.machine.map(Mapping::Shared);
    turn(stock, Stretch::Moving, Stretch::Ready);
}
fn turn(stock: &Model, from: Stretch, to: Stretch) {
    assert!(stock.stretches.change(BLOCK, from, to));
}

/// A walker beside the owner of a page.
fn model(preemptions: impl Into<Option<usize>>, owner: impl Fn(&Model) + Sync + Send + 'static) {
    explore(preemptions, move |stock| {
        folio(stock, 0);
        let walker = on(1, || drop(stock.get_unless_zero(PAGE)));
        if give_up(stock) {
            owner(stock);
        }
        walker.join().unwrap();
    });
}

/// A walker that asks for kernel memory, beside the owner of a page.
fn kernel_model(
    preemptions: impl Into<Option<usize>>,
    owner: impl Fn(&Model) + Sync + Send + 'static,
) {
    explore(preemptions, move |stock| {
        let pages = stock.enlist_kernel(claim(stock, 0));
        let walker = on(1, || drop(stock.hold_kernel(PAGE)));
        stock.drop_kernel(pages);
        folio(stock, 0);
        if stock.identity(PAGE).kind() == Kind::Anon && give_up(stock) {
            owner(stock);
        }
        walker.join().unwrap();
    });
}

#[test]
fn a_walker_never_writes_what_is_folded() {
    model(None, fold);
}

#[test]
fn a_walker_never_reads_what_is_released() {
    model(4, release);
}

#[test]
fn a_walker_meets_folding_unfolding_and_releasing() {
    model(3, |stock| {
        fold(stock);
        unfold(stock);
        release(stock);
    });
}

#[test]
fn a_walker_meets_a_page_that_is_released_and_born_folded() {
    model(3, |stock| {
        release(stock);
        be_born(stock);
    });
}

/// Entries are broken before they are made: the stretch is gone and there again.
#[test]
fn a_walker_waits_where_entries_are_broken() {
    model(4, |stock| {
        turn(stock, Stretch::Ready, Stretch::Moving);
        stock.wait_for_readers();
        stock.machine.map(Mapping::Nothing);
        stock.machine.map(Mapping::Shared);
        turn(stock, Stretch::Moving, Stretch::Ready);
    });
}

#[test]
fn a_late_release_of_kernel_memory_never_writes_what_is_folded() {
    kernel_model(4, fold);
}

#[test]
fn a_late_release_of_kernel_memory_never_reads_what_is_released() {
    kernel_model(4, release);
}

/// The model finds the mistake that it is for: without the grace period a walker is between its
/// look and its count.
#[test]
#[should_panic(expected = "is written through a shared entry")]
fn folding_without_a_grace_period_is_found() {
    model(None, |stock| stock.machine.map(Mapping::Shared));
}

#[test]
#[should_panic(expected = "is not mapped")]
fn releasing_without_a_grace_period_is_found() {
    model(None, |stock| {
        turn(stock, Stretch::Ready, Stretch::Moving);
        stock.machine.map(Mapping::Nothing);
    });
}
