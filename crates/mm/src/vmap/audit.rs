//! Recounting the kernel ranges from the bottom.
#![cfg(feature = "verify")]

use super::area::{AreaState, AreaWord};
use super::{Backing, Vmap};
use crate::frame::Kind;
use crate::table::{Entry, Paging};
use foliant_machine::Machine;
use foliant_units::{Order, Va, VaRange};

/// What a recount of kernel ranges found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VmapAudit {
    /// Pages of areas in use that have pages of their own.
    pub pages: u64,
    /// Entries for them, in base pages, that name such pages.
    pub entries: u64,
    /// Entries in no area in use, or that name something else than they should.
    pub strays: u64,
    /// Pages of lazy areas by their records, and as they are counted.
    pub lazy: (u64, u64),
    /// Frames of records and of the map's nodes, spare ones included. `None` where a record is
    /// missing, or the map does not agree with a walk over all of it.
    pub frames: Option<u64>,
}

impl VmapAudit {
    /// Whether all of it agrees.
    pub fn agrees(&self) -> bool {
        self.frames.is_some()
            && self.pages == self.entries
            && self.strays == 0
            && self.lazy.0 == self.lazy.1
    }
}

impl<M: Machine, P: Paging> Vmap<'_, '_, M, P> {
    /// Recounts. No other call is at work.
    pub(crate) fn audit(&self) -> VmapAudit {
        let mut audit = VmapAudit { frames: self.open().recount(), ..VmapAudit::default() };
        audit.lazy.1 = self.open().lazy_pages();
        let mut from = self.state.range.start();
        while let Some(area) = { self.open().at_or_after(from) } {
            self.count_strays(&mut audit, from, area.start());
            from = area.whole().end();
            let word = AreaWord::of(&area);
            match word.state() {
                AreaState::Lazy => {
                    audit.lazy.0 += area.whole().pages().get();
                    self.count_strays(&mut audit, area.start(), from);
                }
                AreaState::InUse => {
                    self.count_area(&mut audit, area.mapped(), word.kind());
                    self.count_strays(&mut audit, area.mapped().end(), from);
                }
                AreaState::Building | AreaState::Working => audit.strays += 1,
            }
        }
        self.count_strays(&mut audit, from, self.state.range.end());
        audit
    }
    fn count_strays(&self, audit: &mut VmapAudit, from: Va, to: Va) {
        let range = VaRange::new(from, to).expect("areas follow each other");
        audit.strays += self.stock.kernel.leaves(range).count() as u64;
    }
    fn count_area(&self, audit: &mut VmapAudit, range: VaRange, kind: Backing) {
        let mut mapped = 0;
        for leaf in self.stock.kernel.leaves(range) {
            let pages = leaf.level.order().unwrap_or(Order::BASE).pages();
            let Entry::Leaf { pa, .. } = leaf.entry else { continue };
            mapped += pages.get();
            let all = foliant_units::FrameRange::new(pa.frame(), pages).expect("it is mapped");
            let is_page = |frame| self.stock.identity(frame).kind() == Kind::Kernel;
            if kind == Backing::Pages && !all.iter().all(is_page) {
                audit.strays += 1;
            }
        }
        if kind == Backing::Pages {
            audit.pages += range.pages().get();
            audit.entries += mapped;
        } else {
            audit.strays += u64::from(mapped != range.pages().get());
        }
    }
}
