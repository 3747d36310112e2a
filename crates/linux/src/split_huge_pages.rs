//! `/sys/kernel/debug/split_huge_pages`: what is written there is split.
//!
//! ```text
//!   1                                                   all folios
//!   pid,0xstart,0xend[,order[,offset in the folio]]     those that a process maps from start to end
//!   /path,0xfirst,0xend[,order]                         those of pages of a file
//! ```
//!
//! A folio that is not split is no error, as on Linux. A part that cannot be read ends the line:
//! what stands before it counts.
//!
//! **Not here**: the lookup of a process, and of a file by its path.

use crate::errno::Errno;
use crate::file::MemoryFile;
use crate::pages::{PAGE, range};
use crate::process::Process;
use alloc::vec::Vec;
use foliant::frame::Kind;
use foliant::split::{SplitInto, ZeroPieces};
use foliant::table::{Attrs, Entry, Paging};
use foliant::{Access, Manager};
use foliant_machine::Machine;
use foliant_units::{Frame, Order, Pages, VaRange};
use linux_raw_sys::errno;

/// The number that stands for all folios.
const ALL: i32 = 1;
/// So many bytes of a line count.
const LONGEST: usize = 254;

/// A line that is read from its beginning, a part at a time.
struct Line<'t>(&'t str);

impl Line<'_> {
    /// The number that stands next, in digits of this radix.
    fn number(&mut self, radix: u32) -> Option<u64> {
        let text = self.0.trim_start();
        let digits = text.find(|c: char| !c.is_digit(radix)).unwrap_or(text.len());
        let number = u64::from_str_radix(&text[..digits], radix).ok()?;
        self.0 = &text[digits..];
        Some(number)
    }
    fn signed(&mut self) -> Option<i64> {
        let text = self.0.trim_start();
        let is_negative = text.starts_with('-');
        let mut rest = Line(text.strip_prefix('-').unwrap_or(text));
        // A sign and its number are one.
        let size = rest.0.starts_with(|c: char| c.is_ascii_digit()).then(|| rest.number(10))??;
        let size = i64::try_from(size).ok()?;
        *self = Line(&text[text.len() - rest.0.len()..]);
        Some(if is_negative { -size } else { size })
    }
    /// Goes on behind `word`, if that stands next.
    fn word(&mut self, word: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(word)?;
        Some(())
    }
}

/// What a line asks for.
enum Asked {
    All,
    Of { pid: i32, start: u64, end: u64, order: Option<Order> },
}

impl Asked {
    fn parse(text: &str) -> Result<Asked, Errno> {
        let longest = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end));
        let mut line = Line(text.get(..longest.unwrap_or(0)).unwrap_or(text));
        let pid = line.signed().ok_or(Errno::INVAL)? as i32;
        let start = line.word(",0x").and_then(|()| line.number(16));
        let end = start.and_then(|_| line.word(",0x")).and_then(|()| line.number(16));
        match (start, end) {
            (Some(start), Some(end)) => {
                let order = line.word(",").and_then(|()| line.signed());
                // What is no order is as large as can be, and splits nothing.
                let order = u8::try_from(order.unwrap_or(0)).ok().and_then(Order::new);
                Ok(Asked::Of { pid, start, end, order })
            }
            (None, _) if pid == ALL => Ok(Asked::All),
            _ => Err(Errno::INVAL),
        }
    }
}

/// Takes what is written to the file. `process_of` knows processes by their numbers.
pub fn split_huge_pages<'p, 'a: 'p, 'm: 'a, M: Machine, P: Paging>(
    mm: &Manager<'m, M, P>,
    text: &str,
    process_of: impl FnOnce(i32) -> Option<&'p Process<'a, 'm, M, P>>,
) -> Result<(), Errno> {
    match Asked::parse(text)? {
        Asked::All => split_all(mm),
        Asked::Of { pid, start, end, order } => {
            let process = process_of(pid).ok_or(Errno(errno::ESRCH))?;
            if let Some(order) = order {
                process.split(start, end, order);
            }
        }
    }
    Ok(())
}

/// Takes what is written to the file where it begins with a path. `file_of` knows files by theirs.
pub fn split_huge_pages_of_file<'a, 'm: 'a, M: Machine + 'm, P: Paging + 'a>(
    text: &str,
    file_of: impl FnOnce(&str) -> Option<MemoryFile<'a, 'm, M, P>>,
) -> Result<(), Errno> {
    let (path, rest) = text.split_once(',').ok_or(Errno::INVAL)?;
    let mut line = Line(rest);
    let start = line.word("0x").and_then(|()| line.number(16)).ok_or(Errno::INVAL)?;
    let end = line.word(",0x").and_then(|()| line.number(16)).ok_or(Errno::INVAL)?;
    let order = line.word(",").and_then(|()| line.signed()).unwrap_or(0);
    let file = file_of(path).ok_or(Errno::INVAL)?;
    if let Some(order) = u8::try_from(order).ok().and_then(Order::new) {
        file.split(start, end.min(file.bytes().div_ceil(PAGE)), order);
    }
    Ok(())
}

impl<M: Machine, P: Paging> MemoryFile<'_, '_, M, P> {
    /// Splits what is larger than `order` of these pages.
    fn split(&self, start: u64, end: u64, order: Order) {
        for page in start..end {
            // Nobody holds the page while its folio is split.
            let found = self.page(page, Access::Read).ok().flatten().map(|page| page.frame());
            let found = found.and_then(|frame| folio(self.manager(), frame));
            if let Some((head, _)) = found.filter(|(_, size)| *size > order) {
                split_one(self.manager(), head, order);
            }
        }
    }
}

/// The head and the size of the folio of a program that holds a frame, if one does.
fn folio<M: Machine, P: Paging>(mm: &Manager<'_, M, P>, frame: Frame) -> Option<(Frame, Order)> {
    let identity = mm.identity(frame);
    let is_folio = matches!(identity.kind(), Kind::Anon | Kind::Tail);
    is_folio.then(|| (identity.head(frame), identity.order()))
}
/// Splits a folio, unless it is in use by other ways than entries. Of what becomes single pages the
/// shared zero page takes the place of zeros, as on Linux since 6.12.
fn split_one<M: Machine, P: Paging>(mm: &Manager<'_, M, P>, head: Frame, order: Order) {
    let zeros = if order == Order::BASE { ZeroPieces::Share } else { ZeroPieces::Keep };
    let _ = mm.split_frame(head, SplitInto { order, zeros });
}

fn split_all<M: Machine, P: Paging>(mm: &Manager<'_, M, P>) {
    for range in mm.ranges() {
        let mut at = range.start();
        while at < range.end() {
            at = match folio(mm, at) {
                Some((head, order)) if order > Order::BASE => {
                    split_one(mm, head, Order::BASE);
                    head.add(order.pages())
                }
                _ => at.add(Pages::new(1)),
            };
        }
    }
}

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Splits what is larger than `order` at these addresses. A hole ends it, as on Linux.
    fn split(&self, start: u64, end: u64, order: Order) {
        let (mut at, end) = (start & !(PAGE - 1), end & !(PAGE - 1));
        while at < end
            && let Some(vma) = self.vma(at)
        {
            let part = range(at, vma.end().min(end));
            if !vma.is_huge() {
                self.split_part(part, order);
            }
            at = part.end().get();
        }
    }
    fn split_part(&self, part: VaRange, order: Order) {
        let mut heads = Vec::new();
        self.mm.with_leaves(self.space, part, |leaves| {
            for found in leaves {
                let Entry::Leaf { pa, attrs } = found.entry else { continue };
                let found = folio(self.mm, pa.frame()).filter(|_| !attrs.has(Attrs::SPECIAL));
                if let Some((head, _)) = found.filter(|(_, size)| *size > order)
                    && heads.last() != Some(&head)
                {
                    heads.push(head);
                }
            }
        });
        heads.into_iter().for_each(|head| split_one(self.mm, head, order));
    }
}
