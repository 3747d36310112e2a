//! What the rings and the tracer told, as one list in order of time, read as it is wanted.
//!
//! A ring is written by one CPU, in order, so rings merge by their heads. The tracer tells what a
//! call did when the call is over and stamps some of it with the time when it began; an entry waits
//! here until nothing older can follow (`log::G2`).
//!
//! **Invariants**
//! - J1. Held are a chunk of each ring, and what the tracer told while the longest call was under
//!   way.

use super::assemble::Execs;
use super::log::{RingReader, ToldReader};
use super::raw::Raw;
use super::spool::Spool;
use super::sys::pid_t;
use super::told::{Doing, Told};
use crate::event::Exec;
use foliant_units::Va;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;

/// One thing that was told.
pub(crate) enum Input {
    Raw(Raw),
    Told(Told),
}

/// All of it.
pub(crate) struct Merge {
    rings: Vec<RingReader>,
    /// The first record of each ring that is not at its end.
    heads: Vec<Option<Raw>>,
    /// The rings by their heads' times; of equal ones the first ring.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    told: ToldReader,
    /// By time, then in the order in which they were told.
    waiting: BTreeMap<(u64, u64), Told>,
    count: u64,
    floor: u64,
}

impl Merge {
    /// Of so many rings.
    pub(crate) fn new(rings: usize, spool: &Spool) -> io::Result<Merge> {
        let mut merge = Merge {
            rings: (0..rings).map(RingReader::new).collect(),
            heads: vec![None; rings],
            order: BinaryHeap::new(),
            told: ToldReader::new(),
            waiting: BTreeMap::new(),
            count: 0,
            floor: 0,
        };
        for ring in 0..rings {
            merge.refill(ring, spool)?;
        }
        Ok(merge)
    }

    fn refill(&mut self, ring: usize, spool: &Spool) -> io::Result<()> {
        self.heads[ring] = self.rings[ring].next(spool)?;
        self.order.extend(self.heads[ring].map(|raw| Reverse((raw.time, ring))));
        Ok(())
    }

    /// The next one; of equal times what the tracer told is first. Programs that are started go to
    /// `execs`, before their time.
    pub(crate) fn next(&mut self, spool: &Spool, execs: &mut Execs) -> io::Result<Option<Input>> {
        loop {
            let settled = self.waiting.first_key_value().filter(|(key, _)| key.0 <= self.floor);
            if settled.is_some() || self.read(spool, execs)?.is_none() {
                break;
            }
        }
        let raw = self.order.peek().map(|Reverse(head)| *head);
        let told = self.waiting.first_key_value().map(|(key, _)| key.0);
        if let Some(told) = told
            && raw.is_none_or(|(raw, _)| told <= raw)
        {
            return Ok(self.waiting.pop_first().map(|(_, told)| Input::Told(told)));
        }
        let Some((_, ring)) = raw else { return Ok(None) };
        self.order.pop();
        let raw = self.heads[ring];
        self.refill(ring, spool)?;
        Ok(raw.map(Input::Raw))
    }

    /// Reads on until it is known what program this thread started; nothing where it was gone
    /// before that was seen.
    pub(crate) fn seek_exec(
        &mut self,
        tid: pid_t,
        after: u64,
        spool: &Spool,
        execs: &mut Execs,
    ) -> io::Result<()> {
        let ends = |time: u64, told: &Told| {
            told.tid == tid && time >= after && matches!(told.what, Doing::Gone)
        };
        if self.waiting.iter().any(|((time, _), told)| ends(*time, told)) {
            return Ok(());
        }
        while !execs.has(tid) {
            match self.read(spool, execs)? {
                Some(key) if !ends(key.0, &self.waiting[&key]) => {}
                _ => break,
            }
        }
        Ok(())
    }

    /// Reads one more entry of the tracer's; says where it waits.
    fn read(&mut self, spool: &Spool, execs: &mut Execs) -> io::Result<Option<(u64, u64)>> {
        let Some((mut told, floor)) = self.told.next(spool)? else { return Ok(None) };
        self.floor = self.floor.max(floor);
        if let Doing::Exec { former, exec } = &mut told.what {
            execs.expect(told.tid, told.time, *former, std::mem::replace(exec, nothing()));
        }
        let key = (told.time, self.count);
        self.count += 1;
        self.waiting.insert(key, told);
        Ok(Some(key))
    }
}

/// What stands in the place of a program that was moved elsewhere.
pub(crate) fn nothing() -> Exec {
    let (program, brk) = (String::new(), Va::new(0));
    Exec { program, brk, areas: Vec::new(), present: Vec::new() }
}
