//! The listing of areas, with the columns of `/proc/vmallocinfo`, and the counters.
//!
//! ```text
//!   0xffff808000000000-0xffff808000281000 2625536 0x4711 pages=640 vmalloc N0=512 N1=128
//! ```
//!
//! Pages are base pages, also where the leaves are larger. There is no column for leaves, as there
//! is none in the reference; the counters have them. `vpages`, for arrays of page pointers that
//! needed kernel memory themselves, never stands there: there are no such arrays.

use super::area::{AreaState, AreaWord, Mark};
use super::record::RecordWord;
use super::{Backing, Caller, Users, Vmap};
use crate::folio::NODES_MAX;
use crate::stock::{Event, READ_MOST};
use crate::table::{Entry, Paging};
use core::fmt;
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Node, Order, Pa, Pages, Va, VaRange};

/// Whether an area is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AreaUse {
    /// It is in use.
    InUse,
    /// It was given back and waits for a purge.
    Unpurged,
}

/// One line of the listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AreaInfo {
    /// Its addresses, guard included.
    pub range: VaRange,
    /// What was asked for.
    pub bytes: Bytes,
    /// The caller that asked.
    pub caller: Caller,
    /// What is behind it.
    pub backing: Backing,
    /// Base pages mapped.
    pub pages: Pages,
    /// Where a device is.
    pub phys: Option<Pa>,
    /// Whether programs may reach it.
    pub users: Users,
    /// Whether it is in use.
    pub standing: AreaUse,
    /// Base pages on each node, of those that are memory.
    pub nodes: [Pages; NODES_MAX],
}

impl AreaInfo {
    /// The line with `caller` in the place of the caller's number.
    pub fn line<C: fmt::Display>(&self, caller: C) -> Line<'_, C> {
        Line { info: self, caller }
    }
    /// Base pages on `node`.
    pub fn on(&self, node: Node) -> Pages {
        self.nodes.get(node.0 as usize).copied().unwrap_or_default()
    }
}

/// A line with a caller's name in it.
#[derive(Clone, Copy, Debug)]
pub struct Line<'l, C> {
    info: &'l AreaInfo,
    caller: C,
}

impl<C: fmt::Display> fmt::Display for Line<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (info, range) = (self.info, self.info.range);
        let (start, end) = (range.start().get(), range.end().get());
        write!(f, "{start:#018x}-{end:#018x} {:7}", range.bytes().get())?;
        if info.standing == AreaUse::Unpurged {
            return f.write_str(" unpurged vm_area");
        }
        write!(f, " {}", self.caller)?;
        if info.backing != Backing::Device {
            write!(f, " pages={}", info.pages.get())?;
        }
        if let Some(phys) = info.phys {
            write!(f, " phys={:#018x}", phys.get())?;
        }
        f.write_str(match info.backing {
            Backing::Pages => " vmalloc",
            Backing::Frames => " vmap",
            Backing::Device => " ioremap",
        })?;
        if info.users == Users::Yes {
            f.write_str(" user")?;
        }
        for (node, pages) in info.nodes.iter().enumerate().filter(|(_, pages)| pages.get() > 0) {
            write!(f, " N{node}={}", pages.get())?;
        }
        Ok(())
    }
}

impl fmt::Display for AreaInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.line(self.caller).fmt(f)
    }
}

/// The areas, lowest first, none overlapping another. Each is as it was when it was read,
/// but for its pages on nodes: they are counted part by part afterwards, and the area may be given
/// up meanwhile. Areas that are being made are left out, and so are those that have come to lie
/// across the end of one that was read before.
pub struct VmapAreas<'a, 'm, M: Machine, P: Paging> {
    vmap: Vmap<'a, 'm, M, P>,
    from: Va,
}

impl<M: Machine, P: Paging> fmt::Debug for VmapAreas<'_, '_, M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Areas(from {})", self.from)
    }
}

impl<M: Machine, P: Paging> Iterator for VmapAreas<'_, '_, M, P> {
    type Item = AreaInfo;

    fn next(&mut self) -> Option<AreaInfo> {
        loop {
            let info = {
                let opened = self.vmap.open();
                let area = opened.at_or_after(self.from)?;
                let is_behind = area.whole().start() >= self.from;
                self.from = area.whole().end();
                let word = AreaWord::of(&area);
                let device = word.kind() == Backing::Device;
                let info = AreaInfo {
                    range: area.whole(),
                    bytes: Bytes::new(area.get(RecordWord::Bytes)),
                    caller: Caller(area.get(RecordWord::Caller)),
                    backing: word.kind(),
                    pages: area.mapped().pages(),
                    phys: device.then(|| Pa::new(area.get(RecordWord::Phys))),
                    users: if word.has(Mark::Users) { Users::Yes } else { Users::No },
                    standing: match word.state() {
                        AreaState::Lazy => AreaUse::Unpurged,
                        _ => AreaUse::InUse,
                    },
                    nodes: [Pages::new(0); NODES_MAX],
                };
                (is_behind && word.state() != AreaState::Building).then_some(info)
            };
            if let Some(info) = info {
                return Some(self.vmap.with_nodes(info));
            }
        }
    }
}

/// What the room counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Areas, lazy ones included.
    pub areas: u64,
    /// Pages of areas that wait for a purge, guards included.
    pub lazy: Pages,
    /// Pages of kernel memory.
    pub pages: Pages,
    /// Requests for which large leaves were tried.
    pub huge_tried: u64,
    /// Attempts given up for lack of a block, of addresses, of a record or table, of a leaf's
    /// place.
    pub fallbacks: [u64; 4],
    /// Attempts for which memory was compacted while the caller waited, and those that had their
    /// blocks then.
    pub compactions: [u64; 2],
    /// Leaves written: 4 KiB, 2 MiB, 1 GiB.
    pub leaves: [u64; 3],
    /// Leaves split.
    pub splits: u64,
    /// Bytes mapped beyond the last base page.
    pub rounded: Bytes,
    /// Flushes of purges: each for all lazy ranges, or for a slice of them.
    pub purges: u64,
    /// Pages in them.
    pub purged: Pages,
    /// Flushes for one range.
    pub flushes: u64,
    /// Flushes of paging-structure caches, to put a leaf in the place of an empty table.
    pub table_flushes: u64,
    /// Releases that were deferred.
    pub deferred: u64,
}

impl<'a, 'm, M: Machine, P: Paging> Vmap<'a, 'm, M, P> {
    /// All areas, for a listing.
    pub fn areas(&self) -> VmapAreas<'a, 'm, M, P> {
        VmapAreas { vmap: *self, from: self.state.range.start() }
    }
    fn with_nodes(&self, mut info: AreaInfo) -> AreaInfo {
        let end = info.range.start().add(info.pages.get() * FRAME_BYTES);
        let mapped = VaRange::new(info.range.start(), end).expect("an area grows up");
        let mut left = mapped;
        while !left.is_empty() {
            let _reading = self.stock.reading(); // readers are waited for: a short section each
            let mut leaves = self.stock.kernel.leaves(left).within(READ_MOST);
            for leaf in &mut leaves {
                let Entry::Leaf { pa, .. } = leaf.entry else { continue };
                let order = leaf.level.order().unwrap_or(Order::BASE);
                if let Some(node) = self.stock.folios.node_of(pa.frame()) {
                    let count = &mut info.nodes[node.0 as usize];
                    *count = Pages::new(count.get() + order.pages().get());
                }
            }
            left = VaRange::new(leaves.upto(), left.end()).expect("it goes up");
        }
        info
    }

    /// The counts.
    pub fn counters(&self) -> Counters {
        let total = |event| self.stock.total(event);
        let (areas, lazy) = {
            let opened = self.open();
            (opened.count(), opened.lazy_pages())
        };
        Counters {
            areas,
            lazy: Pages::new(lazy),
            pages: Pages::new(total(Event::VmallocPages)),
            huge_tried: total(Event::VmallocHuge),
            fallbacks: [
                Event::VmallocNoBlock,
                Event::VmallocNoRoom,
                Event::VmallocNoRecord,
                Event::VmallocNoSlot,
            ]
            .map(total),
            compactions: [Event::VmallocCompact, Event::VmallocCompactSuccess].map(total),
            leaves: [Event::VmapLeafBase, Event::VmapLeaf2m, Event::VmapLeaf1g].map(total),
            splits: total(Event::VmapSplit),
            rounded: Bytes::new(total(Event::VmallocRounded)),
            purges: total(Event::VmapPurge),
            purged: Pages::new(total(Event::VmapPurged)),
            flushes: total(Event::VmapFlush),
            table_flushes: total(Event::VmapTableFlush),
            deferred: total(Event::VmapDeferred),
        }
    }
}
