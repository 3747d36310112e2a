//! `foliant trace`.

use crate::args::Trace as Args;
use crate::document::{self, Document};
use crate::failure::{Done, Failure, print};
use crate::shown::shown;
use crate::terminal::entry;
use crate::{event, shown, table};
use foliant_trace::{
    About, AreaKind, Describer, Description, Ending, Event, Naive, Reader, TraceError,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Write;
use std::fs::File;
use std::io::BufReader;

/// Mappings that a table lists; a document has all of them.
const MAPPINGS_SHOWN: usize = 12;

pub(crate) fn run(args: &Args) -> Done {
    if args.dump {
        return dump(args);
    }
    let told = tell(args).map_err(|e| Failure::reading(&args.file, e))?;
    if args.json {
        return print(&document::text(&described(&told))?);
    }
    print(&text(&told))
}

/// What there is to say of a recording.
struct Told {
    about: About,
    description: Description,
    mismatched: u64,
}

/// Reads the events once; none is kept.
fn tell(args: &Args) -> Result<Told, TraceError> {
    let budget = args.trust.budget();
    let mut reader = Reader::new(BufReader::new(File::open(&args.file)?), &budget)?;
    let (mut describer, mut naive) = (Describer::new(&budget), Naive::new(&budget));
    for event in reader.by_ref() {
        let event = event?;
        describer.add(&event)?;
        naive.add(&event)?;
    }
    let (about, description) = (reader.finish()?, describer.finish());
    Ok(Told { about, description, mismatched: naive.finish().mismatched })
}

/// Prints events as they are read, so a damaged file is shown up to the damage.
fn dump(args: &Args) -> Done {
    let failed = |e| Failure::reading(&args.file, e);
    let file = File::open(&args.file).map_err(|e| failed(e.into()))?;
    let mut text = String::new();
    let budget = args.trust.budget();
    for event in Reader::new(BufReader::new(file), &budget).map_err(failed)? {
        let event = match event {
            Ok(event) => event,
            Err(e) => {
                print(&text)?;
                return Err(failed(e));
            }
        };
        if args.json {
            text += &document::line(&event::line(&event))?;
        } else {
            let Event { time_ns, thread, space, kind } = &event;
            let _ = writeln!(text, "{:>13.6} {thread} {space} {kind:x?}", *time_ns as f64 / 1e6);
        }
        if text.len() > 1 << 16 {
            print(&text)?;
            text.clear();
        }
    }
    print(&text)
}

fn ending(about: &About) -> String {
    match about.trailer.ending {
        Ending::Exited(code) => format!("exit code {code}"),
        Ending::Signaled(signal) => format!("signal {signal}"),
    }
}

fn text(Told { about, description: d, mismatched }: &Told) -> String {
    let (header, count) = (&about.header, table::count);
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        text += &entry(name, 11, &value);
    };
    line("command", table::shorten(&shown(&header.command.join(" ")), 88));
    line("ended", ending(about));
    let (processor, kernel) = (shown(&header.processor), shown(&header.kernel));
    line("machine", format!("{processor}, {} CPUs, {kernel}", header.cpus));
    line(
        "recorder",
        format!(
            "{}; kinds of accesses from {}",
            shown(&header.recorder),
            header.access_source.name()
        ),
    );
    line("time", format!("{:.3} s, {} events", d.span_ns as f64 / 1e9, count(d.events)));
    let who = [(d.processes, "processes"), (d.threads, "threads"), (d.spaces, "address spaces")];
    line("who", who.map(|(n, what)| format!("{} {what}", count(n))).join(", "));
    for program in &d.programs {
        line("program", shown(program));
    }
    line("changes", format!("{} calls that changed memory", count(d.changes)));
    line("mapped", format!("{} MiB at most", table::mib(d.peak_mapped.get())));
    let faults = format!(
        "{} in all, {} of them anonymous, {} taken by the kernel, {} lost",
        count(d.faults_all),
        count(d.anonymous_faults()),
        count(d.faults_of_kernel),
        count(about.trailer.lost)
    );
    line("faults", faults);
    let odd = format!(
        "{} raced, {} stale, {} unexplained",
        d.raced,
        d.stale,
        d.unexplained.max(*mismatched)
    );
    line("", odd);
    for remark in &about.trailer.remarks {
        line("remark", shown(remark));
    }
    text.push('\n');
    let heads = ["memory", "areas", "largest MiB", "read faults", "write faults", "exec faults"];
    let rows = AreaKind::ALL.iter().filter(|kind| d.areas[**kind as usize].0 > 0).map(|kind| {
        let (areas, largest) = d.areas[*kind as usize];
        let [read, write, exec] = d.faults[*kind as usize];
        let numbers =
            [count(areas), table::mib(largest.get()), count(read), count(write), count(exec)];
        std::iter::once(kind.name().to_owned()).chain(numbers).collect()
    });
    text += &table::columns(&heads, rows);
    text.push('\n');
    let shown = d.mappings.iter().take(MAPPINGS_SHOWN);
    let rows = shown.map(|(mapping, faults)| [shown::shown(&mapping.to_string()), count(*faults)]);
    text += &table::columns(&["mapping", "faults"], rows.map(Vec::from));
    if let Some(more) = d.mappings.len().checked_sub(MAPPINGS_SHOWN).filter(|more| *more > 0) {
        text += &format!("and {} more\n", count(more as u64));
    }
    text
}

/// What is in a recording.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Described<'t> {
    /// What was recorded: the program and its arguments.
    command: &'t [String],
    /// The program's exit code; nothing where a signal ended it.
    exit_code: Option<u8>,
    /// The signal that ended it, if one did.
    signal: Option<u8>,
    /// Of the machine that it was recorded on.
    processor: &'t str,
    /// Of the machine that it was recorded on.
    kernel: &'t str,
    /// Of the machine that it was recorded on.
    cpus: u32,
    /// Where kinds of accesses are known from.
    access_source: &'t str,
    /// The program that recorded it, and its version.
    recorder: &'t str,
    /// Events in all.
    events: u64,
    /// From the first event to the last.
    span_ns: u64,
    /// Processes that there were.
    processes: u64,
    /// Threads of all processes.
    threads: u64,
    /// Address spaces.
    spaces: u64,
    /// The programs that were started, in order.
    programs: &'t [String],
    /// System calls that changed a space.
    changes: u64,
    /// The most that was mapped at once in all spaces together.
    peak_mapped_bytes: u64,
    /// Page faults in all.
    faults: u64,
    /// Those in private memory without a file.
    anonymous_faults: u64,
    /// Those that the kernel took on the program's behalf.
    kernel_faults: u64,
    /// Those that raced with another thread's.
    raced: u64,
    /// Those caused by a translation that the processor had kept.
    stale: u64,
    /// Those that nothing explains.
    unexplained: u64,
    /// Faults that the recorder missed.
    lost: u64,
    /// What else the recorder had to say.
    remarks: &'t [String],
    /// Areas and faults by what memory is backed by.
    areas: Vec<Areas>,
    /// Anonymous faults by mapping, most first.
    mappings: Vec<Mapped>,
}

impl Document for Described<'_> {
    const NAME: &'static str = "trace";
    const COMMAND: &'static str = "foliant trace FILE --json";
}

/// The areas of one kind.
#[derive(Serialize, JsonSchema)]
struct Areas {
    /// What they are backed by: `anonymous`, `heap`, `stack`, `file, private` and so on.
    kind: &'static str,
    /// How many came into being.
    areas: u64,
    /// The largest of them.
    largest_bytes: u64,
    /// Faults of loads in them.
    read_faults: u64,
    /// Faults of stores.
    write_faults: u64,
    /// Faults of instruction fetches.
    exec_faults: u64,
}

/// Memory that was asked for in one way.
#[derive(Serialize, JsonSchema)]
struct Mapped {
    /// What it is called: `heap`, `stack of thread 3`, `prog+0x1234, up to 64k`.
    mapping: String,
    /// Anonymous faults in it.
    faults: u64,
}

fn described(Told { about, description: d, mismatched }: &Told) -> Described<'_> {
    let kinds = AreaKind::ALL.iter().map(|kind| {
        let (areas, largest) = d.areas[*kind as usize];
        let [read_faults, write_faults, exec_faults] = d.faults[*kind as usize];
        let (kind, largest_bytes) = (kind.name(), largest.get());
        Areas { kind, areas, largest_bytes, read_faults, write_faults, exec_faults }
    });
    let mappings = d
        .mappings
        .iter()
        .map(|(mapping, faults)| Mapped { mapping: mapping.to_string(), faults: *faults });
    let (exit_code, signal) = match about.trailer.ending {
        Ending::Exited(code) => (Some(code), None),
        Ending::Signaled(signal) => (None, Some(signal)),
    };
    Described {
        command: &about.header.command,
        exit_code,
        signal,
        processor: &about.header.processor,
        kernel: &about.header.kernel,
        cpus: about.header.cpus,
        access_source: about.header.access_source.name(),
        recorder: &about.header.recorder,
        events: d.events,
        span_ns: d.span_ns,
        processes: d.processes,
        threads: d.threads,
        spaces: d.spaces,
        programs: &d.programs,
        changes: d.changes,
        peak_mapped_bytes: d.peak_mapped.get(),
        faults: d.faults_all,
        anonymous_faults: d.anonymous_faults(),
        kernel_faults: d.faults_of_kernel,
        raced: d.raced,
        stale: d.stale,
        unexplained: d.unexplained.max(*mismatched),
        lost: about.trailer.lost,
        remarks: &about.trailer.remarks,
        areas: kinds.collect(),
        mappings: mappings.collect(),
    }
}
