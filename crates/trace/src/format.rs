//! The bytes of a trace file.
//!
//! ```text
//!   magic "FOLTRACE" | version u16 | header length u32 | header | crc32 of all before
//!   block:   'E' | number of events u32 | raw length u32 | packed length u32 | crc32 | deflate data
//!   ...
//!   trailer: 'Z' | 0 u32                | length u32     | length u32        | crc32 | plain data
//! ```
//!
//! Numbers outside blocks are little-endian, inside they are varints (seven bits a byte, low first)
//! and differences (zigzag). A block can be read without those before it. Its checksum also covers
//! its place in the file, so blocks that change places are noticed; the trailer counts events and
//! blocks, so a file that ends early is noticed wherever it ends.
//!
//! ```text
//!   version 1   events of kinds 0 to 12
//!   version 2   and names (13)
//!   version 3   and objects: what they are (14), who maps them (15), what is taken out (16)
//! ```
//!
//! **Invariants**
//! - F1. No length from a file leads to an allocation before its bytes are there, or before what
//!   they come to decoded was drawn from the reader's budget ([`crate::budget`]).
//! - F2. Every byte of a file is covered by a checksum or compared with a fixed value.
//! - F3. Decoding what was encoded gives the same event; decoding anything else gives an error.

use crate::event::{
    Access, Area, AreaKind, Backing, Event, EventKind, Exec, Fault, Found, MapFlags, Name,
    ObjectId, Origin, Prot, Source, SpaceId, Standing, ThreadId,
};
use crate::site::Site;
use foliant_units::{FRAME_BYTES, Va, VaRange};
use std::collections::HashMap;

pub(crate) const MAGIC: [u8; 8] = *b"FOLTRACE";
/// The version that this crate writes, and the latest that it reads.
pub const VERSION: u16 = 3;
/// The first version that has names.
pub(crate) const NAMES_SINCE: u16 = 2;
/// The first version that has objects.
pub(crate) const OBJECTS_SINCE: u16 = 3;
/// No name of a file is longer, in bytes: Linux's are not.
pub(crate) const NAME_MAX: usize = 255;
/// A block is closed once it holds so many raw bytes.
pub(crate) const RAW_TARGET: usize = 128 << 10;
/// No block or header is larger than this, packed or not.
pub(crate) const RAW_MAX: usize = 4 << 20;
pub(crate) const TAG_EVENTS: u8 = b'E';
pub(crate) const TAG_TRAILER: u8 = b'Z';
pub(crate) const BLOCK_HEAD: usize = 17;
/// Ranges in a trace end at or below this address: the user half of five-level paging.
pub(crate) const VA_MAX: u64 = 1 << 56;

/// How the kinds of accesses were found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessSource {
    /// From the processor's error code, through the kernel's tracepoints.
    Tracepoint = 0,
    /// By decoding the faulting instructions, and by inference where the kernel faulted.
    Decoded = 1,
    /// By inference alone.
    Inferred = 2,
}

impl AccessSource {
    /// A few words for a description.
    pub const fn name(self) -> &'static str {
        match self {
            AccessSource::Tracepoint => "the processor's error code (tracepoints)",
            AccessSource::Decoded => "decoded instructions; inferred for faults of the kernel",
            AccessSource::Inferred => "inferred",
        }
    }
}

/// What a trace says about itself before its first event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Kernel and release of the machine.
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// CPUs that were on line.
    pub cpus: u32,
    /// Bytes of a page; always 4096 in this version.
    pub page_bytes: u32,
    /// When the recording began, in seconds since 1970.
    pub unix_seconds: u64,
    /// Where the kinds of accesses come from.
    pub access_source: AccessSource,
    /// Whether faults that the kernel took on the program's behalf are in the file. They are not
    /// where `perf_event_paranoid` is 2 or more and the recording had no privilege.
    pub kernel_faults: bool,
    /// The program that made the file.
    pub recorder: String,
}

/// How the recorded program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this exit status.
    Exited(u8),
    /// By this signal.
    Signaled(u8),
}

impl Ending {
    /// The status that a shell would report: the exit status, or 128 plus the signal.
    pub const fn code(self) -> u8 {
        match self {
            Ending::Exited(n) => n,
            Ending::Signaled(n) => 128u8.saturating_add(n),
        }
    }
}

/// What a trace says about itself after its last event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Events in the file.
    pub events: u64,
    /// Of these, faults.
    pub faults: u64,
    /// Faults that the kernel counted and that did not reach the recorder. 0 in a complete trace.
    pub lost: u64,
    /// Other things that went wrong while recording, in plain words; empty in a complete trace.
    pub remarks: Vec<String>,
    /// How the program ended.
    pub ending: Ending,
}

impl Trailer {
    /// Whether everything the program did is in the file.
    pub fn is_complete(&self) -> bool {
        self.lost == 0 && self.remarks.is_empty()
    }
}

pub(crate) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

pub(crate) fn put_delta(out: &mut Vec<u8>, from: u64, to: u64) {
    let d = to.wrapping_sub(from) as i64;
    put(out, ((d << 1) ^ (d >> 63)) as u64);
}

fn put_text(out: &mut Vec<u8>, s: &str) {
    put(out, s.len() as u64);
    out.extend_from_slice(s.as_bytes());
}

fn put_name(out: &mut Vec<u8>, name: &Name) {
    match name {
        Name::File(file) => {
            out.push(0);
            put_text(out, file);
        }
        Name::Made { site, through } => {
            out.push(1 | u8::from(site.is_some()) << 1 | u8::from(through.is_some()) << 2);
            if let Some(Site { object, offset }) = site {
                put_text(out, object);
                put(out, *offset);
            }
            through.iter().for_each(|name| put_text(out, name));
        }
        Name::Stack(thread) => {
            out.push(8);
            put(out, thread.0.into());
        }
    }
}

fn name(cur: &mut Cursor<'_>) -> Result<Name, Malformed> {
    match cur.byte()? {
        0 => Ok(Name::File(cur.file_name()?)),
        notes @ (1 | 3 | 5 | 7) => {
            let site = |cur: &mut Cursor<'_>| {
                Ok::<_, Malformed>(Site { object: cur.file_name()?, offset: cur.number()? })
            };
            let site = (notes & 2 != 0).then(|| site(cur)).transpose()?;
            let through = (notes & 4 != 0).then(|| cur.file_name()).transpose()?;
            Ok(Name::Made { site, through })
        }
        8 => Ok(Name::Stack(ThreadId(cur.small()?))),
        _ => Err("a name's kind is unknown"),
    }
}

/// Why bytes do not decode.
pub(crate) type Malformed = &'static str;

/// A reader over bytes that are all there.
pub(crate) struct Cursor<'a> {
    left: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { left: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.left.len()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.left.split_first().ok_or("it ends within a value")?;
        self.left = rest;
        Ok(first)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.byte()?;
            if shift == 63 && b > 1 {
                break;
            }
            n |= u64::from(b & 0x7f) << shift;
            if b & 0x80 == 0 {
                // One spelling only, so that nothing but what was encoded decodes (F3).
                return if b == 0 && shift > 0 { Err("a number is padded") } else { Ok(n) };
            }
        }
        Err("a number is too long")
    }

    fn small(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| "a number is too large")
    }

    pub(crate) fn delta(&mut self, from: u64) -> Result<u64, Malformed> {
        let z = self.number()?;
        Ok(from.wrapping_add(((z >> 1) as i64 ^ -((z & 1) as i64)) as u64))
    }

    /// A count of things that take at least `each` bytes, so it is bounded by what is there (F1).
    pub(crate) fn count(&mut self, each: usize) -> Result<usize, Malformed> {
        let n = self.number()?;
        if n > (self.left.len() / each) as u64 {
            return Err("a count is larger than what follows");
        }
        Ok(n as usize)
    }

    fn file_name(&mut self) -> Result<String, Malformed> {
        let name = self.text()?;
        if name.len() <= NAME_MAX { Ok(name) } else { Err("a file's name is too long") }
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let n = self.count(1)?;
        let (text, rest) = self.left.split_at(n);
        self.left = rest;
        String::from_utf8(text.to_vec()).map_err(|_| "a text is not UTF-8")
    }
}

/// Since which version of the format there are such events.
pub(crate) const fn since(kind: &EventKind) -> u16 {
    match kind {
        EventKind::Name { .. } => NAMES_SINCE,
        EventKind::Object { .. } | EventKind::Attach { .. } | EventKind::Punch { .. } => {
            OBJECTS_SINCE
        }
        _ => 1,
    }
}

/// What deltas are taken against; empty at the start of each block.
#[derive(Default)]
pub(crate) struct Context {
    time: u64,
    thread: u32,
    space: u32,
    /// The last address of each thread's faults, and under `u32::MAX` the last edge of a range.
    near: HashMap<u32, u64>,
}

const EDGE: u32 = u32::MAX;

impl Context {
    fn near(&mut self, who: u32) -> &mut u64 {
        self.near.entry(who).or_insert(0)
    }

    fn put_range(&mut self, out: &mut Vec<u8>, range: VaRange) {
        let edge = self.near(EDGE);
        put_delta(out, *edge / FRAME_BYTES, range.start().get() / FRAME_BYTES);
        put(out, range.pages().get());
        *edge = range.end().get();
    }

    fn range(&mut self, cur: &mut Cursor<'_>) -> Result<VaRange, Malformed> {
        let edge = self.near(EDGE);
        let start = cur.delta(*edge / FRAME_BYTES)?;
        let pages = cur.number()?;
        let end = start.checked_add(pages).ok_or("a range is too long")?;
        if end > VA_MAX / FRAME_BYTES {
            return Err("a range lies outside the user's addresses");
        }
        *edge = end * FRAME_BYTES;
        VaRange::new(Va::new(start * FRAME_BYTES), Va::new(end * FRAME_BYTES))
            .ok_or("a range ends before it starts")
    }

    fn put_area(&mut self, out: &mut Vec<u8>, area: &Area) {
        self.put_range(out, area.range);
        out.push(area.kind as u8 | area.prot.bits() << 3);
        out.push(area.flags.bits());
    }

    fn area(&mut self, cur: &mut Cursor<'_>) -> Result<Area, Malformed> {
        let range = self.range(cur)?;
        let b = cur.byte()?;
        let kind = AreaKind::from_u8(b & 7).ok_or("an area's kind is unknown")?;
        let prot = Prot::from_bits(b >> 3).ok_or("access rights are unknown")?;
        let flags = MapFlags::from_bits(cur.byte()?).ok_or("an area's flags are unknown")?;
        Ok(Area { range, prot, kind, flags })
    }

    /// Appends one event. The head byte is `kind | same thread << 5 | same space << 6`.
    pub(crate) fn put_event(&mut self, out: &mut Vec<u8>, event: &Event) {
        let same_thread = event.thread.0 == self.thread;
        let same_space = event.space.0 == self.space;
        let head = number_of(&event.kind);
        out.push(head | u8::from(same_thread) << 5 | u8::from(same_space) << 6);
        put(out, event.time_ns.wrapping_sub(self.time));
        if !same_thread {
            put(out, event.thread.0.into());
        }
        if !same_space {
            put(out, event.space.0.into());
        }
        (self.time, self.thread, self.space) = (event.time_ns, event.thread.0, event.space.0);
        match &event.kind {
            EventKind::Exec(exec) => {
                put_text(out, &exec.program);
                put(out, exec.brk.get());
                put(out, exec.areas.len() as u64);
                for area in &exec.areas {
                    self.put_area(out, area);
                }
                put(out, exec.present.len() as u64);
                for &range in &exec.present {
                    self.put_range(out, range);
                }
            }
            EventKind::Fork { child, thread } => {
                put(out, child.0.into());
                put(out, thread.0.into());
            }
            EventKind::Share { thread, process } => {
                put(out, thread.0.into());
                out.push((*process).into());
            }
            EventKind::Exit { last } => out.push((*last).into()),
            EventKind::Map(area) => self.put_area(out, area),
            EventKind::Unmap { range } => self.put_range(out, *range),
            EventKind::Protect { range, prot } => {
                self.put_range(out, *range);
                out.push(prot.bits());
            }
            EventKind::Remap { old, new, keep_old } => {
                self.put_range(out, *old);
                self.put_range(out, *new);
                out.push((*keep_old).into());
            }
            EventKind::Advise { range, advice } => {
                self.put_range(out, *range);
                put(out, (*advice).into());
            }
            EventKind::Brk { old, new } => {
                put(out, old.get());
                put_delta(out, old.get(), new.get());
            }
            EventKind::Populate { range, access } => {
                self.put_range(out, *range);
                out.push(*access as u8);
            }
            EventKind::ThpPrctl { args } => {
                put(out, args[0]);
                put(out, args[1]);
            }
            EventKind::Fault(fault) => {
                out.push(fault.access as u8 | (fault.origin as u8) << 2 | (fault.found as u8) << 3);
                out.push(fault.source as u8 | (fault.standing as u8) << 2);
                let near = self.near(event.thread.0);
                // Page and offset apart: neighbouring pages give equal bytes, which deflate well.
                put_delta(out, *near / FRAME_BYTES, fault.va.get() / FRAME_BYTES);
                put(out, fault.va.get() % FRAME_BYTES);
                *near = fault.va.get();
            }
            EventKind::Name { range, name } => {
                self.put_range(out, *range);
                put_name(out, name);
            }
            EventKind::Object { object, backing, room, present } => {
                put(out, object.0.into());
                out.push(*backing as u8);
                put(out, *room);
                put(out, present.len() as u64);
                for &range in present {
                    self.put_range(out, range);
                }
            }
            EventKind::Attach { range, object, first } => {
                self.put_range(out, *range);
                put(out, object.0.into());
                put(out, *first);
            }
            EventKind::Punch { object, pages } => {
                put(out, object.0.into());
                self.put_range(out, *pages);
            }
        }
    }

    /// Reads one event.
    pub(crate) fn event(&mut self, cur: &mut Cursor<'_>) -> Result<Event, Malformed> {
        let head = cur.byte()?;
        if head & 0x80 != 0 {
            return Err("an event's head is unknown");
        }
        let time_ns = self.time.checked_add(cur.number()?).ok_or("a time is too large")?;
        let thread = if head & 0x20 != 0 { self.thread } else { cur.small()? };
        let space = if head & 0x40 != 0 { self.space } else { cur.small()? };
        if thread == EDGE {
            return Err("a thread's number is too large");
        }
        (self.time, self.thread, self.space) = (time_ns, thread, space);
        let kind = match head & 0x1f {
            0 => {
                let program = cur.text()?;
                let brk = user_va(cur.number()?)?;
                let n = cur.count(4)?;
                let areas = list(n, || self.area(cur))?;
                let n = cur.count(2)?;
                let present = list(n, || self.range(cur))?;
                EventKind::Exec(Exec { program, brk, areas, present })
            }
            1 => EventKind::Fork { child: SpaceId(cur.small()?), thread: ThreadId(cur.small()?) },
            2 => EventKind::Share { thread: ThreadId(cur.small()?), process: flag(cur)? },
            3 => EventKind::Exit { last: flag(cur)? },
            4 => EventKind::Map(self.area(cur)?),
            5 => EventKind::Unmap { range: self.range(cur)? },
            6 => EventKind::Protect {
                range: self.range(cur)?,
                prot: Prot::from_bits(cur.byte()?).ok_or("access rights are unknown")?,
            },
            7 => EventKind::Remap {
                old: self.range(cur)?,
                new: self.range(cur)?,
                keep_old: flag(cur)?,
            },
            8 => EventKind::Advise { range: self.range(cur)?, advice: cur.small()? },
            9 => {
                let old = user_va(cur.number()?)?;
                EventKind::Brk { old, new: user_va(cur.delta(old.get())?)? }
            }
            10 => EventKind::Populate {
                range: self.range(cur)?,
                access: Access::from_u8(cur.byte()?).ok_or("an access is unknown")?,
            },
            11 => EventKind::ThpPrctl { args: [cur.number()?, cur.number()?] },
            12 => {
                let (a, b) = (cur.byte()?, cur.byte()?);
                if a >> 5 != 0 || b >> 4 != 0 {
                    return Err("a fault's notes are unknown");
                }
                let near = self.near(thread);
                let page = cur.delta(*near / FRAME_BYTES)?;
                let offset = cur.number()?;
                if page > u64::MAX / FRAME_BYTES || offset >= FRAME_BYTES {
                    return Err("a fault's address is too large");
                }
                *near = page * FRAME_BYTES + offset;
                EventKind::Fault(Fault {
                    va: Va::new(*near),
                    access: Access::from_u8(a & 3).ok_or("an access is unknown")?,
                    origin: Origin::from_u8(a >> 2 & 1).ok_or("an origin is unknown")?,
                    found: Found::from_u8(a >> 3).ok_or("a fault's cause is unknown")?,
                    source: Source::from_u8(b & 3).ok_or("an access's source is unknown")?,
                    standing: Standing::from_u8(b >> 2).ok_or("a fault's standing is unknown")?,
                })
            }
            13 => EventKind::Name { range: self.range(cur)?, name: name(cur)? },
            14 => {
                let object = ObjectId(cur.small()?);
                let backing = Backing::from_u8(cur.byte()?).ok_or("an object's kind is unknown")?;
                let room = pages(cur)?;
                let n = cur.count(2)?;
                let present = list(n, || self.range(cur))?;
                EventKind::Object { object, backing, room, present }
            }
            15 => EventKind::Attach {
                range: self.range(cur)?,
                object: ObjectId(cur.small()?),
                first: pages(cur)?,
            },
            16 => EventKind::Punch { object: ObjectId(cur.small()?), pages: self.range(cur)? },
            _ => return Err("an event's kind is unknown"),
        };
        Ok(Event { time_ns, thread: ThreadId(thread), space: SpaceId(space), kind })
    }
}

/// So many things in a list that is made once: one that grows would be there twice.
fn list<T>(n: usize, mut item: impl FnMut() -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
    let mut list = Vec::with_capacity(n);
    for _ in 0..n {
        list.push(item()?);
    }
    Ok(list)
}

fn number_of(kind: &EventKind) -> u8 {
    match kind {
        EventKind::Exec(_) => 0,
        EventKind::Fork { .. } => 1,
        EventKind::Share { .. } => 2,
        EventKind::Exit { .. } => 3,
        EventKind::Map(_) => 4,
        EventKind::Unmap { .. } => 5,
        EventKind::Protect { .. } => 6,
        EventKind::Remap { .. } => 7,
        EventKind::Advise { .. } => 8,
        EventKind::Brk { .. } => 9,
        EventKind::Populate { .. } => 10,
        EventKind::ThpPrctl { .. } => 11,
        EventKind::Fault(_) => 12,
        EventKind::Name { .. } => 13,
        EventKind::Object { .. } => 14,
        EventKind::Attach { .. } => 15,
        EventKind::Punch { .. } => 16,
    }
}

/// So many pages, or the number of one, of an object.
fn pages(cur: &mut Cursor<'_>) -> Result<u64, Malformed> {
    let n = cur.number()?;
    if n <= VA_MAX / FRAME_BYTES { Ok(n) } else { Err("an object is too large") }
}

fn flag(cur: &mut Cursor<'_>) -> Result<bool, Malformed> {
    match cur.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err("a flag is neither 0 nor 1"),
    }
}

fn user_va(n: u64) -> Result<Va, Malformed> {
    if n <= VA_MAX { Ok(Va::new(n)) } else { Err("an address is not the user's") }
}

/// Whether every range of the event can be written (whole pages, below [`VA_MAX`]), and every name.
pub(crate) fn check(kind: &EventKind) -> Result<(), Malformed> {
    if let EventKind::Name { name, .. } = kind
        && name.texts().any(|text| text.len() > NAME_MAX)
    {
        return Err("a file's name is too long");
    }
    let fits = |r: &VaRange| {
        r.start().get().is_multiple_of(FRAME_BYTES)
            && r.end().get().is_multiple_of(FRAME_BYTES)
            && r.end().get() <= VA_MAX
    };
    let count = |pages: u64| pages <= VA_MAX / FRAME_BYTES;
    let ok = match kind {
        EventKind::Exec(e) => {
            e.brk.get() <= VA_MAX
                && e.areas.iter().all(|a| fits(&a.range))
                && e.present.iter().all(fits)
        }
        EventKind::Map(a) => fits(&a.range),
        EventKind::Unmap { range }
        | EventKind::Protect { range, .. }
        | EventKind::Advise { range, .. }
        | EventKind::Populate { range, .. }
        | EventKind::Name { range, .. } => fits(range),
        EventKind::Remap { old, new, .. } => fits(old) && fits(new),
        EventKind::Brk { old, new } => old.get() <= VA_MAX && new.get() <= VA_MAX,
        EventKind::Object { room, present, .. } => count(*room) && present.iter().all(fits),
        EventKind::Attach { range, first, .. } => count(*first) && fits(range),
        EventKind::Punch { pages, .. } => fits(pages),
        _ => true,
    };
    if ok { Ok(()) } else { Err("a range is not in whole pages of the user's addresses") }
}

pub(crate) fn put_header(out: &mut Vec<u8>, header: &Header) {
    put(out, header.command.len() as u64);
    for word in &header.command {
        put_text(out, word);
    }
    put_text(out, &header.kernel);
    put_text(out, &header.processor);
    put(out, header.cpus.into());
    put(out, header.page_bytes.into());
    put(out, header.unix_seconds);
    out.push(header.access_source as u8);
    out.push(header.kernel_faults.into());
    put_text(out, &header.recorder);
}

pub(crate) fn header(bytes: &[u8]) -> Result<Header, Malformed> {
    let cur = &mut Cursor::new(bytes);
    let words = cur.count(1)?;
    let header = Header {
        command: list(words, || cur.text())?,
        kernel: cur.text()?,
        processor: cur.text()?,
        cpus: cur.small()?,
        page_bytes: cur.small()?,
        unix_seconds: cur.number()?,
        access_source: match cur.byte()? {
            0 => AccessSource::Tracepoint,
            1 => AccessSource::Decoded,
            2 => AccessSource::Inferred,
            _ => return Err("the source of accesses is unknown"),
        },
        kernel_faults: flag(cur)?,
        recorder: cur.text()?,
    };
    if u64::from(header.page_bytes) != FRAME_BYTES {
        return Err("its pages are not of 4096 bytes");
    }
    if cur.is_empty() { Ok(header) } else { Err("it is longer than its content") }
}

pub(crate) fn put_trailer(out: &mut Vec<u8>, trailer: &Trailer, blocks: u64) {
    put(out, blocks);
    put(out, trailer.events);
    put(out, trailer.faults);
    put(out, trailer.lost);
    put(out, trailer.remarks.len() as u64);
    for remark in &trailer.remarks {
        put_text(out, remark);
    }
    let (how, n) = match trailer.ending {
        Ending::Exited(n) => (0, n),
        Ending::Signaled(n) => (1, n),
    };
    out.extend([how, n]);
}

pub(crate) fn trailer(bytes: &[u8]) -> Result<(Trailer, u64), Malformed> {
    let cur = &mut Cursor::new(bytes);
    let blocks = cur.number()?;
    let (events, faults, lost) = (cur.number()?, cur.number()?, cur.number()?);
    let n = cur.count(1)?;
    let remarks = list(n, || cur.text())?;
    let ending = match (cur.byte()?, cur.byte()?) {
        (0, n) => Ending::Exited(n),
        (1, n) => Ending::Signaled(n),
        _ => return Err("the program's ending is unknown"),
    };
    if !cur.is_empty() {
        return Err("the trailer is longer than its content");
    }
    Ok((Trailer { events, faults, lost, remarks, ending }, blocks))
}

/// The checksum of a block: its place in the file, its head without the checksum, its data.
pub(crate) fn block_crc(place: u64, head: &[u8], data: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&place.to_le_bytes());
    crc.update(head);
    crc.update(data);
    crc.finalize()
}
