//! Folding histories: every CPU at a seat with huge pages of its own, whose descriptors it folds,
//! unfolds and gives back.
//!
//! Beside that each seat stores to a few pages of a program, so that a frame that is given back too
//! early has a next owner at once, and looks at frames of other seats.
//!
//! A holder of huge pages keeps words of its own in the head's descriptor, here a *link*, as a list
//! of free pages would. What it wrote last must be there, on every CPU, whatever was done to the
//! descriptors: that is the checker `descriptors`.

use crate::model::value;
use crate::rng::Rng;
use crate::saboteur::Saboteur;
use crate::world::{Got, World, lock, range};
use foliant::frame::{Flag, Kind, word_at};
use foliant::memmap::{Batch, Form, Memmap};
use foliant::space::{Advice, Flags, MapRequest, Place, SpaceId};
use foliant::table::{Half, Paging};
use foliant_units::{Bytes, FRAME_BYTES, Frame, Order, Pages, Va};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Where the program's pages are.
const FIRST: u64 = 0x10_0000_0000;
/// Pages of each seat.
const PAGES: u64 = 48;
/// Huge pages of all seats together.
const HUGE_MAX: usize = 40;
/// Phases; seats change CPUs in between.
const PHASES: usize = 4;
/// The word of a head's descriptor that belongs to its holder.
const LINK: u64 = 2;

type Pile<'a, 'm, P> = Batch<'a, 'm, Saboteur<'m>, P>;

struct Seat<'a, 'm, P: Paging> {
    rng: Rng,
    nth: u64,
    pile: Pile<'a, 'm, P>,
    program: BTreeMap<u64, u64>,
    serial: u64,
}

/// Runs one history, and returns the spaces that are left.
pub(crate) fn run<P: Paging>(world: &World<'_, P>) -> Vec<SpaceId> {
    let count = world.shape.cpus;
    let memmap = world.mm.memmap();
    let Some(id) = (0..200).find_map(|_| world.mm.create(None).ok()) else {
        world.wrong("answers", "no space is ever made".into());
        return Vec::new();
    };
    let bytes = Bytes::new(PAGES * FRAME_BYTES * count as u64);
    let place = Place::NoReplace(Va::new(FIRST));
    let request = MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 0 };
    while world.mm.map(id, &request).is_err() {}
    let seat = |nth| {
        let rng = world.rng(16 + nth);
        let (pile, program) = (Batch::new(&memmap), BTreeMap::new());
        Mutex::new(Seat { rng, nth, pile, program, serial: 0 })
    };
    let seats: Vec<Mutex<Seat<'_, '_, P>>> = (0..count as u64).map(seat).collect();
    let steps = (world.shape.steps / count / PHASES / 8).max(6);
    for phase in 0..PHASES {
        world.phase(phase, steps, &seats, |seat| seat.step(world, &memmap, id));
        for seat in &seats {
            let seat = lock(seat);
            for cpu in world.mm.cpus() {
                world.sim.on(cpu, || seat.compare(world));
            }
        }
        agree(world, &memmap);
        if world.stopped() {
            return vec![id];
        }
    }
    for seat in &seats {
        let mut seat = lock(seat);
        let released = memmap.release(&mut seat.pile);
        if released.refused > 0 {
            world.wrong("answers", format!("pages are not given up: {released:?}"));
        }
    }
    vec![id]
}

/// The count of frames with descriptors agrees with the page tables, and so does what CPUs have
/// cached; no CPU is at work.
fn agree<P: Paging>(world: &World<'_, P>, memmap: &Memmap<'_, '_, Saboteur<'_>, P>) {
    world.sim.compare_caches();
    let counted = memmap.census().frames.get();
    let stated = world.mm.total(foliant::Event::MemmapPages);
    world.sim.recount("frames of descriptors", stated, counted);
}

fn link<P: Paging>(head: Frame) -> Va {
    word_at(P::half(Half::Kernel).0, head, LINK)
}

impl<'a, 'm, P: Paging> Seat<'a, 'm, P> {
    fn heads(&self) -> Vec<Frame> {
        let mut heads = Vec::new();
        self.pile.each(|huge| heads.push(huge.head()));
        heads
    }

    fn step(
        &mut self,
        world: &World<'m, P>,
        memmap: &Memmap<'a, 'm, Saboteur<'m>, P>,
        id: SpaceId,
    ) {
        let machine = world.mm.machine();
        match self.rng.below(16) {
            0..3 => self.claim(world, memmap),
            3..6 => {
                world.count("fold");
                let folds: Vec<Va> = self.heads().into_iter().map(link::<P>).collect();
                machine.folding(folds);
                let got = memmap.fold(&mut self.pile);
                machine.folding(Vec::new());
                let sum = got.folded + got.skipped + got.failed + got.forbidden;
                if sum != self.pile.len() || (got.failed > 0 && !world.is_scarce()) {
                    world.wrong("answers", format!("fold of {}: {got:?}", self.pile.len()));
                }
            }
            6..8 => {
                world.count("unfold");
                let got = memmap.unfold(&mut self.pile);
                let sum = got.unfolded + got.skipped + got.failed;
                if sum != self.pile.len() || (got.failed > 0 && !world.is_scarce()) {
                    world.wrong("answers", format!("unfold of {}: {got:?}", self.pile.len()));
                }
            }
            8 => {
                world.count("release");
                let len = self.pile.len();
                let got = memmap.release(&mut self.pile);
                if got.absent + got.dense != len {
                    world.wrong("answers", format!("release of {len}: {got:?}"));
                }
            }
            9 => {
                world.count("link");
                for head in self.heads() {
                    let value = self.rng.draw() >> 1;
                    machine.write_link(link::<P>(head), value);
                }
            }
            10 => self.compare(world),
            11 => {
                world.count("look");
                for _ in 0..64 {
                    let frame = Frame::new(self.rng.below(40_000));
                    let identity = world.mm.identity(frame);
                    let tail = identity.kind() == Kind::HugeTail;
                    if tail && identity.head(frame) == frame {
                        world.wrong("descriptors", format!("{frame} is a head and says tail"));
                    }
                    drop(world.mm.reference(frame));
                }
            }
            _ => self.program(world, id),
        }
    }

    fn claim(&mut self, world: &World<'m, P>, memmap: &Memmap<'a, 'm, Saboteur<'m>, P>) {
        world.count("claim");
        let form = if self.rng.once_in(3) { Form::Dense } else { Form::Folded };
        let most = (HUGE_MAX / world.shape.cpus).max(1);
        for _ in 0..1 + self.rng.below(3) {
            if self.pile.len() >= most {
                return;
            }
            match memmap.claim(Order::SIZE_2M, form) {
                Ok(huge) => {
                    world.mm.machine().write_link(link::<P>(huge.head()), self.rng.draw() >> 1);
                    self.pile.push(huge).expect("a few fit in");
                }
                Err(_) => world.count_refused(),
            }
        }
    }

    /// A few stores and loads of the program, and now and then its pages are dropped.
    fn program(&mut self, world: &World<'m, P>, id: SpaceId) {
        world.count("program");
        if world.run(id).is_err() {
            return world.wrong("answers", format!("{id:?} is gone"));
        }
        let first = FIRST + self.nth * PAGES * FRAME_BYTES;
        if self.rng.once_in(8) {
            match world.mm.advise(id, range(first, PAGES * FRAME_BYTES), Advice::DontNeed) {
                Ok(()) => self.program.clear(),
                Err(error) => world.wrong("answers", format!("drop: {error}")),
            }
            return;
        }
        for _ in 0..8 {
            let va = first + self.rng.below(PAGES) * FRAME_BYTES;
            let known = self.program.get(&va).copied().unwrap_or(0);
            match world.load(id, va) {
                Got::Value(found) if found != known => {
                    let text = format!("load of {va:#x} gives {found:#x}, stored was {known:#x}");
                    return world.wrong("contents", text);
                }
                Got::Value(_) => {}
                Got::Not(outcome) if world.is_short(0, outcome) => return,
                got => return world.wrong("answers", format!("load of {va:#x}: {got:x?}")),
            }
            self.serial += 1;
            let value = value(self.nth, va, self.serial);
            match world.store(id, va, value) {
                Got::Value(_) => {
                    self.program.insert(va, value);
                }
                Got::Not(outcome) if world.is_short(0, outcome) => return,
                got => return world.wrong("answers", format!("store to {va:#x}: {got:x?}")),
            }
        }
    }

    /// Compares the descriptors of its pages with what they must say, on the calling CPU.
    fn compare(&self, world: &World<'m, P>) {
        world.count("compare");
        for head in self.heads() {
            if world.stopped() {
                return;
            }
            let (found, written) = world.mm.machine().read_link(link::<P>(head));
            if found != written {
                let cpu = world.sim_cpu().0;
                let text =
                    format!("the link of {head} is {found:#x} on cpu {cpu}, not {written:#x}");
                world.wrong("descriptors", text);
            }
            for nth in [0, 1, 63, 64, 65, 128, 200, 511] {
                let identity = world.mm.identity(head.add(Pages::new(nth)));
                let kind = if nth == 0 { Kind::Huge } else { Kind::HugeTail };
                let open = identity.has(Flag::Folding);
                if (identity.kind(), identity.order()) != (kind, Order::SIZE_2M) || open {
                    world.wrong("descriptors", format!("frame {nth} of {head}: {identity:?}"));
                }
            }
        }
    }
}
