//! What a replay does with folio sizes: switches, and what is wished for mappings.

use super::Choice;
use super::plan::{Plan, Sizes};
use crate::wish::{Remedy, Wish};
use foliant::Policy;
use foliant::fault::{Orders, PolicyError};
use foliant_units::Order;

/// What is tried on a recording: sizes for all memory, or a remedy that was made of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The sizes, which the row of the replay bears.
    pub choice: Choice,
    /// What is done instead of switching them on for all memory.
    pub remedy: Option<Remedy>,
}

impl From<Choice> for Trial {
    fn from(choice: Choice) -> Trial {
        Trial { choice, remedy: None }
    }
}

/// A trial as a replay carries it out.
pub(super) struct Rule {
    pub(super) policy: Policy,
    /// By the numbers of mappings; empty where nothing is wished.
    wishes: Vec<Option<Wish>>,
}

impl Rule {
    /// A size that has no switch is refused.
    pub(super) fn of(trial: &Trial, plan: &Plan) -> Result<Rule, PolicyError> {
        let Some(remedy) = &trial.remedy else {
            return Ok(Rule { policy: trial.choice.policy(), wishes: Vec::new() });
        };
        let wishes = plan.mappings.iter().map(|mapping| mapping.wished_by(remedy));
        Ok(Rule { policy: remedy.policy()?, wishes: wishes.collect() })
    }

    /// What is wished for a mapping.
    pub(super) fn wish(&self, mapping: u16) -> Option<Wish> {
        self.wishes.get(usize::from(mapping)).copied().flatten()
    }

    /// The switches for memory that gets these of the sizes alone.
    pub(super) fn within(&self, sizes: Sizes) -> Policy {
        let of = |set: Orders| match sizes {
            Sizes::All => set,
            Sizes::Huge if set.contains(Order::SIZE_2M) => Orders::of(Order::SIZE_2M),
            Sizes::Huge | Sizes::Base => Orders::NONE,
        };
        let Policy { always, madvise, inherit, auto, .. } = self.policy;
        let [always, madvise, inherit, auto] = [always, madvise, inherit, auto].map(of);
        Policy { always, madvise, inherit, auto, ..self.policy }
    }
}
