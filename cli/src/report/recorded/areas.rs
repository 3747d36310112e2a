//! Areas at one step under several policies, side by side: what is touched, and what each policy
//! maps beyond that.
//!
//! **Invariants**
//! - A1. For each policy touched and unused pages are disjoint, and unused ones are what it maps
//!   with memory and the program has not touched.
//! - A2. An area that several spaces have alike, as after a fork, is there once, with all of them.
//! - A3. Areas that are not shown one by one are in the sum, so that columns add up.

use super::program_name;
use foliant_trace::replay::{MappedRun, Sight, Sights};
use foliant_trace::{Description, SpaceId};
use foliant_units::{Bytes, VaRange};

/// Areas that are shown one by one, and the least part of all memory that one of them has.
const AREAS_MOST: usize = 12;
const PART_LEAST: u64 = 200;

/// An area, or what several come to, which has no range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Area {
    /// Which program's it is and what it is.
    pub(super) name: String,
    /// The spaces that have it.
    pub(super) spaces: Vec<SpaceId>,
    pub(super) range: Option<VaRange>,
    pub(super) size: Bytes,
    /// Pages that the program touched.
    pub(super) touched: Vec<VaRange>,
    pub(super) touched_bytes: Bytes,
    /// For each policy, what it maps beside them.
    pub(super) unused: Vec<Vec<VaRange>>,
    pub(super) unused_bytes: Vec<Bytes>,
}

impl Area {
    /// The most that any policy maps.
    fn most(&self) -> Bytes {
        let unused = self.unused_bytes.iter().map(|bytes| bytes.get()).max();
        Bytes::new(self.touched_bytes.get() + unused.unwrap_or(0))
    }

    /// Whether the other one is the same in another space; then it takes over that space.
    fn is_also(&mut self, other: &mut Area) -> bool {
        let all = |area: &Area| (area.range, area.touched_bytes, area.unused_bytes.clone());
        let is_alike = all(self) == all(other)
            && (&self.name, &self.touched, &self.unused)
                == (&other.name, &other.touched, &other.unused);
        if is_alike {
            self.spaces.append(&mut other.spaces);
        }
        is_alike
    }

    /// Its name with the spaces that have it.
    pub(super) fn title(&self) -> String {
        let name = &self.name;
        match self.spaces.as_slice() {
            [] => name.clone(),
            [SpaceId(one)] => format!("{name} of space {one}"),
            [SpaceId(one), more @ ..] => {
                format!("{name} of space {one} and {} more", crate::table::count(more.len() as u64))
            }
        }
    }
}

/// The areas with the most memory, and what the others come to; `touched` are the sights with 4 KiB
/// pages.
pub(super) fn compared(
    touched: &Sights,
    mapped: &[Sights],
    described: &Description,
) -> (Vec<Area>, Option<Area>) {
    let mut all: Vec<Area> =
        touched.list.iter().map(|sight| area(sight, mapped, described)).collect();
    all.retain(|area| area.most().get() > 0);
    all.sort_by_key(|area| (std::cmp::Reverse(area.most()), area.range.map(|range| range.start())));
    all.dedup_by(|next, kept| kept.is_also(next));
    let least = all.iter().map(|area| area.most().get()).sum::<u64>() / PART_LEAST;
    let shown = all.iter().take(AREAS_MOST).take_while(|area| area.most().get() >= least).count();
    let rest = all.split_off(shown);
    (all, (!rest.is_empty()).then(|| sum(&rest, mapped.len())))
}

fn area(sight: &Sight, mapped: &[Sights], described: &Description) -> Area {
    let touched: Vec<VaRange> = sight.runs.iter().map(|run| run.range).collect();
    let held = |sights: &Sights| -> Vec<VaRange> {
        let there = same(sights, sight).map_or(&[][..], |other| &other.runs);
        joined(there.iter().filter(|run| run.folio.is_some()))
    };
    let unused: Vec<Vec<VaRange>> =
        mapped.iter().map(|sights| without(&held(sights), &touched)).collect();
    Area {
        name: name(sight, described),
        spaces: vec![sight.space],
        range: Some(sight.range),
        size: sight.range.bytes(),
        touched_bytes: bytes(&touched),
        touched,
        unused_bytes: unused.iter().map(|ranges| bytes(ranges)).collect(),
        unused,
    }
}

/// The same area among other sights. A stack may have grown otherwise, and ends where it did.
fn same<'p>(sights: &'p Sights, sight: &Sight) -> Option<&'p Sight> {
    let key = |sight: &Sight| (sight.space, sight.range.end());
    let at = sights.list.binary_search_by_key(&key(sight), key).ok()?;
    sights.list.get(at)
}

fn name(sight: &Sight, described: &Description) -> String {
    let SpaceId(space) = sight.space;
    let program = described.ran.get(space as usize).copied().flatten();
    let program = program.and_then(|nth| described.programs.get(nth));
    let program = program.map_or("no program", String::as_str);
    format!("{}, {}", program_name(program), sight.kind.name())
}

/// Neighbouring runs as one range.
fn joined<'r>(runs: impl Iterator<Item = &'r MappedRun>) -> Vec<VaRange> {
    let mut ranges: Vec<VaRange> = Vec::new();
    for run in runs {
        match ranges.last_mut() {
            Some(last) if last.end() == run.range.start() => {
                *last = VaRange::new(last.start(), run.range.end()).unwrap_or(*last);
            }
            _ => ranges.push(run.range),
        }
    }
    ranges
}

/// What of the first ranges is in none of the others; both are in order and disjoint.
fn without(ranges: &[VaRange], others: &[VaRange]) -> Vec<VaRange> {
    let (mut left, mut nth) = (Vec::new(), 0);
    for range in ranges {
        let mut from = range.start();
        while let Some(other) = others.get(nth).filter(|other| other.start() < range.end()) {
            left.extend(VaRange::new(from, other.start()).filter(|gap| !gap.is_empty()));
            from = from.max(other.end());
            if other.end() > range.end() {
                break; // the next range may begin in it as well
            }
            nth += 1;
        }
        left.extend(VaRange::new(from, range.end()).filter(|rest| !rest.is_empty()));
    }
    left
}

fn bytes(ranges: &[VaRange]) -> Bytes {
    Bytes::new(ranges.iter().map(|range| range.bytes().get()).sum())
}

fn sum(areas: &[Area], policies: usize) -> Area {
    let total = |of: &dyn Fn(&Area) -> Bytes| {
        Bytes::new(areas.iter().fold(0u64, |sum, area| sum.saturating_add(of(area).get())))
    };
    let unused =
        |nth: usize| total(&|area: &Area| area.unused_bytes.get(nth).copied().unwrap_or_default());
    Area {
        name: format!("{} others", crate::table::count(areas.len() as u64)),
        size: total(&|area| area.size),
        touched_bytes: total(&|area| area.touched_bytes),
        unused_bytes: (0..policies).map(unused).collect(),
        ..Area::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant_trace::AreaKind;
    use foliant_units::{Order, Va};

    fn ranges(pages: &[(u64, u64)]) -> Vec<VaRange> {
        let range = |(a, b): &(u64, u64)| VaRange::new(Va::new(a << 12), Va::new(b << 12)).unwrap();
        pages.iter().map(range).collect()
    }

    #[test]
    fn what_is_left_of_ranges_is_what_a_set_of_pages_says() {
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut random = |gap: u64| {
            let (mut at, mut list) = (next(4), Vec::new());
            while at < 60 {
                let end = at + 1 + next(9);
                list.push((at, end));
                at = end + next(gap);
            }
            ranges(&list)
        };
        let pages = |ranges: &[VaRange]| -> Vec<u64> {
            ranges.iter().flat_map(|r| r.start().get() >> 12..r.end().get() >> 12).collect()
        };
        for _ in 0..2000 {
            let (some, others) = (random(7), random(5));
            let gone = pages(&others);
            let mut expect = pages(&some);
            expect.retain(|page| !gone.contains(page));
            let left = without(&some, &others);
            assert_eq!(pages(&left), expect, "{some:?} without {others:?}");
            assert!(left.iter().all(|range| !range.is_empty()));
        }
    }

    #[test]
    fn an_area_that_several_spaces_have_alike_is_there_once() {
        let sight = |space, from, to| {
            let run = MappedRun { range: ranges(&[(from, to)])[0], folio: Some(Order::BASE) };
            let kind = AreaKind::Anonymous;
            Sight { space: SpaceId(space), range: ranges(&[(0, 9)])[0], kind, runs: vec![run] }
        };
        let list = [(0, 1, 3), (1, 1, 3), (2, 1, 4), (3, 1, 3), (4, 2, 4)];
        let list = list.map(|(space, from, to)| sight(space, from, to)).to_vec();
        let mut touched = Sights::default();
        touched.list = list;
        let (areas, others) = compared(&touched, &[], &Description::default());
        let titles: Vec<String> = areas.iter().map(Area::title).collect();
        let name = "no program, anonymous of space";
        assert_eq!(titles[0], format!("{name} 2"));
        assert_eq!(titles[1], format!("{name} 0 and 2 more"));
        assert_eq!(titles[2], format!("{name} 4"));
        assert_eq!((titles.len(), others), (3, None));
    }

    #[test]
    fn neighbours_are_one_range() {
        let run = |range| MappedRun { range, folio: None };
        let runs: Vec<MappedRun> = ranges(&[(1, 2), (2, 5), (6, 7)]).into_iter().map(run).collect();
        assert_eq!(joined(runs.iter()), ranges(&[(1, 5), (6, 7)]));
    }
}
