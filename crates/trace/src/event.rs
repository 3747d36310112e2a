//! The events of a trace: what a program did to its address spaces, and every fault that it took.
//!
//! A trace is a list of [`Event`]s in the order in which they took effect. Each names the thread
//! that caused it and the *space* (address space) that it applies to. Spaces and threads are small
//! numbers given out in order of appearance and never used twice in a file: a process id may come
//! back, a [`SpaceId`] does not.
//!
//! ```text
//!   Exec    a thread starts a program in a NEW space; its old space loses that thread
//!   Fork    a NEW space, a copy of the thread's own; the new thread starts there
//!   Share   a new thread in the SAME space: pthread_create, vfork, posix_spawn
//!   Exit    a thread ends; with `last` its space is gone
//! ```
//!
//! **Invariants**
//! - E1. Times never fall from one event to the next.
//! - E2. The first event of a thread is the `Fork` or `Share` that names it, or the `Exec` that
//!   opens the trace. A space is born by an `Exec` or `Fork` and has at least one thread until it
//!   dies.
//! - E3. Ranges of areas are multiples of 4 KiB; addresses of faults are exact to the byte.
//! - E4. What an area is can be told from the events alone: [`EventKind::Exec`] lists the initial
//!   areas and every later change is an event. A fork needs no list: the child has the parent's
//!   areas, but for those advised `DONTFORK`, and empty ones for those advised `WIPEONFORK`.
//! - E5. Memory that the kernel filled without a fault (arguments placed by exec, `MAP_POPULATE`,
//!   `mlock`) is in `present` or in [`EventKind::Populate`], never silently there.
//! - E6. A [`EventKind::Name`] says what is known of an area that is there and changes nothing. It
//!   is the area's until that is unmapped; an area of which none tells has no name.
//! - E7. An [`EventKind::Object`] comes before anything that names its object. What a shared area
//!   maps is said by the [`EventKind::Attach`] that follows its `Map`; a fork's child, a part and
//!   what `Remap` moves go on mapping the same pages. An area of which none tells maps memory whose
//!   identity is not known: a file on a disk, or whatever a recording of version 1 or 2 has.

use crate::site::Site;
use foliant_units::{FRAME_BYTES, Va, VaRange};
use std::fmt;

/// The number of an address space in its trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SpaceId(pub u32);

/// The number of a thread in its trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ThreadId(pub u32);

/// The number of an object in its trace: memory with an identity of its own, which several areas
/// map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectId(pub u32);

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "o{}", self.0)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Debug for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

impl fmt::Debug for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

impl fmt::Display for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds of the monotonic clock since the recording began.
    pub time_ns: u64,
    /// The thread that did it.
    pub thread: ThreadId,
    /// The space it applies to: the thread's own, and for `Exec` the new one.
    pub space: SpaceId,
    /// What it was.
    pub kind: EventKind,
}

/// What an event did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The thread left its old space, if it had one, for a new space with this content.
    Exec(Exec),
    /// The event's space was copied: `child` is a new space in which only `thread` runs.
    Fork {
        /// The new space.
        child: SpaceId,
        /// The new space's only thread.
        thread: ThreadId,
    },
    /// `thread` is new and runs in the event's space.
    Share {
        /// The new thread.
        thread: ThreadId,
        /// Whether it is a process of its own (vfork, posix_spawn) and not a thread of this one.
        process: bool,
    },
    /// The thread ended. With `last` it was the space's last one, and the space with all it held is
    /// gone.
    Exit {
        /// Whether the space died with it.
        last: bool,
    },
    /// A new area; whatever lay in its range before is unmapped first.
    Map(Area),
    /// Everything in the range is unmapped; holes in it are legal.
    Unmap {
        /// The range.
        range: VaRange,
    },
    /// Access rights of the range become `prot`.
    Protect {
        /// The range.
        range: VaRange,
        /// The new rights.
        prot: Prot,
    },
    /// `mremap`: pages move from `old` to `new`, which may be larger, smaller or the same place.
    ///
    /// Whatever lay in `new` outside `old` is unmapped first. An empty `old` (shared areas only)
    /// maps the same memory a second time.
    Remap {
        /// The range before.
        old: VaRange,
        /// The range after.
        new: VaRange,
        /// Whether `old` stays as an empty area (`MREMAP_DONTUNMAP`).
        keep_old: bool,
    },
    /// `madvise`, with the kernel's own number.
    Advise {
        /// The range.
        range: VaRange,
        /// The raw number, for example 4 for `MADV_DONTNEED`; see [`advice`].
        advice: u32,
    },
    /// The program break moved from `old` to `new`. The heap is the range between the initial break
    /// and the current one, each rounded up to a page; [`brk_pages`] gives what the move changes.
    Brk {
        /// The break before.
        old: Va,
        /// The break after.
        new: Va,
    },
    /// The kernel filled the absent pages of the range without a fault, as if each had been touched
    /// with `access` (`MAP_POPULATE`, `mlock`). `MADV_POPULATE_*` comes as [`EventKind::Advise`].
    Populate {
        /// The range; pages of it that lie in no area or that forbid the access are left alone.
        range: VaRange,
        /// `Read` or `Write`.
        access: Access,
    },
    /// The program asked for large pages to be switched off or on for itself with `prctl`. While
    /// recording they are off in any case; a replay may honour the wish.
    ThpPrctl {
        /// The first two arguments behind `PR_SET_THP_DISABLE`: disable, flags.
        args: [u64; 2],
    },
    /// A page fault.
    Fault(Fault),
    /// What the area that holds this range is called (since version 2 of the format).
    Name {
        /// The range, which may be a part of the area.
        range: VaRange,
        /// Its name.
        name: Name,
    },
    /// What is known of an object (since version 3): said when it is mapped, and when a call has
    /// changed its size or what it holds.
    Object {
        /// Which.
        object: ObjectId,
        /// Where it comes from; the same each time.
        backing: Backing,
        /// How many pages it has room for. What lay beyond is gone.
        room: u64,
        /// Pages that are in it, whoever brought them; not all of them need to be named. Page i
        /// lies at i * 4 KiB.
        present: Vec<VaRange>,
    },
    /// The areas in this range map an object (since version 3).
    Attach {
        /// The range.
        range: VaRange,
        /// The object.
        object: ObjectId,
        /// The object's page at the start of the range.
        first: u64,
    },
    /// A call took pages out of an object (since version 3); `MADV_REMOVE` comes as
    /// [`EventKind::Advise`].
    Punch {
        /// The object.
        object: ObjectId,
        /// Its pages; page i lies at i * 4 KiB.
        pages: VaRange,
    },
}

/// Where an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Backing {
    /// `MAP_SHARED | MAP_ANONYMOUS`.
    Anonymous = 0,
    /// A file in memory: a memfd, or one of a tmpfs.
    File = 1,
    /// A System V segment. Linux maps nothing around a fault in it.
    SystemV = 2,
}

impl Backing {
    /// Whether Linux maps what is around a page that is read.
    pub const fn maps_around(self) -> bool {
        !matches!(self, Backing::SystemV)
    }
    /// A few words.
    pub const fn name(self) -> &'static str {
        match self {
            Backing::Anonymous => "anonymous",
            Backing::File => "file in memory",
            Backing::SystemV => "System V",
        }
    }
}

/// What a person knows an area by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A map of the file of this name, without folders.
    File(String),
    /// Memory that `mmap` made.
    Made {
        /// Who asked for it, where that was found.
        site: Option<Site>,
        /// The library that it asked, by its file's name: the C library, or an allocator.
        through: Option<String>,
    },
    /// The stack of this thread, which is about to run on it.
    Stack(ThreadId),
}

impl Name {
    /// The texts in it.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &String> {
        let (first, second) = match self {
            Name::File(name) => (Some(name), None),
            Name::Made { site, through } => (site.as_ref().map(|s| &s.object), through.as_ref()),
            Name::Stack(_) => (None, None),
        };
        first.into_iter().chain(second)
    }
}

impl EventKind {
    /// How many spaces and threads it brings into being, at most.
    pub(crate) const fn births(&self) -> u64 {
        match self {
            EventKind::Exec(_) | EventKind::Fork { .. } => 2,
            EventKind::Share { .. } => 1,
            _ => 0,
        }
    }
}

/// The content of a space just after `execve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// The program's path, as the kernel shows it.
    pub program: String,
    /// The initial program break.
    pub brk: Va,
    /// Every area, in order of address.
    pub areas: Vec<Area>,
    /// Pages of anonymous private areas that the kernel filled without a fault: the arguments.
    pub present: Vec<VaRange>,
}

/// One area of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Where it lies, in whole pages.
    pub range: VaRange,
    /// Access rights.
    pub prot: Prot,
    /// What it is.
    pub kind: AreaKind,
    /// How it was asked for.
    pub flags: MapFlags,
}

/// What an area is backed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AreaKind {
    /// Private memory without a file: `malloc`, thread stacks, bss, a private map of `/dev/zero`.
    Anonymous = 0,
    /// The area of the program break.
    Heap = 1,
    /// The initial thread's stack.
    Stack = 2,
    /// A private map of a file.
    FilePrivate = 3,
    /// A shared map of a file, or of a memfd.
    FileShared = 4,
    /// Shared memory without a file: `MAP_SHARED | MAP_ANONYMOUS`, System V.
    SharedAnonymous = 5,
    /// vdso, vvar, hugetlb pages, devices: nothing that a replay touches.
    Special = 6,
}

impl AreaKind {
    /// All kinds, in order of their numbers.
    pub const ALL: [AreaKind; 7] = [
        AreaKind::Anonymous,
        AreaKind::Heap,
        AreaKind::Stack,
        AreaKind::FilePrivate,
        AreaKind::FileShared,
        AreaKind::SharedAnonymous,
        AreaKind::Special,
    ];

    /// Whether faults here are the ones that a replay reproduces: private memory without a file.
    pub const fn is_anonymous_private(self) -> bool {
        matches!(self, AreaKind::Anonymous | AreaKind::Heap | AreaKind::Stack)
    }

    /// A few words for a table.
    pub const fn name(self) -> &'static str {
        match self {
            AreaKind::Anonymous => "anonymous",
            AreaKind::Heap => "heap",
            AreaKind::Stack => "stack",
            AreaKind::FilePrivate => "file, private",
            AreaKind::FileShared => "file, shared",
            AreaKind::SharedAnonymous => "shared anonymous",
            AreaKind::Special => "special",
        }
    }
}

macro_rules! bit_set {
    ($(#[$meta:meta])* $name:ident: $($(#[$doc:meta])* $konst:ident = $bit:literal),* $(,)?) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(u8);

        impl $name {
            /// Nothing set.
            pub const NONE: $name = $name(0);
            $($(#[$doc])* pub const $konst: $name = $name(1 << $bit);)*
            const KNOWN: u8 = 0 $(| 1 << $bit)*;

            /// The set with these raw bits, or `None` where a bit is unknown.
            pub const fn from_bits(bits: u8) -> Option<$name> {
                if bits & !Self::KNOWN == 0 { Some($name(bits)) } else { None }
            }
            /// The raw bits.
            pub const fn bits(self) -> u8 {
                self.0
            }
            /// Whether all of `other` is set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
            /// Both together.
            pub const fn with(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
            /// `other` added where `on`.
            pub const fn with_if(self, on: bool, other: $name) -> $name {
                if on { self.with(other) } else { self }
            }
        }
    };
}

bit_set! {
    /// Access rights.
    Prot:
    /// Readable.
    READ = 0,
    /// Writable.
    WRITE = 1,
    /// Executable.
    EXEC = 2,
}

impl Prot {
    /// Readable and writable.
    pub const RW: Prot = Prot::READ.with(Prot::WRITE);

    /// Whether x86 lets this access through: whatever can be accessed at all can be read.
    pub const fn permits(self, access: Access) -> bool {
        match access {
            Access::Read | Access::Exec => self.0 != 0,
            Access::Write => self.contains(Prot::WRITE),
        }
    }
}

impl fmt::Debug for Prot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, c) in [(Prot::READ, "r"), (Prot::WRITE, "w"), (Prot::EXEC, "x")] {
            f.write_str(if self.contains(bit) { c } else { "-" })?;
        }
        Ok(())
    }
}

bit_set! {
    /// How an area was asked for; what [`AreaKind`] says already is not repeated.
    MapFlags:
    /// `MAP_GROWSDOWN`, or the initial stack: a fault below it makes it larger.
    GROWSDOWN = 0,
    /// `MAP_STACK`.
    STACK = 1,
    /// `MAP_NORESERVE`.
    NORESERVE = 2,
    /// `MAP_POPULATE`; the filling itself is an [`EventKind::Populate`] that follows.
    POPULATE = 3,
    /// `MAP_FIXED` or `MAP_FIXED_NOREPLACE`.
    FIXED = 4,
    /// `MAP_LOCKED`; the filling itself is an [`EventKind::Populate`] that follows.
    LOCKED = 5,
    /// `MAP_HUGETLB`; the kind is [`AreaKind::Special`].
    HUGETLB = 6,
}

impl fmt::Debug for MapFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (MapFlags::GROWSDOWN, "growsdown"),
            (MapFlags::STACK, "stack"),
            (MapFlags::NORESERVE, "noreserve"),
            (MapFlags::POPULATE, "populate"),
            (MapFlags::FIXED, "fixed"),
            (MapFlags::LOCKED, "locked"),
            (MapFlags::HUGETLB, "hugetlb"),
        ];
        let set: Vec<&str> =
            names.iter().filter(|(b, _)| self.contains(*b)).map(|(_, n)| *n).collect();
        f.write_str(&set.join("|"))
    }
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Access {
    /// A load.
    Read = 0,
    /// A store, or a load that goes with one.
    Write = 1,
    /// An instruction fetch.
    Exec = 2,
}

/// Who made the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Origin {
    /// The program.
    User = 0,
    /// The kernel, on the program's behalf: a system call that copies to or from its memory.
    Kernel = 1,
}

/// Where the kind of access is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Source {
    /// The processor's error code: certain.
    Hardware = 0,
    /// The faulting instruction was decoded.
    Decoded = 1,
    /// A guess: write, unless a later fault shows that it was a read.
    Inferred = 2,
}

/// What the processor found in the way of the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Found {
    /// Not recorded.
    Unknown = 0,
    /// No page.
    Absent = 1,
    /// A page that forbids the access.
    Protected = 2,
}

/// What the fault was for the kernel, in the light of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Standing {
    /// It was the one to bring or to unprotect its page.
    Regular = 0,
    /// Another thread's fault did so while this one was on its way: the kernel found nothing to do.
    Raced = 1,
    /// The page had been made accessible without a flush and the processor still held the old
    /// translation: the kernel found nothing to do.
    Stale = 2,
    /// Nothing known explains it: the page was there already, or the recording has no memory there
    /// and the program got no signal. Counted and reported, never dropped.
    Unexplained = 3,
}

/// One page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address, exact to the byte.
    pub va: Va,
    /// Read, write or instruction fetch.
    pub access: Access,
    /// Who made the access.
    pub origin: Origin,
    /// Where `access` is known from.
    pub source: Source,
    /// What was in the way.
    pub found: Found,
    /// Whether this fault had something to do.
    pub standing: Standing,
}

impl Fault {
    /// The page that was touched.
    pub const fn page(&self) -> Va {
        Va::new(self.va.get() & !(FRAME_BYTES - 1))
    }
}

macro_rules! from_u8 {
    ($($ty:ident: $($v:ident)*;)*) => {$(
        impl $ty {
            /// The value with this number.
            pub(crate) fn from_u8(n: u8) -> Option<$ty> {
                $(if n == $ty::$v as u8 { return Some($ty::$v); })*
                None
            }
        }
    )*};
}
from_u8! {
    AreaKind: Anonymous Heap Stack FilePrivate FileShared SharedAnonymous Special;
    Backing: Anonymous File SystemV;
    Access: Read Write Exec;
    Origin: User Kernel;
    Source: Hardware Decoded Inferred;
    Found: Unknown Absent Protected;
    Standing: Regular Raced Stale Unexplained;
}

/// What moving the break from `old` to `new` adds (first) and removes (second), in whole pages.
pub fn brk_pages(old: Va, new: Va) -> (VaRange, VaRange) {
    let up = |va: Va| Va::new(va.get().saturating_add(FRAME_BYTES - 1) & !(FRAME_BYTES - 1));
    let (old, new) = (up(old), up(new));
    let range = |a, b| VaRange::new(a, b).unwrap_or_else(|| empty_at(a));
    (range(old, new), range(new, old))
}

/// The empty range at `va`.
pub(crate) fn empty_at(va: Va) -> VaRange {
    VaRange::new(va, va).expect("a range from an address to itself is legal")
}

/// Adds a page behind the last of some ranges, which are in order.
pub(crate) fn push_page(ranges: &mut Vec<VaRange>, page: Va) {
    let end = page.add(FRAME_BYTES);
    match ranges.last_mut() {
        Some(last) if last.end() == page => {
            *last = VaRange::new(last.start(), end).unwrap_or(*last);
        }
        _ => ranges.extend(VaRange::new(page, end)),
    }
}

/// The kernel's numbers for `madvise` that change what is mapped or how it faults.
pub mod advice {
    /// Drop the pages now.
    pub const DONTNEED: u32 = 4;
    /// Pages may be dropped later; a write keeps them.
    pub const FREE: u32 = 8;
    /// Drop the pages and the memory behind a shared map.
    pub const REMOVE: u32 = 9;
    /// A child gets no copy of the area.
    pub const DONTFORK: u32 = 10;
    /// Undo [`DONTFORK`].
    pub const DOFORK: u32 = 11;
    /// Large pages wanted.
    pub const HUGEPAGE: u32 = 14;
    /// No large pages.
    pub const NOHUGEPAGE: u32 = 15;
    /// A child gets the area empty.
    pub const WIPEONFORK: u32 = 18;
    /// Undo [`WIPEONFORK`].
    pub const KEEPONFORK: u32 = 19;
    /// Fill with readable pages.
    pub const POPULATE_READ: u32 = 22;
    /// Fill with writable pages.
    pub const POPULATE_WRITE: u32 = 23;
    /// As [`DONTNEED`], also for locked pages.
    pub const DONTNEED_LOCKED: u32 = 24;
    /// Large pages now.
    pub const COLLAPSE: u32 = 25;
    /// Drop the pages and forbid access.
    pub const GUARD_INSTALL: u32 = 102;
    /// Undo [`GUARD_INSTALL`].
    pub const GUARD_REMOVE: u32 = 103;
    /// `mlock`, which marks an area as advice does: no number of the kernel's, which refuses it.
    /// What is filled by it is an [`EventKind::Populate`](super::EventKind::Populate) that follows.
    pub const LOCK: u32 = 1 << 16;
    /// `munlock`, likewise.
    pub const UNLOCK: u32 = LOCK + 1;
    /// From here on the program fills missing pages itself (`UFFDIO_REGISTER`). What it fills is an
    /// [`EventKind::Populate`](super::EventKind::Populate) that follows.
    pub const FILLED: u32 = LOCK + 2;
    /// From here on the program may protect pages from writes and is told of these
    /// (`UFFDIO_REGISTER`).
    pub const WATCHED: u32 = LOCK + 3;
    /// Undo [`FILLED`] and [`WATCHED`].
    pub const UNWATCHED: u32 = LOCK + 4;
    /// Writes to pages that are present fault, and wait for the program to allow them
    /// (`UFFDIO_WRITEPROTECT`).
    pub const WRITE_PROTECT: u32 = LOCK + 5;
    /// Undo [`WRITE_PROTECT`].
    pub const WRITE_ALLOW: u32 = LOCK + 6;
    /// These pages are there; a recorder compares it with what it knows, and it is in no file.
    pub(crate) const PRESENT: u32 = LOCK + 7;
}
