//! Pages that go from one place to another: what is where afterwards, what is refused, each
//! allocation refused once, and others at work at the same time.

use crate::common::beside::Beside;
use crate::common::*;
use crate::private_huge::sim_by;
use foliant::fault::{FillWith, Orders};
use foliant::manager::Setup;
use foliant::object::ObjectRequest;
use foliant::space::{
    Advice, Flags, Holes, Place, RangeError, SpaceId, TransferError, Untransferred, Watch,
};
use foliant::table::{Attrs, Entry, Paging, SoftKind};
use foliant::{Access, Event, FlushGrain, Outcome, Policy};
use foliant_machine::Replace;
use foliant_sim::{Failing, Format, Sim};
use foliant_units::{Bytes, Frame, Level, Order, Pages, Va};

/// Where pages go to, in pages behind `BASE`.
const TO: u64 = 4096;

fn at(nth: u64) -> u64 {
    BASE + nth * PAGE
}
/// Transfers so many pages, holes among them or none.
fn go(
    mm: &AnyMm<'_, impl Paging>,
    id: SpaceId,
    (from, count, to): (u64, u64, u64),
    holes: Holes,
) -> Result<(), Untransferred> {
    mm.transfer(id, row(from, count), page(to).start(), holes)
}
fn all(
    mm: &AnyMm<'_, impl Paging>,
    id: SpaceId,
    (from, count, to): (u64, u64, u64),
) -> Result<(), Untransferred> {
    go(mm, id, (from, count, to), Holes::Refused)
}
fn ended(done: u64, why: impl Into<TransferError>) -> Result<(), Untransferred> {
    Err(Untransferred { done: Bytes::new(done * PAGE), why: why.into() })
}
fn va(nth: u64) -> Va {
    page(nth).start()
}
/// A space that this CPU runs, with an area of so many pages at `BASE`, and an armed one at `TO`.
fn ready(mm: &AnyMm<'_, impl Paging>, count: u64) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, count * PAGE);
    let dest = area(mm, id, at(TO), count * PAGE);
    mm.advise(id, dest, Advice::UserfaultArm).unwrap();
    id
}
/// Has CPU 1 run the space too.
fn run_beside(sim: &Sim, mm: &AnyMm<'_, impl Paging>, id: SpaceId) {
    sim.on(cpu(1), || {
        mm.online();
        mm.switch(Some(id)).unwrap();
    });
}
/// Stores the number of each page in it.
fn number(sim: &Sim, mm: &AnyMm<'_, impl Paging>, id: SpaceId, pages: std::ops::Range<u64>) {
    for nth in pages {
        store(sim, mm, id, at(nth) + 8, nth);
    }
}
fn frames(mm: &AnyMm<'_, impl Paging>, id: SpaceId, from: u64, count: u64) -> Vec<Option<Frame>> {
    (from..from + count).map(|nth| mm.frame_at(id, va(nth))).collect()
}

fn life<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let memory = sim.config().memory.clone();
    // Folios of 16 pages, which are split: groups where the format has them.
    let mm: Audited<'_, P> = audited(&sim, &Setup::of(&memory, only(4)));
    let id = ready(&mm, 1024);
    run_beside(&sim, &mm, id);
    number(&sim, &mm, id, 0..600);
    let before = frames(&mm, id, 0, 600);
    let pages = mm.pages(id);
    // Over the ends of tables at both sides, and not aligned alike.
    assert_eq!(all(&mm, id, (0, 600, TO + 100)), Ok(()), "{format:?}");
    assert_eq!(frames(&mm, id, TO + 100, 600), before, "nothing was copied");
    assert_eq!(mm.pages(id), pages);
    for nth in 0..600 {
        assert_eq!(load(&sim, &mm, id, at(TO + 100 + nth) + 8), nth, "{format:?}");
        let written = Attrs::WRITE | Attrs::EXCLUSIVE | Attrs::USER | Attrs::TOUCHED;
        let wanted = written | Attrs::SOFT_DIRTY.and(P::KEEPS);
        assert!(entry(&mm, id, TO + 100 + nth).unwrap().has(wanted), "{format:?}");
        assert_eq!(entry(&mm, id, nth), None);
        store(&sim, &mm, id, at(TO + 100 + nth) + 8, nth + 1);
    }
    assert_eq!(load(&sim, &mm, id, at(7) + 8), 0, "zeros are where it was");
    // Who has a page finds where it is now.
    for nth in [0, 15, 16, 599] {
        let frame = mm.frame_at(id, va(TO + 100 + nth)).unwrap();
        let moved = mm.relocate(frame).unwrap();
        assert_eq!(mm.frame_at(id, va(TO + 100 + nth)), Some(moved), "{format:?}");
        assert_eq!(load(&sim, &mm, id, at(TO + 100 + nth) + 8), nth + 1);
    }
    // In a child too.
    let child = mm.fork(id).unwrap();
    let frame = mm.frame_at(id, va(TO + 103)).unwrap();
    assert_eq!(mm.page_mappings(frame), Some(2));
    let moved = mm.relocate(frame).unwrap();
    for of in [id, child] {
        assert_eq!(mm.frame_at(of, va(TO + 103)), Some(moved), "{format:?}");
    }
}

#[test]
fn pages_go_as_they_are_and_nothing_is_left_behind() {
    on_every_format!(life);
}

/// A flush for 64 pages, or for as many as one shall cover.
#[test]
fn one_flush_covers_many_pages() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = ready(&mm, 1024);
    run_beside(&sim, &mm, id);
    let shootdowns = |count, to| {
        let before = mm.total(Event::Shootdown);
        number(&sim, &mm, id, 0..count);
        assert_eq!(all(&mm, id, (0, count, to)), Ok(()));
        mm.total(Event::Shootdown) - before
    };
    assert_eq!(shootdowns(256, TO), 4);
    mm.set_flush_grain(FlushGrain::ONE);
    assert_eq!(shootdowns(8, TO + 256), 8);
}

#[test]
fn what_cannot_go_ends_a_transfer() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = ready(&mm, 64);
    number(&sim, &mm, id, 0..20);
    let holes = Holes::Skipped;
    assert_eq!(all(&mm, id, (19, 3, TO + 19)), ended(1, TransferError::Absent(va(20))));
    assert_eq!(all(&mm, id, (600, 1, TO)), ended(0, TransferError::Unsuitable(va(600), va(TO))));
    // Holes are left out.
    number(&sim, &mm, id, 21..22);
    assert_eq!(go(&mm, id, (20, 4, TO + 20), holes), Ok(()));
    assert_eq!(load(&sim, &mm, id, at(TO + 21) + 8), 21);
    assert_eq!(entry(&mm, id, TO + 20), None);
    // Of the destination anything is in its way, a mark too.
    number(&sim, &mm, id, 0..20);
    mm.fill(id, va(TO + 2), FillWith::Zeros(Pages::new(1))).unwrap();
    mm.fill(id, va(TO + 3), FillWith::Poison).unwrap();
    mm.advise(id, page(TO + 4), Advice::GuardInstall).unwrap();
    assert_eq!(all(&mm, id, (0, 4, TO)), ended(2, TransferError::Present(va(TO + 2))));
    for nth in 2..5 {
        let present = TransferError::Present(va(TO + nth));
        assert_eq!(go(&mm, id, (nth, 1, TO + nth), holes), ended(0, present));
        assert_eq!(go(&mm, id, (30, 1, TO + nth), holes), ended(0, present), "for a hole too");
        assert_eq!(load(&sim, &mm, id, at(nth) + 8), nth);
    }
    // Marks stay.
    mm.advise(id, page(5), Advice::GuardInstall).unwrap();
    assert_eq!(go(&mm, id, (5, 1, TO + 8), holes), ended(0, TransferError::NoPage(va(5))));
    let kind = mm.with_leaves(id, page(5), |mut leaves| leaves.next().map(|found| found.entry));
    assert!(matches!(kind, Some(Some(Entry::Soft(soft))) if soft.kind == SoftKind::Guard));
    // What a child has too stays until it is written to.
    let child = mm.fork(id).unwrap();
    let shared = TransferError::Shared(va(6));
    assert_eq!(all(&mm, id, (6, 2, TO + 8)), ended(0, shared));
    store(&sim, &mm, id, at(6), 1);
    assert_eq!(all(&mm, id, (6, 2, TO + 8)), ended(1, TransferError::Shared(va(7))));
    sim.on(cpu(0), || mm.switch(Some(child)).unwrap());
    assert_eq!(load(&sim, &mm, child, at(6) + 8), 6, "the child keeps its page");
    mm.switch(Some(id)).unwrap();
}

#[test]
fn both_ends_are_the_spaces_own_and_alike_and_the_second_is_armed() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = ready(&mm, 64);
    number(&sim, &mm, id, 0..16);
    let unsuitable = |from, to| ended(0, TransferError::Unsuitable(va(from), va(to)));
    assert_eq!(all(&mm, id, (TO, 1, 20)), unsuitable(TO, 20), "the other way round");
    mm.protect(id, page(1), Flags::READ).unwrap();
    assert_eq!(all(&mm, id, (0, 3, TO)), ended(1, TransferError::Unsuitable(va(1), va(TO + 1))));
    mm.protect(id, page(TO + 1), Flags::READ).unwrap();
    assert_eq!(all(&mm, id, (1, 1, TO + 1)), unsuitable(1, TO + 1), "both may be written");
    assert_eq!(all(&mm, id, (63, 2, TO + 2)), ended(0, TransferError::Absent(va(63))));
    let file = mm.create_object(&ObjectRequest { pages: Pages::new(8), ..Default::default() });
    let file = file.unwrap();
    let private = request(Place::NoReplace(va(1024)), 8 * PAGE, Flags::READ_WRITE);
    mm.map_object(id, &private, (file, Pages::new(0))).unwrap();
    store(&sim, &mm, id, at(1024), 1);
    assert_eq!(all(&mm, id, (1024, 1, TO + 3)), unsuitable(1024, TO + 3));
    let bad =
        |from: u64, bytes, to| mm.transfer(id, range(from, bytes), Va::new(to), Holes::Refused);
    assert_eq!(bad(BASE, 0, at(TO)), ended(0, RangeError::Empty));
    assert_eq!(bad(BASE + 8, PAGE, at(TO)), ended(0, RangeError::Misaligned(Va::new(BASE + 8))));
    assert_eq!(bad(BASE, PAGE, at(TO) + 8), ended(0, RangeError::Misaligned(Va::new(at(TO) + 8))));
    let outside = |got: Result<(), Untransferred>| {
        matches!(got.unwrap_err().why, TransferError::Range(RangeError::Outside(_)))
    };
    assert!(outside(bad(BASE, 2 * PAGE, !4095)) && outside(bad(1 << 62, PAGE, at(TO))));
    mm.switch(None).unwrap();
    mm.end(id).unwrap();
    assert_eq!(all(&mm, id, (0, 1, TO)), ended(0, RangeError::NoSpace));
}

/// Zeros go as zeros, and what is watched is not watched where it goes.
#[test]
fn zeros_and_watched_pages_go_too() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = ready(&mm, 64);
    mm.advise(id, row(0, 64), Advice::UserfaultWriteArm).unwrap();
    number(&sim, &mm, id, 0..2);
    load(&sim, &mm, id, at(2));
    load(&sim, &mm, id, at(3));
    mm.watch(id, row(1, 2), Watch::Present).unwrap();
    let own = mm.pages(id);
    assert_eq!(all(&mm, id, (0, 4, TO)), Ok(()));
    assert_eq!(mm.pages(id), own);
    for (nth, is_zeros) in [(0, false), (1, false), (2, true), (3, true)] {
        let attrs = entry(&mm, id, TO + nth).unwrap();
        assert_eq!(attrs.has(Attrs::SPECIAL), is_zeros);
        assert!(!attrs.has(Attrs::UFFD_WP) && attrs.has(Attrs::WRITE) != is_zeros, "page {nth}");
        assert_eq!(entry(&mm, id, nth), None);
        store(&sim, &mm, id, at(TO + nth), 9);
        assert_eq!(load(&sim, &mm, id, at(TO + nth)), 9);
    }
}

/// A leaf goes as a whole where it can, with the table that is kept for it.
#[test]
fn a_huge_folio_goes_whole_or_is_split() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::always(Orders::of(Order::SIZE_2M)));
    let id = ready(&mm, 2560);
    run_beside(&sim, &mm, id);
    let level_at = |nth| mm.with_leaves(id, page(nth), |mut found| found.next().unwrap().level);
    let split = || mm.total(Event::ThpSplitPage);
    for nth in [0, 512, 1024] {
        store(&sim, &mm, id, at(nth) + 8, nth);
    }
    let frame = mm.frame_at(id, va(0));
    let before = mm.total(Event::Shootdown);
    assert_eq!(all(&mm, id, (0, 512, TO)), Ok(()));
    assert_eq!(mm.total(Event::Shootdown) - before, 1);
    assert_eq!((mm.frame_at(id, va(TO)), level_at(TO)), (frame, Some(Level::SIZE_2M)));
    assert_eq!(split(), 0);
    mm.protect(id, row(TO, 7), Flags::READ).unwrap();
    assert_eq!(level_at(TO), Some(Level::BASE), "it has its table");
    assert_eq!(load(&sim, &mm, id, at(TO) + 8), 0);
    // A part of one, one to where a table is, and one that does not lie there alike.
    assert_eq!(all(&mm, id, (512, 3, TO + 512)), Ok(()));
    assert_eq!(split(), 1);
    assert_eq!(all(&mm, id, (515, 509, TO + 515)), Ok(()), "pages by now");
    assert_eq!(all(&mm, id, (1024, 512, TO + 1024 + 8)), Ok(()));
    assert_eq!(split(), 2);
    assert_eq!(load(&sim, &mm, id, at(TO + 512) + 8), 512);
    assert_eq!(load(&sim, &mm, id, at(TO + 1032) + 8), 1024);
    store(&sim, &mm, id, at(2048), 1);
    mm.fill(id, va(TO + 2048), FillWith::Zeros(Pages::new(1))).unwrap();
    let present = TransferError::Present(va(TO + 2048));
    assert_eq!(all(&mm, id, (2048, 512, TO + 2048)), ended(0, present));
    mm.advise(id, page(TO + 2048), Advice::DontNeed).unwrap();
    assert_eq!(all(&mm, id, (2048, 512, TO + 2048)), Ok(()), "over an empty table");
    assert_eq!(split(), 3, "where something is in the way none is split");
    // Zeros of 2 MiB go page by page.
    assert!(matches!(mm.fault(id, va(0), Access::Read), Outcome::ZeroPage(_)));
    assert_eq!(level_at(0), Some(Level::SIZE_2M));
    mm.advise(id, row(TO + 512, 512), Advice::DontNeed).unwrap();
    assert_eq!(all(&mm, id, (0, 512, TO + 512)), Ok(()));
    assert_eq!(load(&sim, &mm, id, at(TO + 700)), 0);
    // A leaf in the way.
    store(&sim, &mm, id, at(0), 1);
    mm.protect(id, row(TO, 512), Flags::READ_WRITE).unwrap();
    mm.advise(id, row(TO, 2560), Advice::UserfaultDisarm).unwrap();
    mm.advise(id, row(TO, 512), Advice::DontNeed).unwrap();
    assert!(matches!(mm.fault(id, va(TO), Access::Write), Outcome::Mapped(_)));
    mm.advise(id, row(TO, 2560), Advice::UserfaultWriteArm).unwrap();
    let present = ended(0, TransferError::Present(va(TO)));
    assert_eq!(all(&mm, id, (0, 512, TO)), present);
    assert_eq!(load(&sim, &mm, id, at(0)), 1);
}

/// Where ranges overlap each page makes room for the next.
#[test]
fn pages_slide_down() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = ready(&mm, 64);
    mm.advise(id, row(0, 64), Advice::UserfaultArm).unwrap();
    for nth in 4..40 {
        mm.fill(id, va(nth), FillWith::Copy(&[[nth as u8; PAGE as usize]])).unwrap();
    }
    assert_eq!(all(&mm, id, (4, 36, 1)), Ok(()));
    for nth in 1..37 {
        assert_eq!(load(&sim, &mm, id, at(nth)) as u8, nth as u8 + 3);
    }
    assert_eq!(all(&mm, id, (1, 2, 2)), ended(0, TransferError::Present(va(2))));
}

/// From the k-th allocation on each is refused: what went stays there, the rest where it was.
#[test]
fn a_transfer_without_memory_ends_where_it_came() {
    for k in 1.. {
        let sim = sim(1, 32);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = ready(&mm, 2048);
        number(&sim, &mm, id, 500..530);
        sim.fault_plan().set(Failing::From(k));
        let done = all(&mm, id, (500, 30, TO + 500));
        sim.fault_plan().set(Failing::Nothing);
        let went = match done {
            Ok(()) => 30,
            Err(Untransferred { done, why }) => {
                assert_eq!(why, RangeError::NoMemory.into());
                done.get() / PAGE
            }
        };
        for nth in 500..530 {
            let now = if nth < 500 + went { TO + nth } else { nth };
            assert_eq!(load(&sim, &mm, id, at(now) + 8), nth, "k = {k}");
        }
        if done.is_ok() {
            assert!(k > 2, "tables are allocated");
            return;
        }
    }
}

/// A limit on the charge ends it too: tables count.
#[test]
fn a_transfer_stays_below_the_limit() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let full = (1..40).find_map(|limit| {
        let id = mm.create(Some(Pages::new(limit))).ok()?;
        let maps = |start| {
            let place = Place::NoReplace(Va::new(start));
            mm.map(id, &request(place, 8 * PAGE, Flags::READ_WRITE)).is_ok()
        };
        let far = BASE + 4 * GB;
        mm.switch(Some(id)).unwrap();
        let is_mapped = maps(BASE) && maps(far);
        let is_armed =
            is_mapped && mm.advise(id, range(far, 8 * PAGE), Advice::UserfaultArm).is_ok();
        let is_there =
            is_armed && matches!(mm.fault(id, Va::new(BASE), Access::Write), Outcome::Mapped(_));
        let got = is_there.then(|| mm.transfer(id, page(0), Va::new(far), Holes::Refused));
        mm.switch(None).unwrap();
        mm.end(id).unwrap();
        match got {
            Some(Err(why)) => {
                assert_eq!(Err(why), ended(0, RangeError::OverLimit(Pages::new(limit))));
                None
            }
            Some(Ok(())) => Some(limit),
            None => None,
        }
    });
    assert!(full.is_some_and(|limit| limit > 5));
}

/// A transfer beside each step of another operation: the page is at one of the two places, with all
/// that is in it and all that was stored.
#[test]
fn a_transfer_beside_another_operation() {
    type Other = fn(&Sim, &Mm<'_>, SpaceId);
    let others: [(&str, Other); 8] = [
        ("a store", |sim, mm, id| {
            store(sim, mm, id, at(5), 77);
        }),
        ("a load", |sim, mm, id| assert!([0, 5].contains(&load(sim, mm, id, at(5))))),
        ("a fill", |_, mm, id| {
            let _ = mm.fill(id, va(TO + 5), FillWith::Copy(&[[0x11; PAGE as usize]]));
        }),
        ("relocate", |_, mm, id| {
            for nth in [5, TO + 5] {
                if let Some(frame) = mm.frame_at(id, va(nth)) {
                    let _ = mm.relocate(frame);
                }
            }
        }),
        ("fork", |_, mm, id| {
            mm.fork(id).unwrap();
        }),
        ("unmap", |_, mm, id| mm.unmap(id, row(TO, 16)).unwrap()),
        ("drop", |_, mm, id| mm.advise(id, row(0, 16), Advice::DontNeed).unwrap()),
        ("the same", |_, mm, id| {
            let _ = all(mm, id, (5, 1, TO + 5));
        }),
    ];
    for (name, other) in others {
        for step in 1.. {
            let beside = Beside::new(sim(2, 16));
            let sim = &beside.sim;
            let mm = beside.manager(Policy::BASE_ONLY);
            let id = ready(&mm, 16);
            run_beside(sim, &mm, id);
            number(sim, &mm, id, 5..6);
            store(sim, &mm, id, at(5), 5);
            let work = || all(&mm, id, (5, 1, TO + 5));
            let part = || other(sim, &mm, id);
            let Some(done) = beside.before_step(step, part, work) else {
                assert!(step > 20, "{name}: {step} steps");
                break;
            };
            let look = |nth| {
                let there = mm.frame_at(id, va(nth)).is_some();
                there.then(|| [0, 8].map(|more| sim.user_load(Va::new(at(nth) + more), 8).unwrap()))
            };
            let seen = (look(5), look(TO + 5));
            let own = |stored| Some([stored, 5]);
            let filled = Some([0x1111_1111_1111_1111; 2]);
            let is_right = match (name, done.is_ok()) {
                // It was stored before it went, or to what came after.
                ("a store", true) => [(None, own(77)), (Some([77, 0]), own(5))].contains(&seen),
                ("a fill", false) => seen == (own(5), filled),
                ("fork", false) => seen == (own(5), None),
                ("unmap", true) => seen == (None, None) || seen == (None, own(5)),
                ("unmap", false) => seen == (own(5), None),
                ("drop", false) => seen == (None, None),
                ("the same", _) | (_, true) => seen == (None, own(5)),
                (_, false) => false,
            };
            assert!(is_right, "{name}, step {step}: {done:?}, {seen:x?}");
        }
    }
}
