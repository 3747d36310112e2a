//! The plan of a clear: in which order and in how large extents a block is cleared, and whether
//! through the caches or past them. It is a value, computed without touching anything.
//!
//! ```text
//!   block    ├───── left ─────┤ near ├──────────── right ───────────┤
//!                               ▲ the page touched, and `radius` pages on either side
//!   order            2           3               1
//!   caching         far         Cached          far
//! ```
//!
//! **Invariants**
//! - P1. Every byte of the block lies in exactly one extent.
//! - P2. The last extent lies within `radius` pages of the page touched.
//! - P3. At a whole grain there are at most three extents, at grain `g` at most two more than
//!   `bytes / g` rounded up.
//!
//! **Not here**: preemption points, which cut extents further as time goes by (`run`).

use super::{Clearing, ZeroGrain};
use core::{error, fmt};
use foliant_machine::Caching;
use foliant_units::{Frame, FrameRange, Order, Pages};

/// Consecutive frames that are cleared in one go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Which.
    pub frames: FrameRange,
    /// What becomes of them next.
    pub caching: Caching,
}

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    parts: [Extent; 3],
    grain: ZeroGrain,
}

/// Why there is no plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanError {
    /// The block does not start at a multiple of its size; give the head of the folio, not the page
    /// touched.
    Misaligned(Frame, Order),
    /// The block ends behind the last frame that an address can name.
    Beyond(Frame, Order),
    /// The page touched lies outside of the block.
    Outside(Frame, FrameRange),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Misaligned(frame, order) => {
                write!(f, "{frame} is no multiple of {}: name the folio's head", order.bytes())
            }
            PlanError::Beyond(frame, order) => {
                write!(f, "no address reaches the end of {} at {frame}", order.bytes())
            }
            PlanError::Outside(frame, block) => {
                write!(f, "{frame} was touched, which is not in {block:?}: name a page of it")
            }
        }
    }
}
impl error::Error for PlanError {}

impl Plan {
    /// The plan for the block of `order` at `head` of which the frame `touched` is wanted first, if
    /// it is known. What lies far from it is cleared by `far` stores.
    pub fn new(
        (head, order): (Frame, Order),
        touched: Option<Frame>,
        clearing: &Clearing,
        far: Caching,
    ) -> Result<Plan, PlanError> {
        let all = check((head, order), touched)?;
        let near = match touched {
            _ if order < clearing.parts_from => all,
            Some(touched) => around(touched, clearing.radius, all),
            None => between(all.end(), all.end()),
        };
        let part = |frames, caching| Extent { frames, caching };
        let right = part(between(near.end(), all.end()), far);
        let left = part(between(all.start(), near.start()), far);
        Ok(Plan { parts: [right, left, part(near, Caching::Cached)], grain: clearing.grain })
    }

    /// The extents, in the order in which they are cleared.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        let grain = self.grain.pages();
        self.parts.into_iter().flat_map(move |part| {
            let Extent { frames, caching } = part;
            let (start, end) = (frames.start().get(), frames.end().get());
            let step = grain.map_or(u64::MAX, Pages::get);
            (start..end).step_by(step as usize).map(move |at| {
                let frames = between(Frame::new(at), Frame::new(end.min(at.saturating_add(step))));
                Extent { frames, caching }
            })
        })
    }
}

/// The frames of the block, if it is one and the page touched lies in it.
pub(super) fn check(
    (head, order): (Frame, Order),
    touched: Option<Frame>,
) -> Result<FrameRange, PlanError> {
    if !head.is_aligned(order.pages()) {
        return Err(PlanError::Misaligned(head, order));
    }
    let all = FrameRange::new(head, order.pages()).ok_or(PlanError::Beyond(head, order))?;
    match touched.filter(|frame| !all.contains(*frame)) {
        Some(outside) => Err(PlanError::Outside(outside, all)),
        None => Ok(all),
    }
}

/// The frames from `start` up to `end`.
pub(super) fn between(start: Frame, end: Frame) -> FrameRange {
    let pages = Pages::new(end.get() - start.get());
    FrameRange::new(start, pages).expect("part of a block of memory")
}

/// The frames within `radius` of `touched`, inside `all`.
fn around(touched: Frame, radius: Pages, all: FrameRange) -> FrameRange {
    let start = touched.get().saturating_sub(radius.get()).max(all.start().get());
    let end = touched.get().saturating_add(radius.get()).saturating_add(1).min(all.end().get());
    between(Frame::new(start), Frame::new(end))
}
