//! User programs and their faults.

use super::{Verdict, check, part, peek, with_area};
use crate::memory::manager;
use crate::{smp, user};
use alloc::format;
use alloc::string::String;
use foliant::fault::{Access, Orders, Outcome, Refusal};
use foliant::{Event, Policy};
use foliant_units::{Bytes, FRAME_BYTES, Order, Va, VaRange};
use spin::Mutex;
use user::Stop;

const PAGE: Bytes = Bytes::new(FRAME_BYTES);

/// Runs the touching program on every CPU, each in its own part, and collects what went wrong.
fn touch_parts(
    space: foliant::space::SpaceId,
    range: VaRange,
    access: Access,
) -> Result<(), String> {
    let trouble = Mutex::new(None);
    user::inside_together(space, smp::online(), &|cpu| {
        if let Err(stop) = user::touch(part(range, cpu.index(), smp::online()), PAGE, access) {
            *trouble.lock() = Some(format!("CPU {}: {stop}", cpu.0));
        }
    });
    trouble.into_inner().map_or(Ok(()), Err)
}

/// The pages that do not hold their own address, which is what the program stored.
fn wrong_pages(range: VaRange) -> u64 {
    let pages = (range.start().get()..range.end().get()).step_by(FRAME_BYTES as usize);
    pages.filter(|va| peek(Va::new(*va)) != *va).count() as u64
}

pub(super) fn every_cpu_faults_memory_in_from_ring_3() -> Verdict {
    let bytes = Bytes::new((smp::online() as u64) << 21);
    with_area(Policy::BASE_ONLY, bytes, |space, range| {
        let before = manager().total(Event::Fault);
        touch_parts(space, range, Access::Read)?;
        touch_parts(space, range, Access::Write)?;
        let faults = manager().total(Event::Fault) - before;
        let pages = range.pages().get();
        check(faults == 2 * pages, || {
            format!("{faults} faults for {pages} pages read, then written")
        })?;
        let wrong = super::on_cpu(0, space, || wrong_pages(range));
        check(wrong == 0, || format!("{wrong} of {pages} pages hold something else"))?;
        Ok(format!("{pages} pages, {faults} faults, {} CPUs", smp::online()))
    })
}

pub(super) fn larger_folios_take_fewer_faults() -> Verdict {
    let mut seen = String::new();
    for size in [PAGE, Bytes::new(64 << 10), Bytes::new(2 << 20)] {
        let order = Order::fitting(size).expect("a folio size");
        let bytes = Bytes::new((smp::online() as u64) << 21);
        let policy = Policy::always(Orders::of(order).without(Orders::of(Order::BASE)));
        with_area(policy, bytes, |space, range| {
            let before = manager().total(Event::Fault);
            touch_parts(space, range, Access::Write)?;
            let (faults, want) =
                (manager().total(Event::Fault) - before, range.bytes().get() / size.get());
            seen += &format!("{size}: {faults} faults  ");
            check(faults == want, || format!("{faults} faults with {size} folios, {want} wanted"))
        })?;
    }
    Ok(seen.trim_end().into())
}

pub(super) fn what_ring_3_may_not_do_stops_it() -> Verdict {
    with_area(Policy::BASE_ONLY, PAGE, |space, range| {
        let touch = |start: Va, access| {
            let word = VaRange::sized(start, PAGE).expect("one page");
            super::on_cpu(0, space, || user::touch(word, PAGE, access))
        };
        let behind = range.end();
        let found = touch(behind, Access::Write);
        let want = Err(Stop::Fault(behind, Outcome::Refused(Refusal::NoArea(behind))));
        check(found == want, || format!("a store behind the area: {found:?}"))?;
        let kernel = Va::new(crate::layout::DIRECT);
        let found = touch(kernel, Access::Read);
        check(found == Err(Stop::Outside(kernel)), || {
            format!("a load of the direct map: {found:?}")
        })?;
        let crooked = Va::new(1 << 47);
        let found = super::on_cpu(0, space, || user::read_at(crooked));
        check(matches!(found, Err(Stop::Exception(13, _))), || {
            format!("a load that is not canonical: {found:?}")
        })?;
        let found = super::on_cpu(0, space, user::forbidden);
        check(matches!(found, Err(Stop::Exception(13, _))), || format!("a halt: {found:?}"))?;
        Ok("no area, the kernel's half, no address at all, a halt".into())
    })
}
