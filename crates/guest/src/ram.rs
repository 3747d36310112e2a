//! All of a guest's memory.

use crate::{GuestError, Page};
use foliant::Manager;
use foliant::space::{Advice, Flags, MapRequest, Place, SpaceId};
use foliant::table::{Entry, Paging};
use foliant_machine::Machine;
use foliant_units::{Bytes, Frame, Order, VaRange};
use vm_memory::{Address, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

/// The memory of one guest: a region for each huge page. Dropped, its pages are in the pool again.
///
/// Whoever maps a page in nested tables takes it out of there, flushed, before the value is
/// dropped.
#[derive(Debug)]
pub struct GuestRam<'a, 'm, M: Machine, P: Paging> {
    pages: Vec<Page<'m, M>>,
    own: Own<'a, 'm, M, P>,
}

/// A space that is ended when it is dropped.
struct Own<'a, 'm, M: Machine, P: Paging> {
    host: &'a Manager<'m, M, P>,
    space: SpaceId,
}

impl<M: Machine, P: Paging> core::fmt::Debug for Own<'_, '_, M, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.space.fmt(f)
    }
}

impl<M: Machine, P: Paging> Drop for Own<'_, '_, M, P> {
    fn drop(&mut self) {
        let ended = self.host.end(self.space);
        debug_assert!(ended.is_ok(), "no CPU runs a space that nobody knows: {ended:?}");
    }
}

impl<'a, 'm, M: Machine, P: Paging> GuestRam<'a, 'm, M, P> {
    /// Memory for a guest at `ranges` of its addresses, lowest first, in pages of `order` (2 MiB or
    /// 1 GiB) out of the pool.
    pub fn new(
        host: &'a Manager<'m, M, P>,
        order: Order,
        ranges: &[(GuestAddress, Bytes)],
    ) -> Result<GuestRam<'a, 'm, M, P>, GuestError> {
        let flags = Flags::huge(order).ok_or(GuestError::Order(order))?.with(Flags::READ_WRITE);
        check(order, ranges)?;
        let own = Own { host, space: host.create(None).map_err(GuestError::Space)? };
        let mut ram = GuestRam { pages: Vec::new(), own };
        for (start, bytes) in ranges {
            ram.add((order, flags), *start, *bytes)?;
        }
        Ok(ram)
    }

    /// Takes the pages for one range, all of them or none.
    fn add(
        &mut self,
        (order, flags): (Order, Flags),
        start: GuestAddress,
        bytes: Bytes,
    ) -> Result<(), GuestError> {
        let Own { host, space } = &self.own;
        let request = MapRequest { place: Place::Anywhere, bytes, flags, tag: 0 };
        let area = host.map(*space, &request).map_err(GuestError::Map)?;
        host.advise(*space, area, Advice::PopulateWrite).map_err(GuestError::Populate)?;
        let at = (0..).map(|n| start.unchecked_add(n * order.bytes().get()));
        let frames = frames(host, *space, area);
        let pages = bytes.get() / order.bytes().get();
        assert_eq!(frames.len() as u64, pages, "every page was made present, and stays (G2)");
        let page = |(at, frame)| Page::of(host.machine(), at, frame, order);
        self.pages.extend(at.zip(frames).map(page));
        Ok(())
    }
}

/// The frames of the leaves in a range, lowest address first.
fn frames<M: Machine, P: Paging>(
    host: &Manager<'_, M, P>,
    space: SpaceId,
    area: VaRange,
) -> Vec<Frame> {
    let read = host.with_leaves(space, area, |leaves| {
        let frame = |entry| match entry {
            Entry::Leaf { pa, .. } => Some(pa.frame()),
            _ => None,
        };
        leaves.filter_map(|leaf| frame(leaf.entry)).collect()
    });
    read.unwrap_or_default()
}

/// Refuses ranges that are no regions of such pages.
fn check(order: Order, ranges: &[(GuestAddress, Bytes)]) -> Result<(), GuestError> {
    let mut upto = GuestAddress(0);
    for (start, bytes) in ranges {
        let whole = |n: u64| n.is_multiple_of(order.bytes().get());
        if bytes.get() == 0 {
            return Err(GuestError::Empty);
        }
        if !whole(start.0) || !whole(bytes.get()) {
            return Err(GuestError::Misaligned(*start, *bytes, order));
        }
        if *start < upto {
            return Err(GuestError::Overlap(upto, *start));
        }
        upto = start.checked_add(bytes.get()).ok_or(GuestError::Beyond(*start, *bytes))?;
    }
    if ranges.is_empty() { Err(GuestError::Empty) } else { Ok(()) }
}

impl<'m, M: Machine, P: Paging> GuestMemoryBackend for GuestRam<'_, 'm, M, P> {
    type R = Page<'m, M>;

    fn num_regions(&self) -> usize {
        self.pages.len()
    }
    fn find_region(&self, at: GuestAddress) -> Option<&Page<'m, M>> {
        let behind = self.pages.partition_point(|page| page.start_addr() <= at);
        self.pages[..behind].last().filter(|page| at <= page.last_addr())
    }
    fn iter(&self) -> impl Iterator<Item = &Page<'m, M>> {
        self.pages.iter()
    }
}
