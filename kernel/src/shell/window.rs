//! What the kernel half maps: the manager's ranges, and the window, whose page tables are its only
//! record.

use super::Shell;
use super::words::{Complaint, Words};
use crate::layout::{self, DIRECT, DIRECT_MAX, WINDOW};
use crate::memory::{Format, manager};
use crate::{say, symbols};
use core::fmt;
use foliant::table::{Attrs, Entry, Paging};
use foliant_units::{Bytes, Pa, Va, VaRange};

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
    /// Registers of a device.
    Ioremap,
    /// A part of the image, for ring 3.
    Vmap,
}

impl Mapping {
    fn source(&self) -> Source {
        match self.attrs {
            attrs if attrs.has(Attrs::DEVICE) => Source::Ioremap,
            _ => Source::Vmap,
        }
    }
}

/// Linux's columns: range, size, who made it, pages, kind, pages per node.
impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end) = (self.range.start().get(), self.range.end().get());
        write!(f, "0x{start:016x}-0x{end:016x} {:>7} ", end - start)?;
        f.write_str(match self.range.start() {
            layout::APIC => "local_apic",
            layout::IO_APIC => "io_apic",
            layout::PROGRAMS => "user_programs",
            _ => "unnamed",
        })?;
        let pages = self.range.pages().get();
        match self.source() {
            Source::Ioremap => write!(f, " phys={:#018x} ioremap", self.first.get()),
            Source::Vmap => write!(f, " pages={pages} vmap user N0={pages}"),
        }
    }
}

/// `vmallocinfo`.
pub(super) fn vmallocinfo<'w>(_: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    words.end()?;
    for area in manager().vmalloc_info() {
        match symbols::find(area.caller.0) {
            Some((name, _)) => {
                say!("{}", area.line(format_args!("{:#}", rustc_demangle::demangle(name))))
            }
            None => say!("{area}"),
        }
    }
    mappings(range(), |mapping| say!("{mapping}"));
    Ok(())
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
