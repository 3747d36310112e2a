//! What a recount finds, one wrong word at a time.

use super::*;
use crate::frame::{Flag, Guess, Kind, Link, References};
use crate::pool::Budget;
use crate::space::{Flags, MapRequest, Place};
use crate::stock::SizeEvent;
use crate::table::{Attrs, Entry, X86_64};
use crate::vmap::Request;
use alloc::format;
use foliant_machine::Owner;
use foliant_sim::{Config, Sim};
use foliant_units::{Level, Pa};

type Mm<'m> = Manager<'m, Sim, X86_64<4>>;

const BASE: u64 = 0x10_0000_0000;
const PAGES: u64 = 3;

/// A space under a limit with pages, a folio of 2 MiB that waits to be split, kernel memory and a
/// pool.
fn world(work: impl FnOnce(&Mm<'_>, &Sim, SpaceId)) {
    let sim = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 1)).unwrap();
    let mm: Mm<'_> =
        Manager::new(&sim, &Setup::of(&sim.config().memory, Policy::BASE_ONLY)).unwrap();
    let id = mm.create(Some(Pages::new(4096))).unwrap();
    mm.switch(Some(id)).unwrap();
    let map = |start: u64, bytes: u64| {
        let request = MapRequest {
            place: Place::Fixed(Va::new(start)),
            bytes: Bytes::new(bytes),
            flags: Flags::READ_WRITE,
            tag: 0,
        };
        mm.map(id, &request).unwrap();
    };
    map(BASE, PAGES * FRAME_BYTES);
    map(2 * BASE, 2 << 20);
    (0..PAGES).for_each(|nth| _ = mm.fault(id, Va::new(BASE + nth * FRAME_BYTES), Access::Write));
    mm.set_policy(Policy::always(crate::fault::Orders::of(Order::SIZE_2M)));
    mm.fault(id, Va::new(2 * BASE), Access::Write);
    mm.unmap(id, VaRange::sized(Va::new(2 * BASE), Bytes::new(1 << 20)).unwrap()).unwrap();
    mm.vmalloc(&Request::of(Bytes::new(2 * FRAME_BYTES))).unwrap();
    mm.resize_pool(Order::SIZE_2M, 2, Budget::ALL).unwrap();
    assert_eq!(mm.deferred(), 1);
    work(&mm, &sim, id);
}

/// The first head of a kind and an order.
fn head(mm: &Mm<'_>, kind: Kind, order: Order) -> Frame {
    let all = mm.ranges().flat_map(|range| range.iter());
    let is_it = |frame: &Frame| {
        let identity = mm.stock.identity(*frame);
        (identity.kind(), identity.order()) == (kind, order)
    };
    all.into_iter().find(is_it).expect("it was made")
}
fn page(mm: &Mm<'_>) -> Frame {
    head(mm, Kind::Anon, Order::BASE)
}
fn large(mm: &Mm<'_>) -> Frame {
    head(mm, Kind::Anon, Order::SIZE_2M)
}
fn mark(mm: &Mm<'_>, head: Frame, flag: Flag) {
    mm.stock.set_identity(head, mm.stock.identity(head).with(flag));
}

/// What a recount says when `spoil` has changed something.
fn found(spoil: impl FnOnce(&Mm<'_>, SpaceId)) -> String {
    let mut text = String::new();
    world(|mm, _, id| {
        mm.audit(&[id]).unwrap();
        spoil(mm, id);
        text = format!("{:?}", mm.audit(&[id]).unwrap_err());
    });
    text
}

#[test]
fn a_recount_tells_what_there_is() {
    world(|mm, _, id| {
        let audit = mm.audit(&[id]).unwrap();
        assert_eq!(audit.folios, PAGES + 1);
        assert_eq!(audit.anonymous, Pages::new(PAGES + 512), "a folio counts whole");
        assert_eq!(audit.mapped, Pages::new(PAGES + 256), "half of it is mapped");
        assert_eq!(audit.kernel, Pages::new(2));
        assert!(audit.tables > Pages::new(0) && audit.records > Pages::new(0));
    });
}

/// Tests no recount, but the books that one starts from.
#[test]
fn frames_that_are_reserved_are_nobodys_from_then_on() {
    world(|mm, sim, id| {
        let free = mm.ranges().flat_map(|range| range.iter()).filter(|frame| {
            matches!(mm.stock.folios.state(*frame), crate::folio::FrameState::Free)
        });
        let two = free.take(2).collect::<alloc::vec::Vec<_>>();
        let pages = FrameRange::new(two[0], Pages::new(2)).unwrap();
        assert_eq!(two[1], two[0].add(Pages::new(1)));
        let before = mm.memory().free;
        mm.reserve(pages).unwrap();
        assert_eq!(mm.memory().free.get(), before.get() - 2);
        assert_eq!(mm.stock.folios.state(two[0]), crate::folio::FrameState::Reserved);
        assert!(mm.reserve(pages).is_err(), "they are not free");
        mm.audit(&[id]).unwrap();
        assert_eq!(sim.violations(), []);
    });
}

#[test]
fn what_a_space_counts_is_compared() {
    let charge = |mm: &Mm<'_>, id: SpaceId, work: fn(&crate::stock::Charge)| {
        work(&id.pin(&mm.stock).unwrap().charge);
    };
    let pages = found(|mm, id| charge(mm, id, |charge| charge.charge(Cpu(0), 1).unwrap()));
    assert!(pages.starts_with("Pages {"), "{pages}");
    let fewer = found(|mm, id| charge(mm, id, |charge| charge.uncharge(Cpu(0), 1)));
    assert!(fewer.starts_with("Pages {"), "{fewer}");
    let records =
        found(|mm, id| charge(mm, id, |charge| charge.charge_records(Cpu(0), 1).unwrap()));
    assert!(records.starts_with("Records {"), "{records}");
    let used = found(|mm, id| {
        charge(mm, id, |charge| {
            charge.charge(Cpu(0), 1).unwrap();
            charge.uncount_huge(Cpu(0), 1); // the page is not counted, the limit pays for it
        })
    });
    assert!(used.starts_with("Charge {"), "{used}");
    let kept = found(|mm, id| {
        let space = id.pin(&mm.stock).unwrap();
        let table = mm.stock.claim_charged(&space.charge, Owner::Table).unwrap();
        space.deposit(&mm.stock, table);
    });
    assert!(kept.starts_with("Deposits {"), "{kept}");
}

#[test]
fn entries_name_folios_that_count_them() {
    for kind in [Kind::Plain, Kind::Space] {
        world(|mm, _, id| {
            let page = page(mm);
            mm.stock.set_identity(page, Identity::new(kind, Order::BASE));
            assert_eq!(mm.audit(&[id]), Err(AuditError::Stray(page)));
        });
    }
    world(|mm, _, id| {
        let page = page(mm);
        mm.stock.set_references(page, References::of_entries(2).word());
        let wanted = AuditError::Mapped { head: page, stated: 2, found: 1 };
        assert_eq!(mm.audit(&[id]), Err(wanted));
    });
    world(|mm, _, id| {
        let page = head(mm, Kind::Kernel, Order::BASE);
        mm.stock.set_references(page, 2);
        let all = PAGES + 256 + 2;
        let wanted = AuditError::References { stated: all + 1, counted: all };
        assert_eq!(mm.audit(&[id]), Err(wanted));
    });
}

/// Three areas under entries that do not follow them: one less, one of fewer rights, and one that
/// ends inside of a leaf.
#[test]
fn entries_have_the_rights_of_their_areas() {
    let half = 1 << 20;
    let change = |range: VaRange, flags: Option<Flags>| {
        move |mm: &Mm<'_>, id: SpaceId| {
            let space = id.pin(&mm.stock).unwrap();
            space.areas.prepare(&mm.stock, &space.charge).unwrap();
            space.areas.change(mm.machine(), range, |area| Some((flags?, area.tag)));
        }
    };
    let page = VaRange::sized(Va::new(BASE), Bytes::new(FRAME_BYTES)).unwrap();
    let leaf = VaRange::sized(Va::new(4 * BASE), Bytes::new(2 * half)).unwrap();
    let part = VaRange::sized(leaf.start().add(half), Bytes::new(half)).unwrap();
    for (range, flags, at) in [
        (page, None, page),
        (page, Some(Flags::READ), page),
        (page, Some(Flags::NONE), page),
        (page, Some(Flags::READ_WRITE.with(Flags::EXEC)), page),
        (page, Some(Flags::READ_WRITE.with(Flags::HUGEPAGE)), VaRange::default()),
        (part, Some(Flags::READ_WRITE.with(Flags::EXEC)), leaf),
        (part, Some(Flags::READ_WRITE.with(Flags::HUGEPAGE)), VaRange::default()),
        (part, None, leaf),
    ] {
        world(|mm, _, id| {
            let request = MapRequest {
                place: Place::Fixed(leaf.start()),
                bytes: leaf.bytes(),
                flags: Flags::READ_WRITE,
                tag: 0,
            };
            mm.map(id, &request).unwrap();
            mm.fault(id, leaf.start(), Access::Write);
            mm.audit(&[id]).unwrap();
            change(range, flags)(mm, id);
            let wanted = AuditError::Rights { space: id, va: at.start() };
            assert_eq!(mm.audit(&[id]).err(), (!at.is_empty()).then_some(wanted), "{range:?}");
        });
    }
}

/// A page that may be written though nobody would notice (space::S11).
#[test]
fn what_may_be_written_is_soft_dirty() {
    world(|mm, _, id| {
        let (va, tables) = (Va::new(BASE), id.pin(&mm.stock).unwrap().tables(&mm.stock));
        let locked = tables.lock(va, Level::BASE).unwrap();
        let slot = locked.index_of(va);
        let Entry::Leaf { pa, attrs } = X86_64::<4>::decode(locked.get(slot), Level::BASE, slot)
        else {
            panic!("a page is there")
        };
        let without = |lost| X86_64::<4>::leaf(pa, Level::BASE, attrs.without(lost));
        locked.set(slot, without(Attrs::SOFT_DIRTY.with(Attrs::WRITE)));
        drop(locked);
        mm.audit(&[id]).unwrap();
        tables.lock(va, Level::BASE).unwrap().set(slot, without(Attrs::SOFT_DIRTY));
        assert_eq!(mm.audit(&[id]).err(), Some(AuditError::Rights { space: id, va }));
    });
}

/// A page that may be written though somebody is to be told, and one that is watched where nobody
/// is (space::S12).
#[test]
fn what_is_watched_is_not_writable_and_in_an_armed_area() {
    world(|mm, _, id| {
        let (va, tables) = (Va::new(BASE), id.pin(&mm.stock).unwrap().tables(&mm.stock));
        let at = VaRange::sized(va, Bytes::new(FRAME_BYTES)).unwrap();
        let change = |change: &dyn Fn(Attrs) -> Attrs| {
            let locked = tables.lock(va, Level::BASE).unwrap();
            let slot = locked.index_of(va);
            let Entry::Leaf { pa, attrs } =
                X86_64::<4>::decode(locked.get(slot), Level::BASE, slot)
            else {
                panic!("a page is there")
            };
            locked.set(slot, X86_64::<4>::leaf(pa, Level::BASE, change(attrs)));
        };
        let wrong = Some(AuditError::Rights { space: id, va });
        mm.advise(id, at, Advice::UserfaultWriteArm).unwrap();
        mm.watch(id, at, space::Watch::Present).unwrap();
        mm.audit(&[id]).unwrap();
        change(&|attrs| attrs | Attrs::WRITE);
        assert_eq!(mm.audit(&[id]).err(), wrong);
        change(&|attrs| attrs.without(Attrs::UFFD_WP));
        mm.audit(&[id]).unwrap();
        mm.advise(id, at, Advice::UserfaultWriteDisarm).unwrap();
        change(&|attrs| attrs.without(Attrs::WRITE) | Attrs::UFFD_WP);
        assert_eq!(mm.audit(&[id]).err(), wrong);
        change(&|attrs| attrs.without(Attrs::UFFD_WP));
        mm.audit(&[id]).unwrap();
    });
}

#[test]
fn a_folio_that_nobody_keeps_is_found_unless_it_is_broken() {
    for broken in [false, true] {
        world(|mm, _, id| {
            let claim = mm.stock.claim(Order::BASE, folio::Class::Movable).unwrap();
            let (frame, _) = claim.into_raw();
            let member = id.pin(&mm.stock).unwrap();
            let creator = member.member.origin(Va::new(BASE / 2), crate::frame::AnonOffset::NONE);
            mm.stock.set_origin(frame, creator);
            mm.stock.set_references(frame, 0);
            mm.stock.set_identity(frame, Identity::new(Kind::Anon, Order::BASE));
            match broken {
                true => mark(mm, frame, Flag::Poisoned),
                false => mm.stock.count_size(Order::BASE, SizeEvent::NrAnon),
            }
            let wanted = if broken { None } else { Some(AuditError::Nobody(frame)) };
            assert_eq!(mm.audit(&[id]).err(), wanted);
        });
    }
}

#[test]
fn counters_of_folios_and_kernel_pages_are_compared() {
    world(|mm, _, id| {
        mark(mm, page(mm), Flag::PartlyMapped);
        let event = SizeEvent::NrAnonPartiallyMapped;
        let wanted = AuditError::Alive { order: Order::BASE, event, stated: 0, counted: 1 };
        assert_eq!(mm.audit(&[id]), Err(wanted));
    });
    world(|mm, _, id| {
        let (order, event) = (Order::SIZE_2M, SizeEvent::NrAnon);
        mm.stock.count_size(order, event);
        let wanted = AuditError::Alive { order, event, stated: 2, counted: 1 };
        assert_eq!(mm.audit(&[id]), Err(wanted));
    });
    world(|mm, _, id| {
        mm.stock.count(Event::VmallocPages);
        let wanted = AuditError::KernelPages { stated: 3, counted: 2 };
        assert_eq!(mm.audit(&[id]), Err(wanted));
    });
    let strays = found(|mm, _| {
        mm.stock.set_identity(head(mm, Kind::Kernel, Order::BASE), Identity::PLAIN);
    });
    assert!(strays.starts_with("Vmap(") && strays.contains("strays: 1"), "{strays}");
    let missing = found(|mm, _| {
        let device = crate::vmap::Caller(0);
        let va = mm.ioremap(Pa::new(1 << 40), Bytes::new(2 * FRAME_BYTES), device).unwrap();
        let lock = mm.stock.kernel.lock(va, Level::BASE).unwrap();
        lock.set(lock.index_of(va), 0);
    });
    assert!(missing.starts_with("Vmap(") && missing.contains("strays: 1"), "{missing}");
}

#[test]
fn lists_of_folios_to_be_split_are_walked() {
    type Spoil = fn(&Mm<'_>, Frame);
    let wrong: [Spoil; 3] = [
        |mm, head| mm.stock.set_link(head, Link::Before, 5),
        |mm, head| mm.stock.set_link(head, Link::Next, head.get() + 1), // a ring
        |mm, head| {
            let identity = mm.stock.identity(head);
            let used = identity.without(Flag::Deferred).without(Flag::PartlyMapped);
            mm.stock.set_identity(head, used);
        },
    ];
    for spoil in wrong {
        world(|mm, _, id| {
            let large = large(mm);
            spoil(mm, large);
            assert_eq!(mm.audit(&[id]), Err(AuditError::Waiting(large)));
        });
    }
    world(|mm, _, id| {
        let large = large(mm);
        mm.stock.set_identity(large, mm.stock.identity(large).without(Flag::Deferred));
        assert_eq!(mm.audit(&[id]), Err(AuditError::Forgotten(large)));
    });
    world(|mm, _, id| {
        mark(mm, page(mm), Flag::Deferred);
        let wanted = AuditError::Deferred { listed: 1, counted: 2 };
        assert_eq!(mm.audit(&[id]), Err(wanted));
    });
}

#[test]
fn guesses_and_their_idle_pages_are_counted() {
    let say = |mm: &Mm<'_>, idle| {
        let guess = Guess { idle, ..Guess::new(Order::SIZE_2M, 0) };
        mm.stock.set_guess(large(mm), guess);
        mark(mm, large(mm), Flag::Guessed);
    };
    for idle in [0, 512] {
        world(|mm, _, id| {
            say(mm, idle);
            assert_eq!(mm.audit(&[id]), Err(AuditError::Guess { head: large(mm), idle }));
        });
    }
    world(|mm, _, id| {
        say(mm, 511);
        assert_eq!(mm.audit(&[id]), Err(AuditError::Idle { stated: 0, counted: 511 }));
        let large = large(mm);
        let identity = mm.stock.identity(large).without(Flag::Deferred);
        mm.stock.set_identity(large, identity.without(Flag::PartlyMapped));
        assert_eq!(mm.audit(&[id]), Err(AuditError::Guess { head: large, idle: 511 }));
    });
}

#[test]
fn lists_of_pools_are_walked_and_their_pages_counted() {
    type Spoil = fn(&Mm<'_>, Frame);
    let first = |mm: &Mm<'_>| head(mm, Kind::Huge, Order::SIZE_2M);
    let wrong: [Spoil; 4] = [
        |mm, head| mm.stock.set_link(head, Link::Before, 7),
        |mm, head| mark(mm, head, Flag::Poisoned),
        |mm, head| mm.stock.set_references(head, 1),
        |mm, head| mm.stock.set_identity(head, Identity::new(Kind::Huge, Order::SIZE_1G)),
    ];
    for spoil in wrong {
        let text = found(|mm, _| spoil(mm, first(mm)));
        assert!(text.starts_with("Listed("), "{text}");
    }
    let more = found(|mm, _| {
        let claim = mm.stock.claim(Order::BASE, folio::Class::Unmovable).unwrap();
        let (frame, _) = claim.into_raw();
        mm.stock.set_references(frame, 0);
        mm.stock.set_identity(frame, Identity::new(Kind::Huge, Order::SIZE_2M));
    });
    assert!(more.starts_with("Pool {") && more.contains("idle: 3"), "{more}");
}

/// TR: the frames of tables and records that a recount reaches are those that are stated.
#[test]
fn tables_and_records_are_counted_from_the_bottom() {
    world(|mm, sim, id| {
        let agree = |spaces: &[SpaceId]| {
            let audit = mm.audit(spaces).unwrap();
            let stated = [Owner::Table, Owner::Records].map(|owner| sim.stated_frames(owner));
            assert_eq!([audit.tables, audit.records], stated, "{} spaces", spaces.len());
        };
        agree(&[id]);
        let children = [mm.fork(id).unwrap(), mm.fork(id).unwrap()];
        agree(&[id, children[0], children[1]]);
        mm.switch(None).unwrap();
        mm.end(id).unwrap();
        agree(&children); // the founder's record is theirs
        mm.end(children[0]).unwrap();
        agree(&children[1..]);
        let spare = mm.stock.claim_cleared(Owner::Table).unwrap();
        let audit = mm.audit(&children[1..]).unwrap();
        assert_eq!(audit.tables.get() + 1, sim.stated_frames(Owner::Table).get());
        mm.stock.release(spare);
        mm.end(children[1]).unwrap();
        agree(&[]);
    });
}

#[test]
fn a_group_that_is_not_whole_is_found() {
    use crate::table::{Aarch64, Attrs, Entry, Slot};
    let at = |nth: u64| Va::new(BASE + nth * FRAME_BYTES);
    /// What becomes of a word, given its number, what it maps and how.
    type Make = fn(u64, Pa, Attrs) -> u64;
    const LEAF: fn(Pa, Level, Attrs) -> u64 = Aarch64::leaf;
    // Made as it is made by the fault of a folio of 2^n pages, and then rewritten; the page that is
    // named.
    let table: [(u8, Make, Option<u64>); 8] = [
        (4, |_, pa, attrs| LEAF(pa, Level::BASE, attrs), None),
        (4, |_, pa, attrs| LEAF(pa, Level::BASE, attrs.without(Attrs::GROUPED)), None),
        (4, |n, pa, attrs| if n == 15 { 0 } else { LEAF(pa, Level::BASE, attrs) }, Some(15)),
        (4, |n, pa, attrs| if n == 0 { 0 } else { LEAF(pa, Level::BASE, attrs) }, Some(1)),
        (
            4,
            |n, pa, attrs| {
                let less = if n == 7 { Attrs::GROUPED } else { Attrs::NONE };
                LEAF(pa, Level::BASE, attrs.without(less))
            },
            Some(7),
        ),
        (
            4,
            |n, pa, attrs| {
                let less = if n == 7 { Attrs::WRITE } else { Attrs::NONE };
                LEAF(pa, Level::BASE, attrs.without(less))
            },
            Some(7),
        ),
        (
            4,
            |n, pa, attrs| LEAF(Pa::new(pa.get() ^ u64::from(n == 7) << 12), Level::BASE, attrs),
            Some(7),
        ),
        // Two folios, side by side.
        (3, |_, pa, attrs| LEAF(pa, Level::BASE, attrs | Attrs::GROUPED), Some(0)),
    ];
    for (n, make, wanted) in table {
        let mut config = Config::seeded(1, Bytes::new(64 << 20), 1);
        config = config.with_format(foliant_sim::Format::Aarch64);
        config.checks = foliant_sim::Checks::None;
        let sim = Sim::new(config).unwrap();
        let policy = Policy::always(crate::fault::Orders::of(Order::new(n).unwrap()));
        let mm: Manager<'_, Sim, Aarch64> =
            Manager::new(&sim, &Setup::of(&sim.config().memory, policy)).unwrap();
        let id = mm.create(None).unwrap();
        let request = MapRequest {
            place: Place::Fixed(at(0)),
            bytes: Bytes::new(1 << 20),
            flags: Flags::READ_WRITE,
            tag: 0,
        };
        mm.map(id, &request).unwrap();
        (0..16).for_each(|nth| _ = mm.fault(id, at(nth), Access::Write));
        mm.audit(&[id]).unwrap();
        let space = id.pin(&mm.stock).unwrap();
        let lock = space.tables(&mm.stock).lock(at(0), Level::BASE).unwrap();
        for nth in 0..16 {
            let slot = Slot::of(at(nth), Level::BASE);
            let Entry::Leaf { pa, attrs } = lock.entry(slot) else { panic!("it was made") };
            lock.set(slot, make(nth, pa, attrs));
        }
        drop(lock);
        let wanted = wanted.map(|nth| AuditError::Group { space: id, va: at(nth) });
        assert_eq!(mm.audit(&[id]).err(), wanted);
    }
}
