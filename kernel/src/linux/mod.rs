//! Programs made for Linux: processes, files in memory, and the table of Linux's calls.
//!
//! ```text
//!   archive ─▶ files ─▶ program loaded ─▶ ring 3 ──call──▶ calls ─▶ files, process, foliant-linux
//!                                            ▲  └──fault──▶ process's memory      │
//!                                            └────────────── result ◀─────────────┘
//! ```
//!
//! | room | what it is |
//! |---|---|
//! | `calls` | the table of calls, one file for each kind |
//! | `channel` | what is read and written without positions, and waited for |
//! | `content` | what is behind a file's name |
//! | `credentials` | who a thread is |
//! | `epoll` | descriptors that tell which of others are ready |
//! | `eventfd` | counters |
//! | `events` | what may be done without waiting |
//! | `exec` | a program's file becomes memory and registers |
//! | `futex` | waiting for a word to change |
//! | `opened` | opened files, descriptors |
//! | `parking` | locks whose waiters park |
//! | `pidfd` | descriptors of processes |
//! | `pieces` | bytes that are moved piece by piece |
//! | `pipe` | pipes |
//! | `proc_fd` | descriptors as links |
//! | `process` | what the threads of a program share, who is whose child |
//! | `queue` | bytes on their way |
//! | `sched` | which thread runs where, and what happens at a time |
//! | `handlers` | what becomes of a signal that waits, handlers and back |
//! | `khugepaged` | what is collapsed from time to time |
//! | `life` | a thread from its beginning to its end |
//! | `limits` | what a process may have |
//! | `locks` | locks of files that programs take |
//! | `mounts` | which folders are of which file system |
//! | `names` | names of files that the kernel makes |
//! | `random` | bytes that nobody foresees |
//! | `remote` | bytes of another process |
//! | `segments` | segments of System V |
//! | `sequence` | restartable sequences: which CPU a thread runs on |
//! | `signal` | what is told of signals, and what waits |
//! | `signalfd` | signals that are read |
//! | `sockets` | sockets of this machine |
//! | `streams` | the lines to whoever started the program |
//! | `terminal` | terminals, and whose they are |
//! | `texts` | files of `/proc` and `/sys` |
//! | `thread` | registers, ring 3 and back |
//! | `timer` | who is told when a time has come |
//! | `timerfd` | timers that are descriptors |
//! | `timers` | timers that signal |
//! | `transfer` | the bytes that a call moves |
//! | `trivia` | names of the machine |
//! | `turns` | what a thread had of CPUs, and what it wishes for |
//! | `usage` | what threads and processes used |
//! | `user` | what a call takes from its program's memory, and puts there |
//! | `userfault` | faults that a program answers itself |
//! | `waiters` | waiting for something to change |
//!
//! **Invariants**
//! - N1. Nothing that a program does ends the kernel: what it hands over is looked at, and what it
//!   points to is reached by copies that may end early (`reach`).
//! - N2. A call that is not there answers ENOSYS, and is named once.
//!
//! **Locking.** Locks are spun for with interrupts in, by CPUs that are not preempted in the
//! kernel. In order: a process's descriptors, names of files, a file's changes, a process's memory.
//! A process's memory is not held while user memory is reached (`reach::R2`).
//!
//! **Not here**: how memory is managed (`foliant`), what its calls mean (`foliant-linux`), how
//! names of files are kept (`foliant-files`).

mod anchored;
mod calls;
mod channel;
mod clock;
mod content;
mod credentials;
mod epoll;
mod eventfd;
mod events;
mod exec;
mod futex;
mod handlers;
mod hold;
mod khugepaged;
mod life;
mod limits;
mod locks;
mod mounts;
mod names;
mod opened;
mod parking;
mod pidfd;
mod pieces;
mod pipe;
mod proc_fd;
mod process;
mod promises;
mod queue;
mod random;
mod remote;
mod sched;
mod segments;
mod sequence;
mod signal;
mod signalfd;
mod sockets;
mod spending;
mod streams;
mod terminal;
mod texts;
mod thread;
mod timer;
mod timerfd;
mod timers;
mod transfer;
mod trivia;
mod turns;
mod unpack;
mod usage;
mod user;
mod userfault;
mod vectors;
mod waiters;

use crate::memory::{Format, Machine, manager};
use crate::{archive, heap, say, smp};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use content::Content;
use foliant::fault::{Policy, Size, parse_order};
use foliant::space::AreaLimit;
use foliant_files::Files;
use foliant_linux::{Errno, MemoryFile};
use process::Process;
use signal::Ended;
use spin::{Mutex, Once, RwLock};
use thread::Thread;

/// What `uname` says beside the name of the release.
const VERSION: &str = "#1 SMP Foliant";

/// A file in memory.
type File = MemoryFile<'static, 'static, Machine, Format>;
/// A process's memory.
type Memory = foliant_linux::Process<'static, 'static, Machine, Format>;

/// What all processes share.
struct World {
    files: RwLock<Files<Content>>,
    /// Numbers of calls that were asked for and are not there (N2).
    missing: Mutex<BTreeSet<u64>>,
}

static WORLD: Once<World> = Once::new();

fn world() -> &'static World {
    WORLD.get().expect("it is made before a program runs")
}

/// What the archive says about the program.
struct Asked {
    path: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
    folder: Vec<u8>,
}

impl Asked {
    fn read() -> Option<Asked> {
        let list = |name| {
            let text = archive::own(name)?;
            Some(
                text.split_inclusive(|byte| *byte == 0).map(|word| word[..word.len() - 1].to_vec()),
            )
        };
        Some(Asked {
            path: archive::own("program")?.to_vec(),
            arguments: list("arguments")?.collect(),
            environment: list("environment")?.collect(),
            folder: archive::own("folder").unwrap_or(b"/").to_vec(),
        })
    }
}

/// Runs the program of the archive to its end; false where there is none.
pub(crate) fn run(command: &str) -> bool {
    if command.split_whitespace().any(|word| word == "calls") {
        calls::list();
        return true;
    }
    let Some(asked) = Asked::read() else {
        say!("there is no program: the loader's module is no archive with one");
        return false;
    };
    streams::start();
    clock::start();
    if let Err(why) = set_sizes(command) {
        say!("{why}");
        return false;
    }
    WORLD.call_once(|| World {
        files: RwLock::new(Files::new(clock::now())),
        missing: Mutex::new(BTreeSet::new()),
    });
    if let Err(why) = unpack::all() {
        say!("the archive does not unpack: {why}");
        return false;
    }
    if let Err(why) = mounts::start() {
        say!("the file systems are not mounted: {why}");
        return false;
    }
    let process = Process::first();
    if let Err(why) = start(&process, &asked, command) {
        say!("the program does not start: {why}");
        return false;
    }
    smp::measure_timer();
    heap::keep_reserve();
    khugepaged::start();
    smp::together(smp::online(), &|_| sched::go_round());
    if let Err(disagreement) = manager().audit(&[]) {
        say!("the recount disagrees: {disagreement}");
        return false;
    }
    if command.split_whitespace().any(|word| word == "stats") {
        say!("{}", calls::statistics());
    }
    match process.ended() {
        Some(Ended::Code(code)) => say!("ended exit={code}"),
        Some(Ended::Signal(number)) => say!("ended signal={number}"),
        None => say!("the program did not end"),
    }
    true
}

/// Makes the first thread.
fn start(process: &Arc<Process>, asked: &Asked, command: &str) -> Result<(), Errno> {
    texts::make_process(process).map_err(|why| Errno(why.errno()))?;
    process.enter(&asked.folder)?;
    if let Some((size, errors_are_apart)) = terminal::console::asked(command) {
        terminal::console::start(process, size, errors_are_apart)?;
    }
    let thread = Thread::of(process.clone(), process.id, life::run)?;
    manager().set_area_limit(AreaLimit::LINUX); // the kernel's own scenarios want more
    thread.starts(asked.path.clone(), asked.arguments.clone(), asked.environment.clone());
    sched::start(thread);
    Ok(())
}

/// Switches the sizes of folios that the command line asks for on, all others off: `thp=64k`, and
/// `thp=4k` for none.
fn set_sizes(command: &str) -> Result<(), String> {
    let Some(word) = command.split_whitespace().find_map(|word| word.strip_prefix("thp=")) else {
        return Ok(());
    };
    let mut policy = Policy::BASE_ONLY;
    if word != "4k" {
        let refused = |why| format!("thp={word}: {why}");
        let order = parse_order(word).map_err(|why| refused(why.to_string()))?;
        policy.set(order, Size::Always).map_err(|why| refused(why.to_string()))?;
    }
    manager().set_policy(policy);
    Ok(())
}
