//! Which sizes, for which mappings: from what replays came to, to one remedy.
//!
//! ```text
//!   replays of every choice ──draft──▶ a remedy for each choice ──▶ replayed ──settle──▶ Verdict
//! ```
//!
//! A *draft* is what the shares of mappings let expect: of a choice's sizes each mapping gets them
//! that gains by them, the dearest in memory last, as long as all of them together stay within what
//! may be spent. Gains of mappings do not add up exactly, so every draft is replayed before it is
//! believed.
//!
//! **Invariants**
//! - V1. What is recommended was replayed on every recording, and its figures are that replay's.
//! - V2. On no recording does it hold more memory than 4 KiB pages do and `--spend` allows.
//! - V3. Of all that is within V2 the best time is the least mean over recordings of kernel time to
//!   that with 4 KiB pages; what is recommended has the smallest largest size of those within
//!   [`KNEE_PERCENT`] of it, and wishes rather than sizes for all memory where both are.
//! - V4. A choice is tried if [`sizes`] says that Linux has switches for it; which there are is
//!   `Choice::all`'s matter.
//!
//! **Not here**: what is printed of it (`show`, `document`).

use foliant::fault::{Global, Size};
use foliant_trace::replay::{Choice, Explained, Share, Trial};
use foliant_trace::{Mapping, Remedy, Target, Wish, Wished};
use foliant_units::Order;
use std::collections::BTreeMap;

/// A size is as good as the best if it takes at most this much more time.
pub(super) const KNEE_PERCENT: f64 = 3.0;
/// A mapping that has less of a recording's kernel time to gain is left alone.
const GAIN_PERCENT: f64 = 0.2;
/// A mapping that would take more of the memory and is not worth it is told to take no large folio,
/// whatever the switches say.
const WASTE_PERCENT: f64 = 1.0;

/// A recording as it is judged: the row of 4 KiB pages, and one for each trial.
pub(super) struct Judged<'j> {
    pub(super) base: &'j Explained,
    pub(super) trials: Vec<&'j Explained>,
}

/// How a trial does on recordings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Score {
    /// Kernel time to that with 4 KiB pages: the mean over recordings, the least and the most.
    pub(super) time: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    /// The most that peak memory is to that with 4 KiB pages.
    pub(super) peak: f64,
}

impl Score {
    fn of(judged: &[Judged<'_>], at: usize) -> Score {
        let mut score = Score { time: 0.0, least: f64::MAX, most: 0.0, peak: 0.0 };
        for Judged { base, trials } in judged {
            let ratio = trials[at].row.kernel_ratio(&base.row);
            score.time += ratio / judged.len() as f64;
            score.least = score.least.min(ratio);
            score.most = score.most.max(ratio);
            score.peak = score.peak.max(trials[at].row.peak_ratio(&base.row));
        }
        score
    }
}

/// How each of the trials does.
pub(super) fn scores(judged: &[Judged<'_>]) -> Vec<Score> {
    let trials = judged.first().map_or(0, |judged| judged.trials.len());
    (0..trials).map(|at| Score::of(judged, at)).collect()
}

/// The sizes that Linux has switches for and a choice switches on; `None` for a choice that is made
/// otherwise.
fn sizes(choice: Choice) -> Option<Vec<Order>> {
    match choice {
        Choice::UpTo(_) | Choice::Only(_) => {
            let mut sizes: Vec<Order> = choice.orders().largest_first().collect();
            sizes.reverse();
            Some(sizes)
        }
        Choice::Auto => None,
    }
}

/// The largest folio that a choice makes.
fn largest(choice: Choice) -> Order {
    choice.orders().largest_first().next().unwrap_or(Order::BASE)
}

/// A choice for all memory, without advice.
pub(super) fn plainly(choice: Choice) -> Option<Remedy> {
    Some(Remedy { sizes: switches(choice, Size::Always)?, ..Remedy::NONE })
}

fn switches(choice: Choice, to: Size) -> Option<Vec<(Order, Size)>> {
    Some(sizes(choice)?.into_iter().map(|order| (order, to)).collect())
}

/// What a choice does to one mapping, as parts of a recording's kernel time and peak memory.
#[derive(Clone, Copy, Default, Debug)]
struct Effect {
    /// Saved kernel time: the mean over recordings.
    gain: f64,
    /// More memory: the most over recordings.
    waste: f64,
}

/// What each mapping has of two replays of a recording, by its name.
fn shares(of: &Explained) -> BTreeMap<&Mapping, &Share> {
    of.origins.mappings.iter().map(|(mapping, share)| (mapping, share)).collect()
}

fn effects(judged: &[Judged<'_>], at: usize) -> BTreeMap<Mapping, Effect> {
    let (mut effects, nothing) = (BTreeMap::<Mapping, Effect>::new(), Share::default());
    for Judged { base, trials } in judged {
        let (before, after) = (shares(base), shares(trials[at]));
        let (time, peak) = (base.row.kernel.0.max(1) as f64, base.row.peak.get().max(1) as f64);
        for mapping in before.keys().chain(after.keys().filter(|m| !before.contains_key(**m))) {
            let was = before.get(mapping).copied().unwrap_or(&nothing);
            let is = after.get(mapping).copied().unwrap_or(&nothing);
            let saved = was.kernel.0 as f64 - is.kernel.0 as f64;
            let more = is.peak.get().saturating_sub(was.peak.get()) as f64;
            let effect = effects.entry((*mapping).clone()).or_default();
            effect.gain += saved / time / judged.len() as f64;
            effect.waste = effect.waste.max(more / peak);
        }
    }
    effects
}

/// A remedy, and what is expected of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Draft {
    pub(super) remedy: Remedy,
    /// Kernel time to that with 4 KiB pages.
    pub(super) time: f64,
    /// Whether a mapping that gains was left out because of its memory.
    pub(super) is_partial: bool,
}

/// The remedy that the shares of mappings let expect to be the best for a choice, within so much
/// more memory; `None` where Linux has no switches for it or no mapping gains.
pub(super) fn draft(judged: &[Judged<'_>], at: usize, choice: Choice, spend: f64) -> Option<Draft> {
    let sizes = switches(choice, Size::Madvise).filter(|sizes| !sizes.is_empty())?;
    let effects = effects(judged, at);
    let mut gainers: Vec<(&Mapping, &Effect)> = effects.iter().collect();
    gainers.retain(|(mapping, effect)| {
        mapping.target().is_some() && effect.gain * 100.0 >= GAIN_PERCENT
    });
    // The cheapest first; what costs nothing by what it gains.
    gainers.sort_by(|(_, a), (_, b)| {
        let dear = |effect: &Effect| effect.waste / effect.gain;
        dear(a).total_cmp(&dear(b)).then(b.gain.total_cmp(&a.gain))
    });
    let (mut spent, mut time, mut wishes, mut is_partial) = (0.0, 1.0, Vec::new(), false);
    for (mapping, effect) in gainers {
        if spent + effect.waste > spend {
            is_partial = true;
            continue;
        }
        spent += effect.waste;
        time -= effect.gain;
        wishes.extend(mapping.target().map(|target| Wished { target, wish: Wish::HugePage }));
    }
    if wishes.is_empty() {
        return None;
    }
    for (mapping, effect) in &effects {
        let Some(target) = mapping.target() else { continue };
        let is_wished = wishes.iter().any(|wished| wished.target == target);
        if !is_wished && effect.waste * 100.0 >= WASTE_PERCENT {
            wishes.push(Wished { target, wish: Wish::NoHugePage });
        }
    }
    let wishes = in_order(wishes);
    Some(Draft { remedy: Remedy { global: Global::Madvise, sizes, wishes }, time, is_partial })
}

/// Wishes in the order in which they are asked: what names a site comes before what names a size
/// alone. Classes of sizes that follow each other, of one site and with one wish, become one.
fn in_order(mut wishes: Vec<Wished>) -> Vec<Wished> {
    wishes.sort_by_key(|wished| match &wished.target {
        Target::Made { site, least, .. } => (site.is_none(), site.clone(), least.get()),
        _ => (false, None, 0),
    });
    let mut joined: Vec<Wished> = Vec::new();
    for next in wishes {
        if let Some(last) = joined.last_mut()
            && last.wish == next.wish
            && let Target::Made { site, most, .. } = &mut last.target
            && let Target::Made { site: of, least, most: end } = &next.target
            && *of == *site
            && least.get() == most.get() + 1
        {
            *most = *end;
            continue;
        }
        joined.push(next);
    }
    joined
}

/// What is recommended: the place of a trial among those that were replayed, and how it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Verdict {
    pub(super) at: usize,
    pub(super) score: Score,
}

/// The trial to recommend (V3). The first of `trials` is 4 KiB pages, which are within any memory.
pub(super) fn settle(trials: &[Trial], scores: &[Score], spend: f64) -> Verdict {
    let fits = |at: &usize| *at == 0 || scores[*at].peak <= 1.0 + spend;
    let those: Vec<usize> = (0..trials.len()).filter(fits).collect();
    let best = those.iter().map(|at| scores[*at].time).fold(f64::MAX, f64::min);
    let is_good = |at: &usize| scores[*at].time <= best * (1.0 + KNEE_PERCENT / 100.0);
    let size = |at: &usize| {
        let Trial { choice, remedy } = &trials[*at];
        let has_wishes = remedy.as_ref().is_some_and(|remedy| !remedy.wishes.is_empty());
        (largest(*choice), *at != 0 && !has_wishes)
    };
    let at = those.into_iter().filter(is_good).min_by_key(size).unwrap_or(0);
    Verdict { at, score: scores[at] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant_trace::replay::{Origins, Row};
    use foliant_units::{Bytes, FRAME_BYTES, Nanos};

    fn order(n: u8) -> Order {
        Order::new(n).unwrap()
    }

    fn mapping(class: u64) -> Mapping {
        Mapping::Made { site: None, class: Bytes::new(class << 20) }
    }

    /// A replay of mappings with so much kernel time and memory each.
    fn explained(choice: Choice, mappings: &[(Mapping, u64, u64)]) -> Explained {
        let sum = |of: fn(&(Mapping, u64, u64)) -> u64| mappings.iter().map(of).sum::<u64>();
        let row = Row {
            choice,
            anonymous_faults: 0,
            shared_faults: 0,
            file_copies: 0,
            refused: 0,
            fallbacks: 0,
            fragmented_blocks: 0,
            moved_pages: 0,
            zeroed_bytes: 0,
            copied_pages: 0,
            shootdowns: 0,
            leaves: 0,
            kernel: Nanos(sum(|m| m.1)),
            compaction: Nanos(0),
            peak: Bytes::new(sum(|m| m.2) * FRAME_BYTES),
            peak_mapped: Bytes::new(0),
            untouched_bytes: 0,
            peak_step: 0,
            course: Vec::new(),
            folios: BTreeMap::new(),
        };
        let share = |(mapping, kernel, peak): &(Mapping, u64, u64)| {
            let (kernel, peak) = (Nanos(*kernel), Bytes::new(peak * FRAME_BYTES));
            (mapping.clone(), Share { kernel, peak, ..Share::default() })
        };
        let mappings = mappings.iter().map(share).collect();
        Explained { row, origins: Origins { mappings, parts: Vec::new() } }
    }

    fn up_to(n: u8) -> Choice {
        Choice::UpTo(order(n))
    }

    /// The heap gains much and costs nothing, one mapping gains and costs, one only costs.
    fn three(of: [(u64, u64); 3], choice: Choice) -> Explained {
        let [heap, dear, waste] = of;
        let all = [(Mapping::Heap, heap), (mapping(1), dear), (mapping(4), waste)];
        explained(choice, &all.map(|(mapping, (time, peak))| (mapping, time, peak)))
    }

    #[test]
    fn a_draft_takes_the_cheapest_and_stays_within_what_may_be_spent() {
        let base = three([(500, 500), (400, 400), (100, 100)], Choice::BASE);
        let after = three([(200, 500), (100, 440), (100, 200)], up_to(4));
        let judged = [Judged { base: &base, trials: vec![&after] }];
        let wishes = |spend| {
            let draft = draft(&judged, 0, up_to(4), spend).unwrap();
            let draft = draft.remedy;
            assert_eq!(draft.sizes, [2, 3, 4].map(|n| (order(n), Size::Madvise)));
            draft.wishes.into_iter().map(|wished| (wished.target, wished.wish)).collect::<Vec<_>>()
        };
        let (heap, dear) = (Target::Heap, mapping(1).target().unwrap());
        let waste = (mapping(4).target().unwrap(), Wish::NoHugePage);
        assert_eq!(
            wishes(0.04),
            [(heap.clone(), Wish::HugePage), (dear.clone(), Wish::HugePage), waste.clone()]
        );
        assert_eq!(wishes(0.039), [(heap, Wish::HugePage), (dear, Wish::NoHugePage), waste]);
        assert_eq!(draft(&judged, 0, Choice::BASE, 1.0), None, "no size, no remedy");
        let same = [Judged { base: &base, trials: vec![&base] }];
        assert_eq!(draft(&same, 0, up_to(4), 1.0), None, "nothing gains");
    }

    #[test]
    fn what_names_a_site_is_asked_before_what_names_a_size() {
        let site = foliant_trace::Site { object: "p".to_owned(), offset: 1 };
        let known = Mapping::Made { site: Some(site), class: Bytes::new(1 << 20) };
        let of = |time| [(mapping(1), time, 1), (known.clone(), time, 1)];
        let (base, after) = (explained(Choice::BASE, &of(9)), explained(up_to(4), &of(1)));
        let judged = [Judged { base: &base, trials: vec![&after] }];
        let wishes = draft(&judged, 0, up_to(4), 0.0).unwrap().remedy.wishes;
        assert_eq!(wishes[0].target, known.target().unwrap());
        assert_eq!(wishes.len(), 2);
    }

    #[test]
    fn classes_that_follow_each_other_become_one_range() {
        let site = |offset| foliant_trace::Site { object: "p".to_owned(), offset };
        let wish = |offset, class: u64, wish| Wished {
            target: Mapping::Made { site: Some(site(offset)), class: Bytes::new(class << 20) }
                .target()
                .unwrap(),
            wish,
        };
        let (huge, no) = (Wish::HugePage, Wish::NoHugePage);
        let heap = Wished { target: Target::Heap, wish: huge };
        let list = [wish(1, 4, huge), wish(1, 2, huge), wish(1, 16, huge), wish(1, 8, no)];
        let more = [wish(2, 4, huge), wish(2, 16, huge), heap.clone()];
        let joined = in_order([&list[..], &more].concat());
        assert_eq!(joined.len(), 6, "{joined:?}");
        assert_eq!(joined[0], heap);
        let Target::Made { least, most, .. } = &joined[1].target else { panic!("{joined:?}") };
        assert_eq!((least.get(), most.get()), ((1 << 20) + 1, 4 << 20));
    }

    #[test]
    fn a_score_is_the_mean_and_the_worst() {
        let row = |time, peak| explained(Choice::BASE, &[(Mapping::Heap, time, peak)]);
        let (base, fast, slow) = (row(100, 100), row(40, 120), row(60, 110));
        let judged = [&fast, &slow].map(|trial| Judged { base: &base, trials: vec![trial] });
        let [score] = scores(&judged)[..] else { panic!("one trial") };
        assert_eq!((score.time, score.least, score.most, score.peak), (0.5, 0.4, 0.6, 1.2));
    }

    #[test]
    fn the_smallest_size_near_the_best_that_is_within_the_memory_is_recommended() {
        let score = |time: f64, peak: f64| Score { time, least: time, most: time, peak };
        let wishing = |n| Trial {
            choice: up_to(n),
            remedy: Some(Remedy {
                wishes: vec![Wished { target: Target::Heap, wish: Wish::HugePage }],
                ..Remedy::NONE
            }),
        };
        let trials =
            [Choice::BASE.into(), up_to(2).into(), up_to(4).into(), wishing(4), up_to(9).into()];
        let check = |rows: [(f64, f64); 5], spend: f64, at: usize| {
            let scores = rows.map(|(time, peak)| score(time, peak));
            assert_eq!(settle(&trials, &scores, spend).at, at, "{rows:?}");
        };
        let base = (1.0, 1.0);
        check([base, (0.6, 1.0), (0.51, 1.0), (0.52, 1.0), (0.5, 1.0)], 0.05, 2);
        check([base, (0.6, 1.0), (0.51, 1.0), (0.51, 1.0), (0.5, 1.0)], 0.05, 3);
        check([base, (0.6, 1.0), (0.52, 1.0), (0.52, 1.0), (0.5, 1.0)], 0.05, 4);
        check([base, (0.6, 1.0), (0.52, 1.0), (0.52, 1.0), (0.5, 1.06)], 0.05, 3);
        check([base, (0.6, 1.01), (0.5, 1.06), (0.5, 1.06), (0.5, 1.06)], 0.05, 1);
        check([base, (0.6, 1.01), (0.5, 1.06), (0.5, 1.06), (0.5, 1.06)], 0.0, 0);
        check([base, (0.98, 1.0), (0.98, 1.0), (0.98, 1.0), (0.98, 1.0)], 0.05, 0);
    }
}
