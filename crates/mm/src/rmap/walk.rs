//! Walking a folio's fork tree.

use super::tree::{Member, Pin};
use crate::frame::Kind;
use crate::stock::Stock;
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::Frame;

/// Which members come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leg {
    /// Those behind the creator that are deeper: its descendants (R4).
    Line,
    /// All members, from the first one on.
    All,
    /// The same, while at the creator's descendants, which came before.
    Again,
    /// Attachments, where the folio is an object's: its own entries come before (attachment::X2).
    Attachments,
    Over,
}

/// The spaces that may map the folio at `head`, each pinned: first the one that it was made in and
/// its descendants, then all the others. Most folios are found at once, so a caller that looks for
/// a number of entries stops when it has found them (R5). Where spaces end meanwhile, one may come
/// twice; those of the line do where `taken` is more than 0. The caller keeps the folio, or nobody
/// else is at work (the audit). Where `taken` is more than 0 the caller holds or has frozen it, and
/// has made so many of its entries migration entries, which keep the fork tree there as counted
/// entries do.
pub(crate) fn relatives<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    head: Frame,
    taken: u64,
) -> impl Iterator<Item = Pin<'m>> + use<'s, 'm, M, P> {
    let origin = stock.origin(head);
    let home = move |first: fn(&'m Member, &Stock<'m, M, P>) -> Option<Pin<'m>>| {
        let _reading = stock.reading();
        // The count is looked at first: what is counted in this section keeps the record for all of
        // it (R2, R3).
        let is_there = taken > 0 || stock.counts(head).entries() > 0;
        if is_there { first(Member::in_frame(stock, origin.tree), stock) } else { None }
    };
    // Between two steps one member is pinned at least, so the walk never stands beside the list
    // (R6).
    let mut at = creator(stock, origin.creator, origin.tree);
    let depth = at.as_ref().map(|creator| creator.depth());
    let mut leg = if depth.is_some() { Leg::Line } else { Leg::All };
    let mut fresh = at.is_some();
    core::iter::from_fn(move || {
        loop {
            if !core::mem::take(&mut fresh) {
                at = match (&at, leg) {
                    (_, Leg::Over) => return None,
                    (Some(pin), _) => pin.behind(stock),
                    (None, Leg::Attachments) => home(Member::first_attachment),
                    (None, _) => home(Member::first),
                };
            }
            let Some(member) = &at else {
                leg = match leg {
                    Leg::Line => Leg::All,
                    Leg::All | Leg::Again => Leg::Attachments,
                    Leg::Attachments | Leg::Over => Leg::Over,
                };
                continue;
            };
            let is_creator = depth.is_some() && member.frame() == origin.creator;
            let is_behind = is_creator || depth.is_some_and(|depth| member.depth() > depth);
            match leg {
                Leg::Line if !is_behind => (at, leg) = (None, Leg::All),
                // Where entries were taken the line comes again, so that none is missed: a member
                // that ended meanwhile may have stood between the line and others (R5).
                Leg::All if is_creator && taken == 0 => leg = Leg::Again,
                Leg::Again if is_behind => {}
                Leg::Again => {
                    leg = Leg::All;
                    return Some(member.clone());
                }
                _ => return Some(member.clone()),
            }
        }
    })
}

/// The spaces of a member's fork tree, each pinned. The caller has the member's space pinned, which
/// keeps the fork tree's record.
pub(crate) fn family<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    member: &Member,
) -> impl Iterator<Item = Pin<'m>> + use<'s, 'm, M, P> {
    let first = Member::in_frame(stock, member.tree()).first(stock);
    core::iter::successors(first, |it| it.behind(stock))
}

/// The space in `frame`, if it is one of the fork tree. Another one may be there by now; as a place
/// to begin it is as good.
fn creator<'m, M: Machine, P: Paging>(
    stock: &Stock<'m, M, P>,
    frame: Frame,
    tree: Frame,
) -> Option<Pin<'m>> {
    let _reading = stock.reading();
    if stock.identity(frame).kind() != Kind::Space {
        return None;
    }
    let member = Member::in_frame(stock, frame);
    (member.tree() == tree).then(|| Pin::new(member))
}
