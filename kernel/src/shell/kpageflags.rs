//! What each frame is, as `/proc/kpageflags` says it, frames that are alike in one line.
//!
//! Unlike there, a huge page has one head and 511 tails (or 262,143) in every state, folded or not.

use super::Shell;
use super::words::{Complaint, Words, count};
use crate::memory::manager;
use crate::say;
use foliant::frame::{Flag, Identity, Kind};
use foliant_units::{Frame, FrameRange, Pages};

/// Frames side by side that are alike.
#[derive(Clone, Copy)]
struct Run {
    first: Frame,
    len: u64,
    is: Identity,
}

impl Run {
    fn say(&self) {
        let flags = match self.is.kind() {
            Kind::Plain => "plain",
            Kind::Space => "space",
            Kind::Anon => "anon,compound_head",
            Kind::Tail => "compound_tail",
            Kind::Huge => "compound_head,huge",
            Kind::HugeTail => "compound_tail,huge",
            Kind::Kernel => "vmalloc",
        };
        let broken = if self.is.has(Flag::Poisoned) { ",hwpoison" } else { "" };
        say!("{:<10} {:>8} {flags}{broken}", self.first.get(), self.len);
    }
}

fn list(range: FrameRange) {
    let mut run: Option<Run> = None;
    for frame in range.iter() {
        let is = manager().identity(frame);
        match &mut run {
            // Two heads side by side are two pages.
            Some(run) if run.is == is && !matches!(is.kind(), Kind::Anon | Kind::Huge) => {
                run.len += 1;
            }
            other => {
                if let Some(done) = other.replace(Run { first: frame, len: 1, is }) {
                    done.say();
                }
            }
        }
    }
    if let Some(last) = run {
        last.say();
    }
}

/// `kpageflags [FRAME COUNT]`.
pub(super) fn kpageflags<'w>(_: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let Some(first) = words.next() else {
        manager().ranges().for_each(list);
        return Ok(());
    };
    let most = words.need("COUNT")?;
    let (first, pages) = (count(first)?, count(most)?);
    words.end()?;
    let asked = FrameRange::new(Frame::new(first), Pages::new(pages));
    let asked = asked.ok_or(Complaint::Count(most))?;
    for range in manager().ranges() {
        let start = range.start().max(asked.start());
        let end = range.end().min(asked.end());
        if start < end {
            let pages = Pages::new(end.get() - start.get());
            FrameRange::new(start, pages).into_iter().for_each(list);
        }
    }
    Ok(())
}
