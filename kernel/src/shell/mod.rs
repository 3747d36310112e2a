//! What a person types on the serial line: commands that show the manager at work, and change what
//! it works on.
//!
//! ```text
//!   keyboard: bytes ─▶ line ─▶ words ─▶ a command of the table ─▶ text, or what was wrong and the way out
//! ```
//!
//! Names and columns are those of Linux's files (`/proc/meminfo`, `buddyinfo`, `vmallocinfo`,
//! `vmstat`, `PID/smaps`, `/sys/kernel/mm`) where there is such a file.
//!
//! **Invariants**
//! - B1. Commands take no heap memory but the list of kept huge pages, which can be refused: the
//!   shell goes on where memory is used up. Scenarios of the lab do take some, and are not begun
//!   when little is left.
//! - B2. At its end the shell has given everything back, to the page, and the manager's recount
//!   agrees.
//!
//! **Not here**: reservations and surplus of huge pages; this keeps blocks and counts them.

mod counters;
mod keyboard;
mod kpageflags;
mod line;
mod meminfo;
mod pool;
mod space;
mod thp;
mod touch;
mod window;
mod words;

use crate::memory::manager;
use crate::{heap, lab, say, serial};
use foliant::Event;
use foliant::space::SpaceId;
use foliant_units::{Order, Pages, VaRange};
use keyboard::Keyboard;
use line::{Line, Read};
use words::{Complaint, Words};

/// With less memory free no scenario begins: its report needs some.
const FREE_FOR_LAB: Pages = Pages::new(1024);

/// What the shell has in its hands.
struct Shell {
    /// The one address space that programs run in.
    space: SpaceId,
    /// The area that `last` stands for.
    last: Option<VaRange>,
    /// Areas made so far. Each has its number as its tag, so that two never become one.
    made: u64,
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
    command("buddyinfo", "", "free blocks of each order, 4k to 1g", meminfo::buddyinfo),
    command("vmallocinfo", "", "what the kernel's window maps", window::vmallocinfo),
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
    command("unmap", "ADDRESS|last", "take an area away", space::unmap),
    command("lab", "NAME [KEY=VALUE]...", "a scenario of the lab", run_lab),
    command("exit", "", "give everything back, check, and end", exit),
];

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
    let space = match manager().create(None) {
        Ok(space) => space,
        Err(why) => {
            say!("no address space for programs: {why}");
            return false;
        }
    };
    let mut shell = Shell { space, last: None, made: 0, life: Life::Open };
    say!("help lists the commands");
    let mut line = Line::new();
    while shell.life == Life::Open {
        serial::print(format_args!("foliant> "));
        match line.read(&keyboard) {
            Read::Line => shell.answer(line.text()),
            Read::Dropped => {}
            Read::End => shell.life = Life::Over,
        }
    }
    manager().set_policy(policy);
    shell.close(before)
}

impl Shell {
    fn answer(&mut self, line: &str) {
        let mut words = Words::new(line);
        let Some(name) = words.next() else { return };
        let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
            say!("{name}: there is no such command; help lists them");
            return;
        };
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
        let ended = manager().end(self.space).map_err(|why| say!("the space: {why}")).is_ok();
        pool::release(); // after the space, so that none is in use
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
        if agrees && before.sum() == after.sum() {
            say!("all given back, the recount agrees");
        } else {
            say!("before: {before:?}, now: {after:?}");
        }
        ended && agrees && before.sum() == after.sum()
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

fn run_lab<'w>(_: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let name = words.need("NAME")?;
    let free = manager().memory().free;
    if free < FREE_FOR_LAB {
        return Err(Complaint::Scarce(free));
    }
    match lab::run_named(name, words) {
        Ok(report) => say!("{}", report.line()),
        Err(lab::Trouble::Words(why)) => say!("lab: {why}"),
        Err(lab::Trouble::Run(why)) => say!("lab: the scenario ended early: {why}"),
    }
    Ok(())
}
