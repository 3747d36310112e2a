#![allow(unsafe_code)]
//! Members of fork trees: what a space's record begins with.

use super::offsets::Offsets;
use crate::flush::Target;
use crate::frame::{AnonOffset, Index, Origin};
use crate::stock::{Charge, NoRecord, Record, Stock, record};
use crate::sync::{AtomicU64, Ordering, Spin};
use crate::table::{Half, Paging, Tables};
use core::ops::Deref;
use foliant_machine::Machine;
use foliant_units::{Frame, Va};

/// A space as its fork tree sees it. All words; valid when cleared.
///
/// Key: `[f]` the fork tree's `lock` held; `[w]` the space's writer held; `[a]` atomic; `[c]`
/// constant.
#[repr(C)]
pub(crate) struct Member {
    pub(crate) target: Target, // [a]
    /// Operations at work in it, besides faults; [`LEAVING`] when nobody may begin one any more.
    pub(crate) users: AtomicU64, // [a]
    offsets: Offsets,          // [w], read at any time
    /// Its own frame, and that of the fork tree's record.
    frame: AtomicU64, // [c]
    tree: AtomicU64,           // [c]
    depth: AtomicU64,          // [c]
    next: AtomicU64,           // [f] frame of a member with 1 added, or 0
    before: AtomicU64,         // [f]
    kept: ForkTree,
}

/// What the first member keeps for all of them.
///
/// Key: `[f]` `lock` held.
#[repr(C)]
struct ForkTree {
    lock: Spin,
    first: AtomicU64,   // [f] as a link
    members: AtomicU64, // [f]
}

// SAFETY: words and structs of words.
unsafe impl Record for Member {}

/// In `users`: the member leaves its fork tree as soon as nobody has it pinned. It maps nothing any
/// more, so walks pass over it.
const LEAVING: u64 = 1 << 63;

/// A pin of a member. Until it is dropped the member does not end, and is on its fork tree's list
/// (R6).
pub(crate) struct Pin<'m> {
    member: &'m Member,
}

impl<'m> Pin<'m> {
    /// The caller is in a reader's section in which the space was found by its name.
    pub(crate) fn new(member: &'m Member) -> Pin<'m> {
        let before = member.users.fetch_add(1, Ordering::SeqCst);
        assert!(before & LEAVING == 0, "a space that has a name leaves no tree (R6)");
        Pin { member }
    }
    /// Pins the first member that may be pinned, of those that `link` leads to. The caller holds
    /// the fork tree's lock, so all of them are on the list.
    fn listed<M: Machine, P: Paging>(stock: &Stock<'m, M, P>, link: u64) -> Option<Pin<'m>> {
        let mut next = Member::at(stock, link);
        while let Some(member) = next {
            let pin = Pin { member };
            if member.users.fetch_add(1, Ordering::SeqCst) & LEAVING == 0 {
                return Some(pin);
            }
            // The pin is taken back as it is dropped.
            next = Member::at(stock, member.next.load(Ordering::Relaxed));
        }
        None
    }
    /// The member, for as long as the pin lives.
    pub(crate) fn member(&self) -> &'m Member {
        self.member
    }
}

impl Clone for Pin<'_> {
    /// Makes another one: the member may be about to leave, and waits for both.
    fn clone(&self) -> Self {
        self.member.users.fetch_add(1, Ordering::SeqCst);
        Pin { member: self.member }
    }
}

impl Deref for Pin<'_> {
    type Target = Member;
    fn deref(&self) -> &Member {
        self.member
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.member.users.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether somebody is left in the fork tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Last {
    /// The caller was the last one: the frame of the record is free after a grace period.
    Yes(Frame),
    /// Others are there.
    No,
}

fn link(frame: Frame) -> u64 {
    frame.get() + 1
}

impl Member {
    /// The member in the frame of a link.
    pub(super) fn at<'m, M: Machine, P: Paging>(
        stock: &Stock<'m, M, P>,
        link: u64,
    ) -> Option<&'m Member> {
        link.checked_sub(1).map(|frame| record(stock.machine, Frame::new(frame).pa()))
    }
    /// The member in a space's frame.
    pub(super) fn in_frame<'m, M: Machine, P: Paging>(
        stock: &Stock<'m, M, P>,
        frame: Frame,
    ) -> &'m Member {
        record(stock.machine, frame.pa())
    }

    /// Its frame.
    pub(crate) fn frame(&self) -> Frame {
        Frame::new(self.frame.load(Ordering::Relaxed))
    }
    /// The frame of its fork tree's record.
    pub(crate) fn tree(&self) -> Frame {
        Frame::new(self.tree.load(Ordering::Relaxed))
    }
    pub(super) fn depth(&self) -> u64 {
        self.depth.load(Ordering::Relaxed)
    }
    /// The user half of its tables.
    pub(crate) fn tables<'m, M: Machine, P: Paging>(
        &self,
        stock: &Stock<'m, M, P>,
    ) -> Tables<'m, M, P> {
        // SAFETY: table::I1: the record names its own top table, which goes after it.
        unsafe { Tables::adopt(stock.machine, self.target.root(), Half::User) }
    }
    /// Where a folio is made that it maps at `va` in an area with `offset`.
    pub(crate) fn origin(&self, va: Va, offset: AnonOffset) -> Origin {
        Origin { tree: self.tree(), creator: self.frame(), index: Index::of(va, offset) }
    }
    /// The distances that its areas were moved.
    pub(crate) fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    /// Founds a fork tree in `frame`, the caller's own.
    pub(crate) fn found(&self, frame: Frame) {
        self.frame.store(frame.get(), Ordering::Relaxed);
        self.tree.store(frame.get(), Ordering::Relaxed);
        self.kept.first.store(link(frame), Ordering::Relaxed);
        self.kept.members.store(1, Ordering::Relaxed);
    }

    /// Joins the fork tree of `parent` instead of the one that this member founded, and takes over
    /// the distances that the parent's areas were moved. Nobody knows this member yet; the parent's
    /// writer is held.
    pub(crate) fn join<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        charge: &Charge,
        parent: &Member,
    ) -> Result<(), NoRecord> {
        self.offsets.copy(stock, charge, &parent.offsets)?;
        let home = Member::in_frame(stock, parent.tree());
        self.depth.store(parent.depth() + 1, Ordering::Relaxed);
        let _held = home.kept.lock.lock(stock.machine);
        let next = parent.next.load(Ordering::Relaxed);
        self.before.store(link(parent.frame()), Ordering::Relaxed);
        self.next.store(next, Ordering::Relaxed);
        parent.next.store(link(self.frame()), Ordering::Relaxed);
        if let Some(next) = Member::at(stock, next) {
            next.before.store(link(self.frame()), Ordering::Relaxed);
        }
        home.kept.members.fetch_add(1, Ordering::Relaxed);
        // Last: a walker that begins at this frame, which was another member's, goes on along the
        // list (R6).
        self.tree.store(parent.tree().get(), Ordering::Release);
        Ok(())
    }

    /// Leaves the fork tree: no entry of this member is left (R2), and its name is gone. Waits for
    /// the walkers that have it pinned, which go on from it along the list, and only then takes it
    /// off (R6). Its offsets go.
    pub(crate) fn leave<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>) -> Last {
        self.users.fetch_or(LEAVING, Ordering::SeqCst);
        while self.users.load(Ordering::SeqCst) != LEAVING {
            stock.machine.relax();
        }
        let home = Member::in_frame(stock, self.tree());
        let last = {
            let _held = home.kept.lock.lock(stock.machine);
            let (before, next) =
                (self.before.load(Ordering::Relaxed), self.next.load(Ordering::Relaxed));
            match Member::at(stock, before) {
                Some(before) => before.next.store(next, Ordering::Relaxed),
                None => home.kept.first.store(next, Ordering::Relaxed),
            }
            if let Some(next) = Member::at(stock, next) {
                next.before.store(before, Ordering::Relaxed);
            }
            match home.kept.members.fetch_sub(1, Ordering::Relaxed) {
                1 => Last::Yes(self.tree()),
                _ => Last::No,
            }
        };
        self.offsets.dissolve(stock);
        last
    }

    /// The first member of the fork tree whose record is here, pinned.
    pub(super) fn first<'m, M: Machine, P: Paging>(
        &'m self,
        stock: &Stock<'m, M, P>,
    ) -> Option<Pin<'m>> {
        let _held = self.kept.lock.lock(stock.machine);
        Pin::listed(stock, self.kept.first.load(Ordering::Relaxed))
    }
    /// The member behind this one, pinned. The caller has this one pinned, so it is on the list
    /// (R6).
    pub(super) fn behind<'m, M: Machine, P: Paging>(
        &self,
        stock: &Stock<'m, M, P>,
    ) -> Option<Pin<'m>> {
        let home = Member::in_frame(stock, self.tree());
        let _held = home.kept.lock.lock(stock.machine);
        Pin::listed(stock, self.next.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::stock::bare::stock;
    use foliant_machine::Owner;
    use foliant_sim::{Config, Sim};
    use foliant_units::Bytes;

    /// A member that is about to leave is taken off the list as soon as nobody has it pinned: a pin
    /// that comes later would pin what is gone.
    #[test]
    fn a_member_that_leaves_is_pinned_no_more() {
        let sim = Sim::new(Config::free(1, Bytes::new(16 << 20))).unwrap();
        let stock = stock(&sim);
        let charge = Charge::default();
        let [parent, child] = [(); 2].map(|()| {
            let (frame, _) = stock.claim_charged(&charge, Owner::Records).unwrap().into_raw();
            let member = Member::in_frame(&stock, frame);
            member.found(frame);
            member
        });
        child.join(&stock, &charge, parent).unwrap();
        let behind = || parent.behind(&stock).map(|pin| pin.member().frame());
        assert_eq!(behind(), Some(child.frame()));
        child.users.fetch_or(LEAVING, Ordering::SeqCst);
        assert_eq!(behind(), None);
        assert_eq!(child.users.load(Ordering::SeqCst), LEAVING, "and nobody has it pinned");
    }
}
