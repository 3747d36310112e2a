//! An event of a recording as a document: one line of `foliant trace --dump --json`.
//!
//! **Not here**: what events mean (`foliant_trace::event`).

use crate::document::Document;
use foliant_trace as trace;
use foliant_units::VaRange;
use schemars::JsonSchema;
use serde::Serialize;

/// One thing that a recorded program did, or a page fault.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Line<'e> {
    /// Since the recording began.
    time_ns: u64,
    /// The number of the thread that did it, given out in order of appearance.
    thread: u32,
    /// The number of the address space that it was done to, likewise.
    space: u32,
    /// What it was.
    event: Kind<'e>,
}

impl Document for Line<'_> {
    const NAME: &'static str = "event";
    const COMMAND: &'static str = "foliant trace FILE --dump --json, one a line";
}

/// What it was.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Kind<'e> {
    /// The thread left its old space, if it had one, for a new space with this content.
    Exec {
        /// The program's path.
        program: &'e str,
        /// The initial program break.
        brk: u64,
        /// Every area, in order of address.
        areas: Vec<Area>,
        /// Pages that the kernel filled without a fault.
        present: Vec<Range>,
    },
    /// The space was copied.
    Fork {
        /// The new space.
        child_space: u32,
        /// Its only thread.
        child_thread: u32,
    },
    /// A new thread runs in the space.
    Share {
        /// That thread.
        child_thread: u32,
        /// Whether it is a process of its own, as after vfork.
        is_process: bool,
    },
    /// The thread ended.
    Exit {
        /// Whether it was the space's last, so that the space is gone.
        is_last: bool,
    },
    /// A new area, in the place of whatever lay there.
    Map {
        /// It.
        area: Area,
    },
    /// Everything in the range is unmapped.
    Unmap {
        /// The range.
        range: Range,
    },
    /// The range has other rights.
    Protect {
        /// The range.
        range: Range,
        /// The new rights, like `rw-`.
        rights: String,
    },
    /// Pages moved (`mremap`).
    Remap {
        /// Where they were.
        old: Range,
        /// Where they are, which may be larger, smaller or the same place.
        new: Range,
        /// Whether the old range stays as an empty area.
        keeps_old: bool,
    },
    /// `madvise`, and what the recorder tells likewise.
    Advise {
        /// The range.
        range: Range,
        /// The kernel's number, like 4 for `MADV_DONTNEED`; from 65536 on the recorder's own.
        advice: u32,
    },
    /// The program break moved.
    Brk {
        /// The break before.
        old: u64,
        /// The break after.
        new: u64,
    },
    /// The kernel filled absent pages without a fault.
    Populate {
        /// The range.
        range: Range,
        /// As if each page had been accessed so.
        access: Access,
    },
    /// The program asked for large pages to be switched off or on for itself (`prctl`).
    ThpPrctl {
        /// The first two arguments behind `PR_SET_THP_DISABLE`.
        args: [u64; 2],
    },
    /// A page fault.
    Fault {
        /// The address, exact to the byte.
        address: u64,
        /// What was tried.
        access: Access,
        /// Who tried it.
        origin: Origin,
        /// Where `access` is known from.
        source: Source,
        /// What was in the way.
        found: Found,
        /// What the fault was for the kernel.
        standing: Standing,
    },
    /// What is known of an object: memory that several areas map.
    Object {
        /// Its number, given out in order of appearance.
        object: u32,
        /// Where it comes from: `anonymous`, `file in memory`, `System V`.
        backing: &'static str,
        /// How many pages of 4 KiB it has room for.
        room_pages: u64,
        /// Pages that are in it, in bytes from its beginning.
        present: Vec<Range>,
    },
    /// The areas in the range map an object.
    Attach {
        /// The range.
        range: Range,
        /// The object's number.
        object: u32,
        /// The object's page at the start of the range.
        first_page: u64,
    },
    /// A call took pages out of an object.
    Punch {
        /// The object's number.
        object: u32,
        /// Which, in bytes from its beginning.
        pages: Range,
    },
    /// What the area that holds the range is called.
    Name {
        /// The range.
        range: Range,
        /// The file that it is a map of.
        #[serde(skip_serializing_if = "Option::is_none")]
        file: Option<&'e str>,
        /// The code that asked for it, `OBJECT+0xOFFSET`.
        #[serde(skip_serializing_if = "Option::is_none")]
        site: Option<String>,
        /// The library that it asked: the C library, or an allocator.
        #[serde(skip_serializing_if = "Option::is_none")]
        through: Option<&'e str>,
        /// The thread whose stack it is.
        #[serde(skip_serializing_if = "Option::is_none")]
        stack_of: Option<u32>,
    },
}

/// Addresses from the first byte to the one behind the last.
#[derive(Serialize, JsonSchema)]
struct Range {
    /// The first address.
    start: u64,
    /// The address behind the last.
    end: u64,
}

/// One area of a space.
#[derive(Serialize, JsonSchema)]
struct Area {
    /// Where it lies.
    range: Range,
    /// Access rights, like `rw-`.
    rights: String,
    /// What it is backed by: `anonymous`, `heap`, `stack`, `file, private` and so on.
    backing: &'static str,
    /// How it was asked for: names of the kernel's flags, `growsdown`, `noreserve`.
    flags: Vec<String>,
}

macro_rules! same {
    ($($(#[$doc:meta])* $name:ident: $($(#[$of:meta])* $variant:ident)*;)*) => {$(
        $(#[$doc])*
        #[derive(Serialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        enum $name {
            $($(#[$of])* $variant,)*
        }
        impl From<trace::$name> for $name {
            fn from(other: trace::$name) -> $name {
                match other {
                    $(trace::$name::$variant => $name::$variant,)*
                }
            }
        }
    )*};
}

same! {
    /// The kind of an access.
    Access:
        /// A load.
        Read
        /// A store, or a load that goes with one.
        Write
        /// An instruction fetch.
        Exec;
    /// Who made an access.
    Origin:
        /// The program.
        User
        /// The kernel, on the program's behalf.
        Kernel;
    /// Where the kind of an access is known from.
    Source:
        /// The processor's error code: certain.
        Hardware
        /// The faulting instruction was decoded.
        Decoded
        /// A guess.
        Inferred;
    /// What was in the way of an access.
    Found:
        /// Not recorded.
        Unknown
        /// No page.
        Absent
        /// A page that forbids the access.
        Protected;
    /// What a fault was for the kernel.
    Standing:
        /// It brought its page, or unprotected it.
        Regular
        /// Another thread's fault had done so already.
        Raced
        /// The processor held an old translation: nothing was to be done.
        Stale
        /// Nothing known explains it.
        Unexplained;
}

impl From<VaRange> for Range {
    fn from(range: VaRange) -> Range {
        Range { start: range.start().get(), end: range.end().get() }
    }
}

impl From<&trace::Area> for Area {
    fn from(area: &trace::Area) -> Area {
        let flags = format!("{:?}", area.flags);
        Area {
            range: area.range.into(),
            rights: format!("{:?}", area.prot),
            backing: area.kind.name(),
            flags: flags.split('|').filter(|flag| !flag.is_empty()).map(str::to_owned).collect(),
        }
    }
}

fn named(range: VaRange, name: &trace::Name) -> Kind<'_> {
    let (mut file, mut site, mut through, mut stack_of) = (None, None, None, None);
    match name {
        trace::Name::File(name) => file = Some(name.as_str()),
        trace::Name::Made { site: by, through: asked } => {
            (site, through) = (by.as_ref().map(trace::Site::to_string), asked.as_deref());
        }
        trace::Name::Stack(thread) => stack_of = Some(thread.0),
    }
    Kind::Name { range: range.into(), file, site, through, stack_of }
}

/// An event as a document.
pub(crate) fn line(event: &trace::Event) -> Line<'_> {
    let kind = match &event.kind {
        trace::EventKind::Exec(exec) => Kind::Exec {
            program: &exec.program,
            brk: exec.brk.get(),
            areas: exec.areas.iter().map(Area::from).collect(),
            present: exec.present.iter().map(|range| Range::from(*range)).collect(),
        },
        trace::EventKind::Fork { child, thread } => {
            Kind::Fork { child_space: child.0, child_thread: thread.0 }
        }
        trace::EventKind::Share { thread, process } => {
            Kind::Share { child_thread: thread.0, is_process: *process }
        }
        trace::EventKind::Exit { last } => Kind::Exit { is_last: *last },
        trace::EventKind::Map(area) => Kind::Map { area: area.into() },
        trace::EventKind::Unmap { range } => Kind::Unmap { range: (*range).into() },
        trace::EventKind::Protect { range, prot } => {
            Kind::Protect { range: (*range).into(), rights: format!("{prot:?}") }
        }
        trace::EventKind::Remap { old, new, keep_old } => {
            Kind::Remap { old: (*old).into(), new: (*new).into(), keeps_old: *keep_old }
        }
        trace::EventKind::Advise { range, advice } => {
            Kind::Advise { range: (*range).into(), advice: *advice }
        }
        trace::EventKind::Brk { old, new } => Kind::Brk { old: old.get(), new: new.get() },
        trace::EventKind::Populate { range, access } => {
            Kind::Populate { range: (*range).into(), access: (*access).into() }
        }
        trace::EventKind::ThpPrctl { args } => Kind::ThpPrctl { args: *args },
        trace::EventKind::Fault(fault) => Kind::Fault {
            address: fault.va.get(),
            access: fault.access.into(),
            origin: fault.origin.into(),
            source: fault.source.into(),
            found: fault.found.into(),
            standing: fault.standing.into(),
        },
        trace::EventKind::Name { range, name } => named(*range, name),
        trace::EventKind::Object { object, backing, room, present } => Kind::Object {
            object: object.0,
            backing: backing.name(),
            room_pages: *room,
            present: present.iter().map(|range| Range::from(*range)).collect(),
        },
        trace::EventKind::Attach { range, object, first } => {
            Kind::Attach { range: (*range).into(), object: object.0, first_page: *first }
        }
        trace::EventKind::Punch { object, pages } => {
            Kind::Punch { object: object.0, pages: (*pages).into() }
        }
    };
    Line { time_ns: event.time_ns, thread: event.thread.0, space: event.space.0, event: kind }
}
