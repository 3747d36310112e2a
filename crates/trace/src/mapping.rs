//! Memory as a person knows it: the heap, the stack of thread 3, an allocator's arenas, what one
//! place in a program maps.
//!
//! A program has thousands of areas, and no area has a name that says what it is for. Areas of one
//! *mapping* were asked for in one way: by the program break, by a thread that was about to run, by
//! the same code for the same class of sizes. Advice can be given to a mapping, because the next
//! run has it too.
//!
//! ```text
//!   Exec, Map, Brk, ... ─┐                        ┌─ a label for each stretch of a space
//!                        ├─▶ Labels::follow ──────┤
//!   Name ────────────────┘                        └─ Labels::at ─▶ a number ─▶ Mapping
//! ```
//!
//! A class of sizes is all above half a power of two up to that power: what grows by a page from
//! run to run stays in its class, but for an edge. What a recording says nothing of has no site:
//! memory of older files is parted by class alone.
//!
//! **Invariants**
//! - G1. Labels of a space do not overlap, and cover what was mapped and is not unmapped.
//! - G2. A file does not decide how many mappings there are: beyond [`MAPPINGS_MOST`] all are
//!   [`Mapping::Other`]. What labels and names take is drawn from a budget.
//!
//! **Not here**: rights and joining of areas, which the naive model has (`naive`, `piece`).

use crate::budget::{Budget, Map, Purse, Spent, Thing, cost};
use crate::event::{
    Area, AreaKind, Event, EventKind, MapFlags, Name, Prot, SpaceId, ThreadId, brk_pages,
};
use crate::site::Site;
use crate::wish::{Remedy, Target, Wish};
use foliant_units::{Bytes, FRAME_BYTES, Va, VaRange};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// More than these are not told apart.
pub const MAPPINGS_MOST: usize = 512;
/// What glibc reserves for an arena: it keeps one aligned half and opens it bit by bit.
const ARENAS: [u64; 2] = [64 << 20, 128 << 20];

/// Memory that was asked for in one way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mapping {
    /// The area of the program break.
    Heap,
    /// The stack of the first thread.
    Stack,
    /// The stack of this thread, or of one that is not known.
    ThreadStack(Option<ThreadId>),
    /// Arenas of an allocator, by its library's file name, where that is known.
    Arena(Option<String>),
    /// Data of a program or library, with what lies behind it and is in no file (bss).
    Data(String),
    /// What `mmap` made otherwise.
    Made {
        /// Who asked for it, if that is known.
        site: Option<Site>,
        /// No area is larger, and none is as small as half of it: a power of two.
        class: Bytes,
    },
    /// Maps of files without a name, shared memory, and whatever is beyond [`MAPPINGS_MOST`].
    Other,
}

impl Mapping {
    /// What a wish for this mapping alone is about; `None` where nothing names it: data of files,
    /// stacks that the program has for its threads, arenas that differ from run to run.
    pub fn target(&self) -> Option<Target> {
        let made = |site: &Option<Site>, least, most| {
            let site = site.clone();
            Some(Target::Made { site, least: Bytes::new(least), most: Bytes::new(most) })
        };
        match self {
            Mapping::Heap => Some(Target::Heap),
            Mapping::Stack => Some(Target::Stack),
            Mapping::Made { site, class } => made(site, class.get() / 2 + 1, class.get()),
            Mapping::Arena(library) if !library.as_deref().is_some_and(is_allocator) => {
                made(&None, ARENAS[0], ARENAS[1])
            }
            _ => None,
        }
    }

    /// What a remedy wishes for it, by its class of sizes: what was asked for is known no nearer.
    pub fn wished_by(&self, remedy: &Remedy) -> Option<Wish> {
        let wished = match self.target()? {
            Target::Heap => remedy.of_heap(),
            Target::Stack => remedy.of_stack(),
            Target::Made { site, most, .. } => remedy.of_made(site.as_ref(), most),
        };
        wished.map(|wished| wished.wish)
    }
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mapping::Heap => f.write_str("heap"),
            Mapping::Stack => f.write_str("stack"),
            Mapping::ThreadStack(Some(thread)) => write!(f, "stack of thread {}", thread.0),
            Mapping::ThreadStack(None) => f.write_str("stacks of threads"),
            Mapping::Arena(Some(library)) => write!(f, "arenas of {library}"),
            Mapping::Arena(None) => f.write_str("arenas of an allocator"),
            Mapping::Data(object) => write!(f, "data of {object}"),
            Mapping::Made { site: Some(site), class } => write!(f, "{site}, up to {class}"),
            Mapping::Made { site: None, class } => write!(f, "mmap, up to {class}"),
            Mapping::Other => f.write_str("other memory"),
        }
    }
}

/// The class of so many bytes.
fn class_of(bytes: Bytes) -> Bytes {
    Bytes::new(bytes.get().checked_next_power_of_two().unwrap_or(1 << 63))
}

/// Whether an area is of the shape of a reservation for an arena of glibc's.
fn is_arena(area: &Area) -> bool {
    area.kind == AreaKind::Anonymous
        && area.prot == Prot::NONE
        && area.flags.contains(MapFlags::NORESERVE)
        && ARENAS.contains(&area.range.bytes().get())
}

/// Whether a library is an allocator of its own, and not what all programs have.
fn is_allocator(library: &str) -> bool {
    let common = ["libc", "ld", "libpthread", "libstdc++", "libc++", "libgcc_s"];
    !common
        .iter()
        .any(|name| library.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', '-'])))
}

/// A stretch of a space, by its first address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Label {
    end: u64,
    mapping: u16,
    /// It has the shape of an arena.
    is_arena: bool,
    /// Memory without a file that lies where it was told to: behind a file's data it is bss.
    is_placed: bool,
}

/// Which mapping each address belongs to, as events go by.
pub(crate) struct Labels {
    spaces: HashMap<SpaceId, Map<Label>>,
    mappings: Vec<Mapping>,
    known: BTreeMap<Mapping, u16>,
    purse: Purse,
}

/// The number of what is not told apart.
const OTHER: u16 = 0;

impl Labels {
    /// Labels that draw on this budget.
    pub(crate) fn new(budget: &Budget) -> Labels {
        Labels {
            spaces: HashMap::new(),
            mappings: vec![Mapping::Other],
            known: BTreeMap::from([(Mapping::Other, OTHER)]),
            purse: Purse::new(budget),
        }
    }

    /// All mappings that there were, by their numbers, with what they are drawn from.
    pub(crate) fn finish(self) -> (Vec<Mapping>, Purse) {
        (self.mappings, self.purse)
    }

    /// The mapping of a page.
    pub(crate) fn at(&self, space: SpaceId, page: Va) -> u16 {
        let Some(labels) = self.spaces.get(&space) else { return OTHER };
        let page = page.align_down(Bytes::new(FRAME_BYTES)).get();
        if let Some((_, label)) = labels.range(..=page).next_back()
            && page < label.end
        {
            return label.mapping;
        }
        // A stack that is about to grow.
        let above = labels.range(page..).next().map(|(_, label)| label.mapping);
        above
            .filter(|number| self.mappings[usize::from(*number)] == Mapping::Stack)
            .unwrap_or(OTHER)
    }

    /// Takes in one event of a trace whose lineage is sound; `died` is the space that it ended.
    pub(crate) fn follow(&mut self, event: &Event, died: Option<SpaceId>) -> Result<(), Spent> {
        let space = event.space;
        match &event.kind {
            EventKind::Exec(exec) => {
                self.born(space)?;
                exec.areas.iter().try_for_each(|area| self.map(space, area, true))?;
            }
            EventKind::Fork { child, .. } => {
                self.born(*child)?;
                if let Some(parent) = self.spaces.get(&space) {
                    let copy = parent.copy()?;
                    self.spaces.insert(*child, copy);
                }
            }
            EventKind::Map(area) => {
                self.map(space, area, area.flags.contains(MapFlags::FIXED))?;
            }
            EventKind::Unmap { range } => self.unmap(space, *range)?,
            EventKind::Brk { old, new } => {
                let (more, less) = brk_pages(*old, *new);
                self.unmap(space, less)?;
                let heap = self.number(Mapping::Heap)?;
                self.put(space, more, Label::of(heap))?;
            }
            EventKind::Remap { old, new, keep_old } => self.moved(space, *old, *new, *keep_old)?,
            EventKind::Name { range, name } => self.name(space, *range, name)?,
            _ => {}
        }
        if let Some(died) = died
            && self.spaces.remove(&died).is_some()
        {
            self.purse.give(1, cost::SPACE);
        }
        Ok(())
    }

    fn born(&mut self, space: SpaceId) -> Result<(), Spent> {
        self.purse.take(Thing::Spaces, 1, cost::SPACE)?;
        let labels = Map::new(self.purse.budget(), Thing::Areas, cost::AREA);
        self.spaces.insert(space, labels);
        Ok(())
    }

    /// The number of a mapping (G2).
    fn number(&mut self, mapping: Mapping) -> Result<u16, Spent> {
        if let Some(number) = self.known.get(&mapping) {
            return Ok(*number);
        }
        if self.mappings.len() >= MAPPINGS_MOST {
            return Ok(OTHER);
        }
        // It is there twice.
        for _ in 0..2 {
            match &mapping {
                Mapping::Data(name) | Mapping::Arena(Some(name)) => self.purse.take_text(name)?,
                Mapping::Made { site: Some(site), .. } => self.purse.take_text(&site.object)?,
                _ => {}
            }
        }
        let number = self.mappings.len() as u16;
        self.mappings.push(mapping.clone());
        self.known.insert(mapping, number);
        Ok(number)
    }

    fn map(&mut self, space: SpaceId, area: &Area, is_placed: bool) -> Result<(), Spent> {
        let is_arena = is_arena(area);
        let below = self.below(space, area.range.start());
        let mapping = match area.kind {
            AreaKind::Heap => Mapping::Heap,
            AreaKind::Stack => Mapping::Stack,
            AreaKind::Anonymous if is_arena => Mapping::Arena(None),
            AreaKind::Anonymous if area.flags.contains(MapFlags::STACK) => {
                Mapping::ThreadStack(None)
            }
            AreaKind::Anonymous if is_placed && below.is_some() => {
                Mapping::Data(below.unwrap_or_default())
            }
            AreaKind::Anonymous => {
                Mapping::Made { site: None, class: class_of(area.range.bytes()) }
            }
            _ => Mapping::Other,
        };
        let is_placed = is_placed && area.kind == AreaKind::Anonymous;
        let mapping = self.number(mapping)?;
        self.put(space, area.range, Label { is_arena, is_placed, ..Label::of(mapping) })
    }

    /// The object whose data ends where this begins.
    fn below(&self, space: SpaceId, start: Va) -> Option<String> {
        let (_, label) = self.spaces.get(&space)?.range(..start.get()).next_back()?;
        match &self.mappings[usize::from(label.mapping)] {
            Mapping::Data(object) if label.end == start.get() => Some(object.clone()),
            _ => None,
        }
    }

    fn name(&mut self, space: SpaceId, range: VaRange, name: &Name) -> Result<(), Spent> {
        let Some(labels) = self.spaces.get(&space) else { return Ok(()) };
        let (start, page) = (range.start().get(), range.start().get());
        let Some((&first, &label)) = labels.range(..=page).next_back() else { return Ok(()) };
        if page >= label.end {
            return Ok(());
        }
        let area = |first, end| VaRange::new(Va::new(first), Va::new(end)).unwrap_or(range);
        match name {
            Name::File(object) => {
                let data = self.number(Mapping::Data(object.clone()))?;
                let end = range.end().get().min(label.end);
                self.put(space, area(start, end), Label::of(data))?;
                self.bss(space, end, data)
            }
            Name::Made { site, through } => {
                let was = &self.mappings[usize::from(label.mapping)];
                if matches!(was, Mapping::Data(_) | Mapping::ThreadStack(_)) {
                    return Ok(());
                }
                let allocator = through.as_deref().filter(|name| is_allocator(name));
                let mapping = match allocator {
                    Some(name) => Mapping::Arena(Some(name.to_owned())),
                    None if label.is_arena => Mapping::Arena(through.clone()),
                    None => {
                        let class = class_of(range.bytes());
                        Mapping::Made { site: site.clone(), class }
                    }
                };
                let mapping = self.number(mapping)?;
                let part = area(start, range.end().get().min(label.end));
                self.put(space, part, Label { mapping, ..label })
            }
            Name::Stack(thread) => {
                let mapping = self.number(Mapping::ThreadStack(Some(*thread)))?;
                self.put(space, area(first, label.end), Label { mapping, ..label })
            }
        }
    }

    /// What lies behind a file's data and was placed there is the file's.
    fn bss(&mut self, space: SpaceId, start: u64, data: u16) -> Result<(), Spent> {
        let labels = self.spaces.get(&space);
        let behind = labels.and_then(|labels| labels.get(start)).copied();
        match behind.filter(|label| label.is_placed) {
            Some(label) => {
                let range = VaRange::new(Va::new(start), Va::new(label.end)).unwrap_or_default();
                self.put(space, range, Label { mapping: data, ..label })
            }
            None => Ok(()),
        }
    }

    fn moved(
        &mut self,
        space: SpaceId,
        old: VaRange,
        new: VaRange,
        keep_old: bool,
    ) -> Result<(), Spent> {
        let Some(labels) = self.spaces.get(&space) else { return Ok(()) };
        let found = labels.range(..=old.start().get()).next_back().map(|(_, label)| *label);
        if !keep_old && !old.is_empty() {
            self.unmap(space, old)?;
        }
        match found {
            Some(label) => self.put(space, new, label),
            None => self.unmap(space, new),
        }
    }

    /// Gives a range this label; the end in it is not looked at.
    fn put(&mut self, space: SpaceId, range: VaRange, label: Label) -> Result<(), Spent> {
        self.unmap(space, range)?;
        if range.is_empty() {
            return Ok(());
        }
        let Some(labels) = self.spaces.get_mut(&space) else { return Ok(()) };
        let (start, end) = (range.start().get(), range.end().get());
        // A heap grows by many small steps.
        if let Some((_, below)) = labels.range_mut(..start).next_back()
            && (Label { end: start, ..label }) == *below
        {
            below.end = end;
            return labels.work(1);
        }
        labels.insert(start, Label { end, ..label })
    }

    fn unmap(&mut self, space: SpaceId, range: VaRange) -> Result<(), Spent> {
        let Some(labels) = self.spaces.get_mut(&space) else { return Ok(()) };
        if range.is_empty() {
            return Ok(());
        }
        for at in [range.start().get(), range.end().get()] {
            if let Some((_, label)) = labels.range_mut(..at).next_back()
                && label.end > at
            {
                let upper = *label;
                label.end = at;
                labels.insert(at, upper)?;
            }
        }
        labels.clear_range(&(range.start().get()..range.end().get()), |_, _| ())
    }
}

impl Label {
    fn of(mapping: u16) -> Label {
        Label { end: 0, mapping, is_arena: false, is_placed: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Exec;

    const BASE: u64 = 0x7f00_0000_0000;
    const PAGE: u64 = 4096;

    fn range(first: u64, pages: u64) -> VaRange {
        let at = |page: u64| Va::new(BASE + page * PAGE);
        VaRange::new(at(first), at(first + pages)).unwrap()
    }
    fn area(range: VaRange, kind: AreaKind, flags: MapFlags) -> Area {
        Area { range, prot: Prot::RW, kind, flags }
    }
    fn anonymous(first: u64, pages: u64) -> Area {
        area(range(first, pages), AreaKind::Anonymous, MapFlags::NONE)
    }
    fn site(offset: u64) -> Site {
        Site { object: "prog".to_owned(), offset }
    }
    fn made(offset: u64, through: Option<&str>) -> Name {
        Name::Made { site: Some(site(offset)), through: through.map(str::to_owned) }
    }

    struct Story(Labels);

    impl Story {
        fn start(areas: &[Area]) -> Story {
            let mut story = Story(Labels::new(&Budget::default()));
            let (program, brk) = ("/bin/prog".to_owned(), Va::new(BASE));
            let exec = Exec { program, brk, areas: areas.to_vec(), present: Vec::new() };
            story.tell(EventKind::Exec(exec));
            story
        }
        fn tell(&mut self, kind: EventKind) -> &mut Story {
            let event = Event { time_ns: 0, thread: ThreadId(0), space: SpaceId(0), kind };
            self.0.follow(&event, None).unwrap();
            self
        }
        fn name(&mut self, range: VaRange, name: Name) -> &mut Story {
            self.tell(EventKind::Name { range, name })
        }
        fn at(&self, page: u64) -> String {
            let number = self.0.at(SpaceId(0), Va::new(BASE + page * PAGE));
            self.0.mappings[usize::from(number)].to_string()
        }
    }

    #[test]
    fn areas_are_called_what_asked_for_them() {
        let mut story = Story::start(&[
            area(range(0, 2), AreaKind::FilePrivate, MapFlags::NONE),
            anonymous(2, 3),
            area(range(5000, 4), AreaKind::Stack, MapFlags::GROWSDOWN),
        ]);
        assert_eq!(story.at(2), "mmap, up to 16k");
        story.name(range(0, 2), Name::File("prog".to_owned()));
        assert_eq!(
            [story.at(0), story.at(4), story.at(5)],
            ["data of prog", "data of prog", "stack"]
        );
        assert_eq!([story.at(5000), story.at(4990)], ["stack", "stack"], "and where it grows");
        story.tell(EventKind::Brk {
            old: Va::new(BASE + 20 * PAGE),
            new: Va::new(BASE + 22 * PAGE),
        });
        story.tell(EventKind::Brk {
            old: Va::new(BASE + 22 * PAGE),
            new: Va::new(BASE + 21 * PAGE),
        });
        assert_eq!([story.at(20), story.at(21)], ["heap", "stack"]);
        story.tell(EventKind::Map(anonymous(100, 5))).name(range(100, 5), made(0x12, None));
        assert_eq!([story.at(104), story.at(105)], ["prog+0x12, up to 32k", "stack"]);
        story
            .tell(EventKind::Map(anonymous(200, 8)))
            .name(range(200, 8), made(0x12, Some("libc.so.6")));
        assert_eq!(story.at(200), "prog+0x12, up to 32k", "the C library is everybody's");
        story.tell(EventKind::Map(anonymous(300, 8)));
        story.name(range(300, 8), made(0x12, Some("libjemalloc.so.2")));
        assert_eq!(story.at(300), "arenas of libjemalloc.so.2");
    }

    #[test]
    fn a_librarys_bss_is_its_own_and_not_the_loaders() {
        let mut story = Story::start(&[]);
        let file = area(range(0, 4), AreaKind::FilePrivate, MapFlags::NONE);
        story.tell(EventKind::Map(file)).name(range(0, 4), Name::File("liba.so".to_owned()));
        let bss = Area { flags: MapFlags::FIXED, ..anonymous(4, 2) };
        story.tell(EventKind::Map(bss)).name(range(4, 2), made(0x77, Some("ld-linux.so.2")));
        assert_eq!(story.at(5), "data of liba.so");
        story.tell(EventKind::Map(anonymous(6, 2))).name(range(6, 2), made(0x77, None));
        assert_eq!(story.at(6), "prog+0x77, up to 8k", "what lies there by chance is not");
    }

    #[test]
    fn an_arena_is_known_by_its_shape_and_a_stack_by_its_thread() {
        let mut story = Story::start(&[]);
        let pages = (128 << 20) / PAGE;
        let arena = Area { prot: Prot::NONE, flags: MapFlags::NORESERVE, ..anonymous(0, pages) };
        story.tell(EventKind::Map(arena));
        assert_eq!(story.at(9), "arenas of an allocator");
        story.name(arena.range, made(1, Some("libc.so.6")));
        story.tell(EventKind::Unmap { range: range(pages / 2, pages / 2) });
        assert_eq!([story.at(9), story.at(pages / 2)], ["arenas of libc.so.6", "other memory"]);
        for other in [Area { prot: Prot::RW, ..arena }, Area { flags: MapFlags::NONE, ..arena }] {
            story.tell(EventKind::Map(other));
            assert_eq!(story.at(9), "mmap, up to 128m");
        }
        let stack = Area { flags: MapFlags::STACK, ..anonymous(0, 9) };
        story.tell(EventKind::Map(stack)).name(range(0, 9), made(1, None));
        assert_eq!(story.at(3), "stacks of threads");
        story.name(range(7, 1), Name::Stack(ThreadId(4)));
        assert_eq!([story.at(0), story.at(8)], ["stack of thread 4", "stack of thread 4"]);
    }

    #[test]
    fn what_the_next_run_has_too_can_be_wished_for() {
        let made = |site: Option<Site>, least, most| {
            Some(Target::Made { site, least: Bytes::new(least), most: Bytes::new(most) })
        };
        let class = Bytes::new(1 << 20);
        let at = Mapping::Made { site: Some(site(1)), class };
        assert_eq!(at.target(), made(Some(site(1)), (1 << 19) + 1, 1 << 20));
        let arena = |library: Option<&str>| Mapping::Arena(library.map(str::to_owned)).target();
        assert_eq!(arena(None), made(None, 64 << 20, 128 << 20));
        assert_eq!(arena(Some("libc.so.6")), arena(None));
        assert_eq!(arena(Some("libjemalloc.so.2")), None);
        assert_eq!(Mapping::Heap.target(), Some(Target::Heap));
        assert_eq!(Mapping::Data("a".into()).target(), None);
    }

    #[test]
    fn a_label_moves_with_its_area_and_a_child_has_its_parents() {
        let mut story = Story::start(&[]);
        story.tell(EventKind::Map(anonymous(0, 8))).name(range(0, 8), made(1, None));
        let remap = |keep_old| EventKind::Remap { old: range(0, 8), new: range(50, 20), keep_old };
        story.tell(remap(true));
        assert_eq!([story.at(7), story.at(69)], ["prog+0x1, up to 32k", "prog+0x1, up to 32k"]);
        story.tell(remap(false));
        assert_eq!([story.at(7), story.at(50)], ["other memory", "prog+0x1, up to 32k"]);
        story.tell(EventKind::Fork { child: SpaceId(1), thread: ThreadId(1) });
        story.tell(EventKind::Unmap { range: range(0, 99) });
        let page = Va::new(BASE + 55 * PAGE);
        assert_eq!(story.0.at(SpaceId(0), page), OTHER);
        assert_ne!(story.0.at(SpaceId(1), page), OTHER);
    }

    #[test]
    fn a_file_does_not_decide_how_many_mappings_there_are() {
        let mut story = Story::start(&[]);
        for offset in 0..2 * MAPPINGS_MOST as u64 {
            story.tell(EventKind::Map(anonymous(0, 1))).name(range(0, 1), made(offset, None));
        }
        assert_eq!((story.0.mappings.len(), story.at(0)), (MAPPINGS_MOST, "other memory".into()));
    }
}
