//! When frames are given up nothing may name them any more, and what names them anyway is not used.
//!
//! Asked when frames become `Free`, or `Claimed` again after they had an owner: no CPU has a
//! translation or a table pointer cached that names them; when they become `Free`, no page-table word
//! that a running root reaches names them either, and none of them is such a root. And at any time: no access goes to a free frame, and
//! no walk reads one.

use super::spans::Spans;
use super::words::Words;
use super::{Checker, Event, Report, Seen};
use crate::cache::Cached;
use crate::config::Format;
use foliant_machine::Owner;
use foliant_units::{Cpu, FRAME_BYTES, FRAME_SHIFT, Frame, FrameRange, Va};
use std::collections::BTreeSet;

/// Frame, level (bit 7: a table pointer), CPU, address.
type Key = (u64, u8, u16, u64);

#[derive(Debug)]
pub(super) struct NoStaleTranslation {
    owners: Spans<Owner>,
    cached: BTreeSet<Key>,
    words: Words,
}

fn key(cpu: Cpu, entry: &Cached) -> Key {
    let kind = entry.level | u8::from(entry.table) << 7;
    (entry.base.frame().get(), kind, cpu.0, entry.va.get())
}

impl NoStaleTranslation {
    pub(super) fn new(format: Format) -> NoStaleTranslation {
        let owners = Spans::new(Owner::Reserved);
        NoStaleTranslation { owners, cached: BTreeSet::new(), words: Words::new(format) }
    }

    fn is_free(&self, frame: Frame) -> bool {
        self.owners.get(frame.get()) == Owner::Free
    }

    fn cached_over(&self, start: u64, end: u64) -> Option<Key> {
        let heads = [start & !0x1ff, start & !0x3_ffff].into_iter().filter(|head| *head < start);
        let above = heads.flat_map(|head| {
            self.cached.range((head, 0, 0, 0)..(head + 1, 0, 0, 0)).filter(move |key| {
                key.1 & 0x80 == 0 && key.0 + (1 << (9 * u32::from(key.1))) > start
            })
        });
        above.chain(self.cached.range((start, 0, 0, 0)..(end, 0, 0, 0))).next().copied()
    }

    fn given_up(&self, seen: &Seen<'_>, frames: FrameRange, new: Owner, report: &mut Report<'_>) {
        for piece in self.owners.pieces(frames.start().get(), frames.end().get()) {
            let had_owner = matches!(piece.value, Owner::User | Owner::Table | Owner::Records);
            if new != Owner::Free && !had_owner {
                continue;
            }
            if let Some((frame, kind, cpu, va)) = self.cached_over(piece.start, piece.end) {
                let what = if kind & 0x80 == 0 { "translation" } else { "table pointer" };
                let (frame, va) = (Frame::new(frame), Va::new(va));
                let level = kind & 0x7f;
                report(format!(
                    "{frames:?} becomes {new:?}, but cpu {cpu} has a {what} of level {level} for \
                     {va:?} to {frame:?}"
                ));
            }
            if new == Owner::Free
                && let Some((cpu, root)) = self.words.running(piece.start, piece.end)
            {
                report(format!(
                    "{frames:?} becomes free, but cpu {} runs the root {root:?}",
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

    fn event(&mut self, seen: &Seen<'_>, event: &Event, report: &mut Report<'_>) {
        match event {
            Event::Owned { frames, owner } => {
                if matches!(owner, Owner::Free | Owner::Claimed) {
                    self.given_up(seen, *frames, *owner, report);
                }
                self.owners.set(frames.start().get(), frames.end().get(), *owner);
            }
            Event::Filled { entry } => {
                self.cached.insert(key(seen.cpu, entry));
                let start = entry.base.get() >> FRAME_SHIFT;
                let frames = if entry.table { 1 } else { entry.bytes() / FRAME_BYTES };
                let pieces = self.owners.pieces(start, start + frames);
                if let Some(piece) = pieces.iter().find(|piece| piece.value == Owner::Free) {
                    let (frame, va) = (Frame::new(piece.start), entry.va);
                    report(format!("a translation of {va:?} to the free {frame:?} is cached"));
                }
            }
            Event::Dropped { entry } => {
                self.cached.remove(&key(seen.cpu, entry));
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
