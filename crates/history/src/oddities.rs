//! Stacks that grow, pages that a program fills itself, and requests that must be refused.

use crate::model::{Stretch, WORDS, value};
use crate::operations::{span, va};
use crate::seat::Seat;
use crate::world::{Got, World, range};
use foliant::Outcome;
use foliant::fault::{FillError, FillWith, Unfilled};
use foliant::space::{Advice, Flags, MapError, MapRequest, Move, Place, SpaceId, Watch};
use foliant::table::{Attrs, Half, Paging};
use foliant_units::{Bytes, FRAME_BYTES, Pages, Va, VaRange};

impl Seat {
    /// A downward-growing area: a fault below it extends it.
    pub(crate) fn stack<P: Paging>(&mut self, world: &World<'_, P>) {
        world.count("stack");
        let id = self.known().id;
        let half = P::half(Half::User).1.get();
        let top =
            half / 4 * 3 / FRAME_BYTES * FRAME_BYTES - (self.window.start & 0xff_ffff) * (4 << 20);
        let flags = Flags::READ_WRITE.with(Flags::GROWS_DOWN);
        let place = Place::NoReplace(Va::new(top));
        let request = MapRequest { place, bytes: Bytes::new(2 * FRAME_BYTES), flags, tag: 0 };
        let area = match world.mm.map(id, &request) {
            Ok(area) => area,
            Err(MapError::Range(error)) if world.lacks(self.known().limit, error) => return,
            Err(error) => return world.wrong("answers", format!("{request:?}: {error}")),
        };
        let at = top - (1 + self.rng.below(200)) * FRAME_BYTES;
        match world.store(id, at, 1) {
            Got::Value(_) => {
                let grown = world.mm.area(id, Va::new(at)).map(|area| area.range.end());
                if grown != Some(area.end()) {
                    world.wrong("answers", format!("the stack at {at:#x} ends at {grown:?}"));
                }
            }
            Got::Not(outcome) if world.is_short(self.known().limit, outcome) => {}
            // Growing needs memory for its own record.
            Got::Not(Outcome::Refused(_)) if world.is_scarce() || self.known().limit > 0 => {}
            got => world.wrong("answers", format!("the stack does not grow to {at:#x}: {got:?}")),
        }
        self.insist_unmap(world, range(at, area.end().get() - at));
    }

    /// A missing page of an armed area is handed to the program, which may fill it.
    pub(crate) fn userfault<P: Paging>(&mut self, world: &World<'_, P>) {
        world.count("userfault");
        let id = self.known().id;
        let Stretch { start, end } = self.window.clone();
        let page = start + self.rng.below(end - start);
        let one = page..page + 1;
        if !self
            .known()
            .model
            .get(page * FRAME_BYTES)
            .is_some_and(|p| p.flags.has(Flags::READ) && !p.guard)
        {
            return;
        }
        let dropped = world.mm.advise(id, span(&one), Advice::DontNeed);
        if !self.judge(world, "drop", dropped, Ok(())) {
            return;
        }
        self.model().drop_contents(&one);
        let armed = world.mm.advise(id, span(&one), Advice::UserfaultArm);
        if !self.judge(world, "arm", armed, Ok(())) {
            return;
        }
        // A neighbour's fault may have brought a folio in between the two calls.
        match world.load(id, page * FRAME_BYTES) {
            Got::Not(Outcome::Userfault(at)) if at == va(page) => self.fill(world, page),
            Got::Value(0) => {}
            got => world.wrong("answers", format!("an armed page gives {got:?}")),
        }
        let disarm = || world.mm.advise(id, span(&one), Advice::UserfaultDisarm);
        self.insist(world, "disarm", disarm);
    }

    /// The program fills a missing page: with values of its own, or by zeros.
    fn fill<P: Paging>(&mut self, world: &World<'_, P>, page: u64) {
        let (mut contents, mut words) = ([0; FRAME_BYTES as usize], [0; 2]);
        let with = match self.rng.below(3) {
            0 => return,
            1 => FillWith::Zeros(Pages::new(1)),
            _ => {
                self.serial += 1;
                for (nth, at) in WORDS.into_iter().enumerate() {
                    let va = page * FRAME_BYTES + at;
                    words[nth] = value(self.known().lineage, va, self.serial);
                    contents[at as usize..][..8].copy_from_slice(&words[nth].to_ne_bytes());
                }
                FillWith::Copy(core::slice::from_ref(&contents))
            }
        };
        match world.mm.fill(self.known().id, va(page), with) {
            Ok(()) => {
                if let Some(page) = self.model().pages.get_mut(&page) {
                    let is_copy = matches!(with, FillWith::Copy(_));
                    (page.words, page.dirty, page.written) = (words, is_copy, is_copy);
                }
            }
            Err(Unfilled { why: FillError::Range(why), .. })
                if world.lacks(self.known().limit, why) => {}
            Err(error) => world.wrong("answers", format!("page {page:#x} is not filled: {error}")),
        }
    }

    /// A write to a watched page is handed to the program.
    pub(crate) fn watch<P: Paging>(&mut self, world: &World<'_, P>) {
        world.count("watch");
        let id = self.known().id;
        let Stretch { start, end } = self.window.clone();
        let page = start + self.rng.below(end - start);
        let (one, at) = (page..page + 1, page * FRAME_BYTES);
        let may_be_written =
            self.known().model.get(at).is_some_and(|p| p.flags.has(Flags::READ_WRITE) && !p.guard);
        if !may_be_written || !P::KEEPS.has(Attrs::UFFD_WP) {
            return;
        }
        let armed = world.mm.advise(id, span(&one), Advice::UserfaultWriteArm);
        if !self.judge(world, "arm for writes", armed, Ok(())) {
            return;
        }
        let watched = world.mm.watch(id, span(&one), Watch::All);
        if self.judge(world, "watch", watched, Ok(())) {
            self.load(world, self.at, at);
            match world.store(id, at, 1) {
                Got::Not(Outcome::UserfaultWrite(told)) if told == va(page) => {}
                got => world.wrong("answers", format!("a store to a watched page gives {got:?}")),
            }
            self.load(world, self.at, at);
        }
        let disarm = || world.mm.advise(id, span(&one), Advice::UserfaultWriteDisarm);
        self.insist(world, "disarm for writes", disarm);
        self.store(world, self.at, at);
    }

    /// Requests that must be refused, and change nothing.
    pub(crate) fn bad<P: Paging>(&mut self, world: &World<'_, P>) {
        world.count("bad input");
        let mm = &world.mm;
        let refused = |what: &str, got: Result<(), String>| {
            if got.is_ok() {
                world.wrong("answers", format!("{what} is not refused"));
            }
        };
        let text = |error: &dyn core::fmt::Display| error.to_string();
        let id = self.known().id;
        let page = self.window.start * FRAME_BYTES;
        let crooked = range(page + 1 + self.rng.below(4094), 2 * FRAME_BYTES);
        let outside = range(1 << 62, FRAME_BYTES << self.rng.below(40));
        let empty = range(page, 0);
        for odd in [crooked, outside, empty] {
            refused("unmap", mm.unmap(id, odd).map_err(|e| text(&e)));
            refused("protect", mm.protect(id, odd, Flags::READ).map_err(|e| text(&e)));
            refused("advice", mm.advise(id, odd, Advice::DontNeed).map_err(|e| text(&e)));
            refused("advice", mm.advise(id, odd, Advice::PopulateWrite).map_err(|e| text(&e)));
            let bytes = Bytes::new(FRAME_BYTES);
            refused(
                "remap",
                mm.remap(id, odd, bytes, Move::MayMove).map(drop).map_err(|e| text(&e)),
            );
        }
        let old = range(page, FRAME_BYTES);
        for bytes in [0, 1, u64::MAX, 1 << 60] {
            let bytes = Bytes::new(bytes);
            for to in [Move::MayMove, Move::To(Va::new(u64::MAX)), Move::Never] {
                refused("remap", mm.remap(id, old, bytes, to).map(drop).map_err(|e| text(&e)));
            }
        }
        let places = [
            (Place::Anywhere, 0),
            (Place::Anywhere, u64::MAX),
            (Place::Fixed(Va::new(page + 8)), FRAME_BYTES),
            (Place::NoReplace(Va::new(!4095)), FRAME_BYTES),
            (Place::Fixed(Va::new(1 << 62)), FRAME_BYTES),
            (Place::Fixed(Va::new(page)), u64::MAX - FRAME_BYTES),
            (Place::Hint(Va::new(u64::MAX)), 1 << 62),
        ];
        for (place, bytes) in places {
            let request =
                MapRequest { place, bytes: Bytes::new(bytes), flags: Flags::READ, tag: 0 };
            refused("map", mm.map(id, &request).map(drop).map_err(|e| text(&e)));
        }
        if let Some(dead) = self.dead.last().copied() {
            self.haunt(world, dead, old);
        }
    }

    /// A space that has ended is refused by every call.
    fn haunt<P: Paging>(&self, world: &World<'_, P>, dead: SpaceId, range: VaRange) {
        let mm = &world.mm;
        let request = MapRequest {
            place: Place::Anywhere,
            bytes: range.bytes(),
            flags: Flags::READ_WRITE,
            tag: 0,
        };
        let alive = [
            mm.map(dead, &request).is_ok(),
            mm.unmap(dead, range).is_ok(),
            mm.protect(dead, range, Flags::READ).is_ok(),
            mm.advise(dead, range, Advice::DontNeed).is_ok(),
            mm.fork(dead).is_ok(),
            mm.end(dead).is_ok(),
            mm.switch(Some(dead)).is_ok(),
            mm.pages(dead).is_some(),
        ];
        if alive.contains(&true) {
            world.wrong("answers", format!("the ended {dead:?} answers: {alive:?}"));
        }
    }
}
