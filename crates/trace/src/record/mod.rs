//! Recording a program on x86-64 Linux.
//!
//! ```text
//!   perf counters, one ring per CPU ──▶ perf (drained by its own thread) ──┐
//!                                                                          ├─▶ log ──▶ spool
//!   ptrace + seccomp, one thread ─────▶ tracer ────────────────────────────┘
//!
//!   running processes (`attach`) ─────────────────────────────────────────────▶ log ──▶ spool
//!   after the end:  spool ──▶ merge ──▶ assemble ──▶ spool ──▶ settle ──▶ Writer
//! ```
//!
//! The program runs with large pages off (`PR_SET_THP_DISABLE`, inherited by all it starts), so
//! that every first touch of every 4 KiB page is a fault. Recording one's own programs needs no
//! privilege; with it, the processor's error codes are recorded and the file is exact about reads
//! and writes.
//!
//! What is told goes to a file without a name beside the recording, about 6 bytes a fault (12 with
//! tracepoints); after the end it is put in order, settled and written, as a stream. Memory does
//! not grow with the length of a recording: it holds the rings, and the pages and areas that the
//! program has at one time.
//!
//! Pages that come without a fault (a read around the page cache, another process's write) are
//! looked for before a call takes memory away, at a fork and at the end, and are placed there.
//!
//! What is mapped gets its name: the file's, or of whose code asked for it (`site`); a thread's
//! stack that of the thread. Of processes that ran before only files have names, as nothing stops
//! at their calls.
//!
//! **Not recorded**: the content of memory, accesses that do not fault, programs of the x32 ABI. A
//! fault in memory that nothing recorded made is counted as a stray one.

mod abi;
mod apply;
mod assemble;
#[cfg(test)]
mod assemble_model;
mod attach;
mod decode;
mod error;
mod event_abi;
mod forward;
mod log;
mod marks;
mod measure;
mod merge;
mod output;
mod perf;
mod procfs;
mod raw;
mod resident;
mod ring;
mod settle;
mod shared;
mod site;
mod spawn;
mod spool;
mod sys;
#[cfg(test)]
mod tests;
mod told;
mod tracer;
mod user;
mod userfault;

pub use apply::{Applied, Given, Place, Program, Rest, exec};
pub use assemble::{Agreement, Residue};
pub use attach::{Attached, Running, Target, Unattachable};
pub use error::RecordError;
pub use measure::{Measured, fix_layout, measure};
pub use spawn::{Barred, with_signals};
pub use user::User;

use crate::error::TraceError;
use crate::format::{AccessSource, Ending, Header, Trailer};
use crate::naive::Report;
use crate::writer::Writer;
use assemble::Scope;
use log::{RingLog, ToldLog};
use output::Unfinished;
use spool::{Spool, Spooler, Stream};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What to record and how.
pub struct Options {
    /// The program: a path, or a name to be found in `PATH`.
    pub command: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// As whom it runs; `None` as whoever records.
    pub user: Option<User>,
    /// Where kinds of accesses may come from.
    pub access: AccessWish,
    /// Decode instructions even where the hardware's word is there, to see how often they agree.
    pub check_decoding: bool,
    /// Compare the kernel's page tables with a replay's at the end of every process.
    pub check_pages: bool,
    /// Pass signals that are sent to this process (interrupt, terminate, hang up, quit) on to the
    /// program while it runs, instead of dying of them. Meant for a command; changes this process's
    /// signal handlers for the time of the recording.
    pub forward_signals: bool,
    /// The largest ring per CPU to ask for, in bytes. Smaller ones are tried where it is not
    /// permitted.
    pub ring_bytes: usize,
    /// Run the program apart: in a process group of its own, with no signal blocked, nothing on its
    /// standard input, and its standard output thrown away.
    pub apart: bool,
    /// If set, only processes whose program's file has this name, and what they start.
    pub only: Option<OsString>,
    /// After this time the program is asked to end (SIGTERM), with all that it has started.
    pub length: Option<Duration>,
    /// Called a few times a second from another thread.
    pub progress: Option<Box<dyn FnMut(Progress) + Send>>,
}

/// Where kinds of accesses may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessWish {
    /// From the processor's error code where permitted, else by decoding.
    Best,
    /// By decoding, even where more is permitted.
    Decoded,
}

/// How far a recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Faults so far.
    pub faults: u64,
    /// Time since the beginning.
    pub elapsed: Duration,
}

impl Options {
    /// Records `command` with `args`, everything else as usual.
    pub fn new(command: impl Into<OsString>, args: impl IntoIterator<Item = OsString>) -> Options {
        Options {
            command: command.into(),
            args: args.into_iter().collect(),
            user: None,
            access: AccessWish::Best,
            check_decoding: false,
            check_pages: false,
            forward_signals: false,
            apart: false,
            ring_bytes: 8 << 20,
            only: None,
            length: None,
            progress: None,
        }
    }
}

/// What a recording came to.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The file's header.
    pub header: Header,
    /// The file's trailer: counts, losses, and how the program ended.
    pub trailer: Trailer,
    /// What a replay with 4 KiB pages makes of it.
    pub replay: Report,
    /// Faults that the kernel met where it must not sleep and did not handle as faults; not in the
    /// file.
    pub unhandled: u64,
    /// How decoding and hardware agree, if [`Options::check_decoding`] was set.
    pub agreement: Agreement,
    /// How page tables compare, if [`Options::check_pages`] was set.
    pub residue: Residue,
    /// Of a recording of processes that ran before: who they were, and how long they stood still.
    pub attached: Option<Attached>,
}

/// Runs the program to its end and writes its trace to `sink`.
///
/// Returns once the program and everything it started has ended. How the program ended is in the
/// summary and is no error. On an error the sink may have been written to in part.
pub fn record(options: Options, sink: impl Write) -> Result<Summary, RecordError> {
    let collected = collect(options, Spool::new(None)?)?;
    write(collected, BufWriter::new(sink))
}

/// As [`record`], to a file that appears under its name only when it is whole. On an error nothing
/// is left behind, and a file that was there before stays as it was.
pub fn record_to_file(options: Options, path: &Path) -> Result<Summary, RecordError> {
    let user = options.user.clone();
    to_file(path, user.as_ref(), |spool| collect(options, spool))
}

/// Records processes that run already, to a file as [`record_to_file`] does; they go on afterwards.
pub fn record_running_to_file(running: Running, path: &Path) -> Result<Summary, RecordError> {
    to_file(path, None, |spool| attach::collect(running, spool))
}

fn to_file(
    path: &Path,
    user: Option<&User>,
    collect: impl FnOnce(Spool) -> Result<Collected, RecordError>,
) -> Result<Summary, RecordError> {
    let failed = |why| RecordError::Output { path: path.to_owned(), why };
    // The unfinished file's name means nothing to the caller, so only the kind of error is told.
    let hidden = |why: io::Error| failed(why.kind().into());
    // Devices and pipes are written to, not replaced by a file of their name.
    if path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        let file = std::fs::OpenOptions::new().write(true).open(path).map_err(failed)?;
        return write(collect(Spool::new(None)?)?, BufWriter::new(file));
    }
    // A directory cannot be replaced, and one finds out before the program runs, not after.
    if path.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let unfinished = Unfinished::beside(path, user).map_err(hidden)?;
    let spool = Spool::new(Some(output::directory(path)))?;
    let collected = collect(spool)?;
    let summary = match write(collected, BufWriter::new(unfinished.file())) {
        Err(RecordError::Trace(TraceError::Io(why))) => return Err(failed(why)),
        other => other?,
    };
    unfinished.finish(path).map_err(failed)?;
    Ok(summary)
}

struct Collected {
    header: Header,
    spool: Spool,
    rings: usize,
    scope: Scope,
    ending: Ending,
    remarks: BTreeSet<String>,
    lost: u64,
    attached: Option<Attached>,
}

fn write(collected: Collected, sink: impl Write) -> Result<Summary, RecordError> {
    let Collected { header, mut spool, rings, scope, ending, remarks, lost, attached } = collected;
    let only = scope.only.clone();
    let together = settle::assemble(&mut spool, rings, scope)?;
    if let (Some(name), true) = (only, together.is_empty()) {
        return Err(RecordError::NotStarted { name });
    }
    let mut writer = Writer::new(sink, &header)?;
    let (mut assembled, replay) =
        settle::settle(&spool, together, |event| Ok(writer.event(event)?))?;
    assembled.remarks.extend(remarks);
    assembled.remarks.extend(settle::unseen(assembled.unseen, header.kernel_faults));
    let remarks = assembled.remarks.into_iter().collect();
    let (trailer, _) = writer.finish(ending, lost + assembled.astray, remarks)?;
    Ok(Summary {
        header,
        trailer,
        replay,
        unhandled: assembled.unhandled,
        agreement: assembled.agreement,
        residue: assembled.residue,
        attached,
    })
}

/// Runs the program on a thread of its own: whoever attaches must be the one to wait, and must not
/// reap other children of this process.
fn collect(options: Options, spool: Spool) -> Result<Collected, RecordError> {
    let builder = std::thread::Builder::new().name("foliant-record".to_owned());
    let system = |what| move |why| RecordError::System { what, why };
    let thread = builder.spawn(move || run(options, spool)).map_err(system("starting a thread"))?;
    thread.join().unwrap_or_else(|_| {
        Err(system("recording")(io::Error::other("the recorder's thread panicked")))
    })
}

fn run(mut options: Options, spool: Spool) -> Result<Collected, RecordError> {
    let waiting = spawn::recorded(&spawn::Start {
        command: &options.command,
        args: &options.args,
        user: options.user.as_ref(),
        apart: options.apart,
        barred: Barred::All,
    })?;
    let root = waiting.pid;
    let mut perf = match attach(root, &options) {
        Ok(perf) => perf,
        Err(e) => {
            sys::kill_and_reap(root);
            return Err(e);
        }
    };
    let header = describe_run(&options, &perf);
    let _forwarding = options.forward_signals.then(|| forward::Forwarding::to(root));
    let failed = |what| move |why| RecordError::System { what, why };
    let spooler = match Spooler::start(spool) {
        Ok(spooler) => spooler,
        Err(why) => {
            sys::kill_and_reap(root);
            return Err(failed("starting a thread")(why));
        }
    };
    let rings = perf.rings();
    let outlet = |ring| RingLog::new(spooler.outlet(Stream::ring(ring)));
    perf.write_to((0..rings).map(outlet).collect());
    let log = ToldLog::new(spooler.outlet(Stream::TOLD));
    let start = sys::clock_ns();
    let descriptors = perf.descriptors();
    let perf = Mutex::new(perf);
    let done = AtomicBool::new(false);
    let mut progress = options.progress.take();
    let tracer = sys::thread_id();
    let (followed, failure) = std::thread::scope(|scope| {
        let drainer = || {
            let mut deadline = options.length;
            drain(&perf, &descriptors, &done, &mut progress, start, |elapsed| {
                if deadline.is_some_and(|length| elapsed >= length) {
                    deadline = None;
                    procfs::traced_by(tracer).for_each(|pid| sys::send_signal(pid, libc::SIGTERM));
                }
            });
        };
        scope.spawn(drainer);
        let started = waiting.go();
        let followed = tracer::Tracer::new(root, &perf, options.check_pages, log).follow();
        done.store(true, Ordering::Release);
        (followed, started.map(spawn::Started::failure))
    });
    if let Some((step, why)) = failure.map_err(failed("starting the program"))? {
        return Err(step.failed(&options.command, why));
    }
    let followed = followed.map_err(failed("waiting for the program"))?;
    let perf = perf.into_inner().unwrap_or_else(|e| e.into_inner());
    let decodes = perf.decodes();
    let lost = perf.finish().map_err(failed("reading the counters"))?;
    let spool = spooler.finish()?;
    let tracer::Followed { remarks, ending } = followed;
    let scope = Scope { start, decodes, only: options.only, attached_until: None };
    Ok(Collected { header, spool, rings, scope, ending, remarks, lost, attached: None })
}

/// Attaches to the waiting child and opens the counters on it.
fn attach(root: sys::pid_t, options: &Options) -> Result<perf::Perf, RecordError> {
    let follow = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEEXIT
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_EXITKILL;
    sys::seize(root, follow).map_err(RecordError::following)?;
    let wanted = perf::Wanted {
        tracepoints: options.access == AccessWish::Best,
        decode: options.check_decoding,
        ring_bytes: options.ring_bytes.min(1 << 30),
    };
    let cpus = procfs::cpus_online();
    perf::Perf::open(root, &cpus, &wanted).map_err(|why| RecordError::PerfForbidden {
        paranoid: procfs::line("/proc/sys/kernel/perf_event_paranoid"),
        why,
    })
}

/// Empties the rings until recording is done.
fn drain(
    perf: &Mutex<perf::Perf>,
    descriptors: &[std::os::fd::RawFd],
    done: &AtomicBool,
    progress: &mut Option<Box<dyn FnMut(Progress) + Send>>,
    start: u64,
    mut each: impl FnMut(Duration),
) {
    sys::raise_priority();
    let interval = Duration::from_millis(100);
    let mut told = Duration::ZERO;
    let mut gone = false;
    while !done.load(Ordering::Acquire) {
        // Once the program's first thread is gone its descriptors report that at once and for good.
        gone = if gone {
            sys::poll(&[], 2);
            true
        } else {
            sys::poll(descriptors, 10)
        };
        let faults = {
            let mut perf = tracer::lock(perf);
            perf.drain();
            perf.samples()
        };
        let elapsed = Duration::from_nanos(sys::clock_ns().saturating_sub(start));
        each(elapsed);
        if let Some(progress) = progress
            && elapsed >= told + interval
        {
            told = elapsed;
            progress(Progress { faults, elapsed });
        }
    }
}

fn describe_run(options: &Options, perf: &perf::Perf) -> Header {
    let text = |s: &OsStr| s.to_string_lossy().into_owned();
    let command = std::iter::once(&options.command).chain(&options.args).map(|s| text(s)).collect();
    let source = match perf.has_tracepoints() {
        true => AccessSource::Tracepoint,
        false => AccessSource::Decoded,
    };
    machine(command, source, perf.has_kernel_faults())
}

/// What a recording made here and now says of itself.
fn machine(command: Vec<String>, access_source: AccessSource, kernel_faults: bool) -> Header {
    let (system, release) = ("/proc/sys/kernel/ostype", "/proc/sys/kernel/osrelease");
    Header {
        command,
        kernel: format!("{} {}", procfs::line(system), procfs::line(release)),
        processor: procfs::processor(),
        cpus: procfs::cpus_online().len() as u32,
        page_bytes: foliant_units::FRAME_BYTES as u32,
        unix_seconds: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        access_source,
        kernel_faults,
        recorder: format!("foliant-trace {}", env!("CARGO_PKG_VERSION")),
    }
}
