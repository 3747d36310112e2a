//! When frames are given up nothing may name them any more, and what names them anyway is not used.
//!
//! It is asked when frames become `Free`, or `Claimed` again after they had an owner: no CPU has a
//! translation or a table pointer cached that names them and that it can use, global or of the root
//! that it runs, and none of them is such a root; when they become `Free`, no page-table word that
//! a running root reaches names them either. What a CPU keeps under the tag of another root may
//! name them, but is *outdated* from then on: it must be gone when that root is activated again.
//! And at any time: no access goes to a free frame, and no walk reads one. Where somebody asks for
//! it while nothing is under way, no CPU has a translation that it can use and that names other
//! memory than the tables, or allows more.
//!
//! Kernel ranges that are stated to be retired *lazily* are an exception, which the statement asks
//! for: what is cached of them may name frames that were given up. In return no CPU uses it,
//! whichever owner the frames have by then; and when the range is stated to be purged, no CPU may
//! have anything of it left.

use super::spans::{Piece, Spans};
use super::words::Words;
use super::{Checker, Event, Report, Seen};
use crate::cache::Cached;
use crate::config::Format;
use core::fmt;
use foliant_machine::{Owner, Retired, Root};
use foliant_units::{Cpu, FRAME_BYTES, FRAME_SHIFT, Frame, FrameRange, Pa, Va, VaRange};
use std::collections::{BTreeMap, BTreeSet};

/// What is cached somewhere, ordered by the frame that it names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    frame: u64,
    /// Bit 7: a table pointer. Bit 6: a whole group.
    level: u8,
    cpu: u16,
    /// `None` for what is global.
    tag: Option<Pa>,
    va: Va,
}

impl Key {
    fn of(cpu: Cpu, entry: &Cached) -> Key {
        Key {
            frame: entry.base.frame().get(),
            level: entry.level | u8::from(entry.table) << 7 | u8::from(entry.is_group()) << 6,
            cpu: cpu.0,
            tag: (!entry.is_global()).then_some(entry.tag),
            va: entry.va,
        }
    }

    /// How many frames a translation names.
    const fn frames(&self) -> u64 {
        let group = if self.level & 0x40 == 0 { 0 } else { 4 };
        1 << (9 * (self.level & 0x3f) as u32 + group)
    }

    /// The key before all others that name `frame`.
    const fn first(frame: u64) -> Key {
        Key { frame, level: 0, cpu: 0, tag: None, va: Va::new(0) }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.level & 0xc0 {
            0 => "translation",
            0x40 => "translation of a group",
            _ => "table pointer",
        };
        let (level, va, frame) = (self.level & 0x3f, self.va, Frame::new(self.frame));
        write!(f, "a {what} of level {level} for {va:?} to {frame:?}")
    }
}

#[derive(Debug)]
pub(super) struct NoStaleTranslation {
    owners: Spans<Owner>,
    cached: BTreeSet<Key>,
    /// By CPU and tag: what names frames that were given up while the CPU did not run that tag.
    outdated: BTreeMap<(u16, Pa), BTreeSet<Key>>,
    words: Words,
    /// Pages of the kernel half that are retired lazily.
    lazy: Spans<bool>,
}

impl NoStaleTranslation {
    pub(super) fn new(format: Format) -> NoStaleTranslation {
        NoStaleTranslation {
            owners: Spans::new(Owner::Reserved),
            cached: BTreeSet::new(),
            outdated: BTreeMap::new(),
            words: Words::new(format),
            lazy: Spans::new(false),
        }
    }

    fn is_lazy(&self, va: Va) -> bool {
        self.lazy.get(va.get() >> FRAME_SHIFT)
    }

    fn retired(&mut self, range: VaRange, how: Retired, report: &mut Report<'_>) {
        let pages = (range.start().get() >> FRAME_SHIFT, range.end().get() >> FRAME_SHIFT);
        self.lazy.set(pages.0, pages.1, how == Retired::Lazily);
        let within = |key: &&Key| {
            let last = || key.va.get() + (FRAME_BYTES * key.frames() - 1);
            key.level & 0x80 == 0 && key.va < range.end() && last() >= range.start().get()
        };
        if how == Retired::Purged
            && let Some(key) = self.cached.iter().find(within)
        {
            report(format!("{range:?} is stated to be purged, but cpu {} has {key}", key.cpu));
        }
    }

    fn is_free(&self, frame: Frame) -> bool {
        self.owners.get(frame.get()) == Owner::Free
    }

    /// What is cached anywhere and names one of the frames `start..end`.
    fn cached_over(&self, start: u64, end: u64) -> impl Iterator<Item = &Key> {
        let heads = [0xf, 0x1ff, 0x1fff, 0x3_ffff].map(|inside| start & !inside); // 64 KiB to 1 GiB
        let above = heads.into_iter().flat_map(move |head| {
            self.cached
                .range(Key::first(head)..Key::first(head + 1))
                .filter(move |key| key.level & 0x80 == 0 && key.frame + key.frames() > start)
        });
        above.chain(self.cached.range(Key::first(start)..Key::first(end)))
    }

    /// Frames are given up: reports the first usable translation to them, and notes the ones that
    /// are not usable now.
    fn outdate(
        &mut self,
        frames: FrameRange,
        new: Owner,
        piece: &Piece<Owner>,
        report: &mut Report<'_>,
    ) {
        let mut first = None;
        let mut kept = Vec::new();
        for key in self.cached_over(piece.start, piece.end) {
            if key.level & 0x80 == 0 && self.is_lazy(key.va) {
                continue;
            }
            match key.tag.filter(|tag| !self.words.runs(key.cpu, *tag)) {
                Some(tag) => kept.push(((key.cpu, tag), *key)),
                None => first = first.or(Some(*key)),
            }
        }
        for (at, key) in kept {
            self.outdated.entry(at).or_default().insert(key);
        }
        if let Some(key) = first {
            report(format!("{frames:?} becomes {new:?}, but cpu {} has {key}", key.cpu));
        }
    }

    /// A CPU runs `root` from now on, with what it kept of it.
    fn activated(&self, cpu: Cpu, root: Root, report: &mut Report<'_>) {
        if let Some(key) = self.outdated.get(&(cpu.0, root.user)).and_then(BTreeSet::first) {
            let frame = Frame::new(key.frame);
            report(format!(
                "{:?} is activated again with {key}, but {frame:?} was given up meanwhile",
                root.user
            ));
        }
    }

    fn given_up(
        &mut self,
        seen: &Seen<'_>,
        frames: FrameRange,
        new: Owner,
        report: &mut Report<'_>,
    ) {
        let (mut at, end) = (frames.start().get(), frames.end().get());
        while at < end {
            let piece = self.owners.first(at, end);
            at = piece.end;
            let had_none = matches!(piece.value, Owner::Reserved | Owner::Free);
            if new != Owner::Free && had_none {
                continue;
            }
            self.outdate(frames, new, &piece, report);
            if let Some((cpu, root)) = self.words.running(piece.start, piece.end) {
                report(format!(
                    "{frames:?} becomes {new:?}, but cpu {} runs the root {root:?}",
                    cpu.0
                ));
            }
            if new == Owner::Free
                && let Some((at, level)) = self.words.reaches(seen.memory, piece.start, piece.end)
            {
                report(format!(
                    "{frames:?} becomes free, but the word at {at:?}, level {level}, \
                                names it"
                ));
            }
        }
    }
}

impl Checker for NoStaleTranslation {
    fn name(&self) -> &'static str {
        "no_stale_translation"
    }

    fn event(&mut self, seen: &Seen<'_>, event: &Event<'_>, report: &mut Report<'_>) {
        match event {
            Event::Owned { frames, owner } => {
                if matches!(owner, Owner::Free | Owner::Claimed) {
                    self.given_up(seen, *frames, *owner, report);
                }
                self.owners.set(frames.start().get(), frames.end().get(), *owner);
            }
            Event::Filled { entry } => {
                self.cached.insert(Key::of(seen.cpu, entry));
                let start = entry.base.get() >> FRAME_SHIFT;
                let frames = if entry.table { 1 } else { entry.bytes() / FRAME_BYTES };
                let mut pieces = self.owners.pieces(start, start + frames);
                if let Some(piece) = pieces.find(|piece| piece.value == Owner::Free) {
                    let (frame, va) = (Frame::new(piece.start), entry.va);
                    report(format!("a translation of {va:?} to the free {frame:?} is cached"));
                }
            }
            Event::Dropped { entry } => {
                let key = Key::of(seen.cpu, entry);
                self.cached.remove(&key);
                if let Some(outdated) = self.outdated.get_mut(&(seen.cpu.0, entry.tag)) {
                    outdated.remove(&key);
                }
            }
            Event::Outlived { entry } if !self.is_lazy(entry.va) => {
                let (cpu, key) = (seen.cpu.0, Key::of(seen.cpu, entry));
                report(format!("cpu {cpu} has {key} still, of which the tables say less by now"));
            }
            Event::Activated { root } => self.activated(seen.cpu, *root, report),
            Event::Retired { range, how } => self.retired(*range, *how, report),
            Event::Used { entry, pa, access, .. } if self.is_lazy(entry.va) => {
                let va = entry.va;
                report(format!(
                    "{access:?} at {va:?}, which is unmapped and not purged yet, at {pa:?}"
                ));
            }
            Event::Used { entry, pa, access, .. } if self.is_free(pa.frame()) => {
                let (va, frame) = (entry.va, pa.frame());
                report(format!("{access:?} through a translation of {va:?} to free {frame:?}"));
            }
            Event::Walked { va, level, word } if self.is_free(word.frame()) => {
                let frame = word.frame();
                report(format!("a walk for {va:?} reads level {level} in the free {frame:?}"));
            }
            _ => {}
        }
        self.words.event(seen.cpu, seen.memory, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::X86Levels;
    use crate::rng::Rng;

    #[test]
    fn what_names_a_frame_is_what_covers_it() {
        let mut rng = Rng::new(3, 0);
        let mut checker = NoStaleTranslation::new(Format::X86_64(X86Levels::Four));
        for _ in 0..300 {
            let level = rng.below(3) as u8;
            let is_pointer = rng.below(4) == 0;
            let is_group = level < 2 && !is_pointer && rng.below(2) == 0;
            let pages = 1 << (9 * u64::from(level) + 4 * u64::from(is_group));
            checker.cached.insert(Key {
                frame: rng.below((1 << 20) / pages) * pages,
                level: level | u8::from(is_pointer) << 7 | u8::from(is_group) << 6,
                cpu: rng.below(2) as u16,
                tag: (rng.below(2) == 0).then_some(Pa::new(0)),
                va: Va::new(rng.below(2) * 0x1000),
            });
        }
        let last = |key: &Key| match key.level {
            0x80.. => key.frame,
            0x40 => key.frame + 15,
            0x41 => key.frame + 16 * 512 - 1,
            level => key.frame + (1 << (9 * u64::from(level))) - 1,
        };
        for _ in 0..2000 {
            // The ranges lie around the ends of what is cached, where being off by one shows.
            let all = checker.cached.len() as u64;
            let near = checker.cached.iter().nth(rng.below(all) as usize).expect("one of them");
            let end = if rng.below(2) == 0 { near.frame } else { last(near) + 1 };
            let start = (end + rng.below(3)).saturating_sub(1);
            let end = start + 1 + rng.below(2) * rng.below(600);
            let found: BTreeSet<Key> = checker.cached_over(start, end).copied().collect();
            let covers = |key: &&Key| key.frame < end && last(key) >= start;
            let naive: BTreeSet<Key> = checker.cached.iter().filter(covers).copied().collect();
            assert_eq!(found, naive, "frames {start} to {end}");
        }
    }
}
