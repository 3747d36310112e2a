//! What the kernel half maps, read from its page tables: they are the only record.

use super::Shell;
use super::words::{Complaint, Words};
use crate::layout::{self, DIRECT, DIRECT_MAX, STACK_STRIDE, WINDOW};
use crate::memory::{Format, manager};
use crate::say;
use core::fmt;
use foliant::table::{Attrs, Entry, Paging};
use foliant_units::{Bytes, FRAME_BYTES, Pa, Pages, Va, VaRange};

/// The window is one word of the top table (layout::L1).
pub(super) fn range() -> VaRange {
    layout::range(Va::new(WINDOW), Format::TOP.span())
}

/// Leaves that lie side by side and permit the same.
#[derive(Clone, Copy)]
struct Mapping {
    range: VaRange,
    first: Pa,
    attrs: Attrs,
}

/// The mappings of a kernel range, lowest first.
fn mappings(range: VaRange, mut each: impl FnMut(Mapping)) {
    let mut open: Option<Mapping> = None;
    for leaf in manager().kernel_tables().leaves(range) {
        let Entry::Leaf { pa, attrs } = leaf.entry else { continue };
        let attrs = attrs.without(Attrs::TOUCHED).without(Attrs::GROUPED);
        let leaf = layout::range(leaf.va, leaf.level.span());
        let joined = open
            .filter(|open| open.range.end() == leaf.start() && open.attrs == attrs)
            .and_then(|open| {
                Some(Mapping { range: VaRange::new(open.range.start(), leaf.end())?, ..open })
            });
        if joined.is_none()
            && let Some(done) = open
        {
            each(done);
        }
        open = joined.or(Some(Mapping { range: leaf, first: pa, attrs }));
    }
    if let Some(done) = open {
        each(done);
    }
}

/// How the frames of a mapping were come by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Lent by the manager.
    Vmalloc,
    /// Registers of a device.
    Ioremap,
    /// A part of the image, for ring 3.
    Vmap,
}

impl Mapping {
    fn source(&self) -> Source {
        match self.attrs {
            attrs if attrs.has(Attrs::DEVICE) => Source::Ioremap,
            attrs if attrs.has(Attrs::USER) => Source::Vmap,
            _ => Source::Vmalloc,
        }
    }
    /// The CPU whose stack it is.
    fn stack_of(&self) -> Option<u64> {
        let n = self.range.start().get().checked_sub(layout::STACKS.get())? / STACK_STRIDE.get();
        (self.range.start() < layout::APIC).then_some(n)
    }
}

/// Linux's columns: range with its guard page, size, who made it, pages, kind, pages per node.
impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = if self.stack_of().is_some() { FRAME_BYTES } else { 0 };
        let (start, end) = (self.range.start().get() - guard, self.range.end().get());
        write!(f, "0x{start:016x}-0x{end:016x} {:>7} ", end - start)?;
        match (self.stack_of(), self.range.start()) {
            (Some(cpu), _) => write!(f, "stack/{cpu}")?,
            (None, layout::APIC) => f.write_str("local_apic")?,
            (None, layout::IO_APIC) => f.write_str("io_apic")?,
            (None, layout::PROGRAMS) => f.write_str("user_programs")?,
            (None, _) => f.write_str("unnamed")?,
        }
        let pages = self.range.pages().get();
        match self.source() {
            Source::Vmalloc => write!(f, " pages={pages} vmalloc N0={pages}"),
            Source::Ioremap => write!(f, " phys={:#018x} ioremap", self.first.get()),
            Source::Vmap => write!(f, " pages={pages} vmap user N0={pages}"),
        }
    }
}

/// `vmallocinfo`.
pub(super) fn vmallocinfo<'w>(_: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    words.end()?;
    mappings(range(), |mapping| say!("{mapping}"));
    Ok(())
}

/// Pages of the window that the manager lent.
pub(super) fn allocated() -> Pages {
    let mut pages = 0;
    mappings(range(), |mapping| {
        if mapping.source() == Source::Vmalloc {
            pages += mapping.range.pages().get();
        }
    });
    Pages::new(pages)
}

/// Leaves of the direct map, by level.
pub(super) fn direct() -> [u64; 3] {
    let mut leaves = [0; 3];
    for leaf in
        manager().kernel_tables().leaves(layout::range(Va::new(DIRECT), Bytes::new(DIRECT_MAX)))
    {
        if let (Entry::Leaf { .. }, Some(count)) =
            (leaf.entry, leaves.get_mut(usize::from(leaf.level.0)))
        {
            *count += 1;
        }
    }
    leaves
}
