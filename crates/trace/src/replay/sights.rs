//! Where memory is at one step of a replay: each area of private memory, and what is mapped in it.
//!
//! A replay with 4 KiB pages maps the pages that the program touched and no other, so the
//! difference between the sights of two policies at one step is what the larger one mapped and
//! the program did not use.
//!
//! **Invariants**
//! - L1. Sights are in order of space and address, and the runs of a sight are in order, disjoint
//!   and within its range.
//! - L2. What the sights hold is drawn from the plan's budget.
//!
//! **Not here**: how memory changes over time (`course`).

use super::stop::Mm;
use crate::budget::{Purse, Spent, Thing};
use crate::event::{AreaKind, SpaceId};
use foliant::space::SpaceId as Id;
use foliant::table::{Attrs, Entry};
use foliant_units::{Bytes, Order, Va, VaRange};

/// An area of private memory without a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Whose.
    pub space: SpaceId,
    /// Its addresses.
    pub range: VaRange,
    /// What it is. The heap counts as anonymous memory, as it is one area with what touches it.
    pub kind: AreaKind,
    /// What is mapped in it.
    pub runs: Vec<MappedRun>,
}

/// Neighbouring pages that are mapped alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedRun {
    /// Their addresses.
    pub range: VaRange,
    /// The size of the folios that they are in; none for shared zeros, which take no memory.
    pub folio: Option<Order>,
}

impl Sight {
    /// Bytes that are mapped and take memory.
    pub fn held(&self) -> Bytes {
        let held = self.runs.iter().filter(|run| run.folio.is_some());
        Bytes::new(held.map(|run| run.range.bytes().get()).sum())
    }
}

/// Where memory is, and what the host holds for it.
#[derive(Debug, Default)]
pub struct Sights {
    /// The areas.
    pub list: Vec<Sight>,
    /// What they are drawn from; given back when this is dropped.
    _held: Option<Purse>,
}

/// Reads the areas of spaces.
pub(super) fn sights(
    mm: &Mm<'_>,
    spaces: impl Iterator<Item = (SpaceId, Id)>,
    mut purse: Purse,
) -> Result<Sights, Spent> {
    let mut list = Vec::new();
    for (space, id) in spaces {
        let mut next = Va::new(0);
        while let Some(area) = mm.area_at_or_after(id, next) {
            purse.work(1)?;
            next = area.range.end();
            let Some(kind) = kind_of(area.tag) else { continue };
            let runs = runs(mm, id, area.range, &mut purse)?;
            purse.push(Thing::Areas, &mut list, Sight { space, range: area.range, kind, runs })?;
        }
    }
    Ok(Sights { list, _held: Some(purse) })
}

/// The kind that the planner put into an area's tag, if memory of that kind is replayed as
/// anonymous.
fn kind_of(tag: u64) -> Option<AreaKind> {
    let is = |kind: &AreaKind| *kind as u64 == tag & 0xff && kind.is_anonymous_private();
    AreaKind::ALL.into_iter().find(is)
}

fn runs(mm: &Mm<'_>, id: Id, area: VaRange, purse: &mut Purse) -> Result<Vec<MappedRun>, Spent> {
    let read = mm.with_leaves(id, area, |leaves| {
        let (mut runs, mut seen) = (Vec::new(), 0);
        for leaf in leaves {
            seen += 1;
            let (Entry::Leaf { pa, attrs }, Some(order)) = (leaf.entry, leaf.level.order()) else {
                continue;
            };
            let Some(range) = VaRange::sized(leaf.va, order.bytes()) else { continue };
            let is_zeros = attrs.has(Attrs::SPECIAL);
            let folio = (!is_zeros).then(|| mm.identity(pa.frame()).order());
            add(&mut runs, MappedRun { range, folio }, purse)?;
        }
        purse.work(seen)?;
        Ok(runs)
    });
    read.unwrap_or_else(|| Ok(Vec::new()))
}

/// Adds a run, or makes the last one longer.
fn add(runs: &mut Vec<MappedRun>, run: MappedRun, purse: &mut Purse) -> Result<(), Spent> {
    if let Some(last) = runs.last_mut()
        && (last.folio, last.range.end()) == (run.folio, run.range.start())
        && let Some(both) = VaRange::new(last.range.start(), run.range.end())
    {
        last.range = both;
        return Ok(());
    }
    purse.push(Thing::Pages, runs, run)
}
