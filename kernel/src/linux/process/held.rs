//! A process's memory, as its threads and those of others have it.
//!
//! **Invariants**
//! - P3. It ends with the last one that holds it, and no CPU runs its space then (sched::S2). No
//!   lock is held then: the file of its program is let go of (hold::G1).

use super::super::Memory;
use super::super::hold::Hold;
use super::super::waiters::Cut;
use crate::running::Origin;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use foliant::fault::Access;
use foliant_linux::{Change, Errno, Fault, Told};
use spin::{Mutex, RwLock};

/// Memory of one or two processes (P1).
pub(in super::super) struct Held {
    memory: RwLock<Option<Memory>>,
    /// The file of the program that is in it (exec::L3).
    program: Hold,
    /// Descriptors of `userfaultfd` by their numbers, for faults that are told.
    handlers: Mutex<BTreeMap<u64, Weak<dyn Handles>>>,
}

/// Who is told of faults, and whom those wait for that took them.
pub(in super::super) trait Handles: Send + Sync {
    /// Tells of a fault, and waits until the access may be made again.
    fn wait(&self, told: &Told, origin: Origin) -> Result<(), Cut>;
    /// Notes a change, which has a number until it was read of; `child` is what a fork made.
    fn note(&self, change: Change, child: Option<&Arc<Held>>) -> u64;
    /// Waits until it was read of.
    fn wait_read(&self, number: u64);
}
/// Who is to read of which changes.
type Noted = Vec<(Arc<dyn Handles>, u64)>;

impl Held {
    pub(in super::super) fn of(memory: Memory, program: Hold) -> Arc<Held> {
        let memory = RwLock::new(Some(memory));
        Arc::new(Held { memory, program, handlers: Mutex::new(BTreeMap::new()) })
    }
    /// A copy for a child. What `before` gives is kept until it is there.
    pub(in super::super) fn fork<K>(
        &self,
        before: impl FnOnce(&mut Memory) -> K,
    ) -> Result<Arc<Held>, Errno> {
        let program = self.program.again()?;
        let (child, noted) = self.with_alone(|memory| {
            let _kept = before(memory);
            let child = Held::of(memory.fork()?, program);
            let noted = self.note(memory.take_changes(), Some(&child));
            Ok::<_, Errno>((child, noted))
        })?;
        wait_read(noted);
        Ok(child)
    }
    /// Calls it alone, and goes on when whoever answers its faults has read of what changed
    /// (userfault::W4).
    pub(in super::super) fn change<R>(&self, work: impl FnOnce(&mut Memory) -> R) -> R {
        let (answer, noted) = self.with_alone(|memory| {
            let answer = work(memory);
            (answer, self.note(memory.take_changes(), None))
        });
        wait_read(noted);
        answer
    }
    /// The same of what is about to change.
    pub(in super::super) fn tell(&self, changes: Vec<(u64, Change)>) {
        wait_read(self.note(changes, None));
    }
    fn note(&self, changes: Vec<(u64, Change)>, child: Option<&Arc<Held>>) -> Noted {
        let note = |(descriptor, change)| {
            let handler = self.handlers.lock().get(&descriptor).and_then(Weak::upgrade)?;
            let number = handler.note(change, child);
            Some((handler, number))
        };
        changes.into_iter().filter_map(note).collect()
    }
    pub(in super::super) fn with<R>(&self, work: impl FnOnce(&Memory) -> R) -> R {
        work(self.memory.read().as_ref().expect("it is there until it is dropped"))
    }
    pub(in super::super) fn with_alone<R>(&self, work: impl FnOnce(&mut Memory) -> R) -> R {
        work(self.memory.write().as_mut().expect("it is there until it is dropped"))
    }
}

impl Held {
    /// Handles an access that the processor refused.
    pub(in super::super) fn fault(&self, va: u64, access: Access) -> Fault {
        match self.with(|memory| memory.fault(va, access)) {
            Fault::Alone => self.with_alone(|memory| memory.fault_alone(va, access)),
            answer => answer,
        }
    }
    /// Says who is told of faults by a descriptor of `userfaultfd`.
    pub(in super::super) fn note_handler(&self, id: u64, handler: Weak<dyn Handles>) {
        self.handlers.lock().insert(id, handler);
    }
    /// It is closed.
    pub(in super::super) fn forget_handler(&self, id: u64) {
        self.handlers.lock().remove(&id);
    }
    /// Tells of a fault, and waits until the access may be made again.
    pub(in super::super) fn wait_told(&self, told: &Told, origin: Origin) -> Result<(), Cut> {
        let handler = self.handlers.lock().get(&told.descriptor).and_then(Weak::upgrade);
        handler.map_or(Ok(()), |handler| handler.wait(told, origin))
    }
}

fn wait_read(noted: Noted) {
    noted.iter().for_each(|(handler, number)| handler.wait_read(*number));
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.get_mut().take() {
            memory.end().expect("no CPU runs it (sched::S2)");
        }
    }
}
