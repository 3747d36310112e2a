//! Tests that are possible only from inside: tokens that lie, pages in use, descriptors of other
//! sizes.

use super::reclaim::{LOOK, Look};
use super::*;
use crate::Manager;
use crate::fault::Policy;
use crate::folio::Class;
use crate::frame::{Flag, Identity, Kind, References};
use crate::manager::{Poisoned, Setup};
use crate::stock::Block;
use crate::table::X86_64;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use foliant_sim::{Config, Sim};

type Mm<'m> = Manager<'m, Sim, X86_64<4>>;

fn sim() -> Sim {
    Sim::new(Config::seeded(2, Bytes::new(256 << 20), 1)).unwrap()
}
fn manager(sim: &Sim) -> Mm<'_> {
    let memory = &sim.config().memory;
    let setup = Setup::of(memory, Policy::BASE_ONLY);
    Manager::new(sim, &setup).unwrap()
}

/// Every word of every descriptor of the page.
fn descriptors(memmap: &Memmap<'_, '_, Sim, X86_64<4>>, huge: &Huge) -> Vec<u64> {
    let frames = huge.frames().iter();
    let words = |frame| (0..8).map(move |word| memmap.stock.descriptor_word(frame, word));
    frames.flat_map(words).collect()
}

/// TR-H4: a page whose mark is gone is refused by every operation, and nothing changes.
#[test]
fn tr_h4_a_page_without_the_mark_is_refused() {
    let sim = sim();
    let mm = manager(&sim);
    let memmap = mm.memmap();
    for form in [Form::Folded, Form::Dense] {
        let huge = memmap.claim(Order::SIZE_2M, form).unwrap();
        let (head, marked) = (huge.head(), memmap.stock.identity(huge.head()));
        for lie in [Identity::PLAIN, Identity::new(Kind::Anon, Order::SIZE_2M)] {
            memmap.stock.set_identity(head, lie);
            let before = (descriptors(&memmap, &huge), memmap.census(), mm.memory());
            let mut batch = Batch::new(&memmap);
            batch.push(Huge::from_raw(memmap.stock.brand(), head, Order::SIZE_2M)).unwrap();
            let why = Some(MemmapError::NotHuge(head));
            let folded = memmap.fold(&mut batch);
            assert_eq!(folded, Folded { refused: 1, why, ..Folded::default() });
            let unfolded = memmap.unfold(&mut batch);
            assert_eq!(unfolded, Unfolded { refused: 1, why, ..Unfolded::default() });
            let released = memmap.release(&mut batch);
            assert_eq!(released, Released { refused: 1, why, ..Released::default() });
            let freed = memmap.free(batch.pop().unwrap()).unwrap_err();
            assert_eq!(Some(freed.why), why);
            assert_eq!((descriptors(&memmap, &huge), memmap.census(), mm.memory()), before);
        }
        memmap.stock.set_identity(head, marked);
        let mut batch = Batch::new(&memmap);
        batch.push(huge).unwrap();
        memmap.release(&mut batch);
    }
    assert!(sim.finish().is_empty());
}

#[test]
fn a_page_with_references_is_refused() {
    let sim = sim();
    let mm = manager(&sim);
    let memmap = mm.memmap();
    let huge = memmap.claim(Order::SIZE_2M, Form::Folded).unwrap();
    let head = huge.head();
    memmap.stock.set_references(head, 3);
    let mut batch = Batch::new(&memmap);
    batch.push(huge).unwrap();
    let why = Some(MemmapError::InUse { head, references: 3 });
    assert_eq!(memmap.unfold(&mut batch).why, why);
    assert_eq!(memmap.release(&mut batch).why, why);
    assert!(mm.reference(head).is_none(), "a huge page's references are not a walker's");
    memmap.stock.set_references(head, 0);
    assert_eq!(memmap.release(&mut batch).absent, 1);
    assert!(sim.finish().is_empty());
}

/// The only block that is left holds its own descriptors, and is free but for them.
fn hosting<'a, 'm>(
    memmap: &Memmap<'a, 'm, Sim, X86_64<4>>,
    batch: &mut Batch<'a, 'm, Sim, X86_64<4>>,
) -> Block {
    while let Ok(huge) = memmap.claim(Order::SIZE_2M, Form::Folded) {
        batch.push(huge).unwrap();
    }
    let mut pages = Vec::new();
    let fill = |pages: &mut Vec<_>| {
        while let Ok(claim) = memmap.stock.claim(Order::BASE, Class::Unmovable) {
            pages.push(claim);
        }
    };
    fill(&mut pages);
    let mut last = Batch::new(memmap);
    last.push(batch.pop().unwrap()).unwrap();
    memmap.release(&mut last);
    fill(&mut pages);
    pages.drain(..).for_each(|claim| memmap.stock.release(claim));
    let ranges = memmap.stock.folios.ranges().flat_map(|range| range.iter());
    let blocks = ranges.map(Block::of).collect::<BTreeSet<_>>();
    blocks.into_iter().find(|block| memmap.candidate(*block).is_some()).expect("it hosts its own")
}

/// Two claimers that find nothing look at the same block. The one that comes later finds that it is
/// whole, and leaves it alone: somebody may have pages of it by then.
#[test]
fn finding_ao_a_block_that_was_made_whole_meanwhile_is_left_alone() {
    let sim = sim();
    let mm = manager(&sim);
    let memmap = mm.memmap();
    let mut batch = Batch::new(&memmap);
    let block = hosting(&memmap, &mut batch);
    let found = memmap.candidate(block).unwrap();
    assert_eq!(memmap.reclaim(), 1); // the other one was faster
    let before = mm.memory();
    assert!(!memmap.hold_rest(&found));
    assert_eq!(mm.memory(), before);
    memmap.release(&mut batch);
    drop(batch);
    assert!(sim.finish().is_empty());
}

/// The leaf of a section's descriptors may lie in the section. Split, it is a block that holds its
/// own descriptors, among others.
#[test]
fn finding_ap_a_leaf_that_describes_itself_is_counted_when_it_is_split() {
    let sim = sim();
    let mm = manager(&sim);
    mm.describe_all().unwrap();
    let memmap = mm.memmap();
    let mut batch = Batch::new(&memmap);
    while let Ok(huge) = memmap.claim(Order::SIZE_2M, Form::Dense) {
        batch.push(huge).unwrap();
    }
    let before = memmap.stock.stretches.hosts();
    memmap.fold(&mut batch);
    assert_eq!((before, memmap.stock.stretches.hosts()), (0, 1));
    memmap.release(&mut batch);
    drop(batch);
    assert!(sim.finish().is_empty());
}

/// Forgotten references are counted up to a limit, far from where the count would run over.
#[test]
fn finding_ba_forgotten_references_do_not_run_over() {
    let sim = sim();
    let mm = manager(&sim);
    let memmap = mm.memmap();
    let stock = memmap.stock;
    let pages = stock.enlist_kernel(stock.claim(Order::BASE, Class::Unmovable).unwrap());
    let pins = |n: u64| References::PIN.word() * n + 1;
    stock.set_references(pages.start(), pins(References::PINS_MAX - 1));
    assert!(stock.get_unless_zero(pages.start()).is_some(), "it was let go of at once");
    stock.set_references(pages.start(), pins(References::PINS_MAX));
    assert!(stock.get_unless_zero(pages.start()).is_none());
    // The manager's own are told from those.
    assert!(stock.hold_kernel(pages.start()).is_some(), "it was let go of at once");
    stock.set_references(pages.start(), pins(References::PINS_OWN));
    assert!(stock.hold_kernel(pages.start()).is_none());
    stock.set_references(pages.start(), pins(0));
    stock.drop_kernel(pages);
    assert!(sim.finish().is_empty());
}

/// A page with all references that walkers may have is reported broken as any other.
#[test]
fn finding_by_a_page_with_many_references_is_reported_broken() {
    let sim = sim();
    let mm = manager(&sim);
    let memmap = mm.memmap();
    let stock = memmap.stock;
    let pages = stock.enlist_kernel(stock.claim(Order::BASE, Class::Unmovable).unwrap());
    let word = References::PIN.word() * References::PINS_MAX + 1;
    stock.set_references(pages.start(), word);
    assert_eq!(mm.poison(pages.start()), Poisoned::Held);
    assert!(mm.identity(pages.start()).has(Flag::Poisoned));
    assert_eq!(stock.counts(pages.start()).word(), word, "the reporter has let go");
}

/// TR-H9: where descriptors do not fill frames exactly there is nothing to fold.
#[test]
fn tr_h9_descriptors_of_an_odd_size_are_not_folded() {
    for (order, bytes, saved) in [
        (9, 64, 7),
        (9, 56, 0),
        (18, 56, 0),
        (18, 64, 4095),
        (13, 64, 127),
        (4, 64, 0),
        (9, 128, 15),
        (9, 8192, 0),
    ] {
        let order = Order::new(order).unwrap();
        assert_eq!(savable(order, Bytes::new(bytes)).get(), saved, "{order}, {bytes}");
    }
}

/// A claim that is refused looks at no block while none holds its own descriptors, and else at so
/// many blocks, each time at other ones; the last block of 64 GiB is found as well.
#[test]
fn finding_q3_a_refused_claim_looks_at_few_blocks() {
    let sim = Sim::new(Config::seeded(2, Bytes::new(64 << 30), 1)).unwrap();
    let mm = manager(&sim);
    let memmap = mm.memmap();
    let mut batch = Batch::new(&memmap);
    for order in [Order::SIZE_1G, Order::SIZE_2M] {
        while let Ok(huge) = memmap.claim(order, Form::Folded) {
            batch.push(huge).unwrap();
        }
    }
    let stretches = &memmap.stock.stretches;
    let hosts = stretches.hosts();
    (0..hosts).for_each(|_| stretches.unhosted());
    assert_eq!(memmap.reclaim_some(), Look::default());
    stretches.hosted();
    let before = stretches.cursor();
    let steps = 32 * 1024 / LOOK;
    for step in 0..steps {
        assert_eq!(memmap.reclaim_some(), Look { looked: LOOK, whole: 0 }, "step {step}");
    }
    assert!(stretches.cursor() != before && steps > 8);
    stretches.unhosted();
    (0..hosts).for_each(|_| stretches.hosted());
    memmap.release(&mut batch);
    drop(batch);
    assert!(sim.finish().is_empty());
}
