//! At the end of a history nothing is outstanding, every user frame was returned, and every table
//! is in use.
//!
//! Tables are recounted in memory: a frame that is stated to be a table is reached from a root that
//! some CPU runs, and what is reached as a table is stated to be one, or the embedder's. So the
//! code that ends a history has to end all spaces that no CPU runs first.

use super::spans::Spans;
use super::{Checker, Event, Report, Seen};
use crate::config::Format;
use crate::format::Decoded;
use crate::memory::Memory;
use foliant_machine::{Owner, Root};
use foliant_units::{FRAME_BYTES, Frame, Pa};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(super) struct Quiescent {
    format: Format,
    owners: Spans<Owner>,
    /// What each CPU runs.
    roots: BTreeMap<u16, Root>,
}

impl Quiescent {
    pub(super) fn new(format: Format) -> Quiescent {
        Quiescent { format, owners: Spans::new(Owner::Reserved), roots: BTreeMap::new() }
    }

    /// The frames of all tables that hang on running roots, those included.
    fn reached(&self, memory: &Memory) -> BTreeSet<u64> {
        let tops = self.roots.values().flat_map(|root| [root.user, root.kernel]);
        let mut tables: BTreeSet<u64> = tops.map(|top| top.frame().get()).collect();
        let mut at_level = tables.clone();
        for level in (1..self.format.levels()).rev() {
            let below = |table: &Frame| self.below(memory, *table, level);
            at_level =
                at_level.into_iter().map(Frame::new).flat_map(|table| below(&table)).collect();
            tables.extend(&at_level);
        }
        tables
    }

    /// The frames of the tables that the words of `table`, at `level`, name.
    fn below(&self, memory: &Memory, table: Frame, level: u8) -> Vec<u64> {
        let words = (0..FRAME_BYTES).step_by(8).filter_map(|at| memory.load(table.pa().add(at)));
        let named = words.filter_map(|word| match self.format.decode(level, word) {
            Decoded::Table { table, .. } => Some(Pa::frame(table).get()),
            _ => None,
        });
        named.collect()
    }

    fn recount_tables(&self, memory: &Memory, report: &mut Report<'_>) {
        let reached = self.reached(memory);
        for frame in &reached {
            let owner = self.owners.get(*frame);
            if !matches!(owner, Owner::Table | Owner::Reserved) {
                let frame = Frame::new(*frame);
                report(format!("{frame:?} is reached as a table, and is stated as {owner:?}"));
            }
        }
        let stated = self.owners.each(Owner::Table).filter(|frame| !reached.contains(frame));
        let lost: Vec<u64> = stated.collect();
        if let Some(first) = lost.first() {
            let (count, first) = (lost.len(), Frame::new(*first));
            report(format!("{count} tables are reached from no root, the first is {first:?}"));
        }
    }
}

impl Checker for Quiescent {
    fn name(&self) -> &'static str {
        "quiescent"
    }

    fn event(&mut self, seen: &Seen<'_>, event: &Event<'_>, report: &mut Report<'_>) {
        match *event {
            Event::Owned { frames, owner } => {
                self.owners.set(frames.start().get(), frames.end().get(), owner);
            }
            Event::Activated { root } => {
                self.roots.insert(seen.cpu.0, root);
            }
            Event::Outstanding { tickets } if tickets > 0 => {
                report(format!("{tickets} tickets were never waited for"));
            }
            Event::Finished => {
                for owner in [Owner::User, Owner::Claimed] {
                    if let Some(first) = self.owners.each(owner).next() {
                        let (count, first) = (self.owners.count(owner), Frame::new(first));
                        report(format!(
                            "{count} frames are still {owner:?}, the first is {first:?}"
                        ));
                    }
                }
                self.recount_tables(seen.memory, report);
            }
            _ => {}
        }
    }
}
