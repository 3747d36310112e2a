//! No memory left: an answer, not an end.

use super::{Verdict, check, with_area};
use crate::memory::manager;
use crate::user;
use alloc::format;
use alloc::vec::Vec;
use foliant::Policy;
use foliant::fault::{Access, Orders, Outcome};
use foliant_units::{Bytes, FRAME_BYTES, Order};
use user::Stop;

/// A program that wants more than there is is stopped with the reason; afterwards everything is
/// there again.
pub(super) fn out_of_memory_is_an_answer() -> Verdict {
    let managed = manager().memory().managed.bytes();
    let want = Bytes::new(managed.get().next_multiple_of(Order::SIZE_2M.bytes().get()));
    let mut stops = Vec::new();
    for policy in [Policy::always(Orders::of(Order::SIZE_2M)), Policy::always(Orders::ANON)] {
        let stop = with_area(policy, want, |space, range| {
            let stop = super::on_cpu(0, space, || {
                user::touch(range, Bytes::new(FRAME_BYTES), Access::Write)
            });
            let left = manager().memory().free;
            check(left.get() < 64, || {
                format!("{left:?} pages were left when it stopped: {stop:?}")
            })?;
            check(manager().create(None).is_err() || left.get() > 0, || {
                "a space was made of nothing".into()
            })?;
            Ok(stop)
        })?;
        let Err(Stop::Fault(va, Outcome::OutOfMemory)) = stop else {
            return Err(format!("the program ended with {stop:?}"));
        };
        stops.push(va);
    }
    // The machine still works.
    super::with_area(Policy::BASE_ONLY, Bytes::new(1 << 20), |space, range| {
        let done =
            super::on_cpu(0, space, || user::touch(range, Bytes::new(FRAME_BYTES), Access::Write));
        check(done.is_ok(), || format!("afterwards: {done:?}"))
    })?;
    Ok(format!("stopped at {} and {}, all given back", stops[0], stops[1]))
}

pub(super) fn the_heap_can_be_refused() -> Verdict {
    let mut list: Vec<u64> = Vec::new();
    let refused = list.try_reserve_exact(manager().memory().managed.bytes().get() as usize / 8 + 1);
    check(refused.is_err(), || "more than all memory was granted".into())?;
    list.try_reserve_exact(1 << 16).map_err(|error| format!("half a MiB: {error}"))?;
    Ok("more than there is was refused, half a MiB was not".into())
}
