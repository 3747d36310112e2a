//! What a person types on the serial line: commands that show the manager at work, and change what
//! it works on.
//!
//! ```text
//!   keyboard: bytes ─▶ foliant-prompt: a line ─▶ words ─▶ a command of the table ─▶ what came of it, or what was wrong and the way out
//! ```
//!
//! Every command works on the manager that the kernel runs on. Ctrl-C ends a command between two
//! pieces of its work ([`go_on`]): each part of the manager's work that is asked for is small, or
//! ends by itself soon.
//!
//! Names and columns are those of Linux's files (`/proc/meminfo`, `buddyinfo`, `vmallocinfo`,
//! `vmstat`, `PID/smaps`, `/sys/kernel/mm`) where there is such a file.
//!
//! **Invariants**
//! - B1. Commands take no heap memory but the list of kept huge pages, which can be refused: the
//!   shell goes on where memory is used up. Scenarios of the lab do take some, and are not begun
//!   when little is left.
//! - B2. At its end the shell has given everything back, to the page, and the manager's recount
//!   agrees. After a scenario pages of the manager's own may stay (`Shell::kept`).
//!
//! **Not here**: reservations and surplus of huge pages; this keeps blocks and counts them.

mod advise;
mod compact;
mod counters;
mod keyboard;
mod kpageflags;
mod meminfo;
mod pool;
mod space;
mod spaces;
mod spent;
mod split;
mod thp;
mod touch;
mod window;
mod words;

use crate::memory::manager;
use crate::{heap, lab, say, serial};
use core::fmt;
use foliant::Event;
use foliant_lab::LabError;
use foliant_prompt::{Prompt, Read};
use foliant_units::{Order, VaRange};
use keyboard::Keyboard;
pub(crate) use keyboard::is_interrupted;
use spaces::Spaces;
use words::{Complaint, Words};

/// What the shell has in its hands.
struct Shell {
    /// The address spaces, in one of which programs run.
    spaces: Spaces,
    /// The area that `last` stands for.
    last: Option<VaRange>,
    /// Areas made so far. Each has its number as its tag, so that two never become one.
    made: u64,
    /// Pages that the manager may keep at the end: where blocks were lent, as to the heap, the bits
    /// that say so stay, a page for each 128 MiB.
    kept: u64,
    life: Life,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Open,
    Over,
}

type Run = for<'w> fn(&mut Shell, &mut Words<'w>) -> Result<(), Complaint<'w>>;

struct Command {
    name: &'static str,
    /// The words behind the name.
    words: &'static str,
    about: &'static str,
    run: Run,
}

const fn command(
    name: &'static str,
    words: &'static str,
    about: &'static str,
    run: Run,
) -> Command {
    Command { name, words, about, run }
}

const COMMANDS: &[Command] = &[
    command("help", "", "this list", help),
    command("meminfo", "", "where memory is", meminfo::meminfo),
    command("free", "", "how much memory is used, and how much is free", meminfo::free),
    command("buddyinfo", "", "free blocks of each order, 4k to 1g", meminfo::buddyinfo),
    command("vmallocinfo", "", "kernel memory, and what the window maps", window::vmallocinfo),
    command("stats", "", "events and folio sizes, counted since the start", counters::stats),
    command("cpus", "", "the CPUs that run", counters::cpus),
    command("thp", "[[SIZE] STATE]", "folio sizes that faults may use: show or set", thp::thp),
    command(
        "hugepages",
        "[2m|1g COUNT | CONTROL [2m|1g] VALUE]",
        "huge pages kept: show or set how many, and how",
        pool::hugepages,
    ),
    command("kpageflags", "[FRAME COUNT]", "what frames are", kpageflags::kpageflags),
    command("map", "SIZE [hugepage|nohugepage]", "make an area", space::map),
    command("maps", "", "the areas", space::maps),
    command("smaps", "", "the areas with what is present in them", space::smaps),
    command(
        "touch",
        "ADDRESS|last [SIZE|all] [read|write] [cpus=N]",
        "a program in ring 3 accesses a word of each page",
        touch::touch,
    ),
    command(
        "mprotect",
        "ADDRESS|last none|r|rw|rx|rwx [SIZE|all]",
        "change what programs may do there",
        advise::mprotect,
    ),
    command("madvise", "ADDRESS|last ADVICE [SIZE|all]", "advice about a range", advise::madvise),
    command("split", "ADDRESS|last [SIZE]", "split the folio there, into 4k or SIZE", split::split),
    command("compact", "", "move folios together, for free blocks of 2m", compact::compact),
    command("unmap", "ADDRESS|last", "take an area away", space::unmap),
    command("fork", "", "make a space with the same pages, shared until written", spaces::fork),
    command("spaces", "[NUMBER]", "the spaces; or work in that one from now on", spaces::spaces),
    command("kill", "NUMBER", "end a space", spaces::kill),
    command("lab", "NAME [KEY=VALUE]...", "a scenario of the lab", run_lab),
    command("exit", "", "give everything back, check, and end", exit),
];

/// What the line says itself.
struct Terminal;

impl fmt::Write for Terminal {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        serial::print(format_args!("{text}"));
        Ok(())
    }
}

/// The words that may stand behind `before`: commands; behind one the words of its own, which are
/// those of its usage that are no names of values.
fn words(before: &str, each: &mut dyn FnMut(&str)) {
    let Some(name) = before.split_ascii_whitespace().next() else {
        return COMMANDS.iter().for_each(|command| each(command.name));
    };
    if name == "madvise" {
        return advise::ADVICE.iter().for_each(|(word, _)| each(word));
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else { return };
    for word in command.words.split([' ', '|', '[', ']', '.']) {
        // `cpus=N`: the value is not a word of its own.
        let word = word.trim_end_matches(|last: char| last.is_ascii_uppercase());
        if word.starts_with(|first: char| first.is_ascii_lowercase()) {
            each(word);
        }
    }
}

/// Whether a command goes on with its next piece of work.
fn go_on<'w>() -> Result<(), Complaint<'w>> {
    if keyboard::is_interrupted() { Err(Complaint::Interrupted) } else { Ok(()) }
}

/// Answers until the end is typed. Whether everything was given back.
pub(crate) fn run() -> bool {
    let keyboard = match Keyboard::start() {
        Ok(keyboard) => keyboard,
        Err(why) => {
            say!("no keyboard: {why}");
            return false;
        }
    };
    let before = Books::read();
    let policy = manager().policy();
    let spaces = match manager().create(None) {
        Ok(space) => Spaces::of(space),
        Err(why) => {
            say!("no address space for programs: {why}");
            return false;
        }
    };
    let mut shell = Shell { spaces, last: None, made: 0, kept: 0, life: Life::Open };
    say!("help lists the commands; Tab completes them, Ctrl-C ends one, Ctrl-D ends the guest");
    let mut prompt = Prompt::new("foliant> ");
    while shell.life == Life::Open {
        prompt.begin(&mut Terminal);
        match read(&mut prompt, &keyboard) {
            Read::Line => shell.answer(prompt.text()),
            Read::Dropped if prompt.text().is_empty() => say!("exit or Ctrl-D ends the guest"),
            Read::Dropped => {}
            Read::End => shell.life = Life::Over,
        }
    }
    manager().set_policy(policy);
    shell.close(before)
}

/// Reads a line.
fn read(prompt: &mut Prompt, keyboard: &Keyboard) -> Read {
    loop {
        if let Some(read) = prompt.byte(keyboard.next(), &words, &mut Terminal) {
            return read;
        }
    }
}

impl Shell {
    fn answer(&mut self, line: &str) {
        let mut words = Words::new(line);
        let Some(name) = words.next() else { return };
        let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
            say!("{name}: there is no such command; help lists them");
            return;
        };
        keyboard::begin();
        let done = (command.run)(self, &mut words);
        if let Err(complaint) = done {
            say!("{name}: {complaint}");
            if complaint.is_about_form() {
                let blank = if command.words.is_empty() { "" } else { " " };
                say!("usage: {name}{blank}{}", command.words);
            }
        }
    }

    /// Gives everything back (B2).
    fn close(self, before: Books) -> bool {
        let ended = self.spaces.end_all();
        pool::release(); // after the spaces, so that none is in use
        let agrees = match manager().audit(&[]) {
            Ok(audit) if audit.folios == 0 => true,
            Ok(audit) => {
                say!("{} folios are alive and no space is", audit.folios);
                false
            }
            Err(disagreement) => {
                say!("the recount disagrees: {disagreement}");
                false
            }
        };
        let after = Books::read();
        let missing = before.sum().checked_sub(after.sum());
        let is_all = agrees && missing.is_some_and(|pages| pages <= self.kept);
        if is_all {
            say!("all given back, the recount agrees");
        } else {
            say!("before: {before:?}, now: {after:?}");
        }
        ended && is_all
    }
}

/// Memory that is free, and memory that the kernel holds on to for everybody. Together they are the
/// same before and after.
#[derive(Debug)]
struct Books {
    free: u64,
    heap: u64,
    tables: u64,
    descriptors: u64,
    /// Shared zeros, which stay once a read has wanted them.
    zeros: u64,
}

impl Books {
    fn read() -> Books {
        Books {
            free: manager().memory().free.get(),
            heap: heap::pages(),
            tables: tables(),
            descriptors: manager().memmap().census().frames.get(),
            zeros: manager().total(Event::ThpZeroPageAlloc) * Order::SIZE_2M.pages().get(),
        }
    }
    fn sum(&self) -> u64 {
        self.free + self.heap + self.tables + self.descriptors + self.zeros
    }
}

/// Page tables below the top ones.
fn tables() -> u64 {
    manager().total(Event::TableMade) - manager().total(Event::TableFreed)
}

fn help<'w>(_: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    words.end()?;
    for Command { name, words, about, .. } in COMMANDS {
        serial::print(format_args!("{name} {words}"));
        let column = 60usize.saturating_sub(name.len() + 1 + words.len()).max(1);
        say!("{:column$}{about}", "");
    }
    Ok(())
}

fn exit<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    words.end()?;
    shell.life = Life::Over;
    Ok(())
}

fn run_lab<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    shell.kept = manager().memory().managed.bytes().get().div_ceil(128 << 20);
    match lab::run_named(words.need("NAME")?, words) {
        Ok(report) => say!("{}", report.line()),
        Err(lab::Trouble::Words(why)) => say!("lab: {why}"),
        Err(lab::Trouble::Scarce(free)) => return Err(Complaint::Scarce(free)),
        Err(lab::Trouble::Run(LabError::Interrupted)) => return Err(Complaint::Interrupted),
        Err(lab::Trouble::Run(why)) => say!("lab: the scenario ended early: {why}"),
    }
    Ok(())
}
