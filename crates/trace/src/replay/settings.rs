//! The machine that a replay runs on, and why a replay may not come to its end.

use super::Choice;
use super::fragment::{PINS_PER_BLOCK, Percent};
use super::plan::{Plan, Records};
use crate::budget::Spent;
use foliant::fault::Defrag;
use foliant::manager::SetupError;
use foliant_sim::{CostModel, SimError};
use foliant_units::{Bytes, FRAME_BYTES, Order};
use std::fmt;

/// The least memory that a replay runs in, where none is asked for.
pub const MEMORY_LEAST: Bytes = Bytes::new(256 << 20);
/// Added to twice the peak where no memory is asked for.
const MEMORY_SLACK: u64 = 64 << 20;
/// Added to what a plan can need where memory is fragmented: what CPUs keep aside, the shared zeros
/// of 2 MiB, tables that are about to be freed, and room to move folios in.
const FRAGMENTED_SLACK: u64 = 8 << 20;
/// Larger memories are not described beforehand: the host would have to hold the descriptors.
pub(super) const WARM_MOST: u64 = 8 << 30;
/// What the host holds for each frame that is described, for each CPU, and for the rest of a
/// machine.
const DESCRIPTOR: u64 = 64;
const CPU: u64 = 64 << 10;
const MACHINE: u64 = 1 << 20;
/// What the manager keeps: a table for each 2 MiB block and at worst two above it, a root and
/// records for each space, a record for each area.
const TABLES: u64 = 3 * FRAME_BYTES;
const SPACE: u64 = 4 * FRAME_BYTES;
const AREA: u64 = 256;
/// For each step: a mark whether it took a fault, and a page that was read as a part of zeros.
const STEP: u64 = 32;

/// The machine that a replay runs on.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// CPUs; the trace's threads are dealt out to them.
    pub cpus: usize,
    /// Physical memory; `None` for twice what the trace can need, or, where memory is fragmented,
    /// just what it can need beside the other program's pages.
    pub memory: Option<Bytes>,
    /// The share of 2 MiB blocks with pages of another program in them.
    pub fragmented: Percent,
    /// What a fault does where no block is free for a large folio.
    pub defrag: Defrag,
    /// What work costs.
    pub model: CostModel,
}

impl Default for Settings {
    fn default() -> Settings {
        let (memory, fragmented) = (None, Percent::default());
        let defrag = Defrag::Always;
        Settings { cpus: 2, memory, fragmented, defrag, model: CostModel::xeon_guest_2() }
    }
}

impl Settings {
    /// The memory for a plan.
    pub fn memory_for(&self, plan: &Plan) -> Bytes {
        self.memory.unwrap_or_else(|| match self.fragmented.get() {
            0 => usual(plan),
            share => tight(plan, u64::from(share)),
        })
    }

    /// What a machine with that memory takes of the host's while it replays the plan. Contents of
    /// pages take nothing; page tables, descriptors and records do.
    pub(super) fn host_bytes(&self, plan: &Plan) -> Bytes {
        let memory = self.memory_for(plan).get();
        let all = memory <= WARM_MOST || self.fragmented.get() > 0;
        let described = if all { memory } else { memory.min(usual(plan).get()) };
        let cpus = (self.cpus as u64).saturating_mul(CPU);
        let parts = [
            described / FRAME_BYTES * DESCRIPTOR,
            records(plan).min(memory),
            cpus,
            plan.steps().saturating_mul(STEP),
            MACHINE,
        ];
        Bytes::new(parts.iter().fold(0, |sum: u64, part| sum.saturating_add(*part)))
    }
}

/// What the manager keeps at most for what the plan has at once.
fn records(plan: &Plan) -> u64 {
    let Records { spaces, areas, tables } = plan.peak;
    let kept = [(tables, TABLES), (spaces, SPACE), (areas, AREA)];
    kept.iter().fold(0u64, |sum, (n, each)| sum.saturating_add(n.saturating_mul(*each)))
}

/// The memory for a plan, of which `share` in a hundred is fragmented, where none is asked for: all
/// policies replay on the same machine, so it is what no policy needs more than, and nothing to
/// spare but [`FRAGMENTED_SLACK`]. Large folios have to be found between the other program's pages.
fn tight(plan: &Plan, share: u64) -> Bytes {
    let need = plan.peak_blocks.get().saturating_add(records(plan));
    let need = u128::from(need) + u128::from(FRAGMENTED_SLACK);
    // Of a block of 2 MiB the other program has its share of pins and a table, and descriptors take
    // as many frames as hold one for each frame.
    let (pages, parts) = (u128::from(Order::SIZE_2M.pages().get()), 100);
    let descriptors = pages * u128::from(DESCRIPTOR) / u128::from(FRAME_BYTES);
    let lost = u128::from(share * PINS_PER_BLOCK) + (1 + descriptors) * parts;
    let bytes = need * (pages * parts) / (pages * parts - lost);
    let whole = bytes.next_multiple_of(u128::from(Bytes::SIZE_2M.get()));
    Bytes::new(u64::try_from(whole).unwrap_or(u64::MAX))
}

/// The memory for a plan where none is asked for, and none is fragmented.
fn usual(plan: &Plan) -> Bytes {
    let need = plan.peak_blocks.get().saturating_mul(2).saturating_add(MEMORY_SLACK);
    let whole = need.checked_next_multiple_of(Bytes::SIZE_2M.get());
    Bytes::new(whole.unwrap_or(u64::MAX)).max(MEMORY_LEAST)
}

/// Why a replay did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// No such machine.
    Machine(SimError),
    /// The memory does not even hold the manager's own records.
    TooSmall {
        /// The memory.
        memory: Bytes,
        /// What the manager said.
        why: SetupError,
    },
    /// It takes more of this machine than the plan's budget has left.
    Spent(Spent),
    /// Memory ran out.
    OutOfMemory {
        /// The policy.
        choice: Choice,
        /// The memory.
        memory: Bytes,
        /// The share of fragmented blocks.
        fragmented: Percent,
    },
    /// The manager refused a call that the recorded kernel carried out.
    Refused {
        /// The policy.
        choice: Choice,
        /// The step of the plan.
        step: u64,
        /// What was refused and why.
        why: String,
    },
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Machine(why) => write!(f, "no machine can be built: {why}"),
            ReplayError::TooSmall { memory, why } => {
                write!(f, "{memory} of memory are too little to start with ({why}); give more")
            }
            ReplayError::Spent(spent) => write!(f, "{spent}"),
            ReplayError::OutOfMemory { choice, memory, fragmented } => {
                write!(f, "{memory} of memory")?;
                if fragmented.get() > 0 {
                    write!(f, ", {fragmented} of it fragmented,")?;
                }
                write!(f, " ran out while replaying with {choice}; give more with --memory")
            }
            ReplayError::Refused { choice, step, why } => {
                write!(f, "step {step} of the replay with {choice} was refused: {why}")
            }
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<Spent> for ReplayError {
    fn from(spent: Spent) -> ReplayError {
        ReplayError::Spent(spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, Thing};
    use crate::replay::replay_all;

    #[test]
    fn a_recording_that_needs_more_than_there_can_be_is_refused() {
        for blocks in [u64::MAX, u64::MAX / 2, u64::MAX - MEMORY_SLACK] {
            let refused = |budget: Budget| {
                let mut plan = Plan::new([], &budget).unwrap();
                plan.peak_blocks = Bytes::new(blocks);
                let settings = Settings::default();
                assert!(settings.memory_for(&plan) >= MEMORY_LEAST);
                replay_all(&plan, &[Choice::BASE], &settings, |_| ()).unwrap_err()
            };
            let why = refused(Budget::unlimited());
            assert!(matches!(why, ReplayError::Machine(_)), "{blocks}: {why}");
            let why = refused(Budget::default());
            assert!(
                matches!(why, ReplayError::Spent(Spent { thing: Thing::Machines, .. })),
                "{blocks}: {why}"
            );
        }
    }
}
