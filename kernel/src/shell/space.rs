//! Areas of the address space that commands work on.

use super::spent::Spent;
use super::words::{Complaint, Words, address, size};
use super::{Shell, go_on};
use crate::memory::manager;
use crate::say;
use foliant::space::{Area, Flags, MapRequest, Place, SpaceId};
use foliant::table::{Attrs, Entry};
use foliant_units::{Bytes, FRAME_BYTES, Order, Va, VaRange};

/// How much of an area.
#[derive(Clone, Copy)]
pub(super) enum Much {
    /// To the end of the area; where there is no area, one page.
    Unsaid,
    /// To the end of the area.
    All,
    /// So much of it, or of what is not mapped.
    Bytes(Bytes),
}

const PAGE: Bytes = Bytes::new(FRAME_BYTES);

/// Where the first area goes.
const FIRST: Va = Va::new(0x4000_0000);

impl Shell {
    /// The areas, lowest first.
    pub(super) fn areas(&self) -> impl Iterator<Item = Area> + '_ {
        let mut from = Va::new(0);
        core::iter::from_fn(move || {
            let area = manager().area_at_or_after(self.space(), from)?;
            from = area.range.end();
            Some(area)
        })
    }

    /// What a word for an address stands for.
    pub(super) fn place<'w>(&self, word: &'w str) -> Result<Va, Complaint<'w>> {
        match word {
            "last" => self.last.map(|range| range.start()).ok_or(Complaint::NoLast),
            word => address(word),
        }
    }

    pub(super) fn area<'w>(&self, va: Va) -> Result<Area, Complaint<'w>> {
        manager().area(self.space(), va).ok_or(Complaint::NoArea(va))
    }

    /// The space that commands work on.
    pub(super) fn space(&self) -> SpaceId {
        self.spaces.current()
    }

    /// The whole pages that hold so much from `start` on.
    pub(super) fn range<'w>(&self, start: Va, much: Much) -> Result<VaRange, Complaint<'w>> {
        let bytes = match (much, self.area(start)) {
            (Much::Bytes(bytes), _) => bytes,
            (_, Ok(area)) => Bytes::new(area.range.end().offset_from(start)),
            (Much::All, Err(none)) => return Err(none),
            (Much::Unsaid, Err(_)) => PAGE,
        };
        let beyond = Complaint::Beyond(start, bytes);
        let end =
            start.checked_add(bytes.get()).and_then(|end| end.align_up(PAGE)).ok_or(beyond)?;
        VaRange::new(start.align_down(PAGE), end).ok_or(beyond)
    }

    /// Bytes present in a range: by leaves of every level, and of those by leaves of 2 MiB. The
    /// zero page does not count.
    pub(super) fn present(&self, range: VaRange) -> (Bytes, Bytes) {
        let sums = manager().with_leaves(self.space(), range, |leaves| {
            let (mut all, mut size_2m) = (0, 0);
            for leaf in leaves {
                let Entry::Leaf { attrs, .. } = leaf.entry else { continue };
                let Some(span) = VaRange::sized(leaf.va, leaf.level.span()) else { continue };
                if !attrs.has(Attrs::SPECIAL) {
                    let inside = range.intersect(span).bytes().get();
                    all += inside;
                    size_2m += if span.bytes() == Order::SIZE_2M.bytes() { inside } else { 0 };
                }
            }
            (Bytes::new(all), Bytes::new(size_2m))
        });
        sums.unwrap_or_default()
    }
}

/// `map`: behind the highest area, where the largest folios fit.
pub(super) fn map<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let bytes = size(words.need("SIZE")?)?;
    let wish = match words.next() {
        None => Flags::NONE,
        Some("hugepage") => Flags::HUGEPAGE,
        Some("nohugepage") => Flags::NOHUGEPAGE,
        Some(other) => return Err(Complaint::Unknown(other, "hugepage, nohugepage")),
    };
    words.end()?;
    let end =
        shell.areas().last().and_then(|area| area.range.end().align_up(Order::SIZE_2M.bytes()));
    let place = Place::Hint(end.unwrap_or(FIRST).max(FIRST));
    let request = MapRequest { place, bytes, flags: Flags::READ_WRITE.with(wish), tag: shell.made };
    let range = manager().map(shell.space(), &request)?;
    shell.made += 1;
    shell.last = Some(range);
    line(&shell.area(range.start())?);
    Ok(())
}

/// `unmap`.
pub(super) fn unmap<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let va = shell.place(words.need("ADDRESS")?)?;
    words.end()?;
    let area = shell.area(va)?;
    let spent = Spent::begin();
    manager().unmap(shell.space(), area.range)?;
    if shell.last.is_some_and(|last| last.start() == area.range.start()) {
        shell.last = shell.areas().last().map(|area| area.range);
    }
    say!("{} unmapped{spent}", area.range.bytes());
    Ok(())
}

/// The columns of `/proc/PID/maps`.
pub(super) fn line(area: &Area) {
    let letter = |right, letter| if area.flags.has(right) { letter } else { '-' };
    say!(
        "{:08x}-{:08x} {}{}{}p 00000000 00:00 0",
        area.range.start().get(),
        area.range.end().get(),
        letter(Flags::READ, 'r'),
        letter(Flags::WRITE, 'w'),
        letter(Flags::EXEC, 'x')
    );
}

/// `maps`.
pub(super) fn maps<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    words.end()?;
    shell.areas().for_each(|area| line(&area));
    Ok(())
}

/// `smaps`.
pub(super) fn smaps<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    words.end()?;
    for area in shell.areas() {
        go_on()?;
        line(&area);
        let (all, size_2m) = shell.present(area.range);
        for (name, bytes) in [
            ("Size:", area.range.bytes()),
            ("KernelPageSize:", Bytes::new(FRAME_BYTES)),
            ("Rss:", all),
            ("AnonHugePages:", size_2m),
        ] {
            say!("{name:<16}{:>8} kB", bytes.get() >> 10);
        }
        let flag = |flag, text| if area.flags.has(flag) { text } else { "" };
        say!(
            "VmFlags:{}{}{}{}{}",
            flag(Flags::READ, " rd"),
            flag(Flags::WRITE, " wr"),
            flag(Flags::EXEC, " ex"),
            flag(Flags::HUGEPAGE, " hg"),
            flag(Flags::NOHUGEPAGE, " nh")
        );
    }
    Ok(())
}
