//! The figures of an advice: means over recordings, with and without what is recommended.
//!
//! **Not here**: what is said of them (`show`, `document`, `answers`).

use super::Advised;
use foliant_trace::replay::{Explained, Origins, PARTS, Share};
use foliant_trace::{Mapping, Wish};
use foliant_units::{Bytes, Nanos};
use std::collections::BTreeMap;

/// What a program takes, the mean of recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) faults: u64,
    pub(super) kernel_ns: u64,
    pub(super) peak_bytes: u64,
    pub(super) untouched_bytes: u64,
}

impl Figures {
    fn of(all: &[&Explained]) -> Figures {
        let mean = |of: fn(&Explained) -> u64| mean(all.iter().map(|explained| of(explained)));
        Figures {
            faults: mean(|explained| explained.row.anonymous_faults),
            kernel_ns: mean(|explained| explained.row.kernel.0),
            peak_bytes: mean(|explained| explained.row.peak.get()),
            untouched_bytes: mean(|explained| explained.row.untouched_bytes),
        }
    }
}

fn mean(all: impl ExactSizeIterator<Item = u64>) -> u64 {
    let count = all.len().max(1) as u64;
    all.sum::<u64>() / count
}

/// What becomes of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) mapping: Mapping,
    /// What it is advised, if anything is.
    pub(super) wish: Option<Wish>,
    pub(super) before: Share,
    pub(super) after: Share,
}

/// All figures.
pub(super) struct Facts {
    pub(super) before: Figures,
    pub(super) after: Figures,
    /// Kernel time where memory is fragmented, to that with 4 KiB pages where it is not.
    pub(super) scarce: f64,
    /// How often a smaller folio was taken there.
    pub(super) fallbacks: u64,
    /// The part of kernel time that is of mappings for which it is not the same.
    pub(super) changed: f64,
    /// By mapping, that of most kernel time with 4 KiB pages first.
    pub(super) fates: Vec<Fate>,
    /// Faults by part of the time.
    pub(super) parts: [Vec<u64>; 2],
    /// Of these, in how many the program starts up.
    pub(super) start_up: usize,
}

impl Facts {
    pub(super) fn of(advised: &Advised) -> Facts {
        let all = |at: usize| advised.told.iter().map(|told| &told[at]).collect::<Vec<_>>();
        let [base, is, scarce] = [all(0), all(1), all(2)];
        let (before, after) = (Figures::of(&base), Figures::of(&is));
        let ratios = scarce.iter().zip(&base).map(|(is, base)| is.row.kernel_ratio(&base.row));
        let fallbacks = mean(scarce.iter().map(|scarce| scarce.row.fallbacks));
        let origins = [mean_of(&base), mean_of(&is)];
        let faults = |origins: &Origins| origins.parts.iter().map(|part| part.faults).collect();
        let fates = fates(&origins, advised);
        let changes = fates.iter().filter(|fate| fate.before.folios != fate.after.folios);
        let changed: u64 = changes.map(|fate| fate.before.kernel.0).sum();
        Facts {
            before,
            after,
            changed: changed as f64 / before.kernel_ns.max(1) as f64,
            scarce: ratios.sum::<f64>() / base.len().max(1) as f64,
            fallbacks,
            start_up: origins[0].start_up(),
            parts: [faults(&origins[0]), faults(&origins[1])],
            fates,
        }
    }

    /// Faults in start-up and behind it: with 4 KiB pages, then as recommended.
    pub(super) fn by_phase(&self) -> [[u64; 2]; 2] {
        let split = |parts: &Vec<u64>| {
            let (first, rest) = parts.split_at(self.start_up.min(parts.len()));
            [first.iter().sum(), rest.iter().sum()]
        };
        [split(&self.parts[0]), split(&self.parts[1])]
    }
}

/// The mean of where figures come from.
fn mean_of(all: &[&Explained]) -> Origins {
    let (count, mut sums) = (all.len().max(1) as u64, BTreeMap::<Mapping, Share>::new());
    let mut parts = vec![Share::default(); PARTS];
    for explained in all {
        for (mapping, share) in &explained.origins.mappings {
            add(sums.entry(mapping.clone()).or_default(), share);
        }
        parts.iter_mut().zip(&explained.origins.parts).for_each(|(sum, part)| add(sum, part));
    }
    let shares = sums.values_mut().chain(parts.iter_mut());
    shares.for_each(|share| divide(share, count));
    Origins { mappings: sums.into_iter().collect(), parts }
}

fn add(sum: &mut Share, share: &Share) {
    sum.faults += share.faults;
    sum.kernel.0 += share.kernel.0;
    sum.touched += share.touched;
    sum.peak = Bytes::new(sum.peak.get() + share.peak.get());
    sum.folios.iter_mut().zip(share.folios).for_each(|(sum, n)| *sum += n);
}

fn divide(share: &mut Share, count: u64) {
    share.faults /= count;
    share.kernel = Nanos(share.kernel.0 / count);
    share.touched /= count;
    share.peak = Bytes::new(share.peak.get() / count);
    share.folios.iter_mut().for_each(|n| *n /= count);
}

fn fates([before, after]: &[Origins; 2], advised: &Advised) -> Vec<Fate> {
    let remedy = advised.remedy();
    let mut fates: BTreeMap<Mapping, Fate> = BTreeMap::new();
    let mut at = |mapping: &Mapping, set: &dyn Fn(&mut Fate)| {
        let new = || Fate {
            mapping: mapping.clone(),
            wish: mapping.wished_by(&remedy),
            before: Share::default(),
            after: Share::default(),
        };
        set(fates.entry(mapping.clone()).or_insert_with(new));
    };
    for (mapping, share) in &before.mappings {
        at(mapping, &|fate| fate.before = share.clone());
    }
    for (mapping, share) in &after.mappings {
        at(mapping, &|fate| fate.after = share.clone());
    }
    let mut fates: Vec<Fate> = fates.into_values().collect();
    fates.sort_by_key(|fate| std::cmp::Reverse(fate.before.kernel.0.max(fate.after.kernel.0)));
    fates
}
