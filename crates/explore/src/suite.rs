//! Lists of scenes.

use crate::operation::Operation;
use crate::plan::{Folios, Plan};

use Operation as Op;

/// Operations that are tried in threes: they change mappings or the owners of memory, or look at
/// what is changed.
pub const CHANGING: [Operation; 15] = [
    Op::Write,
    Op::WriteEmpty,
    Op::Load,
    Op::ReadOnly,
    Op::DontNeed,
    Op::Unmap,
    Op::MoveAway,
    Op::Fork,
    Op::EndChild,
    Op::Split,
    Op::Relocate,
    Op::Collapse,
    Op::Keep,
    Op::Poison,
    Op::Mappings,
];

/// Operations for which a scene of one space is of no use, or that need a scene of their own.
fn is_apart(operation: Operation) -> bool {
    matches!(
        operation,
        Op::EndSecond
            | Op::FindArea
            | Op::ChangeTree
            | Op::FillFull
            | Op::FillSurplus
            | Op::RefillHuge
    ) || operation.needs_object()
        || operation.needs_pooled()
}

/// Operations that operations on objects are tried with, besides each other.
const BESIDE_OBJECTS: [Operation; 5] =
    [Op::Fork, Op::EndChild, Op::Compact, Op::ShrinkDeferred, Op::Look];
/// The same for objects of huge pages.
const BESIDE_POOLED: [Operation; 5] =
    [Op::Fork, Op::EndChild, Op::PoolGrow, Op::PoolShrink, Op::Look];

/// Every two operations on an object, on one size of folios, with so many children.
pub fn objects(folios: Folios, forks: usize) -> Vec<Plan> {
    pairs_on(Operation::needs_object, &BESIDE_OBJECTS, (folios, forks))
}
/// Every two operations on an object of huge pages, with so many children.
pub fn pooled(forks: usize) -> Vec<Plan> {
    pairs_on(Operation::needs_pooled, &BESIDE_POOLED, (Folios::Base, forks))
}
fn pairs_on(
    is_one: fn(Operation) -> bool,
    beside: &[Operation],
    (folios, forks): (Folios, usize),
) -> Vec<Plan> {
    let fits = |op: &Operation| forks > 0 || !op.needs_child();
    let firsts = Operation::ALL.iter().copied().filter(|op| is_one(*op)).filter(fits);
    let all: Vec<Operation> = firsts.clone().chain(beside.iter().copied().filter(fits)).collect();
    let mut plans = Vec::new();
    for (nth, first) in firsts.enumerate() {
        let with = |second: &Operation| Plan::of(folios, forks, &[first, *second]);
        plans.extend(all[nth..].iter().map(with));
    }
    plans
}

/// Every two operations, on one size of folios, with so many children; on those whose size the
/// manager chooses, a guess and every other.
pub fn pairs(folios: Folios, forks: usize) -> Vec<Plan> {
    let fits = |op: &Operation| !is_apart(*op) && (forks > 0 || !op.needs_child());
    let all: Vec<Operation> = Operation::ALL.iter().copied().filter(fits).collect();
    let mut plans = Vec::new();
    for (nth, first) in all.iter().enumerate() {
        for second in &all[nth..] {
            let has_guess = *first == Op::Guess || *second == Op::Guess;
            if has_guess != (folios == Folios::Auto) {
                continue;
            }
            plans.push(Plan::of(folios, forks, &[*first, *second]));
        }
    }
    plans
}

/// Every three operations of [`CHANGING`], with a child.
pub fn triples(folios: Folios) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (i, first) in CHANGING.iter().enumerate() {
        for (j, second) in CHANGING.iter().enumerate().skip(i) {
            for third in &CHANGING[j..] {
                plans.push(Plan::of(folios, 1, &[*first, *second, *third]));
            }
        }
    }
    plans
}
