//! Requests: they go through windows one after the other, within a budget, and are put off after
//! some that gained nothing.

use super::window::{BLOCKS_MAX, Window};
use crate::frame::Claim;
use crate::split::{MoveGrain, Splitter};
use crate::stock::{Event, Stock};
use crate::sync::{AtomicU64, Ordering, Outside};
use crate::table::Paging;
use core::fmt;
use foliant_machine::Machine;
use foliant_units::{Frame, FrameRange, Nanos, Order, Pages};

/// Blocks of the window of a request that wants one block soon.
const BLOCKS_NEAR: u64 = 64;
/// After so many attempts in vain in a row 2^6 - 1 requests are put off, and never more at a time.
const PUT_OFF_MAX: u64 = 6;

/// How much is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// One block: the request ends with it.
    One,
    /// As many as there can be.
    All,
}

/// What a request may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Folios that are moved, at most.
    pub folios: u64,
    /// Time, by the machine's clock. It is looked at between folios.
    pub time: Nanos,
}

impl Effort {
    /// As much as it takes.
    pub const ALL: Effort = Effort { folios: u64::MAX, time: Nanos(u64::MAX) };
    /// What a fault waits for: a few blocks' worth, and no longer than what a scheduler warns of.
    pub const FAULT: Effort = Effort { folios: 2048, time: Nanos(100_000_000) };
    /// What a request for kernel memory waits for: less, since it is served as well by base pages.
    pub const KERNEL: Effort = Effort { folios: 1024, time: Nanos(10_000_000) };
    /// Nothing is moved.
    pub const NONE: Effort = Effort { folios: 0, time: Nanos(0) };

    /// What is left of it after so many folios and so much time.
    pub(crate) fn less(self, folios: u64, time: Nanos) -> Effort {
        let time = Nanos(self.time.0.saturating_sub(time.0));
        Effort { folios: self.folios.saturating_sub(folios), time }
    }
    /// Whether nothing can be done with it.
    pub(crate) fn is_spent(self) -> bool {
        self.folios == 0 || self.time.0 == 0
    }
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompactRequest {
    /// How much.
    pub want: Want,
    /// At what price.
    pub effort: Effort,
    /// Folios that move with one flush.
    pub grain: MoveGrain,
}

impl CompactRequest {
    /// All of memory, whatever it takes.
    pub const ALL: CompactRequest =
        CompactRequest { want: Want::All, effort: Effort::ALL, grain: MoveGrain::MOST };
}

/// Why a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It went through all of memory.
    Through,
    /// It has the block that was wanted.
    Enough,
    /// The budget is spent.
    Spent,
}

/// Why a block was not emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Somebody looks at a folio of it by other ways than entries.
    Pinned,
    /// Broken memory is in it.
    Broken,
    /// Something in it is no folio of a program's: a table, a record, the kernel's own, a hole; or
    /// it became a folio of 2 MiB.
    Kept,
    /// Somebody was at work on it, each time that it was to move.
    Busy,
}

/// A block that was not emptied, and the first frame of it that stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Obstacle {
    /// The block's first frame.
    pub block: Frame,
    /// The frame.
    pub frame: Frame,
    /// Why it stays.
    pub why: Why,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            Why::Pinned => "is pinned",
            Why::Broken => "is broken",
            Why::Kept => "cannot move",
            Why::Busy => "is being worked on",
        };
        write!(f, "the 2 MiB at {} stay in use: {} {why}", self.block, self.frame)
    }
}

/// What a request did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compacted {
    /// Blocks of 2 MiB that are whole again.
    pub blocks: u64,
    /// Folios moved.
    pub moved: u64,
    /// Pages moved.
    pub pages: u64,
    /// Folios that were to move and stayed where they were.
    pub stayed: u64,
    /// Blocks that hold something that cannot move.
    pub stuck: u64,
    /// Of these, the ones that are pinned.
    pub pinned: u64,
    /// Why it ended.
    pub end: End,
}

impl Compacted {
    /// Before anything is done.
    const NOTHING: Compacted = Compacted {
        blocks: 0,
        moved: 0,
        pages: 0,
        stayed: 0,
        stuck: 0,
        pinned: 0,
        end: End::Through,
    };
}

/// What requests leave for later ones.
#[derive(Default)]
pub(crate) struct CompactState {
    /// Where the next request begins: the number of a window, of the size that it has for that
    /// request, counted round and round.
    pub(super) cursor: AtomicU64,
    /// Attempts in vain in a row, as a shift; and requests since the last attempt.
    shift: AtomicU64,
    since: AtomicU64,
    /// Not 0: somebody wants memory compacted later.
    wished: AtomicU64,
    /// Folios that one flush covers for faults; 0 stands for as many as can be.
    grain: AtomicU64,
}

/// How the emptying of a block ended.
pub(super) enum Emptied {
    /// The block is whole, and the caller's.
    Whole(Claim),
    /// Something in it stays.
    Stuck(Obstacle),
    /// There was no block for a page of it.
    Full,
    /// The budget is spent.
    Spent,
}

/// What compaction needs to know besides its request.
pub(crate) struct Compactor<'s, 'm, M: Machine, P: Paging> {
    pub(super) stock: &'s Stock<'m, M, P>,
    pub(super) state: &'s CompactState,
    pub(super) grain: MoveGrain,
}

/// What a request has cost and gained so far.
pub(super) struct Meter<'m, M> {
    machine: &'m M,
    begun_at: Nanos,
    effort: Effort,
    /// Folios whose move was begun.
    pub(super) begun: u64,
    pub(super) done: Compacted,
}

impl<M: Machine> Meter<'_, M> {
    pub(super) fn is_spent(&self) -> bool {
        let time = self.machine.now().0.saturating_sub(self.begun_at.0);
        self.begun >= self.effort.folios || time >= self.effort.time.0
    }
}

impl CompactState {
    /// Notes that somebody wants memory compacted later.
    pub(crate) fn wish(&self) {
        self.wished.store(1, Ordering::Relaxed);
    }
    /// Whether anybody wanted that since this was asked last.
    pub(crate) fn take_wish(&self) -> bool {
        self.wished.swap(0, Ordering::Relaxed) != 0
    }
    /// Folios that one flush covers for faults.
    pub(crate) fn grain(&self) -> MoveGrain {
        let set = self.grain.load(Ordering::Relaxed);
        MoveGrain::new(set as u32).unwrap_or(MoveGrain::MOST)
    }
    pub(crate) fn set_grain(&self, grain: MoveGrain) {
        self.grain.store(grain.get().into(), Ordering::Relaxed);
    }
    /// Whether a request is put off: the last ones were in vain.
    pub(crate) fn is_put_off(&self) -> bool {
        let shift = self.shift.load(Ordering::Relaxed);
        shift > 0 && self.since.fetch_add(1, Ordering::Relaxed) + 1 < 1 << shift
    }
    /// Notes what came of a request.
    pub(crate) fn learn(&self, blocks: u64) {
        let shift = match blocks {
            0 => (self.shift.load(Ordering::Relaxed) + 1).min(PUT_OFF_MAX),
            _ => 0,
        };
        self.shift.store(shift, Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
    }
}

impl<'s, 'm, M: Machine, P: Paging> Compactor<'s, 'm, M, P> {
    pub(crate) fn new(
        stock: &'s Stock<'m, M, P>,
        state: &'s CompactState,
        grain: MoveGrain,
    ) -> Self {
        Compactor { stock, state, grain }
    }
    pub(super) fn splitter(&self) -> Splitter<'s, 'm, M, P> {
        Splitter { stock: self.stock }
    }

    /// Goes through memory once, from where the last request ended. Where one block is wanted it is
    /// returned. Obstacles are noted as far as there is room for them.
    pub(crate) fn run(
        &self,
        request: &CompactRequest,
        obstacles: &mut [Obstacle],
        outside: &mut Outside,
    ) -> (Compacted, Option<Claim>) {
        let machine = self.stock.machine;
        let done = Compacted::NOTHING;
        let (begun_at, effort) = (machine.now(), request.effort);
        let mut meter = Meter { machine, begun_at, effort, begun: 0, done };
        let size = match request.want {
            Want::One => BLOCKS_NEAR,
            Want::All => BLOCKS_MAX as u64,
        };
        let windows = self.windows(size);
        let begun = self.state.cursor.fetch_add(1, Ordering::Relaxed);
        for nth in 0..windows {
            let Some(range) = self.window((begun + nth) % windows, size) else { continue };
            let claim =
                self.compact(range, request.want, &mut meter, (&mut *obstacles, &mut *outside));
            if claim.is_some() || meter.done.end != End::Through {
                self.state.cursor.store(begun + nth, Ordering::Relaxed);
                return (meter.done, claim);
            }
            outside.yield_now(machine);
        }
        (meter.done, None)
    }

    /// Empties blocks of one window.
    fn compact(
        &self,
        range: FrameRange,
        want: Want,
        meter: &mut Meter<'_, M>,
        (obstacles, outside): (&mut [Obstacle], &mut Outside),
    ) -> Option<Claim> {
        let mut window = Window::look(&self.stock.folios, range);
        while let Some(source) = window.source() {
            match self.empty(&source, &mut window, meter) {
                Emptied::Whole(claim) => {
                    window.emptied(&source);
                    meter.done.blocks += 1;
                    self.stock.count(Event::CompactBlocks);
                    if want == Want::One {
                        meter.done.end = End::Enough;
                        return Some(claim);
                    }
                    self.stock.put_back(claim);
                }
                Emptied::Stuck(obstacle) => {
                    window.is_stuck(&source);
                    note(&mut meter.done, obstacle, obstacles);
                }
                Emptied::Full => return None,
                Emptied::Spent => {
                    meter.done.end = End::Spent;
                    return None;
                }
            }
            outside.yield_now(self.stock.machine);
        }
        None
    }

    /// How many windows of `size` blocks all ranges have.
    fn windows(&self, size: u64) -> u64 {
        self.stock.folios.ranges().map(|range| windows_of(range, size).1).sum::<u64>().max(1)
    }
    /// The `nth` of them, as the part of it that is memory, from the start of its first block.
    fn window(&self, nth: u64, size: u64) -> Option<FrameRange> {
        let mut nth = nth;
        for range in self.stock.folios.ranges() {
            let (first, count) = windows_of(range, size);
            if nth < count {
                let frames = size << Order::SIZE_2M.get();
                let window =
                    FrameRange::new(Frame::new((first + nth) * frames), Pages::new(frames))?;
                let start = window.start().max(Order::SIZE_2M.head(range.start()));
                let end = window.end().min(range.end());
                return FrameRange::new(start, Pages::new(end.get() - start.get()));
            }
            nth -= count;
        }
        None
    }
}

/// The first window of a range, and how many it has.
fn windows_of(range: FrameRange, size: u64) -> (u64, u64) {
    let frames = size << Order::SIZE_2M.get();
    let first = range.start().get() / frames;
    (first, range.end().get().div_ceil(frames) - first)
}

fn note(done: &mut Compacted, obstacle: Obstacle, obstacles: &mut [Obstacle]) {
    if let Some(place) = obstacles.get_mut(done.stuck as usize) {
        *place = obstacle;
    }
    done.stuck += 1;
    done.pinned += u64::from(obstacle.why == Why::Pinned);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After n attempts in vain the 2^n-th request is the next one, and after a good one each is.
    #[test]
    fn requests_in_vain_are_put_off_twice_as_long_each_time() {
        let state = CompactState::default();
        assert!(!state.is_put_off());
        for shift in [1, 2, 3, 4, 5, 6, 6, 6] {
            state.learn(0);
            let put_off = (0..).take_while(|_| state.is_put_off()).count();
            assert_eq!(put_off, (1 << shift) - 1);
        }
        state.learn(1);
        assert!(!state.is_put_off() && !state.is_put_off());
    }

    /// It takes a folio and some time to go on; what is used beyond the effort is not owed.
    #[test]
    fn an_effort_is_spent_when_it_has_no_folio_or_no_time_left() {
        let effort = |folios, time| Effort { folios, time: Nanos(time) };
        for (folios, time, is_spent) in
            [(0, 0, true), (0, 1, true), (1, 0, true), (1, 1, false), (2, 1, false), (1, 2, false)]
        {
            assert_eq!(effort(folios, time).is_spent(), is_spent, "{folios} in {time}");
        }
        assert_eq!(effort(3, 10).less(1, Nanos(4)), effort(2, 6));
        assert_eq!(effort(3, 10).less(3, Nanos(10)), effort(0, 0));
        assert_eq!(effort(3, 10).less(4, Nanos(11)), effort(0, 0));
        assert!(!Effort::ALL.is_spent() && Effort::NONE.is_spent());
    }

    #[test]
    fn faults_move_as_many_folios_with_a_flush_as_was_set() {
        let state = CompactState::default();
        assert_eq!(state.grain(), MoveGrain::MOST);
        let one = MoveGrain::new(1).unwrap();
        state.set_grain(one);
        assert_eq!(state.grain(), one);
    }

    #[test]
    fn a_wish_is_taken_once() {
        let state = CompactState::default();
        assert!(!state.take_wish());
        state.wish();
        assert!(state.take_wish() && !state.take_wish());
    }

    /// Windows begin at multiples of their size, so that ranges that are not aligned have one more.
    #[test]
    fn windows_are_counted_from_the_first_that_holds_memory() {
        let block = Order::SIZE_2M.pages().get();
        for (start, pages, size, windows) in [
            (0, block, 1, (0, 1)),
            (0, block * 4, 2, (0, 2)),
            (block, block * 4, 2, (0, 3)),
            (block * 2 - 1, 1, 2, (0, 1)),
            (block * 2, 1, 2, (1, 1)),
            (block * 2 - 1, 2, 2, (0, 2)),
            (block * 64 * 5 + 7, block * 64 * 2, 64, (5, 3)),
        ] {
            let range = FrameRange::new(Frame::new(start), Pages::new(pages)).unwrap();
            assert_eq!(windows_of(range, size), windows, "{range:?} by {size}");
        }
    }

    /// Those beyond the room for them are counted.
    #[test]
    fn obstacles_are_noted_as_far_as_there_is_room() {
        let mut done = Compacted::NOTHING;
        let at = |nth, why| Obstacle { block: Frame::new(0), frame: Frame::new(nth), why };
        let mut room = [at(0, Why::Busy); 2];
        for (nth, why) in [(1, Why::Pinned), (2, Why::Kept), (3, Why::Pinned)] {
            note(&mut done, at(nth, why), &mut room);
        }
        assert_eq!(room, [at(1, Why::Pinned), at(2, Why::Kept)]);
        assert_eq!((done.stuck, done.pinned), (3, 2));
    }
}
