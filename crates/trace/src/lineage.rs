//! Who runs where: which space each thread is in, and when a space dies.
//!
//! Reader, writer and every replay need the same bookkeeping, so it stands here once. It is also
//! the gate that keeps a malformed trace out: an event of an unknown thread, a space that is born
//! twice or numbers out of order are refused, so a replayer may index by them.
//!
//! **Invariants**
//! - L1. Spaces and threads are numbered from 0 without gaps, in order of birth.
//! - L2. A live space has at least one thread.

use crate::event::{Event, EventKind, SpaceId, ThreadId};

/// The threads and spaces that are alive at one point of a trace.
#[derive(Clone, Debug, Default)]
pub struct Lineage {
    threads: Vec<Option<SpaceId>>,
    residents: Vec<u32>,
    alive: usize,
}

impl Lineage {
    /// The state before the first event.
    pub fn new() -> Lineage {
        Lineage::default()
    }

    /// The space that a live thread runs in.
    pub fn space_of(&self, thread: ThreadId) -> Option<SpaceId> {
        self.threads.get(thread.0 as usize).copied().flatten()
    }

    /// How many threads a space has; 0 for a dead or unborn one.
    pub fn residents(&self, space: SpaceId) -> u32 {
        self.residents.get(space.0 as usize).copied().unwrap_or(0)
    }

    /// Spaces seen so far, dead ones included; also the number of the next one to be born.
    pub fn spaces(&self) -> u32 {
        self.residents.len() as u32
    }

    /// Threads seen so far, ended ones included; also the number of the next one to be born.
    pub fn threads(&self) -> u32 {
        self.threads.len() as u32
    }

    /// Spaces alive now.
    pub fn spaces_alive(&self) -> usize {
        self.alive
    }

    /// Follows one event and returns the space that died by it, if one did.
    ///
    /// A refused event, one that breaks L1 or event::E2, leaves everything as it was.
    pub fn apply(&mut self, event: &Event) -> Result<Option<SpaceId>, &'static str> {
        let at = self.space_of(event.thread);
        if let EventKind::Exec(_) = event.kind {
            let first = event.thread.0 == self.threads() && self.alive == 0;
            if at.is_none() && !first {
                return Err("a program is started by a thread that is not alive");
            }
            if event.space.0 != self.spaces() {
                return Err("a space is born out of order");
            }
            let died = at.and_then(|old| self.leave(old));
            if first {
                self.threads.push(None);
            }
            self.residents.push(1);
            self.alive += 1;
            self.threads[event.thread.0 as usize] = Some(event.space);
            return Ok(died);
        }
        if at != Some(event.space) {
            return Err("an event names a thread that is not alive in its space");
        }
        match event.kind {
            EventKind::Fork { child, thread } => {
                if child.0 != self.spaces() || thread.0 != self.threads() {
                    return Err("a fork is numbered out of order");
                }
                self.residents.push(1);
                self.alive += 1;
                self.threads.push(Some(child));
            }
            EventKind::Share { thread, .. } => {
                if thread.0 != self.threads() {
                    return Err("a thread is numbered out of order");
                }
                self.residents[event.space.0 as usize] += 1;
                self.threads.push(Some(event.space));
            }
            EventKind::Exit { last } => {
                if last != (self.residents(event.space) == 1) {
                    return Err("an exit is wrong about being the last of its space");
                }
                self.threads[event.thread.0 as usize] = None;
                return Ok(self.leave(event.space));
            }
            _ => {}
        }
        Ok(None)
    }

    fn leave(&mut self, space: SpaceId) -> Option<SpaceId> {
        let residents = &mut self.residents[space.0 as usize];
        *residents -= 1;
        (*residents == 0).then(|| {
            self.alive -= 1;
            space
        })
    }
}
