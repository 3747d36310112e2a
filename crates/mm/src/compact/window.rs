//! Blocks beside each other, and which of them are emptied into which.

use crate::folio::{Folios, Usage};
use foliant_units::{Frame, FrameRange, Order, Pages};

/// Blocks of the largest window: 1 GiB.
pub(super) const BLOCKS_MAX: usize = 512;
/// Frames that stay free in a window besides those that its folios move to (C1).
const SPARE: u64 = 128;

/// Blocks of 2 MiB from `first` on, as they were when they were looked at.
pub(super) struct Window {
    first: Frame,
    /// The partly used blocks, sorted by frames in use: their count, and the block's number.
    used: [(u16, u16); BLOCKS_MAX],
    len: usize,
    /// The next source; the blocks before it were emptied or given up as sources.
    next: usize,
    /// The last target that is not full.
    last: usize,
    /// What became of each block as a source, by number.
    fate: [Fate; BLOCKS_MAX],
    stuck: usize,
    /// Free frames in all blocks but those that were emptied.
    room: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It may become a source, and is a target until then.
    Open,
    /// It is being emptied, or it is empty.
    Gone,
    /// It holds something that cannot move, and is a target before all others.
    Stuck,
}

impl Window {
    /// Looks at the blocks of `range`, whose start is a block's.
    pub(super) fn look(folios: &Folios<'_>, range: FrameRange) -> Window {
        let mut window = Window {
            first: range.start(),
            used: [(0, 0); BLOCKS_MAX],
            len: 0,
            next: 0,
            last: 0,
            fate: [Fate::Open; BLOCKS_MAX],
            stuck: 0,
            room: 0,
        };
        let size = Order::SIZE_2M.pages().get();
        let blocks = range.pages().get().div_ceil(size).min(BLOCKS_MAX as u64);
        for block in 0..blocks {
            let first = window.block(block as u16);
            if let Usage::Partly(free) = folios.usage(first) {
                // Two ranges may meet inside the block: such a one is never whole (C3).
                let last = first.add(Pages::new(size - 1));
                if !folios.ranges().any(|range| range.contains(first) && range.contains(last)) {
                    window.fate[block as usize] = Fate::Stuck;
                }
                window.used[window.len] = ((size - free.get()) as u16, block as u16);
                window.len += 1;
                window.room += free.get();
            }
        }
        window.used[..window.len].sort_unstable();
        window.last = window.len;
        window
    }
    fn block(&self, number: u16) -> Frame {
        self.first.add(Pages::new(u64::from(number) << Order::SIZE_2M.get()))
    }

    /// The next block to be emptied: the one with the least in it, if the rest of the window has
    /// room for that (C1).
    pub(super) fn source(&mut self) -> Option<Source> {
        let (used, block) = loop {
            let (used, block) = *self.used[..self.len].get(self.next)?;
            if self.fate[block as usize] != Fate::Stuck {
                break (used, block);
            }
            self.next += 1; // a target alone
        };
        let free = Order::SIZE_2M.pages().get() - u64::from(used);
        if u64::from(used) + SPARE > self.room.checked_sub(free)? {
            return None;
        }
        self.next += 1;
        self.room -= free;
        self.fate[block as usize] = Fate::Gone;
        Some(Source { first: self.block(block), block, used })
    }
    /// The source is empty: what was in it is elsewhere in the window.
    pub(super) fn emptied(&mut self, source: &Source) {
        self.room = self.room.saturating_sub(source.used.into());
    }
    /// The source was not emptied: it is filled up before all others.
    pub(super) fn is_stuck(&mut self, source: &Source) {
        self.room += Order::SIZE_2M.pages().get() - u64::from(source.used);
        self.fate[source.block as usize] = Fate::Stuck;
        self.stuck = 0;
    }

    /// Gives what `claim` gets out of a target when a block of `order` is wanted. Targets that have
    /// no frame left are not asked again.
    pub(super) fn target<T>(
        &mut self,
        order: Order,
        mut claim: impl FnMut(Frame) -> Option<T>,
    ) -> Option<T> {
        for at in self.stuck..self.next {
            let block = self.used[at].1;
            if self.fate[block as usize] == Fate::Stuck
                && let Some(got) = claim(self.block(block))
            {
                return Some(got);
            }
            if order == Order::BASE {
                self.stuck = at + 1;
            }
        }
        for at in (self.next..self.last).rev() {
            if let Some(got) = claim(self.block(self.used[at].1)) {
                return Some(got);
            }
            if order == Order::BASE {
                self.last = at;
            }
        }
        None
    }
}

/// A block that is being emptied.
pub(super) struct Source {
    /// Its first frame.
    pub(super) first: Frame,
    block: u16,
    used: u16,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::compact::partly_free;

    /// Runs `test` on a window over blocks of which so many frames are in use.
    fn looked_at(used: &[u64], test: impl FnOnce(Window)) {
        let pages = Order::SIZE_2M.pages().get();
        let is_free = |nth: u64| nth % pages >= used[(nth / pages) as usize];
        partly_free(used.len() as u64, is_free, |folios, memory| {
            test(Window::look(folios, memory));
        });
    }

    /// C1: 128 frames stay free besides those that the source's folios move to.
    #[test]
    fn a_source_is_emptied_where_the_others_have_room_to_spare() {
        for (free, is_source) in [(100 + SPARE - 1, false), (100 + SPARE, true)] {
            looked_at(&[100, 512 - free], |mut window| {
                let source = window.source().map(|source| (source.first.get(), source.used));
                assert_eq!(source, is_source.then_some((512, 100)), "{free} free in the other");
            });
        }
    }

    /// What moves out of a block is room that is gone elsewhere; a block that stays is room again.
    #[test]
    fn the_room_of_a_window_is_kept_as_blocks_are_emptied() {
        // The second source is of 100 frames: what the first took leaves it too little, or just
        // enough.
        for (free, is_next) in [(50 + 100 + SPARE - 1, false), (50 + 100 + SPARE, true)] {
            looked_at(&[50, 100, 512 - free], |mut window| {
                let first = window.source().unwrap();
                assert_eq!((first.first.get(), first.used), (512, 50), "the least first");
                window.emptied(&first);
                assert_eq!(window.source().is_some(), is_next, "{free} free in the last");
            });
        }
        looked_at(&[50, 100, 512], |mut window| {
            let first = window.source().unwrap();
            assert!(window.source().is_none(), "nothing is free but in the first");
            window.is_stuck(&first);
            assert!(window.source().is_some(), "it stays, and is the first target");
            let target = window.target(Order::BASE, Some);
            assert_eq!(target, Some(first.first));
        });
    }

    /// Single pages go into blocks that stay, each until it is full, then into the fullest of the
    /// others; a block that is found to stay meanwhile comes first. A target that has no room for a
    /// larger folio is still asked for all others.
    #[test]
    fn a_target_is_asked_until_it_has_no_frame_left() {
        looked_at(&[50, 60, 300, 400], |mut window| {
            let block = |source: &Source| source.first.get();
            let (first, second) = (window.source().unwrap(), window.source().unwrap());
            assert_eq!([block(&first), block(&second)], [512, 1024]);
            let asked = |window: &mut Window, order: Order, is_full: &[u64]| {
                let mut asked = std::vec::Vec::new();
                let got = window.target(order, |block| {
                    asked.push(block.get());
                    (!is_full.contains(&block.get())).then_some(block.get())
                });
                (asked, got)
            };
            let (base, large) = (Order::BASE, Order::new(4).unwrap());
            assert_eq!(asked(&mut window, base, &[]), ([2048].into(), Some(2048)));
            window.is_stuck(&first);
            assert_eq!(asked(&mut window, base, &[]), ([512].into(), Some(512)));
            let (all, others) = ([512, 2048, 1536], [512, 2048]);
            assert_eq!(asked(&mut window, large, &all), (all.into(), None));
            assert_eq!(asked(&mut window, large, &others), (all.into(), Some(1536)));
            assert_eq!(asked(&mut window, base, &others), (all.into(), Some(1536)));
            assert_eq!(asked(&mut window, base, &[]), ([1536].into(), Some(1536)));
            window.is_stuck(&second);
            assert_eq!(asked(&mut window, base, &[512]), ([512, 1024].into(), Some(1024)));
            assert_eq!(asked(&mut window, base, &[]), ([1024].into(), Some(1024)));
        });
    }
}
