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

mod held;
mod kin;
mod sent;
mod stops;

use super::clock;
use super::credentials::{Seat, Walker};
use super::limits::{DESCRIPTORS, Limits};
use super::locks::{self, Owner};
use super::opened::{Descriptor, Descriptors};
use super::sched::{self, Runs};
use super::signal::{Action, Ended, Info, Pending, SIGNALS, Waiting, bit};
use super::timer::Expires;
use super::timers::{Target, Timers};
use super::usage::Usage;
use super::waiters::Waiters;
use super::{Memory, names, world};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use foliant::space::SpaceId;
use foliant_files::{Last, NodeId};
use foliant_linux::Errno;
use foliant_linux::credentials::Credentials;
use foliant_linux::mempolicy::Mempolicy;
use linux_raw_sys::errno::{ENOENT, ENOTDIR};
use linux_raw_sys::general::{SIGCHLD, SIGKILL};
use spin::{Mutex, Once, RwLock};

pub(super) use held::{Handles, Held};
use stops::Stop;

pub(super) use kin::{Kin, Reap};

/// Whether a child is one still when its parent was told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stays {
    Yes,
    No,
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
    /// Who its first thread is (credentials).
    pub(super) credentials: Arc<Seat>,
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
    /// The signal that it gets when its parent ends; 0 for none.
    pub(super) dies_with: AtomicU32,
    /// The signal that its parent gets when it ends; 0 for none. Where the parent runs another
    /// program by then than it did when it made this process, that is `SIGCHLD`.
    pub(super) tells_by: AtomicU32,
    /// Programs that its parent had run when it made this process, and those that it ran itself.
    pub(super) made_at: AtomicU32,
    pub(super) programs: AtomicU32,
    /// What `PR_SET_DUMPABLE` and `PR_SET_NO_NEW_PRIVS` set.
    pub(super) is_dumpable: AtomicBool,
    pub(super) is_kept_low: AtomicBool,
    /// Which commands of `membarrier` it registered for.
    pub(super) barriers: AtomicU32,
    /// Whether it had locks of files.
    pub(super) has_locks: AtomicBool,
    /// It began a program since it was made, and it has no terminal though its session has one.
    pub(super) has_begun: AtomicBool,
    pub(super) is_apart: AtomicBool,
    /// What it may have.
    pub(super) limits: Limits,
    /// What signals it when it has spent what it may.
    pub(super) time_limit: Mutex<Option<Arc<dyn Expires>>>,
    /// How gladly it is ended where memory runs out, and the personality that it asked for.
    pub(super) badness: AtomicI32,
    pub(super) personality: AtomicU32,
    /// When it began.
    pub(super) began: u64,
    /// What its threads used that have ended, and its children that were waited for.
    used: Mutex<Usage>,
    children_used: Mutex<Usage>,
    stop: Stop,
    ended: Once<Ended>,
    /// Nothing of it runs any more.
    is_gone: AtomicBool,
    /// Who waits for that, whoever it is the child of.
    pub(super) gone: Waiters,
}

/// A thread, as its process knows it.
pub(super) trait Member: Runs {
    fn id(&self) -> u32;
    /// Its signals.
    fn signals(&self) -> &Pending;
    /// What it used.
    fn usage(&self) -> Usage;
    /// Its memory policy.
    fn policy(&self) -> Option<Mempolicy>;
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
/// The last number that was given.
pub(super) fn last_id() -> u32 {
    LAST.load(Ordering::Relaxed)
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
/// The memory of all processes, in their order: of those that share one (P1) once.
pub(super) fn memories() -> Vec<Arc<Held>> {
    let mut seen = BTreeSet::new();
    let memories = all().into_iter().filter_map(|process| process.memory());
    memories.filter(|memory| seen.insert(Arc::as_ptr(memory))).collect()
}

impl Process {
    fn new(id: u32, descriptors: Descriptors, folder: NodeId, limits: Limits) -> Process {
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
            credentials: Seat::of_root(),
            folder: Mutex::new(folder),
            mask: AtomicU32::new(0o022),
            image: Mutex::new(Image::default()),
            actions: Mutex::new([Action::default(); SIGNALS as usize]),
            signals: Waiting::new(),
            signalled: Arc::new(Waiters::new()),
            timers: Timers::new(),
            group: AtomicU32::new(id),
            session: AtomicU32::new(id),
            dies_with: AtomicU32::new(0),
            tells_by: AtomicU32::new(SIGCHLD),
            made_at: AtomicU32::new(0),
            programs: AtomicU32::new(0),
            is_dumpable: AtomicBool::new(true),
            is_kept_low: AtomicBool::new(false),
            barriers: AtomicU32::new(0),
            has_locks: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
            is_apart: AtomicBool::new(false),
            limits,
            time_limit: Mutex::new(None),
            badness: AtomicI32::new(0),
            personality: AtomicU32::new(0),
            began: clock::uptime(),
            used: Mutex::new(Usage::default()),
            children_used: Mutex::new(Usage::default()),
            stop: Stop::new(),
            ended: Once::new(),
            is_gone: AtomicBool::new(false),
            gone: Waiters::new(),
        }
    }
    /// The first process.
    pub(super) fn first() -> Arc<Process> {
        let root = world().files.read().root();
        let process = Arc::new(Process::new(
            new_id(),
            Descriptors::first(DESCRIPTORS[0] as usize),
            root,
            Limits::first(),
        ));
        ALL.write().insert(process.id, process.clone());
        process
    }
    /// Its memory, if it has some.
    pub(super) fn memory(&self) -> Option<Arc<Held>> {
        self.memory.read().clone()
    }
    /// Gives it other memory; gives what it had.
    pub(super) fn replace_memory(&self, memory: Arc<Held>) -> Option<Arc<Held>> {
        let before = self.memory.write().replace(memory);
        before.iter().for_each(|before| self.note_peak(before));
        before
    }
    /// Keeps what was resident of memory that it lets go of.
    fn note_peak(&self, memory: &Held) {
        let peak = memory.with(|memory| memory.peak());
        let mut used = self.used.lock();
        used.peak = used.peak.max(peak);
    }
    /// What all of its threads used but of memory, of which it asks nobody.
    pub(super) fn time(&self) -> Usage {
        let mut all = *self.used.lock();
        for thread in self.threads.lock().iter() {
            all = all.and(thread.usage());
        }
        all
    }
    /// What all of its threads used.
    pub(super) fn usage(&self) -> Usage {
        let mut all = self.time();
        let peak = self.memory().map(|memory| memory.with(|memory| memory.peak()));
        all.peak = all.peak.max(peak.unwrap_or_default());
        all
    }
    /// What its children used that were waited for.
    pub(super) fn children_usage(&self) -> Usage {
        *self.children_used.lock()
    }
    /// The space that its threads run in.
    pub(super) fn space(&self) -> Option<SpaceId> {
        Some(self.memory()?.with(|memory| memory.space()))
    }
    /// Calls its memory, beside others. A thread of it does.
    pub(super) fn with_memory<R>(&self, work: impl FnOnce(&Memory) -> R) -> R {
        self.memory().expect("a program runs (P1)").with(work)
    }
    /// Calls its memory, alone, and tells of what changed.
    pub(super) fn with_memory_alone<R>(&self, work: impl FnOnce(&mut Memory) -> R) -> R {
        self.memory().expect("a program runs (P1)").change(work)
    }

    /// The folder that its paths begin at.
    pub(super) fn folder(&self) -> NodeId {
        *self.folder.lock()
    }
    /// Makes the folder of a path of the kernel's the one that its paths begin at.
    pub(super) fn enter(&self, path: &[u8]) -> Result<(), Errno> {
        let node = self.walk(&Credentials::ROOT, self.folder(), path, Last::Follow)?;
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
    /// Where a path leads somebody.
    pub(super) fn walk(
        &self,
        by: &Credentials,
        from: NodeId,
        path: &[u8],
        last: Last,
    ) -> Result<NodeId, Errno> {
        if path.is_empty() {
            return Err(Errno(ENOENT));
        }
        if last == Last::Follow
            && let Some(node) = self.named_descriptor(path)
        {
            return Ok(node);
        }
        let walker = Walker { process: self.id, credentials: by };
        names::look(|files| files.walk(from, path, last, &walker))
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
        self.ended.call_once(|| how);
        self.call_threads();
    }
    /// Has its threads look whether they go on.
    pub(super) fn call_threads(&self) {
        let threads = self.threads.lock().clone();
        threads.into_iter().for_each(|thread| sched::wake(thread));
        sched::wake_cpus();
    }
    /// How it ended, if it did.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.ended.get().copied()
    }
    /// Whether nothing of it runs any more.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
    /// A thread of it has ended, and no CPU runs the space for it. Says whether it was the last.
    pub(super) fn lose(&self, id: u32) -> bool {
        let is_last = {
            let mut threads = self.threads.lock();
            if let Some(thread) = threads.iter().find(|thread| thread.id() == id) {
                let mut used = self.used.lock();
                *used = used.and(thread.usage());
            }
            threads.retain(|other| other.id() != id);
            threads.is_empty()
        };
        self.alone.wake();
        self.note_rest();
        is_last
    }
    /// A descriptor was closed: with it go all locks that the process has of its file.
    pub(super) fn closed(&self, descriptor: Descriptor) {
        if self.has_locks.load(Ordering::Acquire) {
            locks::let_go(descriptor.opened.node.inode(), Owner::Process(self.id));
        }
        drop(descriptor);
    }
    /// Gives back what it has, when its last thread has ended.
    pub(super) fn give_back(&self) {
        self.timers.clear();
        let limit = self.time_limit.lock().take();
        drop(limit);
        let closed = self.descriptors.lock().take_all();
        closed.into_iter().for_each(|closed| self.closed(closed));
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
    /// Lets go of its memory; where it was its parent's, that goes on.
    pub(super) fn give_memory_back(&self) {
        let memory = self.memory.write().take();
        memory.iter().for_each(|memory| self.note_peak(memory));
        drop(memory);
        self.let_parent_go_on();
    }
    /// Says that it has no use for its parent's memory any more.
    pub(super) fn let_parent_go_on(&self) {
        self.borrows.store(false, Ordering::Release);
        self.alone.wake();
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
