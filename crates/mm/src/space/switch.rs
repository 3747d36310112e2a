//! Which space a CPU runs.
//!
//! ```text
//!   left so far ──▶ is it quiet? ──▶ announce in the next ──▶ did it flush meanwhile? ──▶ load ──▶ leave
//!                   (remember)                                 (keep, or end all)
//! ```
//!
//! The order of these steps is what makes it safe to keep translations of a space that the CPU does
//! not run (flush::F3, which has the proof).
//!
//! **Locking**: none. The CPU is pinned; the words of both targets are atomics.

use super::names::SpaceId;
use super::record::Space;
use crate::stock::{Event, Stock, record};
use crate::table::Paging;
use foliant_machine::{Kept, Machine, Root};

/// The space is being ended, or was about to be: nothing has changed. A caller that looks for it
/// again finds out which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ending;

/// Makes the calling CPU run a space, or none. The caller is in a reader's section where it names
/// one.
pub(crate) fn switch<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    next: Option<(SpaceId, &Space)>,
) -> Result<(), Ending> {
    stock.machine.pinned(|me| {
        let visits = &stock.mine().visits;
        let before = visits.running();
        let name = next.map(|(id, _)| id.name());
        if name.is_some() && name == before {
            return Ok(());
        }
        // A space does not end while a CPU is announced in it, so the record of the space that runs
        // is there until `leave`.
        let left = before.map(|name| {
            let space: &Space = record(stock.machine, name.frame.pa());
            (name, &space.member.target, space.member.target.quiet())
        });
        let kernel = stock.kernel.root();
        let (user, kept) = match next {
            Some((id, space)) => {
                space.member.target.announce(me);
                if space.is_ending() {
                    space.member.target.leave(me); // nothing was loaded
                    return Err(Ending);
                }
                let flushes = space.member.target.started();
                let kept = match visits.recall(id.name()) {
                    Some(then) if then == flushes => Kept::Unchanged,
                    _ => Kept::Nothing,
                };
                (space.member.target.root(), kept)
            }
            // No flush speaks of the user half of the kernel's root, so nothing is said of it.
            None => (kernel, Kept::Nothing),
        };
        stock.machine.activate(Root { user, kernel }, kept);
        if kept == Kept::Unchanged {
            stock.count(Event::SwitchKept);
        }
        visits.run(name);
        if let Some((name, target, quiet)) = left {
            if let Some(flushes) = quiet {
                visits.remember(name, flushes);
            }
            target.leave(me);
        }
        Ok(())
    })
}
