//! Moving and resizing, and what the model says must become of it.

use crate::model::Stretch;
use crate::operations::{span, va};
use crate::seat::Seat;
use crate::world::World;
use foliant::space::{MapError, Move, RangeError, RemapError};
use foliant::table::Paging;
use foliant_units::{Bytes, FRAME_BYTES, VaRange};

impl Seat {
    pub(crate) fn remap<P: Paging>(&mut self, world: &World<'_, P>) {
        world.count("remap");
        let mut old = self.stretch();
        if self.rng.once_in(2) {
            // The range goes from an area's page to at most the area's end, so that it is not
            // refused.
            let page = self.target() / FRAME_BYTES;
            let end = self.known().model.area_end(page);
            old = page..(page + 1 + self.rng.below(80)).min(end).max(page + 1);
        }
        old.end = old.end.min(self.window.end).max(old.start + 1);
        let before = old.end - old.start;
        let pages = match self.rng.below(3) {
            0 => before,
            1 => 1 + self.rng.below(before),
            _ => before + self.rng.below(40),
        };
        let to = match self.rng.below(3) {
            0 => Move::Never,
            1 => Move::MayMove,
            _ => Move::To(va(
                self.window.start + self.rng.below(self.window.end - self.window.start)
            )),
        };
        let target = match to {
            Move::To(start) => start.get() / FRAME_BYTES,
            _ => old.start,
        };
        // Neither target nor growth may reach into a neighbour's window.
        if target + pages > self.window.end {
            return;
        }
        let target = target..target + pages;
        let bytes = Bytes::new(pages * FRAME_BYTES);
        let got = world.mm.remap(self.known().id, span(&old), bytes, to);
        self.judge_remap(world, (&old, &target, to), got);
    }

    fn judge_remap<P: Paging>(
        &mut self,
        world: &World<'_, P>,
        (old, target, to): (&Stretch, &Stretch, Move),
        got: Result<VaRange, RemapError>,
    ) {
        let model = &self.known().model;
        let (before, pages) = (old.end - old.start, target.end - target.start);
        let more = old.end..old.start + pages;
        let grows = pages > before && model.is_empty(&more);
        let expected = match (model.hole(old), model.area_end(old.start)) {
            (Some(page), _) => Err(RemapError::Map(MapError::Range(RangeError::Hole(va(page))))),
            (_, end) if end < old.end => Err(RemapError::Several(va(end))),
            _ => match to {
                Move::To(start) if target.start < old.end && old.start < target.end => {
                    Err(RemapError::Overlap(start))
                }
                Move::Never if pages > before && !grows => {
                    Err(RemapError::Map(MapError::NoRoom(Bytes::new(pages * FRAME_BYTES))))
                }
                _ => Ok(()),
            },
        };
        match (got, expected) {
            (Err(RemapError::Map(MapError::Range(error))), _)
                if world.lacks(self.known().limit, error) =>
            {
                world.count_refused();
                if let Move::To(_) = to {
                    self.insist_unmap(world, span(target)); // documented: it may be gone
                    self.model().unmap(target);
                }
            }
            (Ok(range), Ok(())) => {
                let start = range.start().get() / FRAME_BYTES;
                let stays = match to {
                    Move::To(_) => false,
                    _ => pages <= before || grows,
                };
                let is_right = match to {
                    Move::To(_) => start == target.start,
                    _ if stays => start == old.start,
                    // It went elsewhere: to where nothing was.
                    _ => self.known().model.is_empty(&(start..start + pages)),
                };
                if !is_right || range.bytes().get() != pages * FRAME_BYTES {
                    return world.wrong("answers", format!("remap of {old:x?}, {to:?}: {range:?}"));
                }
                self.moved(old, start, pages, to);
            }
            (got, expected) if got.map(|_| ()) == expected => {}
            (got, expected) => {
                let text = format!(
                    "remap of {old:x?}, {pages} pages, {to:?}: {got:?}, expected {expected:?}"
                );
                world.wrong("answers", text);
            }
        }
    }

    /// The model's remap, from `old` to `start`.
    fn moved(&mut self, old: &Stretch, start: u64, pages: u64, to: Move) {
        let before = old.end - old.start;
        let model = self.model();
        let Some(first) = model.pages.get(&old.start).copied() else { return };
        if let Move::To(_) = to {
            model.unmap(&(start..start + pages));
        }
        model.unmap(&(old.start + pages.min(before)..old.end));
        if start != old.start {
            model.shift(&(old.start..old.start + pages.min(before)), start);
        }
        if pages > before {
            model.map(&(start + before..start + pages), first.flags, first.tag);
        }
    }
}
