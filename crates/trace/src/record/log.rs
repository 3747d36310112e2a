//! The chunks of a recording's streams: what the rings and the tracer told, in a few bytes each.
//!
//! Numbers are those of the trace format (varints, and differences to the entry before). Each chunk
//! is read without those before it.
//!
//! ```text
//!   ring:    kind, same thread, notes | time | thread | address, ...       6 bytes a sample
//!   tracer:  kind | time | floor | thread | ...
//! ```
//!
//! **Invariants**
//! - G1. Reading gives back what was written, in its order.
//! - G2. What the tracer tells behind an entry is not older than that entry's floor.

use super::raw::{Raw, What};
use super::spool::{Outlet, Spool, Stream};
use super::sys::pid_t;
use super::told::{Doing, Told};
use crate::event::{Access, AreaKind, Event, EventKind, SpaceId, ThreadId};
use crate::format::{Context, Cursor, Malformed, put, put_delta};
use foliant_units::Va;
use std::io;

/// What the next entry's numbers are differences to.
#[derive(Default)]
struct Near {
    time: u64,
    tid: pid_t,
    va: u64,
}

/// One ring's records on their way to the spool.
pub(crate) struct RingLog {
    outlet: Outlet,
    near: Near,
}

const FAULT: u8 = 0;
const CODE: u8 = 1;
const FORK: u8 = 2;
const END: u8 = 3;
const EXEC: u8 = 4;
const BORN: u8 = 5;
/// A call of a running program's: its begin, its area, its end by the notes.
const CALL: u8 = 6;
const BEGIN: u8 = 0;
const AREA: u8 = 1;
const BACK: u8 = 2;
const SAME_THREAD: u8 = 1 << 3;
/// Where a kind's own notes begin: whether the kernel faulted, then what was decoded.
const NOTES: u8 = 4;

impl RingLog {
    pub(crate) fn new(outlet: Outlet) -> RingLog {
        RingLog { outlet, near: Near::default() }
    }

    /// Appends one record.
    pub(crate) fn put(&mut self, raw: &Raw) {
        let out = &mut self.outlet.bytes;
        let near = &mut self.near;
        let same = if raw.tid == near.tid { SAME_THREAD } else { 0 };
        let kind = match raw.what {
            What::Fault { kernel, decoded, .. } => {
                let decoded = decoded.map_or(0, |access| access as u8 + 1);
                FAULT | (u8::from(kernel) | decoded << 1) << NOTES
            }
            What::Code { .. } => CODE,
            What::Fork { same_process, .. } => FORK | u8::from(same_process) << NOTES,
            What::End => END,
            What::Exec { .. } => EXEC,
            What::Born { .. } => BORN,
            What::Enter { .. } => CALL | BEGIN << NOTES,
            What::Made { .. } => CALL | AREA << NOTES,
            What::Leave { .. } => CALL | BACK << NOTES,
        };
        out.push(kind | same);
        put_delta(out, near.time, raw.time);
        if same == 0 {
            put(out, raw.tid as u64);
        }
        (near.time, near.tid) = (raw.time, raw.tid);
        match raw.what {
            What::Fault { va, .. } => {
                put_delta(out, near.va, va);
                near.va = va;
            }
            What::Code { va, error } => {
                put_delta(out, near.va, va);
                near.va = va;
                put(out, error.into());
            }
            What::Fork { child, .. } => put(out, child as u64),
            What::End => {}
            What::Exec { pid } => put(out, pid as u64),
            What::Born { child, flags } => {
                put(out, child as u64);
                put(out, flags);
            }
            What::Enter { nr, args } => {
                put(out, nr.into());
                args.iter().for_each(|arg| put(out, *arg));
            }
            What::Made { at, bytes, kind } => {
                put(out, at);
                put(out, bytes);
                out.push(kind as u8);
            }
            What::Leave { result } => put(out, result as u64),
        }
        if self.outlet.is_full() {
            self.send();
        }
    }

    /// Sends what there is.
    pub(crate) fn send(&mut self) {
        self.near = Near::default();
        self.outlet.send();
    }
}

fn raw(near: &mut Near, cur: &mut Cursor<'_>) -> Result<Raw, Malformed> {
    let head = cur.byte()?;
    let time = cur.delta(near.time)?;
    let tid = if head & SAME_THREAD != 0 { near.tid } else { cur.number()? as pid_t };
    (near.time, near.tid) = (time, tid);
    let notes = head >> NOTES;
    let what = match head & 7 {
        FAULT => {
            near.va = cur.delta(near.va)?;
            let decoded = (notes >> 1).checked_sub(1).and_then(Access::from_u8);
            What::Fault { va: near.va, kernel: notes & 1 != 0, decoded }
        }
        CODE => {
            near.va = cur.delta(near.va)?;
            What::Code { va: near.va, error: cur.number()? as u32 }
        }
        FORK => What::Fork { child: cur.number()? as pid_t, same_process: notes & 1 != 0 },
        END => What::End,
        EXEC => What::Exec { pid: cur.number()? as pid_t },
        BORN => What::Born { child: cur.number()? as pid_t, flags: cur.number()? },
        CALL => match notes {
            BEGIN => {
                let nr = cur.number()? as u16;
                let mut args = [0; 6];
                for arg in &mut args {
                    *arg = cur.number()?;
                }
                What::Enter { nr, args }
            }
            AREA => What::Made {
                at: cur.number()?,
                bytes: cur.number()?,
                kind: AreaKind::from_u8(cur.byte()?).ok_or("an area's kind is unknown")?,
            },
            BACK => What::Leave { result: cur.number()? as i64 },
            _ => return Err("a call's part is unknown"),
        },
        _ => return Err("a record's kind is unknown"),
    };
    Ok(Raw { time, tid, what })
}

/// What the tracer tells, on its way to the spool.
pub(crate) struct ToldLog {
    outlet: Outlet,
    context: Context,
    near: Near,
    floor: u64,
}

const CLONE: u8 = 0;
const PROGRAM: u8 = 1;
const CHANGE: u8 = 2;
const BREAK: u8 = 3;
const SIGNAL: u8 = 4;
const GONE: u8 = 5;
const RESIDUE: u8 = 6;
const ROOT: u8 = 7;
const STACK: u8 = 8;

fn event(kind: EventKind) -> Event {
    Event { time_ns: 0, thread: ThreadId(0), space: SpaceId(0), kind }
}

impl ToldLog {
    pub(crate) fn new(outlet: Outlet) -> ToldLog {
        ToldLog { outlet, context: Context::default(), near: Near::default(), floor: 0 }
    }

    /// Appends one entry; nothing that follows is older than `floor` (G2).
    pub(crate) fn put(&mut self, told: Told, floor: u64) {
        let out = &mut self.outlet.bytes;
        out.push(match told.what {
            Doing::Clone { .. } => CLONE,
            Doing::Exec { .. } => PROGRAM,
            Doing::Change(_) => CHANGE,
            Doing::Brk { .. } => BREAK,
            Doing::Signal => SIGNAL,
            Doing::Gone => GONE,
            Doing::Residue { .. } => RESIDUE,
            Doing::Root { .. } => ROOT,
            Doing::Stack { .. } => STACK,
        });
        put_delta(out, self.near.time, told.time);
        put_delta(out, self.floor, floor);
        put(out, told.tid as u64);
        (self.near.time, self.floor) = (told.time, floor);
        match told.what {
            Doing::Clone { flags } => put(out, flags),
            Doing::Stack { top } => put(out, top),
            Doing::Exec { former, exec } => {
                put(out, former as u64);
                self.context.put_event(out, &event(EventKind::Exec(exec)));
            }
            Doing::Change(kind) => self.context.put_event(out, &event(kind)),
            Doing::Brk { now } => put(out, now.get()),
            Doing::Signal | Doing::Gone => {}
            Doing::Root { threads, exec } => {
                put(out, threads.len() as u64);
                threads.iter().for_each(|tid| put(out, *tid as u64));
                self.context.put_event(out, &event(EventKind::Exec(exec)));
            }
            Doing::Residue { present } => {
                put(out, present.len() as u64);
                for page in present {
                    put_delta(out, self.near.va, page.get());
                    self.near.va = page.get();
                }
            }
        }
        if self.outlet.is_full() {
            self.send();
        }
    }

    /// Sends what there is.
    pub(crate) fn send(&mut self) {
        (self.context, self.near, self.floor) = (Context::default(), Near::default(), 0);
        self.outlet.send();
    }
}

/// What of the tracer's chunk was read before.
#[derive(Default)]
struct ToldNear {
    context: Context,
    near: Near,
    floor: u64,
}

fn told(from: &mut ToldNear, cur: &mut Cursor<'_>) -> Result<(Told, u64), Malformed> {
    let kind = cur.byte()?;
    let time = cur.delta(from.near.time)?;
    let floor = cur.delta(from.floor)?;
    let tid = cur.number()? as pid_t;
    (from.near.time, from.floor) = (time, floor);
    let what = match kind {
        CLONE => Doing::Clone { flags: cur.number()? },
        STACK => Doing::Stack { top: cur.number()? },
        PROGRAM => {
            let former = cur.number()? as pid_t;
            match from.context.event(cur)?.kind {
                EventKind::Exec(exec) => Doing::Exec { former, exec },
                _ => return Err("a program is none"),
            }
        }
        CHANGE => Doing::Change(from.context.event(cur)?.kind),
        BREAK => Doing::Brk { now: Va::new(cur.number()?) },
        SIGNAL => Doing::Signal,
        GONE => Doing::Gone,
        ROOT => {
            let count = cur.count(1)?;
            let threads = (0..count).map(|_| Ok(cur.number()? as pid_t));
            let threads = threads.collect::<Result<Vec<pid_t>, Malformed>>()?;
            match from.context.event(cur)?.kind {
                EventKind::Exec(exec) => Doing::Root { threads, exec },
                _ => return Err("a program is none"),
            }
        }
        RESIDUE => {
            let count = cur.count(1)?;
            let mut present = Vec::with_capacity(count);
            for _ in 0..count {
                from.near.va = cur.delta(from.near.va)?;
                present.push(Va::new(from.near.va));
            }
            Doing::Residue { present }
        }
        _ => return Err("an entry's kind is unknown"),
    };
    Ok((Told { time, tid, what }, floor))
}

/// Events on their way to the spool.
pub(crate) struct EventLog {
    bytes: Vec<u8>,
    context: Context,
}

impl EventLog {
    pub(crate) fn new() -> EventLog {
        EventLog { bytes: Vec::new(), context: Context::default() }
    }

    /// Appends one event.
    pub(crate) fn put(&mut self, event: &Event, spool: &mut Spool) -> io::Result<()> {
        self.context.put_event(&mut self.bytes, event);
        if self.bytes.len() >= super::spool::CHUNK { self.send(spool) } else { Ok(()) }
    }

    /// Writes what there is.
    pub(crate) fn send(&mut self, spool: &mut Spool) -> io::Result<()> {
        self.context = Context::default();
        let sent = match self.bytes.is_empty() {
            true => Ok(()),
            false => spool.append(Stream::EVENTS, &self.bytes),
        };
        self.bytes.clear();
        sent
    }
}

/// Reads a stream entry by entry.
struct Entries<S> {
    stream: Stream,
    place: usize,
    bytes: Vec<u8>,
    at: usize,
    state: S,
}

impl<S: Default> Entries<S> {
    fn of(stream: Stream) -> Entries<S> {
        Entries { stream, place: 0, bytes: Vec::new(), at: 0, state: S::default() }
    }

    fn next<T>(
        &mut self,
        spool: &Spool,
        read: impl Fn(&mut S, &mut Cursor<'_>) -> Result<T, Malformed>,
    ) -> io::Result<Option<T>> {
        if self.at == self.bytes.len() {
            let Some(bytes) = spool.chunk(self.stream, self.place)? else { return Ok(None) };
            (self.bytes, self.at, self.state) = (bytes, 0, S::default());
            self.place += 1;
        }
        let mut cur = Cursor::new(&self.bytes[self.at..]);
        let before = cur.len();
        let entry = read(&mut self.state, &mut cur)
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        self.at += before - cur.len();
        Ok(Some(entry))
    }
}

/// Reads what came out of a ring.
pub(crate) struct RingReader(Entries<Near>);

impl RingReader {
    pub(crate) fn new(ring: usize) -> RingReader {
        RingReader(Entries::of(Stream::ring(ring)))
    }
    pub(crate) fn next(&mut self, spool: &Spool) -> io::Result<Option<Raw>> {
        self.0.next(spool, raw)
    }
}

/// Reads what the tracer told, each entry with its floor.
pub(crate) struct ToldReader(Entries<ToldNear>);

impl ToldReader {
    pub(crate) fn new() -> ToldReader {
        ToldReader(Entries::of(Stream::TOLD))
    }
    pub(crate) fn next(&mut self, spool: &Spool) -> io::Result<Option<(Told, u64)>> {
        self.0.next(spool, told)
    }
}

/// Reads events.
pub(crate) struct EventReader(Entries<Context>);

impl EventReader {
    pub(crate) fn new() -> EventReader {
        EventReader(Entries::of(Stream::EVENTS))
    }
    pub(crate) fn next(&mut self, spool: &Spool) -> io::Result<Option<Event>> {
        self.0.next(spool, Context::event)
    }
}
