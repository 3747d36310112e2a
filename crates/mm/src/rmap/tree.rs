#![allow(unsafe_code)]
//! Members of fork trees: what a space's record begins with.

use super::attachment::{Attachment, Attachments, Distances};
use super::offsets::Offsets;
use crate::flush::Target;
use crate::frame::{AnonOffset, Index, Origin};
use crate::stock::{Charge, NoRecord, Record, Stock, record};
use crate::sync::{AtomicU64, Ordering, Outside, Spin};
use crate::table::{Half, Paging, Tables};
use core::iter;
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
    pub(crate) attachments: Attachments, // [w]
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
    /// The first attachment, where the tree is an object's.
    attachment: AtomicU64, // [f]
}

// SAFETY: words and structs of words.
unsafe impl Record for Member {}

/// In `users`: the member leaves its fork tree as soon as nobody has it pinned. It maps nothing any
/// more, so walks pass over it.
const LEAVING: u64 = 1 << 63;

/// A pin of a member, or of an attachment of it. Until it is dropped the member does not end, and
/// what is pinned is on its list (R6).
pub(crate) struct Pin<'m> {
    member: &'m Member,
    attachment: Option<Attachment<'m>>,
}

impl<'m> Pin<'m> {
    /// The caller is in a reader's section in which the space was found by its name.
    pub(crate) fn new(member: &'m Member) -> Pin<'m> {
        member.keep();
        Pin { member, attachment: None }
    }
    /// Pins the first member that may be pinned, of those that `link` leads to. The caller holds
    /// the fork tree's lock, so all of them are on the list.
    fn listed<M: Machine, P: Paging>(stock: &Stock<'m, M, P>, link: u64) -> Option<Pin<'m>> {
        let mut next = Member::at(stock, link);
        while let Some(member) = next {
            let pin = Pin { member, attachment: None };
            if pin.is_lasting() {
                return Some(pin);
            }
            next = Member::at(stock, member.next.load(Ordering::Relaxed));
        }
        None
    }
    /// The same of attachments.
    fn of_attachment<M: Machine, P: Paging>(stock: &Stock<'m, M, P>, word: u64) -> Option<Pin<'m>> {
        let mut next = Attachment::listed(stock, word);
        while let Some(attachment) = next {
            let pin = Pin {
                member: Member::in_frame(stock, attachment.space()),
                attachment: Some(attachment),
            };
            if pin.is_lasting() {
                return Some(pin);
            }
            next = Attachment::listed(stock, attachment.next());
        }
        None
    }
    /// Counts it; where what it pins leaves, it is taken back as it is dropped.
    fn is_lasting(&self) -> bool {
        self.users().fetch_add(1, Ordering::SeqCst) & LEAVING == 0
    }
    fn users(&self) -> &'m AtomicU64 {
        self.attachment.map_or(&self.member.users, Attachment::users)
    }
    /// Waits until nobody has pinned what counts its pins here; nobody pins it any more.
    fn wait_for_last(users: &AtomicU64, mut wait: impl FnMut()) {
        users.fetch_or(LEAVING, Ordering::SeqCst);
        while users.load(Ordering::SeqCst) != LEAVING {
            wait();
        }
    }
    /// The member, for as long as the pin lives.
    pub(crate) fn member(&self) -> &'m Member {
        self.member
    }
    /// The attachment, where that is pinned.
    pub(crate) fn attachment(&self) -> Option<Attachment<'m>> {
        self.attachment
    }
    /// The distances at which a folio of the tree can be in the member.
    pub(crate) fn offsets<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'m, M, P>,
    ) -> impl Iterator<Item = AnonOffset> + use<'m, M, P> {
        let own = self.attachment.is_none().then(|| self.member.offsets.iter(stock));
        let first = self.attachment.map_or(AnonOffset::NONE, Attachment::offset);
        iter::once(first).chain(own.into_iter().flatten())
    }
    /// Whether an attachment before this one leads to the same addresses: two differ in how far the
    /// copies of their areas were moved, and not in where the object is. It goes along the list.
    pub(crate) fn repeats<M: Machine, P: Paging>(&self, stock: &Stock<'m, M, P>) -> bool {
        let Some(this) = self.attachment else { return false };
        let (first, _held) = Member::in_frame(stock, this.object()).attachments_of(stock);
        let first = Attachment::listed(stock, first.load(Ordering::Relaxed));
        iter::successors(first, |it| Attachment::listed(stock, it.next()))
            .take_while(|it| it.name() != this.name())
            .any(|it| (it.space(), it.offset()) == (this.space(), this.offset()))
    }
    /// What stands behind it on its list, pinned.
    pub(crate) fn behind<M: Machine, P: Paging>(&self, stock: &Stock<'m, M, P>) -> Option<Pin<'m>> {
        match self.attachment {
            None => self.member.behind(stock),
            Some(attachment) => {
                let object = Member::in_frame(stock, attachment.object());
                let (_, _held) = object.attachments_of(stock);
                Pin::of_attachment(stock, attachment.next())
            }
        }
    }
}

impl Clone for Pin<'_> {
    /// Makes another one: the member may be about to leave, and waits for both.
    fn clone(&self) -> Self {
        self.users().fetch_add(1, Ordering::SeqCst);
        Pin { ..*self }
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
        self.users().fetch_sub(1, Ordering::SeqCst);
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
    /// Pins it without a [`Pin`], until [`let_go`](Member::let_go). The caller is in a reader's
    /// section in which the space was found by its name.
    #[inline]
    pub(crate) fn keep(&self) {
        let before = self.users.fetch_add(1, Ordering::SeqCst);
        assert!(before & LEAVING == 0, "a space that has a name leaves no tree (R6)");
    }
    #[inline]
    pub(crate) fn let_go(&self) {
        self.users.fetch_sub(1, Ordering::SeqCst);
    }
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
        Pin::wait_for_last(&self.users, || stock.machine.relax());
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

    /// The word that names the first attachment of the object whose space this is, and the lock of
    /// its list. An object's space is the one member of its fork tree.
    fn attachments_of<'a, M: Machine, P: Paging>(
        &'a self,
        stock: &Stock<'_, M, P>,
    ) -> (&'a AtomicU64, impl Drop + use<'a, M, P>) {
        (&self.kept.attachment, self.kept.lock.lock(stock.machine))
    }
    /// The attachment by which this member maps the object at these distances, if there is one. It
    /// is on both lists (attachment::X4), so the shorter one ends the search.
    fn attached<'m, M: Machine, P: Paging>(
        &self,
        stock: &Stock<'m, M, P>,
        object: &Member,
        at: Distances,
    ) -> Option<Attachment<'m>> {
        let frames = (self.frame(), object.frame());
        let (first, _held) = object.attachments_of(stock);
        let first = Attachment::listed(stock, first.load(Ordering::Relaxed));
        let of_object = iter::successors(first, |it| Attachment::listed(stock, it.next()));
        let both = self.attachments.each(stock).zip(of_object);
        let found = |pair: [Attachment<'m>; 2]| pair.into_iter().find(|it| it.is_of(frames, at));
        both.map(<[Attachment<'m>; 2]>::from).find_map(found)
    }
    /// The attachment by which this member maps the object at these distances. A new one has no
    /// pages yet, and stands behind `origin` if that is given (attachment::X2); there is one only
    /// if the object can be held.
    pub(crate) fn attach<'m, M: Machine, P: Paging>(
        &self,
        stock: &Stock<'m, M, P>,
        charge: &Charge,
        (object, at): (&Member, Distances),
        origin: Option<Attachment<'m>>,
        hold: impl FnOnce() -> bool,
    ) -> Result<Option<Attachment<'m>>, NoRecord> {
        if let Some(known) = self.attached(stock, object, at) {
            return Ok(Some(known));
        }
        let frames = (self.frame(), object.frame());
        let made = self.attachments.make(stock, charge, frames, at)?;
        if !hold() {
            self.attachments.unmake(stock);
            return Ok(None);
        }
        let (first, _held) = object.attachments_of(stock);
        let next = origin.map_or_else(|| first.load(Ordering::Relaxed), Attachment::next);
        made.set_next(next);
        made.set_before(origin.map_or(0, |origin| origin.name().word()));
        if let Some(next) = Attachment::listed(stock, next) {
            next.set_before(made.name().word());
        }
        match origin {
            Some(origin) => origin.set_next(made.name().word()),
            None => first.store(made.name().word(), Ordering::Relaxed),
        }
        Ok(Some(made))
    }
    /// Takes an attachment off this object's list, when nobody has it pinned. No area has it, and
    /// no entry is left. The holder of a pin may yield (sync::outside::O3).
    pub(crate) fn detach<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        gone: Attachment<'_>,
        outside: &mut Outside,
    ) {
        Pin::wait_for_last(gone.users(), || {
            stock.machine.relax();
            outside.yield_now(stock.machine);
        });
        let (first, _held) = self.attachments_of(stock);
        match Attachment::listed(stock, gone.before()) {
            Some(before) => before.set_next(gone.next()),
            None => first.store(gone.next(), Ordering::Relaxed),
        }
        if let Some(next) = Attachment::listed(stock, gone.next()) {
            next.set_before(gone.before());
        }
    }
    /// The first attachment of this object, pinned.
    pub(crate) fn first_attachment<'m, M: Machine, P: Paging>(
        &self,
        stock: &Stock<'m, M, P>,
    ) -> Option<Pin<'m>> {
        let (first, _held) = self.attachments_of(stock);
        Pin::of_attachment(stock, first.load(Ordering::Relaxed))
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
