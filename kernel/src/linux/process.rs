//! What the threads of a program share, and who is whose child.
//!
//! ```text
//!   fork ─▶ threads ─▶ last one ends ─▶ memory and descriptors go ─▶ parent is told ─▶ waited for: gone
//! ```
//!
//! **Invariants**
//! - P1. A process has memory from its first program on until its last thread has ended, and a CPU
//!   that runs one of its threads runs its space. Two processes have the same memory where one was
//!   made so and has not begun a program since.
//! - P2. Whose parent has ended is the first process's child. The first one's end is everybody's.
//!
//! **Locking**: a lock for each of memory, descriptors, place and the rest, none taken under
//! another one, but children's under the list of all.

use super::content::Content;
use super::events::Events;
use super::opened::Descriptors;
use super::sched::{self, Runs};
use super::signal::{
    Action, DEFAULT, Ended, IGNORE, Info, Pending, SIGNALS, Waiting, bit, is_harmless,
};
use super::timers::{Target, Timers};
use super::waiters::Waiters;
use super::{Memory, world};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use foliant::space::SpaceId;
use foliant_files::{Last, NodeId};
use foliant_linux::Errno;
use linux_raw_sys::errno::{ENOENT, ENOTDIR};
use linux_raw_sys::general::{SA_NOCLDWAIT, SIGCHLD, SIGKILL};
use spin::{Mutex, RwLock};

/// Memory of one or two processes (P1).
pub(super) struct Held(RwLock<Option<Memory>>);

impl Held {
    pub(super) fn of(memory: Memory) -> Arc<Held> {
        Arc::new(Held(RwLock::new(Some(memory))))
    }
    pub(super) fn with<R>(&self, work: impl FnOnce(&Memory) -> R) -> R {
        work(self.0.read().as_ref().expect("it is there until it is dropped"))
    }
    pub(super) fn with_alone<R>(&self, work: impl FnOnce(&mut Memory) -> R) -> R {
        work(self.0.write().as_mut().expect("it is there until it is dropped"))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(memory) = self.0.get_mut().take() {
            memory.end().expect("no CPU runs it (sched::S2)");
        }
    }
}

/// A process.
pub(super) struct Process {
    pub(super) id: u32,
    pub(super) parent: Mutex<Weak<Process>>,
    children: Mutex<Vec<Arc<Process>>>,
    /// Who waits for a child to end.
    pub(super) waiting: Waiters,
    pub(super) threads: Mutex<Vec<Arc<dyn Member>>>,
    /// Who waits for the other threads to end, or for the program to begin.
    pub(super) alone: Waiters,
    /// Its memory (P1).
    memory: RwLock<Option<Arc<Held>>>,
    /// Whether the memory is its parent's, which waits.
    pub(super) borrows: AtomicBool,
    pub(super) descriptors: Mutex<Descriptors>,
    /// The folder that paths begin at.
    folder: Mutex<NodeId>,
    /// Permissions that new files do not get.
    pub(super) mask: AtomicU32,
    pub(super) image: Mutex<Image>,
    /// What it does about each signal, from 1 on.
    pub(super) actions: Mutex<[Action; SIGNALS as usize]>,
    /// Signals for any of its threads.
    pub(super) signals: Waiting,
    /// Who waits for signals to read.
    pub(super) signalled: Arc<Waiters>,
    /// Timers that signal it.
    pub(super) timers: Timers,
    /// Group and session.
    pub(super) group: AtomicU32,
    pub(super) session: AtomicU32,
    ended: Mutex<Option<Ended>>,
    /// Nothing of it runs any more.
    is_gone: AtomicBool,
}

/// Whether a child that was found is taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reap {
    Yes,
    No,
}

/// A thread, as its process knows it.
pub(super) trait Member: Runs {
    fn id(&self) -> u32;
    /// Its signals.
    fn signals(&self) -> &Pending;
    /// Makes it go on no more.
    fn end(&self);
    /// Itself, for timers.
    fn target(self: Arc<Self>) -> Weak<dyn Target>;
}

/// The program that a process runs.
#[derive(Clone, Default)]
pub(super) struct Image {
    /// Where its file is.
    pub(super) path: Vec<u8>,
    /// What `comm` shows.
    pub(super) name: Vec<u8>,
    pub(super) arguments: Vec<Vec<u8>>,
    pub(super) environment: Vec<Vec<u8>>,
    /// The auxiliary vector, pairs of words.
    pub(super) auxiliary: Vec<[u64; 2]>,
}

/// All processes that are not waited for yet, by number.
static ALL: RwLock<BTreeMap<u32, Arc<Process>>> = RwLock::new(BTreeMap::new());
/// The last number that was given to a process or thread.
static LAST: AtomicU32 = AtomicU32::new(0);

/// A number that no process and no thread has.
pub(super) fn new_id() -> u32 {
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
/// The process with a number.
pub(super) fn of_id(id: u32) -> Option<Arc<Process>> {
    ALL.read().get(&id).cloned()
}
/// Whether nothing but the first process runs. It takes no memory.
pub(super) fn is_first_alone() -> bool {
    ALL.read().values().all(|process| process.id == 1 || process.is_gone())
}
/// Whether nothing runs any more.
pub(super) fn are_all_gone() -> bool {
    ALL.read().values().all(|process| process.is_gone())
}
/// All processes.
pub(super) fn all() -> Vec<Arc<Process>> {
    ALL.read().values().cloned().collect()
}

impl Process {
    fn new(id: u32, descriptors: Descriptors, folder: NodeId) -> Process {
        world().files.write().hold(folder);
        Process {
            id,
            parent: Mutex::new(Weak::new()),
            children: Mutex::new(Vec::new()),
            waiting: Waiters::new(),
            threads: Mutex::new(Vec::new()),
            alone: Waiters::new(),
            memory: RwLock::new(None),
            borrows: AtomicBool::new(false),
            descriptors: Mutex::new(descriptors),
            folder: Mutex::new(folder),
            mask: AtomicU32::new(0o022),
            image: Mutex::new(Image::default()),
            actions: Mutex::new([Action::default(); SIGNALS as usize]),
            signals: Waiting::new(),
            signalled: Arc::new(Waiters::new()),
            timers: Timers::new(),
            group: AtomicU32::new(id),
            session: AtomicU32::new(id),
            ended: Mutex::new(None),
            is_gone: AtomicBool::new(false),
        }
    }
    /// The first process.
    pub(super) fn first() -> Arc<Process> {
        let root = world().files.read().root();
        let process = Arc::new(Process::new(new_id(), Descriptors::first(), root));
        ALL.write().insert(process.id, process.clone());
        process
    }
    /// A child of this one with this memory.
    pub(super) fn child(self: &Arc<Process>, memory: Arc<Held>) -> Arc<Process> {
        let descriptors = self.descriptors.lock().clone();
        let child = Process::new(new_id(), descriptors, self.folder());
        let copy = |from: &AtomicU32, to: &AtomicU32| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        copy(&self.mask, &child.mask);
        copy(&self.group, &child.group);
        copy(&self.session, &child.session);
        *child.parent.lock() = Arc::downgrade(self);
        *child.memory.write() = Some(memory);
        *child.image.lock() = self.image.lock().clone();
        *child.actions.lock() = *self.actions.lock();
        let child = Arc::new(child);
        self.children.lock().push(child.clone());
        ALL.write().insert(child.id, child.clone());
        // Whoever ends everybody has looked before, or finds it (P2).
        if of_id(1).is_none_or(|first| first.ended().is_some()) {
            child.note_end(Ended::Signal(SIGKILL));
        }
        child
    }

    /// Its memory, if it has some.
    pub(super) fn memory(&self) -> Option<Arc<Held>> {
        self.memory.read().clone()
    }
    /// Gives it other memory; gives what it had.
    pub(super) fn replace_memory(&self, memory: Arc<Held>) -> Option<Arc<Held>> {
        self.memory.write().replace(memory)
    }
    /// The space that its threads run in.
    pub(super) fn space(&self) -> Option<SpaceId> {
        Some(self.memory()?.with(|memory| memory.space()))
    }
    /// Calls its memory, beside others. A thread of it does.
    pub(super) fn with_memory<R>(&self, work: impl FnOnce(&Memory) -> R) -> R {
        self.memory().expect("a program runs (P1)").with(work)
    }
    /// Calls its memory, alone.
    pub(super) fn with_memory_alone<R>(&self, work: impl FnOnce(&mut Memory) -> R) -> R {
        self.memory().expect("a program runs (P1)").with_alone(work)
    }

    /// The folder that its paths begin at.
    pub(super) fn folder(&self) -> NodeId {
        *self.folder.lock()
    }
    /// Makes a folder the one that its paths begin at.
    pub(super) fn enter(&self, path: &[u8]) -> Result<(), Errno> {
        let node = self.walk(self.folder(), path, Last::Follow)?;
        self.enter_node(node)
    }
    /// The same of one that is known.
    pub(super) fn enter_node(&self, node: NodeId) -> Result<(), Errno> {
        {
            let mut files = world().files.write();
            if !files.is_folder(node) {
                return Err(Errno(ENOTDIR));
            }
            files.hold(node);
        }
        let before = core::mem::replace(&mut *self.folder.lock(), node);
        let gone = world().files.write().let_go(before);
        drop(gone);
        Ok(())
    }
    /// Where a path leads.
    pub(super) fn walk(&self, from: NodeId, path: &[u8], last: Last) -> Result<NodeId, Errno> {
        if path.is_empty() {
            return Err(Errno(ENOENT));
        }
        if last == Last::Follow
            && let Some(node) = self.named_descriptor(path)
        {
            return Ok(node);
        }
        let files = world().files.read();
        let asked = |content: &Content| content.link(self.id);
        files.walk(from, path, last, &asked).map_err(|why| Errno(why.errno()))
    }

    /// What a path is that names a descriptor of its own.
    pub(super) fn named_descriptor(&self, path: &[u8]) -> Option<NodeId> {
        let number = match path {
            b"/dev/stdin" => 0,
            b"/dev/stdout" => 1,
            b"/dev/stderr" => 2,
            path => {
                let own = format!("/proc/{}/fd/", self.id);
                let heads = [&b"/dev/fd/"[..], b"/proc/self/fd/", own.as_bytes()];
                let number = heads.iter().find_map(|head| path.strip_prefix(*head))?;
                core::str::from_utf8(number).ok()?.parse::<u32>().ok()?
            }
        };
        Some(self.descriptors.lock().get(number.into()).ok()?.opened.node)
    }

    /// Says how it ended, if nobody did, and has its threads look.
    pub(super) fn note_end(&self, how: Ended) {
        self.ended.lock().get_or_insert(how);
        self.call_threads();
    }
    /// Has its threads look whether they go on.
    pub(super) fn call_threads(&self) {
        let threads = self.threads.lock().clone();
        threads.into_iter().for_each(|thread| sched::wake(thread));
        sched::wake_cpus();
    }
    /// What it does about a signal.
    pub(super) fn action(&self, number: u32) -> Action {
        self.actions.lock()[number as usize - 1]
    }
    /// Whether a signal would do nothing.
    pub(super) fn ignores(&self, number: u32) -> bool {
        match self.action(number).handler {
            IGNORE => number != SIGKILL,
            DEFAULT => is_harmless(number),
            _ => false,
        }
    }
    /// Sends it a signal.
    pub(super) fn send(&self, info: Info) {
        let number = info.number as u32;
        let is_waited_for = || {
            let threads = self.threads.lock();
            threads.iter().any(|thread| thread.signals().blocked() & bit(number) != 0)
        };
        if self.ignores(number) && !is_waited_for() {
            return;
        }
        if number == SIGKILL {
            return self.note_end(Ended::Signal(SIGKILL));
        }
        self.signals.put(info);
        self.call_threads();
        self.signalled.wake_for(Events::IN);
    }
    /// Sends one of its threads a signal.
    pub(super) fn send_to(&self, thread: &Arc<dyn Member>, info: Info) {
        let number = info.number as u32;
        if number == SIGKILL {
            return self.send(info);
        }
        let is_blocked = thread.signals().blocked() & bit(number) != 0;
        if self.ignores(number) && !is_blocked {
            return;
        }
        thread.signals().own.put(info);
        sched::wake(thread.clone());
        sched::wake_cpus();
        self.signalled.wake_for(Events::IN);
    }
    /// How it ended, if it did.
    pub(super) fn ended(&self) -> Option<Ended> {
        *self.ended.lock()
    }
    /// Whether nothing of it runs any more.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
    /// A thread of it has ended, and no CPU runs the space for it. Says whether it was the last.
    pub(super) fn lose(&self, id: u32) -> bool {
        let is_last = {
            let mut threads = self.threads.lock();
            threads.retain(|other| other.id() != id);
            threads.is_empty()
        };
        self.alone.wake();
        is_last
    }
    /// Gives back what it has, when its last thread has ended.
    pub(super) fn give_back(&self) {
        self.timers.clear();
        let closed = self.descriptors.lock().take_all();
        drop(closed);
        self.give_memory_back();
        let gone = world().files.write().let_go(self.folder());
        drop(gone);
        if self.id == 1 {
            // P2
            for other in all().iter().filter(|other| other.id != 1) {
                other.note_end(Ended::Signal(SIGKILL));
            }
        } else {
            self.leave_children();
        }
    }
    /// Tells its parent. That may be ending as well: what it leaves its children to looks at them
    /// behind the change of parents, and finds that this one is gone.
    pub(super) fn tell_parent(&self) {
        let ended = self.ended().expect("it has ended");
        self.is_gone.store(true, Ordering::Release);
        let parent = self.parent.lock().upgrade();
        match parent.filter(|parent| !parent.ignores_children()) {
            Some(parent) => {
                parent.send(Info::of_child(self.id, ended));
                parent.waiting.wake();
            }
            None => self.forget(),
        }
    }
    /// Lets go of its memory; where it was its parent's, that goes on.
    pub(super) fn give_memory_back(&self) {
        let memory = self.memory.write().take();
        drop(memory);
        self.let_parent_go_on();
    }
    /// Says that it has no use for its parent's memory any more.
    pub(super) fn let_parent_go_on(&self) {
        self.borrows.store(false, Ordering::Release);
        self.alone.wake();
    }
    /// Whether ended children are not waited for.
    fn ignores_children(&self) -> bool {
        let action = self.action(SIGCHLD);
        action.handler == IGNORE || action.flags & u64::from(SA_NOCLDWAIT) != 0
    }
    /// Gives its children to the first process (P2).
    fn leave_children(&self) {
        let children = core::mem::take(&mut *self.children.lock());
        let Some(first) = of_id(1) else { return };
        for child in children {
            *child.parent.lock() = Arc::downgrade(&first);
            first.children.lock().push(child);
        }
        first.waiting.wake();
    }
    /// Forgets a process: it was waited for, or nobody will.
    pub(super) fn forget(&self) {
        ALL.write().remove(&self.id);
        if let Some(parent) = self.parent.lock().upgrade() {
            parent.children.lock().retain(|child| child.id != self.id);
        }
    }

    /// Looks for a child that is meant and gone; with `Reap::Yes` one caller alone gets it. `None`
    /// where there is no child that is meant.
    pub(super) fn gone_child(
        &self,
        is_meant: impl Fn(&Process) -> bool,
        reap: Reap,
    ) -> Option<Option<Arc<Process>>> {
        let found = {
            let mut children = self.children.lock();
            let mut meant = (0..children.len()).filter(|nth| is_meant(&children[*nth])).peekable();
            meant.peek()?;
            let nth = meant.find(|nth| children[*nth].is_gone());
            nth.map(|nth| match reap {
                Reap::Yes => children.remove(nth),
                Reap::No => children[nth].clone(),
            })
        };
        if let (Some(child), Reap::Yes) = (&found, reap) {
            ALL.write().remove(&child.id);
        }
        Some(found)
    }

    /// Permissions of a new file that asks for these.
    pub(super) fn masked(&self, mode: u32) -> u32 {
        mode & 0o7777 & !self.mask.load(Ordering::Relaxed)
    }
}

impl Target for Process {
    fn has(&self, number: u32) -> bool {
        self.signals.set() & bit(number) != 0
    }
    fn tell(&self, info: Info) {
        self.send(info);
    }
}
