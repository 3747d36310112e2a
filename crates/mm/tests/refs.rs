//! What is noted of use, and how it is forgotten: by a naive twin, with what it costs.

use crate::common::*;
use foliant::fault::Orders;
use foliant::manager::Setup;
use foliant::space::{Advice, Flags, RangeError, Refs, SpaceId};
use foliant::table::{Aarch64, Attrs, Entry, Paging, Riscv64, X86_64};
use foliant::{Event, Policy};
use foliant_sim::{Config, Format, RiscvMode, Rng, Sim, X86Levels};
use foliant_units::{Bytes, Order, Va};

/// Pages of the window that everything happens in.
const WINDOW: u64 = 48;

/// What entries say of the pages of the window.
fn noted<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId) -> Vec<Option<Attrs>> {
    let mut pages = vec![None; WINDOW as usize];
    mm.with_leaves(id, row(0, WINDOW), |leaves| {
        for leaf in leaves {
            let Entry::Leaf { attrs, .. } = leaf.entry else { continue };
            let first = leaf.va.get().max(BASE) - BASE;
            let end = (leaf.va.get() + leaf.level.span().get()).min(BASE + WINDOW * PAGE) - BASE;
            (first / PAGE..end / PAGE).for_each(|nth| pages[nth as usize] = Some(attrs));
        }
    });
    pages
}

/// What is known of a page.
#[derive(Clone, Copy, Default)]
struct Known {
    used: bool,
    written: bool,
    is_closed: bool,
}

/// Random operations on one window, each page's notes compared after each. Where folios are larger
/// than a page, one page's use may be noted for others.
fn model<P: Paging>(format: Format, policy: Policy, seed: u64) {
    let config = Config::seeded(2, Bytes::new(64 * MB), 3).with_format(format);
    let sim = Sim::new(config).unwrap();
    let memory = sim.config().memory.clone();
    let mm: Audited<'_, P> = audited(&sim, &Setup::of(&memory, policy));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 2 * MB);
    let is_exact = policy == Policy::BASE_ONLY;
    let keeps = P::KEEPS.has(Attrs::SOFT_DIRTY);
    let mut rng = Rng::new(seed, 1);
    let mut known = [Known::default(); WINDOW as usize];
    for _ in 0..400 {
        let first = rng.below(WINDOW);
        let pages = 1 + rng.below(WINDOW - first);
        let part = row(first, pages);
        let all = first as usize..(first + pages) as usize;
        let one = &mut known[first as usize];
        match rng.below(9) {
            0..=2 if !one.is_closed => {
                store(&sim, &mm, id, part.start().get(), 7);
                (one.used, one.written) = (true, true);
            }
            3 => {
                load(&sim, &mm, id, part.start().get());
                one.used = true;
            }
            4 => {
                let is_closed = rng.once_in(2);
                let rights = if is_closed { Flags::READ } else { Flags::READ_WRITE };
                mm.protect(id, part, rights).unwrap();
                known[all].iter_mut().for_each(|page| page.is_closed = is_closed);
            }
            5 => {
                mm.clear_refs(id, part, Refs::Accessed).unwrap();
                // A machine may use what nobody asked for, and not while it does nothing.
                let notes = &noted(&mm, id)[all.clone()];
                assert!(!notes.iter().flatten().any(|attrs| attrs.has(Attrs::ACCESSED)));
                known[all].iter_mut().for_each(|page| page.used = false);
            }
            6 => {
                mm.clear_refs(id, part, Refs::SoftDirty).unwrap();
                known[all].iter_mut().for_each(|page| page.written = false);
            }
            7 => {
                let child = mm.fork(id).unwrap();
                if rng.once_in(2) {
                    assert_eq!(noted(&mm, child).len(), noted(&mm, id).len());
                }
                mm.end(child).unwrap();
            }
            8 if rng.once_in(3) => {
                mm.advise(id, part, Advice::DontNeed).unwrap();
                known[all].iter_mut().for_each(|page| (page.used, page.written) = (false, false));
            }
            _ => {}
        }
        for (nth, (page, attrs)) in known.iter().zip(noted(&mm, id)).enumerate() {
            let has = |attr| attrs.is_some_and(|attrs| attrs.has(attr));
            assert!(has(Attrs::ACCESSED) || !page.used, "{format:?}, page {nth}: {attrs:?}");
            if keeps {
                assert!(has(Attrs::SOFT_DIRTY) || !page.written, "{format:?}, page {nth}");
                assert!(has(Attrs::SOFT_DIRTY) || !has(Attrs::WRITE), "{format:?}, page {nth}");
            }
            if is_exact {
                let is_noted = keeps && has(Attrs::SOFT_DIRTY);
                assert_eq!(is_noted, keeps && page.written, "{format:?}, page {nth}: {attrs:?}");
            }
        }
    }
}

#[test]
fn each_use_and_each_write_is_noted_since_it_was_forgotten() {
    let sizes = [Policy::BASE_ONLY, only(2), only(4), only(9)];
    for (seed, policy) in (0..).zip(sizes) {
        model::<X86_64<4>>(Format::X86_64(X86Levels::Four), policy, seed);
        model::<Aarch64>(Format::Aarch64, policy, seed);
        model::<Riscv64<4>>(Format::Riscv64(RiscvMode::Sv48), policy, seed);
    }
}

fn shootdowns(mm: &Mm<'_>, work: impl FnOnce()) -> u64 {
    let before = mm.total(Event::Shootdown);
    work();
    mm.total(Event::Shootdown) - before
}

/// One shootdown for all that was written and one for each table with what was used, and none where
/// nothing was.
#[test]
fn forgetting_is_few_flushes() {
    let sim = sim(4, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    for n in 0..4 {
        sim.on(cpu(n), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
        });
    }
    area(&mm, id, BASE, MB);
    area(&mm, id, BASE + 4 * MB, MB);
    for page in (0..256).chain(1024..1280) {
        store(&sim, &mm, id, BASE + page * PAGE, page);
    }
    let whole = range(BASE, 8 * MB);
    let forget = |refs| shootdowns(&mm, || mm.clear_refs(id, whole, refs).unwrap());
    assert_eq!(forget(Refs::SoftDirty), 1, "two areas and a hole");
    assert_eq!(forget(Refs::SoftDirty), 0, "nothing is to be forgotten");
    assert_eq!(forget(Refs::Accessed), 2, "one for each table");
    assert_eq!((forget(Refs::Accessed), forget(Refs::SoftDirty)), (0, 0));
    sim.on(cpu(1), || assert_eq!(load(&sim, &mm, id, BASE), 0));
    assert_eq!(forget(Refs::Accessed), 1, "one was used");
    // What is stored to is noted at once, on the CPU whose translation is older too.
    sim.on(cpu(1), || store(&sim, &mm, id, BASE, 5));
    assert!(noted(&mm, id)[0].unwrap().has(Attrs::SOFT_DIRTY.with(Attrs::TOUCHED)));
    assert!(!noted(&mm, id)[1].unwrap().has(Attrs::SOFT_DIRTY));
}

/// A leaf of 2 MiB is one note; a range that ends inside of it splits it.
#[test]
fn a_large_leaf_is_forgotten_as_one() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::always(Orders::of(Order::SIZE_2M)));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 2 * MB);
    store(&sim, &mm, id, BASE, 1);
    let leaves = || mm.with_leaves(id, range(BASE, 2 * MB), |leaves| leaves.count()).unwrap();
    mm.clear_refs(id, range(BASE, 2 * MB), Refs::SoftDirty).unwrap();
    assert!(!noted(&mm, id)[0].unwrap().has(Attrs::SOFT_DIRTY));
    store(&sim, &mm, id, BASE + PAGE, 1);
    assert!(noted(&mm, id)[9].unwrap().has(Attrs::SOFT_DIRTY), "all of it is written");
    assert_eq!(leaves(), 1);
    mm.clear_refs(id, range(BASE, PAGE), Refs::SoftDirty).unwrap();
    let notes = noted(&mm, id);
    assert_eq!(leaves(), 512);
    assert!(!notes[0].unwrap().has(Attrs::SOFT_DIRTY) && notes[1].unwrap().has(Attrs::SOFT_DIRTY));
}

#[test]
fn a_range_that_is_none_is_refused() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    let forget = |part, refs| mm.clear_refs(id, part, refs);
    for refs in [Refs::Accessed, Refs::SoftDirty] {
        assert_eq!(forget(row(0, 0), refs), Err(RangeError::Empty));
        let crooked = Err(RangeError::Misaligned(Va::new(BASE + 8)));
        assert_eq!(forget(range(BASE + 8, PAGE), refs), crooked);
        assert_eq!(forget(row(0, 9), refs), Ok(()), "a hole");
    }
    mm.end(id).unwrap();
    assert_eq!(mm.clear_refs(id, row(0, 1), Refs::Accessed), Err(RangeError::NoSpace));
}

/// Tables are counted at the first address of each, on every way down.
#[test]
fn tables_are_counted_by_looking() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::always(Orders::of(Order::SIZE_2M)));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let tables = || mm.tables(id).unwrap().get();
    assert_eq!(tables(), 0);
    const GB: u64 = 1 << 30;
    for (at, bytes, count) in [
        (BASE, PAGE, 3),
        (BASE + 8 * MB + PAGE, PAGE, 4),
        (BASE + 16 * MB, 2 * MB, 4), // a leaf
        (BASE + GB - PAGE, 2 * PAGE, 7),
        (BASE + 512 * GB, PAGE, 10),
        ((1 << 47) - 2 * PAGE, PAGE, 13),
    ] {
        area(&mm, id, at, bytes);
        store(&sim, &mm, id, at, 1);
        store(&sim, &mm, id, at + bytes - 8, 1);
        assert_eq!(tables(), count, "{at:#x}");
    }
    mm.unmap(id, range(BASE, 1024 * GB)).unwrap();
    assert_eq!(tables(), 5, "what hangs in the top table stays (table::I5)");
    mm.switch(None).unwrap();
    mm.end(id).unwrap();
    assert_eq!(mm.tables(id), None);
}
