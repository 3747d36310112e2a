//! Pages that a handler fills: what is there afterwards, what is refused, each allocation refused
//! once, and others at work at the same time.

use crate::common::beside::Beside;
use crate::common::*;
use foliant::fault::{FillError, FillWith, Orders, Unfilled};
use foliant::manager::Setup;
use foliant::space::{Advice, Flags, Place, RangeError, SpaceId};
use foliant::table::{Aarch64, Attrs, Paging, Riscv64, X86_64};
use foliant::{Access, Event, Outcome, Policy};
use foliant_sim::{Config, Failing, Format, RiscvMode, Sim, X86Levels};
use foliant_units::{Bytes, Order, Pages, Va};

type Page = [u8; PAGE as usize];

/// Pages each of whose words tells which it is.
fn pages(from: u8, count: usize) -> Vec<Page> {
    (from..).take(count).map(|nth| [nth; PAGE as usize]).collect()
}
fn word(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}
fn arm(mm: &AnyMm<'_, impl Paging>, id: SpaceId, part: foliant_units::VaRange) {
    mm.advise(id, part, Advice::UserfaultArm).unwrap();
}
fn copy(
    mm: &AnyMm<'_, impl Paging>,
    id: SpaceId,
    nth: u64,
    contents: &[Page],
) -> Result<(), Unfilled> {
    mm.fill(id, page(nth).start(), FillWith::Copy(contents))
}
fn zeros(mm: &AnyMm<'_, impl Paging>, id: SpaceId, nth: u64, count: u64) -> Result<(), Unfilled> {
    mm.fill(id, page(nth).start(), FillWith::Zeros(Pages::new(count)))
}
fn ended(done: u64, why: impl Into<FillError>) -> Result<(), Unfilled> {
    Err(Unfilled { done: Bytes::new(done * PAGE), why: why.into() })
}
/// An armed area of so many pages at `BASE`, in a space that this CPU runs.
fn armed(mm: &AnyMm<'_, impl Paging>, count: u64) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    arm(mm, id, area(mm, id, BASE, count * PAGE));
    id
}

fn life<P: Paging>(format: Format) {
    let sim = Sim::new(Config::seeded(2, Bytes::new(64 * MB), 3).with_format(format)).unwrap();
    let memory = sim.config().memory.clone();
    let mm: Audited<'_, P> = audited(&sim, &Setup::of(&memory, only(4)));
    let id = armed(&mm, 1024);
    let at = |nth: u64| BASE + nth * PAGE;
    let told = |nth| Outcome::Userfault(page(nth).start());
    assert_eq!(mm.fault(id, Va::new(at(500)), Access::Read), told(500));
    // Over the end of a table.
    assert_eq!(copy(&mm, id, 500, &pages(1, 20)), Ok(()));
    assert_eq!(zeros(&mm, id, 520, 3), Ok(()));
    assert_eq!(mm.pages(id), Some(Pages::new(20)));
    assert_eq!(mm.total(Event::CopiedBytes), 20 * PAGE);
    for nth in 0..20 {
        assert_eq!(load(&sim, &mm, id, at(500 + nth)), word(1 + nth as u8), "{format:?}");
        assert_eq!(load(&sim, &mm, id, at(500 + nth) + PAGE - 8), word(1 + nth as u8));
        let written = Attrs::WRITE | Attrs::EXCLUSIVE | Attrs::USER | Attrs::TOUCHED;
        let wanted = written | Attrs::SOFT_DIRTY.and(P::KEEPS);
        assert!(entry(&mm, id, 500 + nth).unwrap().has(wanted), "{format:?}");
        store(&sim, &mm, id, at(500 + nth), nth);
    }
    assert_eq!(mm.total(Event::Fault), 1, "what was filled is there for all");
    let shown = entry(&mm, id, 522).unwrap();
    assert!(shown.has(Attrs::SPECIAL) && !shown.has(Attrs::WRITE), "{format:?}");
    assert_eq!(load(&sim, &mm, id, at(522)), 0);
    assert_eq!(store(&sim, &mm, id, at(522), 9), [Outcome::Mapped(Order::BASE)]);
    for missing in [499, 523] {
        assert_eq!(mm.fault(id, Va::new(at(missing)), Access::Write), told(missing));
    }
}

#[test]
fn what_is_filled_is_there_for_all_with_all_that_is_in_it() {
    life::<X86_64<4>>(Format::X86_64(X86Levels::Four));
    life::<X86_64<5>>(Format::X86_64(X86Levels::Five));
    life::<Aarch64>(Format::Aarch64);
    life::<Riscv64<4>>(Format::Riscv64(RiscvMode::Sv48));
}

/// What is there already ends a fill, and it is told how far it came.
#[test]
fn a_page_that_is_there_stays() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::always(Orders::of(Order::SIZE_2M)));
    let id = armed(&mm, 64);
    copy(&mm, id, 3, &pages(7, 1)).unwrap();
    zeros(&mm, id, 5, 1).unwrap();
    mm.advise(id, page(8), Advice::GuardInstall).unwrap();
    let present = |nth| FillError::Present(page(nth).start());
    let free = mm.memory().free;
    assert_eq!(copy(&mm, id, 3, &pages(9, 1)), ended(0, present(3)));
    assert_eq!(zeros(&mm, id, 5, 1), ended(0, present(5)));
    assert_eq!(zeros(&mm, id, 8, 1), ended(0, present(8)));
    assert_eq!(mm.memory().free, free, "nothing was taken");
    assert_eq!(copy(&mm, id, 0, &pages(1, 6)), ended(3, present(3)));
    assert_eq!(copy(&mm, id, 4, &pages(4, 4)), ended(1, present(5)));
    assert_eq!(zeros(&mm, id, 6, 9), ended(2, present(8)));
    let seen: Vec<u64> = (0..8).map(|nth| load(&sim, &mm, id, BASE + nth * PAGE)).collect();
    assert_eq!(seen, [word(1), word(2), word(3), word(7), word(4), 0, 0, 0]);
    // A large leaf that was there before the area was armed.
    area(&mm, id, BASE + 2 * SIZE_2M, SIZE_2M);
    store(&sim, &mm, id, BASE + 2 * SIZE_2M, 5);
    arm(&mm, id, row(1024, 512));
    assert_eq!(zeros(&mm, id, 1030, 1), ended(0, present(1030)));
    assert_eq!(copy(&mm, id, 1030, &pages(1, 1)), ended(0, present(1030)));
}

#[test]
fn what_is_not_armed_is_not_filled() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = armed(&mm, 8);
    mm.advise(id, row(4, 4), Advice::UserfaultDisarm).unwrap();
    let unarmed = |nth| FillError::Unarmed(page(nth).start());
    assert_eq!(zeros(&mm, id, 2, 4), ended(2, unarmed(4)));
    assert_eq!(copy(&mm, id, 20, &pages(1, 1)), ended(0, unarmed(20)), "nothing is there");
    assert_eq!(zeros(&mm, id, 0, 0), ended(0, RangeError::Empty));
    assert_eq!(copy(&mm, id, 0, &[]), ended(0, RangeError::Empty));
    let at = |va, count| mm.fill(id, Va::new(va), FillWith::Zeros(Pages::new(count)));
    assert_eq!(at(BASE + 8, 1), ended(0, RangeError::Misaligned(Va::new(BASE + 8))));
    for (va, count) in [(BASE, 1 << 52), (BASE, u64::MAX), (!4095, 1)] {
        let got = at(va, count).unwrap_err();
        let outside = matches!(got.why, FillError::Range(RangeError::Outside(_)));
        assert!(outside && got.done == Bytes::new(0), "{got:?}");
    }
    mm.switch(None).unwrap();
    mm.end(id).unwrap();
    assert_eq!(zeros(&mm, id, 0, 1), ended(0, RangeError::NoSpace));
}

/// The rights of the area are not asked: a page comes, and has them.
#[test]
fn what_is_filled_has_the_rights_of_its_area() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = armed(&mm, 8);
    mm.protect(id, row(0, 2), Flags::READ).unwrap();
    mm.protect(id, row(2, 2), Flags::NONE).unwrap();
    copy(&mm, id, 0, &pages(1, 1)).unwrap();
    zeros(&mm, id, 1, 1).unwrap();
    copy(&mm, id, 2, &pages(3, 1)).unwrap();
    zeros(&mm, id, 3, 1).unwrap();
    assert_eq!(load(&sim, &mm, id, BASE), word(1));
    assert!(matches!(store(&sim, &mm, id, BASE, 5)[..], [Outcome::Refused(_)]));
    assert!(sim.user_load(page(2).start(), 8).is_err());
    mm.protect(id, row(0, 8), Flags::READ_WRITE).unwrap();
    assert_eq!(store(&sim, &mm, id, BASE, 5), [], "it is the space's own");
    assert_eq!(load(&sim, &mm, id, BASE + 2 * PAGE), word(3));
    assert_eq!(load(&sim, &mm, id, BASE + 3 * PAGE), 0);
}

/// The k-th allocation is refused, for every k: a fill ends where it was, and nothing is lost.
#[test]
fn a_fill_without_memory_ends_where_it_came() {
    for k in 1.. {
        let sim = sim(1, 32);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = armed(&mm, 1024);
        sim.fault_plan().set(Failing::Kth(k));
        // A look once more is made, for which memory may be there.
        let first = copy(&mm, id, 510, &pages(1, 4));
        let second = zeros(&mm, id, 100, 2);
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        assert_eq!((first, second), (Ok(()), Ok(())), "k = {k}");
        if refused == 0 {
            assert!(k > 6, "tables and pages are allocated");
            return;
        }
    }
}
/// From the k-th allocation on each is refused.
#[test]
fn a_fill_that_gets_no_memory_leaves_what_came() {
    for k in 1.. {
        let sim = sim(1, 32);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = armed(&mm, 1024);
        sim.fault_plan().set(Failing::From(k));
        let done = copy(&mm, id, 510, &pages(1, 4));
        sim.fault_plan().set(Failing::Nothing);
        let came = match done {
            Ok(()) => 4,
            Err(Unfilled { done, why }) => {
                assert_eq!(why, RangeError::NoMemory.into());
                done.get() / PAGE
            }
        };
        assert_eq!(mm.pages(id), Some(Pages::new(came)), "k = {k}");
        if came < 4 {
            let rest = 510 + came;
            assert_eq!(copy(&mm, id, rest, &pages(9, 1)), Ok(()));
            assert_eq!(load(&sim, &mm, id, BASE + rest * PAGE), word(9));
        }
        if came > 0 {
            assert_eq!(load(&sim, &mm, id, BASE + 510 * PAGE), word(1));
        }
        if done.is_ok() {
            return;
        }
    }
}
/// A limit on the charge ends it too; a page of zeros is charged a table at most.
#[test]
fn a_fill_stays_below_the_limit() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    for limit in 2..20 {
        let id = mm.create(Some(Pages::new(limit))).unwrap();
        let place = Place::NoReplace(Va::new(BASE));
        if mm.map(id, &request(place, MB, Flags::READ_WRITE)).is_err() {
            mm.end(id).unwrap();
            continue;
        }
        arm(&mm, id, range(BASE, MB));
        let over = FillError::from(RangeError::OverLimit(Pages::new(limit)));
        let left = limit - mm.records(id).unwrap().get();
        let want = left.saturating_sub(3); // three tables
        let got = copy(&mm, id, 0, &pages(0, 20));
        assert_eq!(got, ended(want, over), "limit {limit}");
        assert_eq!(mm.pages(id), Some(Pages::new(want)));
        mm.end(id).unwrap();
    }
}

/// A fill beside each step of another operation: the page is there with all that is in it, or not.
#[test]
fn a_fill_beside_another_operation() {
    type Other = fn(&Mm<'_>, SpaceId);
    let others: [(&str, Other); 6] = [
        ("the same page", |mm, id| {
            let _ = copy(mm, id, 5, &pages(0x77, 1));
        }),
        ("zeros", |mm, id| {
            let _ = zeros(mm, id, 5, 1);
        }),
        ("unmap", |mm, id| mm.unmap(id, row(0, 16)).unwrap()),
        ("disarm", |mm, id| mm.advise(id, row(0, 16), Advice::UserfaultDisarm).unwrap()),
        ("read only", |mm, id| mm.protect(id, row(0, 16), Flags::READ).unwrap()),
        ("drop", |mm, id| mm.advise(id, row(0, 16), Advice::DontNeed).unwrap()),
    ];
    for (name, other) in others {
        for step in 1.. {
            let beside = Beside::new(sim(2, 16));
            let mm = beside.manager(Policy::BASE_ONLY);
            let id = armed(&mm, 16);
            beside.sim.on(cpu(1), || mm.online());
            let fill = || copy(&mm, id, 5, &pages(1, 1));
            let Some(done) = beside.before_step(step, || other(&mm, id), fill) else {
                assert!(step > 10, "{name}");
                break;
            };
            let there = beside.sim.user_load(page(5).start(), 8).ok();
            let allowed: &[Option<u64>] = match (name, done.is_ok()) {
                ("the same page", false) => &[Some(word(0x77))],
                ("zeros", false) => &[Some(0)],
                ("unmap" | "drop", true) => &[Some(word(1)), None],
                (_, true) => &[Some(word(1))],
                (_, false) => &[None],
            };
            assert!(allowed.contains(&there), "{name}, step {step}: {done:?}, {there:x?}");
            // What was prepared in vain is not taken for zeros.
            let fresh = area(&mm, id, BASE + MB, 4 * PAGE).start().get();
            for va in (fresh..).step_by(PAGE as usize).take(4) {
                store(&beside.sim, &mm, id, va, 1);
                assert_eq!(load(&beside.sim, &mm, id, va + 64), 0, "{name}, step {step}");
            }
        }
    }
}
