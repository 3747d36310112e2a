//! Anchors: what a program writes and what the holder of an anchor writes is in the same memory,
//! over forks and everything else that would give a page away; what anchoring costs, and what
//! becomes of anchors whose page is gone.
#![allow(unsafe_code)]

use crate::common::beside::Beside;
use crate::common::*;
use foliant::compact::CompactRequest;
use foliant::fault::{FillWith, Refusal};
use foliant::manager::{Anchor, AnchorError, CollapseLimits, Setup};
use foliant::object::ObjectRequest;
use foliant::pool::Budget;
use foliant::space::{Advice, Flags, MapRequest, Place, SpaceId, Watch};
use foliant::split::SplitInto;
use foliant::table::{Attrs, Paging};
use foliant::{Access, Event, Outcome, Policy};
use foliant_machine::{AnyMachine, PhysMem, Replace};
use foliant_sim::{Config, Failing, Format, Sim};
use foliant_units::{Bytes, Order, Pages, Va};
use std::sync::Mutex;

const SIZE: Order = Order::SIZE_2M;

type Held<'a, 'm, P> = Anchor<'a, 'm, AnyMachine<'m>, P>;

fn machine(format: Format, replace: Option<Replace>) -> Sim {
    let mut config = Config::seeded(2, Bytes::new(48 * MB), 5).with_format(format);
    config.rules.replace = replace.unwrap_or(config.rules.replace);
    Sim::new(config).unwrap()
}
/// A space that both CPUs run.
fn begun<'m, P: Paging>(sim: &'m Sim, policy: Policy) -> (Audited<'m, P>, SpaceId) {
    let mm: Audited<'m, P> = audited(sim, &Setup::of(&sim.config().memory, policy));
    let id = mm.create(None).unwrap();
    for nth in [1, 0] {
        sim.on(cpu(nth), || mm.online());
        sim.on(cpu(nth), || mm.switch(Some(id)).unwrap());
    }
    (mm, id)
}

/// What a device reads at the beginning of the nth page.
fn peek<P: Paging>(sim: &Sim, held: &Held<'_, '_, P>, nth: u64) -> u64 {
    let frame = held.frames().iter().nth(nth as usize).unwrap();
    // SAFETY: a frame of the machine's, which the anchor keeps.
    let at = unsafe { sim.reach(frame.pa(), Bytes::new(8)) };
    // SAFETY: eight bytes of it, which nobody writes at this moment.
    unsafe { at.cast::<u64>().read() }
}
/// What a device writes there.
fn poke<P: Paging>(sim: &Sim, held: &Held<'_, '_, P>, nth: u64, value: u64) {
    let frame = held.frames().iter().nth(nth as usize).unwrap();
    // SAFETY: as for `peek`.
    let at = unsafe { sim.reach(frame.pa(), Bytes::new(8)) };
    // SAFETY: as for `peek`, and nobody reads.
    unsafe { at.cast::<u64>().write(value) }
}
/// Whether the holder of an anchor of the page at `va` and the program see each other's writes.
#[track_caller]
fn agree<P: Paging>(
    sim: &Sim,
    (mm, id): (&AnyMm<'_, P>, SpaceId),
    held: &Held<'_, '_, P>,
    va: u64,
    value: u64,
) {
    store(sim, mm, id, va, value);
    assert_eq!(peek(sim, held, 0), value, "what the program wrote");
    poke(sim, held, 0, value + 1);
    assert_eq!(load(sim, mm, id, va), value + 1, "what the device wrote");
}
/// Runs what a child sees of an address.
fn in_child<P: Paging>(sim: &Sim, mm: &AnyMm<'_, P>, child: SpaceId, id: SpaceId, va: u64) -> u64 {
    mm.switch(Some(child)).unwrap();
    let seen = load(sim, mm, child, va);
    mm.switch(Some(id)).unwrap();
    seen
}

/// After any fork both sides have what was there, and the anchored page stays the parent's.
fn forked<P: Paging>(format: Format, replace: Option<Replace>) {
    for policy in [Policy::BASE_ONLY, only(4), only(9)] {
        let sim = machine(format, replace);
        let (mm, id) = begun::<P>(&sim, policy);
        area(&mm, id, BASE, 2 * MB);
        (0..20).for_each(|nth| _ = store(&sim, &mm, id, BASE + nth * PAGE, 100 + nth));
        let access = [Access::Read, Access::Write];
        let held = access.map(|access| mm.anchor(id, page(3), access).unwrap());
        let copied = mm.total(Event::ForkCopied);
        let child = mm.fork(id).unwrap();
        let expect = match policy {
            Policy::BASE_ONLY => 1,
            policy if policy == only(4) => 16,
            _ => 512,
        };
        assert_eq!(mm.total(Event::ForkCopied) - copied, expect, "{format:?}");
        held.iter().for_each(|held| agree(&sim, (&mm, id), held, BASE + 3 * PAGE, 1000));
        for nth in 0..20 {
            assert_eq!(in_child(&sim, &mm, child, id, BASE + nth * PAGE), 100 + nth);
        }
        // What the child writes is its own, whether it shares the page or has a copy.
        mm.switch(Some(child)).unwrap();
        (0..20).for_each(|nth| _ = store(&sim, &mm, child, BASE + nth * PAGE, 200 + nth));
        mm.switch(Some(id)).unwrap();
        assert_eq!(load(&sim, &mm, id, BASE + 3 * PAGE), 1001);
        assert_eq!(load(&sim, &mm, id, BASE), 100);
        let second = mm.fork(child).unwrap();
        assert_eq!(mm.total(Event::ForkCopied) - copied, expect, "the child anchored nothing");
        mm.end(second).unwrap();
        drop(held);
        let third = mm.fork(id).unwrap();
        assert_eq!(mm.total(Event::ForkCopied) - copied, expect, "nothing is anchored any more");
        mm.end(third).unwrap();
        mm.end(child).unwrap();
        recount(&sim, &mm, &[id]);
    }
}

#[test]
fn a_fork_leaves_anchored_pages_to_the_parent() {
    on_every_format!(forked);
}

/// A page that others have, or that is zeros, is copied before it is anchored, even to be read.
fn unshared<P: Paging>(format: Format, replace: Option<Replace>) {
    for policy in [Policy::BASE_ONLY, only(4), only(9)] {
        let sim = machine(format, replace);
        let (mm, id) = begun::<P>(&sim, policy);
        area(&mm, id, BASE, 4 * MB);
        (0..20).for_each(|nth| _ = store(&sim, &mm, id, BASE + nth * PAGE, 100 + nth));
        let zeros = BASE + 2 * MB;
        assert_eq!(load(&sim, &mm, id, zeros), 0);
        let child = mm.fork(id).unwrap();
        for rights in [Flags::READ, Flags::READ_WRITE] {
            mm.protect(id, row(0, 1024), rights).unwrap();
            let [shared, zero] = [page(5), range(zeros, PAGE)]
                .map(|range| mm.anchor(id, range, Access::Read).unwrap());
            assert!(entry(&mm, id, 5).unwrap().has(Attrs::EXCLUSIVE), "{format:?}");
            let is_writable = entry(&mm, id, 5).unwrap().has(Attrs::WRITE);
            assert_eq!(is_writable, rights == Flags::READ_WRITE, "by then it is its own");
            assert_eq!([peek(&sim, &shared, 0), peek(&sim, &zero, 0)], [105, 0]);
            if rights == Flags::READ {
                let refused = mm.anchor(id, page(5), Access::Write).unwrap_err();
                let why = Refusal::NoRight(page(5).start(), Access::Write);
                assert_eq!(refused, AnchorError::NoPage(Outcome::Refused(why)));
            } else {
                agree(&sim, (&mm, id), &shared, BASE + 5 * PAGE, 2000);
                agree(&sim, (&mm, id), &zero, zeros, 3000);
            }
        }
        assert_eq!(in_child(&sim, &mm, child, id, BASE + 5 * PAGE), 105);
        assert_eq!(in_child(&sim, &mm, child, id, zeros), 0);
    }
}

#[test]
fn a_page_is_the_space_s_alone_before_it_is_anchored() {
    on_every_format!(unshared);
}

/// One anchor has all of a folio that lies side by side in the area and the range, and no more.
#[test]
fn an_anchor_is_as_long_as_its_folio_and_its_range() {
    for (n, lengths) in [(0, [1, 1, 1]), (4, [16, 13, 2]), (9, [512, 509, 2])] {
        let sim = sim(1, 64);
        let mm = manager(&sim, only(n));
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, 4 * MB);
        let ranges = [row(0, 1024), row(3, 1024), row(7, 2)];
        let got = ranges.map(|range| {
            let held = mm.anchor(id, range, Access::Write).unwrap();
            assert_eq!(Some(held.frames().start()), mm.frame_at(id, range.start()));
            held.frames().pages().get()
        });
        assert_eq!(got, lengths);
        let held = mm.anchor(id, row(3, 2), Access::Read).unwrap();
        (0..16)
            .for_each(|byte| _ = sim.user_store(Va::new(BASE + 4 * PAGE - 8 + byte), 1, byte + 1));
        let mut seen = [0; 16];
        let wide = held.frames().pages().get() == 2;
        let came = if wide { 16 } else { 8 };
        assert_eq!(held.read(Bytes::new(PAGE - 8), &mut seen), came, "up to their end");
        let expect: Vec<u8> =
            (1..=16).map(|byte| if byte <= came { byte as u8 } else { 0 }).collect();
        assert_eq!(&seen[..], &expect[..]);
        assert_eq!(held.read(Bytes::new(u64::MAX), &mut seen), 0);
        drop(held);
        mm.protect(id, row(8, 1016), Flags::READ).unwrap();
        let held = mm.anchor(id, row(6, 9), Access::Read).unwrap();
        assert_eq!(held.frames().pages().get(), lengths[2], "the area ends");
        let cut = [mm.unmap(id, row(2, 1)), mm.unmap(id, row(4, 1))];
        assert_eq!(cut, [Ok(()), Ok(())]);
        assert_eq!(mm.anchor(id, row(3, 9), Access::Read).unwrap().frames().pages().get(), 1);
        let why = Refusal::NoArea(row(2, 1).start());
        let refused = mm.anchor(id, row(2, 9), Access::Read).unwrap_err();
        assert_eq!(refused, AnchorError::NoPage(Outcome::Refused(why)));
        assert!(refused.to_string().contains("no page to anchor"), "{refused}");
    }
}

/// A3: what is anchored stays where it is, and is the holder's when the program is gone.
#[test]
fn nothing_else_takes_an_anchored_page() {
    let sim = sim(2, 64);
    let mm = manager(&sim, only(4));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 2 * MB);
    (0..512).for_each(|nth| _ = store(&sim, &mm, id, BASE + nth * PAGE, nth));
    let held = mm.anchor(id, page(20), Access::Read).unwrap();
    let at = held.frames().start();
    assert!(mm.relocate(at).is_err() && mm.split_frame(at, SplitInto::BASE).is_err());
    assert!(mm.collapse(id, Va::new(BASE), SIZE, CollapseLimits::NONE).is_err());
    mm.compact(&CompactRequest::ALL, &mut []);
    mm.advise(id, row(0, 512), Advice::Free).unwrap();
    mm.clear_refs(id, row(0, 512), foliant::space::Refs::SoftDirty).unwrap();
    mm.protect(id, row(0, 512), Flags::READ).unwrap();
    mm.protect(id, row(0, 512), Flags::READ_WRITE).unwrap();
    assert_eq!(mm.frame_at(id, Va::new(BASE + 20 * PAGE)), Some(at));
    agree(&sim, (&mm, id), &held, BASE + 20 * PAGE, 77);
    // The program drops it: it is the holder's, and what comes there is another page.
    mm.advise(id, row(0, 512), Advice::DontNeed).unwrap();
    store(&sim, &mm, id, BASE + 20 * PAGE, 5);
    assert_eq!(peek(&sim, &held, 0), 78);
    assert_ne!(mm.frame_at(id, Va::new(BASE + 20 * PAGE)), Some(at));
    mm.switch(None).unwrap();
    mm.end(id).unwrap();
    assert_eq!(mm.anonymous().get(), 16, "the folio is kept");
    drop(held);
    assert_eq!(mm.anonymous().get(), 0);
}

/// Memory that a handler watches stays watched when it is anchored to be read.
#[test]
fn what_is_watched_stays_watched() {
    for policy in [Policy::BASE_ONLY, only(9)] {
        let sim = sim(2, 64);
        let mm = manager(&sim, policy);
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, 4 * MB);
        store(&sim, &mm, id, BASE, 9);
        assert_eq!(load(&sim, &mm, id, BASE + 2 * MB), 0);
        let child = mm.fork(id).unwrap();
        mm.advise(id, row(0, 1024), Advice::UserfaultWriteArm).unwrap();
        mm.watch(id, row(0, 1024), Watch::Present).unwrap();
        for va in [BASE, BASE + 2 * MB] {
            let held = mm.anchor(id, range(va, PAGE), Access::Read).unwrap();
            let told = Outcome::UserfaultWrite(Va::new(va));
            assert_eq!(mm.fault(id, Va::new(va), Access::Write), told);
            let refused = mm.anchor(id, range(va, PAGE), Access::Write).unwrap_err();
            assert_eq!(refused, AnchorError::NoPage(told));
            mm.watch(id, range(va, PAGE), Watch::Nothing).unwrap();
            agree(&sim, (&mm, id), &held, va, 40);
        }
        mm.end(child).unwrap();
    }
}

/// Objects: what is shared is anchored as it is, and what is private is copied first.
fn of_objects<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = machine(format, replace);
    let (mm, id) = begun::<P>(&sim, Policy::BASE_ONLY);
    let of = mm
        .create_object(&ObjectRequest { pages: Pages::new(16), ..ObjectRequest::default() })
        .unwrap();
    let map = |at: u64, flags| {
        let place = Place::NoReplace(Va::new(BASE + at * PAGE));
        let request = MapRequest { place, bytes: Bytes::new(4 * PAGE), flags, tag: 0 };
        mm.map_object(id, &request, (of, Pages::new(0))).unwrap();
    };
    map(0, Flags::READ_WRITE.with(Flags::SHARED));
    map(8, Flags::READ_WRITE);
    store(&sim, &mm, id, BASE, 7);
    let shared = mm.anchor(id, page(0), Access::Read).unwrap();
    let private = mm.anchor(id, page(8), Access::Read).unwrap();
    assert_ne!(shared.frames(), private.frames());
    let child = mm.fork(id).unwrap();
    agree(&sim, (&mm, id), &shared, BASE, 50);
    agree(&sim, (&mm, id), &private, BASE + 8 * PAGE, 60);
    assert_eq!(in_child(&sim, &mm, child, id, BASE), 51);
    assert_eq!(in_child(&sim, &mm, child, id, BASE + 8 * PAGE), 7);
    // A page of the object that went is its holder's.
    mm.punch_object(of, Pages::new(0), Pages::new(4)).unwrap();
    assert_eq!(load(&sim, &mm, id, BASE), 0);
    assert_eq!(peek(&sim, &shared, 0), 51);
    agree(&sim, (&mm, id), &private, BASE + 8 * PAGE, 70);
}

#[test]
fn pages_of_objects_are_anchored() {
    on_every_format!(of_objects);
}

/// Huge pages of a pool: a child gets a page of its own, or is not made where there is none.
fn of_pools<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = machine(format, replace);
    let (mm, id) = begun::<P>(&sim, Policy::BASE_ONLY);
    mm.resize_pool(SIZE, 3, Budget::ALL).unwrap();
    let place = Place::NoReplace(Va::new(BASE));
    let flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
    mm.map(id, &request(place, 2 * SIZE_2M, flags)).unwrap();
    store(&sim, &mm, id, BASE, 7);
    let held = mm.anchor(id, row(5, 1024), Access::Read).unwrap();
    assert_eq!(held.frames().pages().get(), 507);
    let first = mm.anchor(id, row(0, 1), Access::Write).unwrap();
    let child = mm.fork(id).unwrap();
    let free = |mm: &AnyMm<'_, P>| mm.pool(SIZE).unwrap().free_hugepages;
    assert_eq!(free(&mm), 1, "the child has one of its own");
    recount(&sim, &mm, &[id, child]);
    agree(&sim, (&mm, id), &first, BASE, 30);
    assert_eq!(in_child(&sim, &mm, child, id, BASE), 7);
    store(&sim, &mm, id, BASE + SIZE_2M, 8);
    let other = mm.anchor(id, row(512, 1), Access::Read).unwrap();
    assert!(mm.fork(id).is_err(), "no page is left for the copy");
    assert_eq!(free(&mm), 0);
    agree(&sim, (&mm, id), &other, BASE + SIZE_2M, 40);
    mm.end(child).unwrap();
    // A page that others have is copied before it is anchored.
    drop((held, first, other));
    recount(&sim, &mm, &[id]);
    let child = mm.fork(id).unwrap();
    assert_eq!(free(&mm), 1, "nothing is anchored any more");
    let held = mm.anchor(id, row(0, 1), Access::Read).unwrap();
    assert_eq!(free(&mm), 0);
    agree(&sim, (&mm, id), &held, BASE, 50);
    assert_eq!(in_child(&sim, &mm, child, id, BASE), 31);
    mm.end(child).unwrap();
    mm.unmap(id, row(0, 1024)).unwrap();
    assert_eq!(free(&mm), 2, "the anchor keeps one");
    recount(&sim, &mm, &[id]);
    drop(held);
    assert_eq!(free(&mm), 3);
}

#[test]
fn huge_pages_of_a_pool_are_anchored() {
    on_every_format!(of_pools);
}

/// A page of the pool that breaks while the parent's is copied into it is not the child's.
#[test]
fn a_copy_that_breaks_is_made_again() {
    let (mut taken, mut lost, mut shown) = (None, 0, 0);
    for step in 1.. {
        let machine = Beside::new(sim(2, 48));
        let mm = machine.manager(Policy::BASE_ONLY);
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
        mm.resize_pool(SIZE, 3, Budget::ALL).unwrap();
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        let flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
        mm.map(id, &request(Place::NoReplace(Va::new(BASE)), SIZE_2M, flags)).unwrap();
        store(&machine.sim, &mm, id, BASE, 7);
        let held = mm.anchor(id, row(0, 1), Access::Read).unwrap();
        let before = Mutex::new(false);
        let report = || {
            *before.lock().unwrap() = mm.total(Event::ForkCopied) == 0;
            taken.into_iter().for_each(|head| _ = mm.poison(head));
        };
        let child = Mutex::new(None);
        let fork = || *child.lock().unwrap() = Some(mm.fork(id).unwrap());
        let ran = machine.before_step(step, report, fork).is_some();
        let child = child.lock().unwrap().unwrap();
        let has = mm.frame_at(child, Va::new(BASE)).unwrap();
        lost += mm.pool(SIZE).unwrap().broken;
        shown += u64::from(taken == Some(has) && *before.lock().unwrap());
        taken = taken.or(Some(has));
        drop(held);
        mm.leaves("a broken page");
        if !ran {
            break;
        }
    }
    // Between the last look and the entry are few steps; while a copy is made, many.
    assert!(lost > 400 && shown < 5, "{lost} were lost, {shown} mapped all the same");
}

/// Every allocation of a fork that copies is refused once, and nothing is lost.
#[test]
fn a_fork_that_copies_and_gets_no_memory_leaves_no_trace() {
    for n in [0, 4, 9] {
        let mut refused = 0;
        for kth in 1.. {
            let sim = sim(1, 64);
            let mm = manager(&sim, only(n));
            let id = mm.create(None).unwrap();
            mm.switch(Some(id)).unwrap();
            area(&mm, id, BASE, 2 * MB);
            store(&sim, &mm, id, BASE, 6);
            let held = mm.anchor(id, page(0), Access::Write).unwrap();
            sim.fault_plan().set(Failing::Kth(kth));
            let child = mm.fork(id);
            let is_refused = sim.fault_plan().refused() > 0;
            sim.fault_plan().set(Failing::Nothing);
            assert_eq!(child.is_err(), is_refused);
            agree(&sim, (&mm, id), &held, BASE, 60);
            refused += u64::from(is_refused);
            if kth > 40 || !is_refused {
                break;
            }
        }
        assert!(refused > 5, "{refused} were refused");
    }
}

/// The charge of a child is for its copies as well, and a limit refuses the fork.
#[test]
fn a_child_is_charged_for_its_copies() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let mut limit = 12;
    loop {
        let id = mm.create(Some(Pages::new(limit))).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, 2 * MB);
        let stores = (0..4).map(|nth| store(&sim, &mm, id, BASE + nth * PAGE, nth));
        let is_over = stores.flatten().any(|outcome| outcome == Outcome::OverLimit);
        if !is_over {
            let held = [0, 2].map(|nth| mm.anchor(id, page(nth), Access::Read).unwrap());
            let child = mm.fork(id).unwrap();
            assert_eq!(mm.pages(child), mm.pages(id));
            mm.end(child).unwrap();
            drop(held);
        }
        mm.switch(None).unwrap();
        mm.end(id).unwrap();
        if !is_over {
            break;
        }
        limit += 1;
    }
}

/// Missing pages of a handler's are told, and nothing of kernel memory is anchored.
#[test]
fn what_no_fault_brings_is_not_anchored() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, MB);
    mm.advise(id, row(0, 4), Advice::UserfaultArm).unwrap();
    let told = AnchorError::NoPage(Outcome::Userfault(Va::new(BASE)));
    assert_eq!(mm.anchor(id, page(0), Access::Read).unwrap_err(), told);
    mm.fill(id, Va::new(BASE), FillWith::Zeros(Pages::new(1))).unwrap();
    assert_eq!(mm.anchor(id, row(0, 4), Access::Write).unwrap().frames().pages().get(), 1);
    let gone = mm.create(None).unwrap();
    mm.end(gone).unwrap();
    let why = AnchorError::NoPage(Outcome::Refused(Refusal::NoSpace));
    assert_eq!(mm.anchor(gone, page(0), Access::Read).unwrap_err(), why);
    store(&sim, &mm, id, BASE + 9 * PAGE, 1);
    mm.poison(mm.frame_at(id, Va::new(BASE + 9 * PAGE)).unwrap());
    let broken = AnchorError::NoPage(Outcome::Refused(Refusal::Broken(Va::new(BASE + 9 * PAGE))));
    assert_eq!(mm.anchor(id, page(9), Access::Read).unwrap_err(), broken);
    mm.leaves("a broken page");
}

/// A folio has so many anchors and no more; each that goes makes room for another one.
#[test]
fn anchors_are_as_many_as_can_be_counted() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, MB);
    let mut held = Vec::new();
    let refused = loop {
        match mm.anchor(id, page(0), Access::Write) {
            Ok(anchor) => held.push(anchor),
            Err(refused) => break refused,
        }
    };
    let frame = held[0].frames().start();
    assert_eq!((held.len(), refused), (8192, AnchorError::TooMany(frame)));
    assert!(mm.reference(frame).is_none(), "as many as there may be");
    let child = mm.fork(id).unwrap();
    agree(&sim, (&mm, id), &held[0], BASE, 6);
    mm.end(child).unwrap();
    held.pop();
    let again = mm.anchor(id, page(0), Access::Write).unwrap();
    agree(&sim, (&mm, id), &again, BASE, 8);
}
