//! What frames are, in the words of `/proc/kpageflags`: frames side by side that are alike in one
//! line, with the folios that begin in it and their size.

use super::words::{Complaint, Words, count};
use super::{Shell, go_on};
use crate::memory::manager;
use crate::{say, serial};
use foliant::frame::{Flag, Identity, Kind};
use foliant_units::{Frame, FrameRange, Order, Pages};

/// Frames side by side that are alike: free or in other use, folios of one size, pages of one
/// space's record. Folios need not be one after the other in any program.
#[derive(Clone, Copy)]
struct Run {
    first: Frame,
    frames: u64,
    /// Folios that begin in it.
    folios: u64,
    is: Identity,
}

/// What frames of a run have in common: heads and tails are of one kind.
fn common(is: Identity) -> (Kind, Identity) {
    let kind = match is.kind() {
        Kind::Tail => Kind::Anon,
        Kind::HugeTail => Kind::Huge,
        kind => kind,
    };
    let of = match kind {
        Kind::Anon | Kind::Huge if is.has(Flag::Poisoned) => {
            Identity::new(kind, is.order()).with(Flag::Poisoned)
        }
        Kind::Anon | Kind::Huge => Identity::new(kind, is.order()),
        _ => is,
    };
    (kind, of)
}

impl Run {
    /// Takes the next frame in, if it is alike.
    fn take(&mut self, is: Identity) -> bool {
        let alike = common(self.is) == common(is);
        if alike {
            self.frames += 1;
            self.folios += u64::from(is_head(is));
        }
        alike
    }

    fn say(&self) {
        let (kind, is) = common(self.is);
        let flags = match kind {
            Kind::Plain => "plain",
            Kind::Space => "space",
            Kind::Anon if is.order() == Order::BASE => "anon",
            Kind::Anon => "anon,thp",
            Kind::Huge => "huge",
            Kind::Kernel => "vmalloc",
            Kind::Tail | Kind::HugeTail => unreachable!("it is said of its head's kind"),
        };
        let broken = if is.has(Flag::Poisoned) { ",hwpoison" } else { "" };
        serial::print(format_args!("{:<10} {:>8} {flags}{broken}", self.first.get(), self.frames));
        if matches!(kind, Kind::Anon | Kind::Huge) {
            serial::print(format_args!(" {} of {}", self.folios, is.order().bytes()));
        }
        say!("");
    }
}

fn is_head(is: Identity) -> bool {
    matches!(is.kind(), Kind::Anon | Kind::Huge)
}

/// Frames that are looked at between two looks at the keyboard.
const PIECE: u64 = 4096;

fn list<'w>(range: FrameRange) -> Result<(), Complaint<'w>> {
    let mut run: Option<Run> = None;
    for frame in range.iter() {
        if frame.get().is_multiple_of(PIECE) {
            go_on()?;
        }
        let is = manager().identity(frame);
        if !run.as_mut().is_some_and(|run| run.take(is)) {
            let next = Run { first: frame, frames: 1, folios: is_head(is).into(), is };
            if let Some(done) = run.replace(next) {
                done.say();
            }
        }
    }
    if let Some(last) = run {
        last.say();
    }
    Ok(())
}

/// `kpageflags [FRAME COUNT]`.
pub(super) fn kpageflags<'w>(_: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let Some(first) = words.next() else {
        return manager().ranges().try_for_each(list);
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
            FrameRange::new(start, pages).into_iter().try_for_each(list)?;
        }
    }
    Ok(())
}
