//! `/proc/PID/maps`, `/proc/PID/smaps` and `/proc/PID/numa_maps`: a process's areas, as text.
//!
//! ```text
//!   7f3572400000-7f3572402000 rw-p 00000000 00:00 0                          [stack]
//!   start        end          rights offset device inode                     name, from column 73 on
//! ```
//!
//! A file's device is that of the memory that has no mount, as in Linux.

use crate::mempolicy::Mempolicy;
use crate::pages::POOLED;
use crate::process::Process;
use crate::rows;
use crate::vma::{Marks, Vma};
use alloc::vec::Vec;
use core::fmt::{self, Write};
use foliant::fault::Orders;
use foliant::manager::Entries;
use foliant::space::Flags;
use foliant::table::{Attrs, Entry, Found, Paging};
use foliant_machine::Machine;
use foliant_units::{Frame, Level, Order};
use linux_raw_sys::general::{PROT_EXEC, PROT_READ, PROT_WRITE};

/// Where a name begins.
const NAME_COLUMN: usize = 73;

/// What an area without a file is for.
enum Purpose {
    Heap,
    Stack,
}

/// Where the vma ends that a row is about; none where there was none.
type Row = Result<Option<u64>, fmt::Error>;

/// Writes all rows.
fn each(mut row: impl FnMut(u64) -> Row) -> fmt::Result {
    let mut from = 0;
    while let Some(end) = row(from)? {
        from = end;
    }
    Ok(())
}

/// What is present of a vma, in kilobytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Present {
    pub(crate) all: u64,
    pub(crate) of_file: u64,
    private: u64,
    private_dirty: u64,
    shared_dirty: u64,
    referenced: u64,
    /// By large leaves.
    huge: u64,
    /// Of these, what is a file's.
    pub(crate) huge_of_file: u64,
}

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Writes `/proc/PID/maps`.
    pub fn maps(&self, out: &mut impl Write) -> fmt::Result {
        each(|from| self.maps_row(from, out))
    }
    /// Writes of `/proc/PID/maps` what is about the first vma that ends behind `from`, and says
    /// where it ends. Linux shows a file as far as it is read, and so can an embedder: the next row
    /// is asked for with that end.
    pub fn maps_row(&self, from: u64, out: &mut impl Write) -> Row {
        let Some(vma) = self.vma_at_or_after(from) else { return Ok(None) };
        self.maps_line(&vma, out)?;
        Ok(Some(vma.end()))
    }
    fn maps_line(&self, vma: &Vma, out: &mut impl Write) -> fmt::Result {
        let prot = vma.prot();
        let letter = |bit, letter| if prot & bit != 0 { letter } else { '-' };
        let (r, w, x) = (letter(PROT_READ, 'r'), letter(PROT_WRITE, 'w'), letter(PROT_EXEC, 'x'));
        let s = if vma.is_shared() { 's' } else { 'p' };
        let mut line = Counted { out, columns: 0 };
        write!(line, "{:08x}-{:08x} {r}{w}{x}{s} ", vma.start(), vma.end())?;
        match self.view(vma) {
            None => write!(line, "00000000 00:00 0 ")?,
            Some(view) => {
                write!(line, "{:08x} 00:01 {} ", view.offset(vma.start()), view.file.inode())?;
            }
        }
        if let Some(name) = self.name(vma) {
            let spaces = NAME_COLUMN.saturating_sub(line.columns);
            rows::spaces(&mut line, spaces)?;
            line.write_str(name)?;
        }
        line.write_char('\n')
    }
    fn name(&self, vma: &Vma) -> Option<&str> {
        self.file_name(vma).or_else(|| match self.purpose(vma)? {
            Purpose::Heap => Some("[heap]"),
            Purpose::Stack => Some("[stack]"),
        })
    }
    /// The name of the file that a vma has, to Linux.
    fn file_name(&self, vma: &Vma) -> Option<&str> {
        let view = self.view(vma).map(|view| view.file.name());
        view.or(vma.is_huge().then_some(POOLED))
    }
    fn purpose(&self, vma: &Vma) -> Option<Purpose> {
        let (heap, stack) = (self.layout.heap.get(), self.layout.stack.get());
        if vma.start() < self.heap_end && vma.end() > heap {
            return Some(Purpose::Heap);
        }
        (vma.start() <= stack && vma.end() >= stack).then_some(Purpose::Stack)
    }

    /// Writes a part of `/proc/PID/numa_maps`, as [`maps_row`](Process::maps_row) does of the
    /// other. What has no policy is shown with that of the process's first thread.
    pub fn numa_maps_row(
        &self,
        from: u64,
        of_thread: Option<&Mempolicy>,
        out: &mut impl Write,
    ) -> Row {
        let Some(vma) = self.vma_at_or_after(from) else { return Ok(None) };
        write!(out, "{:08x} ", vma.start())?;
        match self.policy(&vma).or(of_thread) {
            Some(policy) => write!(out, "{policy}")?,
            None => out.write_str("default")?,
        }
        match (self.file_name(&vma), self.purpose(&vma)) {
            (Some(name), _) => {
                out.write_str(" file=")?;
                name.chars().try_for_each(|c| match c {
                    ' ' | '\t' | '\n' | '=' => write!(out, "\\{:03o}", u32::from(c)),
                    c => out.write_char(c),
                })?;
            }
            (None, Some(Purpose::Heap)) => out.write_str(" heap")?,
            (None, Some(Purpose::Stack)) => out.write_str(" stack")?,
            (None, None) => {}
        }
        if vma.is_huge() {
            out.write_str(" huge")?;
        }
        let present = self.present(&vma);
        // Those of a pool count one by one.
        let unit = vma.page_bytes() >> 10;
        let [pages, anonymous, dirty] = [
            present.all,
            present.all - present.of_file,
            present.private_dirty + present.shared_dirty,
        ]
        .map(|kilobytes| kilobytes / unit);
        if pages > 0 {
            let mapped = if pages == anonymous || pages == dirty { 0 } else { pages };
            for (name, count) in
                [("anon", anonymous), ("dirty", dirty), ("mapped", mapped), ("N0", pages)]
            {
                if count > 0 {
                    write!(out, " {name}={count}")?;
                }
            }
            write!(out, " kernelpagesize_kB={unit}")?;
        }
        out.write_char('\n')?;
        Ok(Some(vma.end()))
    }

    /// Writes `/proc/PID/smaps`. A page that is not exclusively the process's counts as shared by
    /// two, because how many have it the manager does not say.
    pub fn smaps(&self, out: &mut impl Write) -> fmt::Result {
        each(|from| self.smaps_row(from, out))
    }
    /// Writes a part of `/proc/PID/smaps`, as [`maps_row`](Process::maps_row) does of the other.
    pub fn smaps_row(&self, from: u64, out: &mut impl Write) -> Row {
        let Some(vma) = self.vma_at_or_after(from) else { return Ok(None) };
        self.smaps_part(&vma, out)?;
        Ok(Some(vma.end()))
    }
    fn smaps_part(&self, vma: &Vma, out: &mut impl Write) -> fmt::Result {
        self.maps_line(vma, out)?;
        let present = self.present(vma);
        let shared = present.all - present.private;
        let pss = present.private + shared / 2;
        let dirty = present.private_dirty + present.shared_dirty;
        let huge = if vma.is_huge() { present.all } else { 0 };
        let locked = if vma.tag.marks.has(Marks::LOCKED) { pss } else { 0 };
        let small = |kilobytes| if vma.is_huge() { 0 } else { kilobytes };
        for (name, kilobytes) in [
            ("Size:", vma.range.bytes().get() >> 10),
            ("KernelPageSize:", vma.page_bytes() >> 10),
            ("MMUPageSize:", vma.page_bytes() >> 10),
            ("Rss:", small(present.all)),
            ("Pss:", small(pss)),
            ("Pss_Dirty:", small(present.private_dirty + present.shared_dirty / 2).min(dirty)),
            ("Shared_Clean:", small(shared - present.shared_dirty)),
            ("Shared_Dirty:", small(present.shared_dirty)),
            ("Private_Clean:", small(present.private - present.private_dirty)),
            ("Private_Dirty:", small(present.private_dirty)),
            ("Referenced:", small(present.referenced)),
            ("Anonymous:", small(present.all - present.of_file)),
            ("KSM:", 0),
            ("LazyFree:", 0),
            ("AnonHugePages:", small(present.huge - present.huge_of_file)),
            ("ShmemPmdMapped:", small(present.huge_of_file)),
            ("FilePmdMapped:", 0),
            ("Shared_Hugetlb:", if huge > 0 { shared } else { 0 }),
            ("Private_Hugetlb:", if huge > 0 { present.private } else { 0 }),
            ("Swap:", 0),
            ("SwapPss:", 0),
            ("Locked:", small(locked)),
        ] {
            rows::kilobytes(out, name, kilobytes)?;
        }
        writeln!(out, "{:16}{:8}", "THPeligible:", u8::from(self.is_eligible(vma)))?;
        self.flags(vma, out)
    }

    /// What of a vma is there.
    pub(crate) fn present(&self, vma: &Vma) -> Present {
        let mut present = Present::default();
        self.mm.with_leaves(self.space, vma.range, |leaves| {
            for found in leaves {
                let Entry::Leaf { pa, attrs } = found.entry else { continue };
                if !attrs.has(Attrs::SPECIAL) {
                    let from = found.va.get().max(vma.start());
                    let to = (found.va.get() + found.level.span().get()).min(vma.end());
                    // What shows a page of a file says of itself that it is exclusive.
                    let is_files = self.is_files(vma, found.va.get(), pa.frame());
                    let attrs = if is_files { attrs.without(Attrs::EXCLUSIVE) } else { attrs };
                    let kilobytes = (to - from) >> 10;
                    present.add(kilobytes, found.level, attrs);
                    let of_file = if is_files { kilobytes } else { 0 };
                    present.of_file += of_file;
                    present.huge_of_file += if found.level > Level::BASE { of_file } else { 0 };
                }
            }
        });
        present
    }
    /// Where folios of files are that large leaves of a vma map.
    pub(crate) fn large_of_file(&self, vma: &Vma) -> Vec<Frame> {
        let large = |found: Found| match found.entry {
            Entry::Leaf { pa, .. } if found.level > Level::BASE => {
                let frame = pa.frame();
                self.is_files(vma, found.va.get(), frame).then_some(frame)
            }
            _ => None,
        };
        let found = |leaves: Entries<'_, '_, M, P>| leaves.filter_map(large).collect();
        self.mm.with_leaves(self.space, vma.range, found).unwrap_or_default()
    }
    /// The line of flags, in the order of Linux's bits.
    fn flags(&self, vma: &Vma, out: &mut impl Write) -> fmt::Result {
        let (prot, marks) = (vma.prot(), vma.tag.marks);
        let may = vma.flags.ceiling();
        let is_huge = vma.is_huge();
        let is_shared = vma.is_shared();
        // What was opened to be read alone is shared in name.
        let is_open = |may: Flags| self.view(vma).is_none_or(|view| view.file.rights().has(may));
        out.write_str("VmFlags: ")?;
        for (is_set, name) in [
            (prot & PROT_READ != 0, "rd"),
            (prot & PROT_WRITE != 0, "wr"),
            (prot & PROT_EXEC != 0, "ex"),
            (is_shared && is_open(Flags::WRITE), "sh"),
            (may.has(Flags::READ), "mr"),
            (may.has(Flags::WRITE), "mw"),
            (may.has(Flags::EXEC), "me"),
            (is_shared, "ms"),
            (marks.has(Marks::GROWS_DOWN), "gd"),
            (vma.flags.has(Flags::USERFAULT), "um"),
            (vma.flags.has(Flags::USERFAULT_WRITE), "uw"),
            (marks.has(Marks::LOCKED), "lo"),
            (marks.has(Marks::SEQUENTIAL), "sr"),
            (marks.has(Marks::RANDOM), "rr"),
            (marks.has(Marks::DONT_FORK), "dc"),
            (is_huge, "de"),
            (marks.has(Marks::ON_FAULT), "lf"),
            (marks.has(Marks::ACCOUNTED), "ac"),
            (marks.has(Marks::NO_RESERVE), "nr"),
            (is_huge, "ht"),
            (marks.has(Marks::WIPE_ON_FORK), "wf"),
            (marks.has(Marks::DONT_DUMP), "dd"),
            (!marks.has(Marks::CLEAN), "sd"),
            (vma.flags.has(Flags::HUGEPAGE), "hg"),
            (vma.flags.has(Flags::NOHUGEPAGE), "nh"),
            (marks.has(Marks::DROPPABLE), "dp"),
            (vma.flags.has(Flags::USERFAULT_PRESENT), "ui"),
            (marks.has(Marks::SEALED), "sl"),
        ] {
            if is_set {
                out.write_str(name)?;
                out.write_char(' ')?;
            }
        }
        out.write_char('\n')
    }
    /// Whether a fault there may get a large folio.
    fn is_eligible(&self, vma: &Vma) -> bool {
        let policy = self.mm.policy();
        let orders = policy.allowed(vma.flags, self.switches.folios);
        let orders: Orders = orders.with(policy.choice(vma.flags, self.switches.folios));
        let fits = |order: Order| {
            let bytes = order.bytes().get();
            let last = vma.end().checked_sub(bytes).map(|at| at & !(bytes - 1));
            last.is_some_and(|at| at >= vma.start())
        };
        !vma.is_huge() && !vma.is_of_file() && orders.largest_first().any(fits)
    }
}

impl Present {
    fn add(&mut self, kilobytes: u64, level: Level, attrs: Attrs) {
        let when = |is: bool| if is { kilobytes } else { 0 };
        let (is_private, is_dirty) = (attrs.has(Attrs::EXCLUSIVE), attrs.has(Attrs::DIRTY));
        self.all += kilobytes;
        self.private += when(is_private);
        self.private_dirty += when(is_private && is_dirty);
        self.shared_dirty += when(!is_private && is_dirty);
        self.referenced += when(attrs.has(Attrs::ACCESSED));
        self.huge += when(level > Level::BASE);
    }
}

/// What is written, and how many columns of a line that is.
struct Counted<'a, W> {
    out: &'a mut W,
    columns: usize,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.columns += text.chars().count();
        self.out.write_str(text)
    }
}
