//! Changes of root: what ends with them, and what may be kept.
//!
//! A machine that keeps nothing passes these laws trivially, and so it should: tags are a right,
//! not a duty.

use super::local::{NEW, OLD, cached, renew};
use super::*;
use crate::Cpus;

const PAGES: u64 = 8;

/// Runs the other root on the calling CPU while `work` runs, and then activates the suite's root
/// again with `kept`.
fn away<B: Bench>(bench: &B, kept: Kept, work: impl FnOnce()) {
    let machine = bench.machine();
    machine.activate(bench.other_root(), Kept::Nothing);
    work();
    machine.activate(bench.root(), kept);
}

/// Makes pages 0 to `PAGES - 1` map their old frames, cached under the suite's root.
fn all_cached<B: Bench>(bench: &B) -> Verdict {
    tidy(bench);
    (0..PAGES).try_for_each(|n| cached(bench, n).map(|_| ()))
}

/// What the pages must hold for the calling CPU.
fn all_hold<B: Bench>(bench: &B, what: &'static str, base: u64) -> Verdict {
    let machine = bench.machine();
    (0..PAGES).try_for_each(|n| expect(machine.me(), what, base + n, read(machine, page(bench, n))))
}

/// Points all pages to their new frames, one by one, each with its flush.
fn renew_each<B: Bench>(bench: &B, flush: impl Fn(&Invalidation)) {
    for n in 0..PAGES {
        renew(bench, n, || flush(&leaf_at(page(bench, n), Level::BASE, Tables::Kept)));
    }
}

pub(super) fn activate_ends_what_is_not_global<B: Bench>(bench: &B) -> Verdict {
    all_cached(bench)?;
    for n in 0..PAGES {
        renew(bench, n, || bench.machine().activate(bench.root(), Kept::Nothing));
    }
    all_hold(bench, "a page after its root was activated again", NEW)
}

/// The root is left, words change unseen, and it is activated again with nothing kept.
pub(super) fn what_was_kept_under_a_tag_is_ended_too<B: Bench>(bench: &B) -> Verdict {
    all_cached(bench)?;
    for n in 0..PAGES {
        renew(bench, n, || away(bench, Kept::Nothing, || ()));
    }
    all_hold(bench, "a page after its root was away", NEW)?;
    all_cached(bench)?;
    // The words change while the other root runs, as most words do; on a machine that breaks before
    // it makes they are made on return.
    let leaf = |n| bench.leaf(Level::BASE, small(bench, 2 * n + 1), Right::Writable);
    let make =
        || (0..PAGES).for_each(|n| store(bench.machine(), bench.word(page(bench, n)), leaf(n)));
    match bench.machine().rules().replace {
        Replace::InPlace => away(bench, Kept::Nothing, make),
        Replace::BreakBeforeMake => {
            let broken = |n| store(bench.machine(), bench.word(page(bench, n)), 0);
            away(bench, Kept::Nothing, || (0..PAGES).for_each(broken));
            make();
        }
    }
    all_hold(bench, "a page that changed while its root was away", NEW)
}

/// What was there before is found again, and what became present meanwhile is found at once (M2).
pub(super) fn what_is_unchanged_is_right<B: Bench>(bench: &B) -> Verdict {
    let machine = bench.machine();
    all_cached(bench)?;
    store(machine, small(bench, 2 * PAGES).pa(), NEW + PAGES);
    away(bench, Kept::Unchanged, || {
        let leaf = bench.leaf(Level::BASE, small(bench, 2 * PAGES), Right::Writable);
        store(machine, bench.word(page(bench, PAGES)), leaf);
    });
    all_hold(bench, "a page that nobody changed", OLD)?;
    let got = read(machine, page(bench, PAGES));
    expect(machine.me(), "a page mapped while its root was away", NEW + PAGES, got)
}

/// The kernel half is reached through every root: an invalidation carried out under one covers the
/// tags of all.
pub(super) fn invalidations_reach_roots_that_do_not_run<B: Bench>(bench: &B) -> Verdict {
    all_cached(bench)?;
    away(bench, Kept::Unchanged, || renew_each(bench, |what| bench.machine().invalidate(what)));
    all_hold(bench, "a page invalidated while its root was away", NEW)?;
    all_cached(bench)?;
    let everything = Invalidation::all(Scope::Kernel);
    away(bench, Kept::Unchanged, || renew_each(bench, |_| bench.machine().invalidate(&everything)));
    all_hold(bench, "a page after everything was invalidated while its root was away", NEW)
}

/// The same, asked for by another CPU.
pub(super) fn requests_reach_roots_that_do_not_run<B: Bench>(bench: &B) -> Verdict {
    let machine = bench.machine();
    let asker = machine.me();
    all_cached(bench)?;
    let finding = Finding::new();
    let others = || each_cpu(bench).filter(|cpu| *cpu != asker).take(7);
    let holds = |base| {
        for n in 0..PAGES {
            finding.expect(machine.me(), base + n, read(machine, page(bench, n)));
        }
    };
    for cpu in others() {
        bench.on(cpu, &|| {
            holds(OLD);
            machine.activate(bench.other_root(), Kept::Nothing);
        });
    }
    renew_each(bench, |what| everywhere(bench, what));
    for cpu in others() {
        bench.on(cpu, &|| {
            machine.activate(bench.root(), Kept::Unchanged);
            holds(NEW);
        });
    }
    finding.verdict("a page that another cpu invalidated while its root was away")
}
