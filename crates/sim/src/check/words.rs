//! A picture of all page-table words, drawn from the stores that the machine told.
//!
//! It answers "which words name this frame" and "at which level does a running root reach this
//! word". Several checkers use it, each with a picture of its own.

use super::Event;
use super::sparse::Sparse;
use crate::config::Format;
use crate::format::Decoded;
use crate::memory::Memory;
use foliant_machine::{Owner, Root};
use foliant_units::{Cpu, FRAME_BYTES, FRAME_SHIFT, Pa};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(super) struct Words {
    format: Format,
    /// Of each word, by its number, the frame that it names, or named: what is found here is looked
    /// up in memory before it counts.
    names: Sparse<Option<u64>>,
    /// The same, turned around: of each frame, the addresses of the words that name it.
    named: Sparse<BTreeSet<u64>>,
    roots: BTreeMap<u16, Root>,
    tables: BTreeSet<u64>,
}

impl Words {
    pub(super) fn new(format: Format) -> Words {
        Words {
            format,
            names: Sparse::new(),
            named: Sparse::new(),
            roots: BTreeMap::new(),
            tables: BTreeSet::new(),
        }
    }

    /// Keeps the picture current.
    pub(super) fn event(&mut self, cpu: Cpu, memory: &Memory, event: &Event<'_>) {
        match *event {
            Event::Stored { pa, new, .. } => self.set(pa.get(), new),
            Event::Copied { to: pa, bytes, .. } | Event::Written { pa, bytes } => {
                let frames = pa.frame().get()..=(pa.get() + bytes) >> FRAME_SHIFT;
                let tables: Vec<u64> = self.tables.range(frames).copied().collect();
                tables.into_iter().for_each(|frame| self.scan(memory, frame));
            }
            Event::Owned { frames, owner: Owner::Table } => {
                for frame in frames.iter() {
                    self.tables.insert(frame.get());
                    self.scan(memory, frame.get());
                }
            }
            Event::Owned { frames, .. } => {
                let (start, end) = (frames.start().get(), frames.end().get());
                self.forget(start, end);
                let gone: Vec<u64> = self.tables.range(start..end).copied().collect();
                gone.iter().for_each(|frame| {
                    self.tables.remove(frame);
                });
            }
            Event::Activated { root } => {
                self.roots.insert(cpu.0, root);
            }
            _ => {}
        }
    }

    fn set(&mut self, at: u64, word: u64) {
        let new = self.format.live(word).then(|| self.format.first_named(word).frame().get());
        if self.names.get(at / 8).copied().flatten() == new {
            return;
        }
        if let Some(old) = core::mem::replace(self.names.at(at / 8), new) {
            self.named.at(old).remove(&at);
        }
        if let Some(new) = new {
            self.named.at(new).insert(at);
        }
    }

    /// Forgets the words in the frames `start..end`: a stretch of `names` holds the words of one
    /// frame.
    fn forget(&mut self, start: u64, end: u64) {
        for (first, frames) in self.names.take(start, end) {
            for (nth, frame) in (first..).zip(frames) {
                if let Some(frame) = frame {
                    self.named.at(frame).remove(&(nth * 8));
                }
            }
        }
    }

    fn scan(&mut self, memory: &Memory, frame: u64) {
        if memory.is_known_zero(Pa::new(frame << FRAME_SHIFT)) {
            return self.forget(frame, frame + 1);
        }
        for at in (frame << FRAME_SHIFT..(frame + 1) << FRAME_SHIFT).step_by(8) {
            if let Some(word) = memory.load(Pa::new(at)) {
                self.set(at, word);
            }
        }
    }

    /// The level of the word at `at`, if a root that some CPU runs reaches it.
    pub(super) fn level(&self, memory: &Memory, at: u64) -> Option<u8> {
        self.level_within(memory, at, self.format.levels())
    }

    fn level_within(&self, memory: &Memory, at: u64, depth: u8) -> Option<u8> {
        let table = at >> FRAME_SHIFT;
        let is_root = |root: &Root| {
            root.user.frame().get() == table
                || (!self.format.one_root() && root.kernel.frame().get() == table)
        };
        if self.roots.values().any(is_root) {
            return Some(self.format.levels() - 1);
        }
        if depth == 0 {
            return None;
        }
        self.named.get(table)?.iter().find_map(|parent| {
            let level = self.level_within(memory, *parent, depth - 1)?;
            let word = memory.load(Pa::new(*parent))?;
            match self.format.decode(level, word) {
                Decoded::Table { .. } => Some(level - 1),
                _ => None,
            }
        })
    }

    /// Whether `cpu` runs the root tagged `tag`.
    pub(super) fn runs(&self, cpu: u16, tag: Pa) -> bool {
        self.roots.get(&cpu).is_some_and(|root| root.user == tag)
    }

    /// A CPU that runs a root in the frames `start..end`.
    pub(super) fn running(&self, start: u64, end: u64) -> Option<(Cpu, Pa)> {
        self.roots.iter().find_map(|(cpu, root)| {
            let inside = |pa: &Pa| (start..end).contains(&pa.frame().get());
            let found = [root.user, root.kernel].into_iter().find(inside)?;
            Some((Cpu(*cpu), found))
        })
    }

    /// A reachable word that names some of the frames `start..end`, with its level.
    pub(super) fn reaches(&self, memory: &Memory, start: u64, end: u64) -> Option<(Pa, u8)> {
        let heads = [0xf, 0x1ff, 0x3_ffff].map(|inside| start & !inside); // 64 KiB, 2 MiB, 1 GiB
        let above = heads.into_iter().filter_map(|head| self.named.get(head));
        let inside = self.named.range(start, end).map(|(_, words)| words);
        above.chain(inside).flatten().find_map(|at| {
            let level = self.level(memory, *at)?;
            let word = memory.load(Pa::new(*at))?;
            let (first, frames) = match self.format.decode(level, word) {
                Decoded::Nothing => return None,
                Decoded::Table { table, .. } => (table.frame().get(), 1),
                Decoded::Leaf(leaf) => (leaf.base.frame().get(), (1 << leaf.shift) / FRAME_BYTES),
            };
            (first < end && first + frames > start).then_some((Pa::new(*at), level))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Backing, X86Levels};
    use foliant_units::{Frame, FrameRange, Pages};

    #[test]
    fn each_word_is_noted_by_its_own_number() {
        let memory = Memory::new(&[], Backing::Whole).unwrap();
        let mut words = Words::new(Format::X86_64(X86Levels::Four));
        // These are the numbers that other words would have if words were wider, or counted in
        // bytes.
        let all = [64, 72, 72 * 64];
        for at in [64, 72 * 64, 72] {
            let event = Event::Stored { pa: Pa::new(at), old: 0, new: 0x5001 };
            words.event(Cpu(0), &memory, &event);
        }
        assert_eq!(words.named.get(5), Some(&BTreeSet::from(all)));
    }

    #[test]
    fn a_new_table_is_read_whole_and_alone() {
        let (start, end) = (Frame::new(0), Frame::new(4));
        let range = FrameRange::new(start, Pages::new(4)).unwrap();
        let memory = Memory::new(&[range], Backing::Whole).unwrap();
        let mut words = Words::new(Format::X86_64(X86Levels::Four));
        let mut table = |frame: u64| {
            let frames = FrameRange::new(Frame::new(frame), Pages::new(1)).unwrap();
            words.event(Cpu(0), &memory, &Event::Owned { frames, owner: Owner::Table });
            let all = words.named.range(0, u64::MAX).flat_map(|(_, at)| at.iter().copied());
            all.collect::<BTreeSet<u64>>()
        };
        let all = || (start.pa().get()..end.pa().get()).step_by(8);
        // What is in the frames already was not seen; the first is zero.
        all().skip(512).for_each(|at| memory.store(Pa::new(at), 0x5001).unwrap());
        assert!(table(1).into_iter().eq(all().skip(512).take(512)));
        assert!(table(2).into_iter().eq(all().skip(512).take(1024)));
        assert!(table(0).into_iter().eq(all().skip(512).take(1024)), "zero names nothing");
    }

    /// Frames become tables again and again: what was in them must not pile up.
    #[test]
    fn what_is_given_up_is_forgotten() {
        let range = FrameRange::new(Frame::new(256), Pages::new(4)).unwrap();
        let memory = Memory::new(&[range], Backing::Whole).unwrap();
        let mut words = Words::new(Format::X86_64(X86Levels::Four));
        let mut say = |event| words.event(Cpu(0), &memory, &event);
        let table = FrameRange::new(range.start(), Pages::new(2)).unwrap();
        say(Event::Owned { frames: table, owner: Owner::Table });
        let last = range.start().pa().add(3 * 2040);
        say(Event::Stored { pa: last, old: 0, new: 0x6001 }); // another word comes in its place
        for nth in 0..4 {
            say(Event::Stored { pa: range.start().pa().add(nth * 2040), old: 0, new: 0x5001 });
        }
        say(Event::Owned {
            frames: FrameRange::new(range.start(), Pages::new(1)).unwrap(),
            owner: Owner::Free,
        });
        let left = range.start().pa().get() + 3 * 2040;
        let names = words.names.range(0, u64::MAX).filter(|(_, frame)| frame.is_some());
        assert!(names.map(|(nth, _)| nth * 8).eq([left]), "{:x?}", words.names);
        let named = words.named.range(0, u64::MAX).filter(|(_, words)| !words.is_empty());
        assert!(named.eq([(5, &BTreeSet::from([left]))]));
        assert!(words.tables.iter().eq([&257]));
    }
}
