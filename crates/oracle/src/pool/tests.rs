//! Planted mistakes are found and made short, steps that are none are left out, and some sequences
//! agree with this host where it can be asked.

use super::*;

/// A side with a mistake.
struct Planted<S> {
    side: S,
    wrong: fn(&Step, Answer) -> Answer,
    /// Whether a page that was dropped counts as reserved no longer.
    forgets: bool,
    dropped: u64,
}

impl<S: Side> Side for Planted<S> {
    fn step(&mut self, step: &Step) -> Result<Answer, Failed> {
        let before = self.side.counts()?.reserved;
        let answer = self.side.step(step)?;
        if let Step::Drop { .. } = step {
            self.dropped += self.side.counts()?.reserved.saturating_sub(before);
        }
        Ok((self.wrong)(step, answer))
    }
    fn counts(&self) -> Result<Counts, Failed> {
        let mut counts = self.side.counts()?;
        counts.reserved -= if self.forgets { self.dropped.min(counts.reserved) } else { 0 };
        Ok(counts)
    }
}

/// The first difference between the manager and itself with a mistake, made short.
fn found(wrong: fn(&Step, Answer) -> Answer, forgets: bool) -> Option<(Vec<Step>, Difference)> {
    let run = |steps: &[Step]| {
        let end = ours::with(|right| {
            ours::with(|side| {
                let mut planted = Planted { side: Borrowed(side), wrong, forgets, dropped: 0 };
                compare(right, &mut planted, steps, (&mut Compared::default(), &Cell::new(0)))
            })
        });
        match end.unwrap() {
            End::Differs(difference) => Some(difference),
            End::Agreed | End::Reason(_) => None,
        }
    };
    (0..20).find_map(|seed| {
        let steps = steps(seed, 60);
        Some(shrink(&steps, run(&steps)?, run))
    })
}

struct Borrowed<'b, 'a, 'm>(&'b mut ours::Ours<'a, 'm>);

impl Side for Borrowed<'_, '_, '_> {
    fn step(&mut self, step: &Step) -> Result<Answer, Failed> {
        self.0.step(step)
    }
    fn counts(&self) -> Result<Counts, Failed> {
        self.0.counts()
    }
}

#[test]
fn the_manager_agrees_with_itself() {
    assert_eq!(found(|_, answer| answer, false), None);
}

#[test]
fn a_wrong_answer_is_found_and_made_short() {
    let wrong = |step: &Step, answer| match (step, answer) {
        (Step::Load { .. }, Answer::Byte(byte)) if byte > 0 => Answer::Byte(0),
        (_, answer) => answer,
    };
    let (steps, difference) = found(wrong, false).expect("bytes are read back");
    assert_eq!(difference.what, "answers");
    assert!(matches!(steps.last(), Some(Step::Load { .. })), "{steps:?}");
    assert!(steps.len() <= 4, "{steps:?}");
}

#[test]
fn a_wrong_count_is_found_and_made_short() {
    let (steps, difference) = found(|_, answer| answer, true).expect("pages are dropped");
    assert_eq!(difference.what, "counts");
    assert!(matches!(steps[..], [.., Step::Map { .. }, _, Step::Drop { .. }]), "{steps:?}");
    let text: Vec<String> = steps.iter().map(Step::to_string).collect();
    assert!(text.last().unwrap().contains(": MADV_DONTNEED "), "{text:?}");
}

#[test]
fn a_seed_is_a_sequence_with_every_step() {
    assert_eq!(steps(3, 60), steps(3, 60));
    assert_ne!(steps(3, 60), steps(4, 60));
    let kinds = (0..40).flat_map(|seed| steps(seed, 60)).map(|step| core::mem::discriminant(&step));
    assert_eq!(kinds.collect::<std::collections::HashSet<_>>().len(), 14);
}

/// Linux's counts are off for a while where an owner lets go of what a child has (T4), and it takes
/// a page from the wrong one where areas of an object are of both kinds (T5).
#[test]
fn steps_with_which_linux_counts_wrongly_are_none() {
    let mut there = There { processes: [true, false, false], ..There::default() };
    let what = What { of: Some(0), first: 0, shared: false, noreserve: false, writable: true };
    let map = |who, at, what| Step::Map { who, at, count: 2, what };
    let mut take = |step: Step| {
        let is_one = there.has(&step);
        is_one.then(|| there.take(&step));
        is_one
    };
    assert!(!take(map(0, 4, what)), "there is no object");
    assert!(take(Step::Create { of: 0, pages: 1 }) && !take(Step::Create { of: 0, pages: 1 }));
    assert!(take(map(0, 4, what)));
    assert!(!take(map(0, 8, What { noreserve: true, ..what })), "T5");
    assert!(take(map(0, 8, What { shared: true, noreserve: true, ..what })));
    assert!(!take(map(0, 10, What { first: 1, shared: true, writable: false, ..what })), "beyond");
    let unmap = |who, at| Step::Unmap { who, at, count: 1 };
    let drop = |who, at| Step::Drop { who, at, count: 1 };
    assert!(take(drop(0, 4)) && take(Step::Punch { of: 0, from: 0, count: 1 }));
    assert!(take(Step::Fork { who: 0, child: 2 }) && !take(Step::Fork { who: 0, child: 2 }));
    assert!(!take(unmap(0, 5)) && !take(drop(0, 4)), "the child may have the page");
    assert!(!take(Step::Punch { of: 0, from: 0, count: 1 }));
    assert!(!take(Step::Resize { of: 0, pages: 1 }) && take(Step::Resize { of: 0, pages: 9 }));
    assert!(take(unmap(0, 8)) && take(drop(2, 4)), "nothing is lent there, and not by the child");
    assert!(take(unmap(2, 5)) && take(unmap(0, 5)) && !take(unmap(0, 4)));
    assert!(take(Step::Exit { who: 2 }) && take(unmap(0, 4)));
    assert!(!take(Step::Exit { who: 2 }) && !take(Step::Exit { who: 0 }));
}

/// Both sides, where this host's pool can be had.
#[test]
fn some_steps_agree_with_this_host() {
    let oracle = match PoolOracle::new() {
        Ok(oracle) => oracle,
        Err(why) => return println!("skipped: {why}"),
    };
    let compared = oracle.hunt(600, 1, 60).unwrap();
    if let Some((seed, steps, difference)) = compared.found {
        panic!("seed {seed}: {steps:#?}\n{difference}");
    }
    assert!(compared.steps >= 600 && compared.refused < compared.steps * 2 / 3);
}
