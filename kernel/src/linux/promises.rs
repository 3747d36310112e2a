//! What programs were promised, and may be: `vm.overcommit_memory`.
//!
//! **Invariants**
//! - O1. Where promises are counted one call at a time is at work that may promise more, from the
//!   count to its end, as `foliant_linux::overcommit` wants it. It waits for locks alone.
//!
//! **Locking.** `ONE` is taken with no other lock held, and before those of memories, files and
//! segments. Memory that its process lets go of while it is counted ends under `ONE` alone.

use super::content::Content;
use super::process::{self, Held};
use super::{Memory, segments, world};
use crate::memory::manager;
use alloc::sync::Arc;
use foliant_linux::meminfo::Listed;
use foliant_linux::overcommit::{Counted, Overcommit};
use foliant_linux::{Errno, Limits};
use foliant_units::Pages;
use spin::{Mutex, MutexGuard, Once};

static WORDS: Once<Overcommit> = Once::new();
static ONE: Mutex<()> = Mutex::new(());

/// The machine's words about promises, first asked for as it starts.
pub(super) fn words() -> &'static Overcommit {
    WORDS.call_once(|| {
        let memory = manager().memory();
        Overcommit::new(memory.managed, memory.free)
    })
}

/// Adds what files have, those of segments with them.
pub(super) fn add_files(listed: &mut Listed) {
    let files = world().files.read();
    for content in files.leaves() {
        if let Content::Memory(bytes) = content {
            listed.add_file(&bytes.file);
        }
    }
    drop(files);
    segments::with(|table| table.all.files().for_each(|file| listed.add_file(&file)));
}

/// What all were promised, while nobody else counts; nothing where that does not matter.
struct Promised {
    pages: Pages,
    _alone: Option<MutexGuard<'static, ()>>,
}

impl Promised {
    fn count() -> Promised {
        let mut listed = Listed::default();
        let alone = words().is_strict().then(|| ONE.lock());
        if alone.is_some() {
            for memory in process::memories() {
                memory.with(|memory| listed.add_promises(memory));
            }
            add_files(&mut listed);
        }
        Promised { pages: listed.committed(), _alone: alone }
    }
    /// Says to a process's memory what its calls may ask for.
    fn tell(&self, memory: &mut Memory, is_admin: impl FnOnce() -> bool) {
        let promise = words().promise(|| Counted {
            is_admin: is_admin(),
            own: Pages::new(memory.pages()),
            committed: self.pages,
            pooled: manager().pooled(),
        });
        memory.set_limits(Limits { promise, ..memory.limits() });
    }
}

/// Calls a memory alone by which it may promise some.
pub(super) fn promising<R>(
    memory: &Held,
    is_admin: impl FnOnce() -> bool,
    work: impl FnOnce(&mut Memory) -> R,
) -> R {
    let promised = Promised::count();
    memory.change(move |memory| {
        promised.tell(memory, is_admin);
        work(memory)
    })
}
/// A copy for a child, which is promised what it may write.
pub(super) fn fork(memory: &Held, is_admin: impl FnOnce() -> bool) -> Result<Arc<Held>, Errno> {
    let promised = Promised::count();
    memory.fork(move |memory| {
        promised.tell(memory, is_admin);
        promised
    })
}
