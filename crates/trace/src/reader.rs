//! Reading a trace as a stream.

use crate::budget::{Budget, Purse, Spent, Thing, cost};
use crate::error::TraceError;
use crate::event::{Area, Event, EventKind};
use crate::format::{self, Context, Cursor, Header, Trailer};
use crate::lineage::Lineage;
use foliant_units::VaRange;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

/// Reads a trace: an iterator over its events that ends after the trailer was found and agreed.
///
/// The first error ends the iteration. A file is good only when the iterator came to its end
/// without one; from then on [`Reader::trailer`] is there. Holds at most one block in memory, which
/// it draws from its budget, as it draws the work.
pub struct Reader<R: Read> {
    input: R,
    header: Header,
    version: u16,
    trailer: Option<Trailer>,
    raw: Vec<u8>,
    at: usize,
    left: u32,
    context: Context,
    lineage: Lineage,
    blocks: u64,
    events: u64,
    faults: u64,
    time_ns: u64,
    failed: bool,
    purse: Purse,
    /// What of the purse is the block's, in raw bytes.
    block: u64,
}

/// What a trace says about itself at both of its ends.
#[derive(Debug)]
pub struct About {
    /// Before its first event.
    pub header: Header,
    /// After its last one.
    pub trailer: Trailer,
    /// What they are drawn from.
    _held: Purse,
}

/// A trace that was read as a whole.
#[derive(Debug)]
pub struct Trace {
    /// What it says about itself.
    pub header: Header,
    /// What happened.
    pub events: Vec<Event>,
    /// What it says about itself at its end.
    pub trailer: Trailer,
    /// What all of it is drawn from.
    _held: [Purse; 2],
}

impl Trace {
    /// Opens and reads a whole file.
    pub fn open(path: impl AsRef<Path>, budget: &Budget) -> Result<Trace, TraceError> {
        Trace::read(BufReader::new(File::open(path)?), budget)
    }

    /// Reads a whole trace. One that is looked at event by event takes less: [`Reader`].
    pub fn read(input: impl Read, budget: &Budget) -> Result<Trace, TraceError> {
        let mut reader = Reader::new(input, budget)?;
        let (mut held, mut events) = (Purse::new(budget), Vec::new());
        for event in reader.by_ref() {
            let event = event?;
            if let EventKind::Exec(exec) = &event.kind {
                held.take_text(&exec.program)?;
                held.take(Thing::Events, exec.areas.len() as u64, size_of::<Area>() as u64)?;
                held.take(Thing::Events, exec.present.len() as u64, size_of::<VaRange>() as u64)?;
            }
            if let EventKind::Object { present, .. } = &event.kind {
                held.take(Thing::Events, present.len() as u64, size_of::<VaRange>() as u64)?;
            }
            if let EventKind::Name { name, .. } = &event.kind {
                name.texts().try_for_each(|text| held.take_text(text))?;
            }
            held.push(Thing::Events, &mut events, event)?;
        }
        let About { header, trailer, _held: about } = reader.finish()?;
        Ok(Trace { header, events, trailer, _held: [about, held] })
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(mut input: R, budget: &Budget) -> Result<Reader<R>, TraceError> {
        let mut bytes = Vec::new();
        fill(&mut input, &mut bytes, format::MAGIC.len())?;
        if bytes.is_empty() || !format::MAGIC.starts_with(&bytes) {
            return Err(TraceError::NotATrace);
        }
        let cut = TraceError::Truncated { events: 0 };
        if bytes.len() < format::MAGIC.len() {
            return Err(cut);
        }
        fill(&mut input, &mut bytes, 6)?;
        let [_, _, _, _, _, _, _, _, v0, v1, l0, l1, l2, l3] = bytes[..] else {
            return Err(cut);
        };
        let version = u16::from_le_bytes([v0, v1]);
        if version > format::VERSION {
            return Err(TraceError::NewerVersion { file: version, known: format::VERSION });
        }
        if version == 0 {
            return Err(TraceError::BadHeader { why: "its version is 0" });
        }
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > format::RAW_MAX {
            return Err(TraceError::BadHeader { why: "its length is too large" });
        }
        let mut purse = Purse::new(budget);
        purse.take(Thing::Names, length as u64, cost::RAW)?;
        let head = bytes.len();
        fill(&mut input, &mut bytes, length)?;
        if bytes.len() < head + length {
            return Err(cut);
        }
        let crc = crc32fast::hash(&bytes);
        let mut sum = Vec::new();
        fill(&mut input, &mut sum, 4)?;
        let sum: [u8; 4] = sum.try_into().map_err(|_| cut)?;
        if u32::from_le_bytes(sum) != crc {
            return Err(TraceError::BadHeader { why: "its checksum does not match" });
        }
        let header = format::header(&bytes[head..]).map_err(|why| TraceError::BadHeader { why })?;
        Ok(Reader {
            input,
            header,
            version,
            trailer: None,
            raw: Vec::new(),
            at: 0,
            left: 0,
            context: Context::default(),
            lineage: Lineage::new(),
            blocks: 0,
            events: 0,
            faults: 0,
            time_ns: 0,
            failed: false,
            purse,
            block: 0,
        })
    }

    /// What the trace says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What the trace says about itself at its end, once the iterator has come there.
    pub fn trailer(&self) -> Option<&Trailer> {
        self.trailer.as_ref()
    }

    /// What the trace says about itself, once the iterator has come to its end; that it was cut off
    /// before.
    pub fn finish(self) -> Result<About, TraceError> {
        let cut = TraceError::Truncated { events: self.events };
        let trailer = self.trailer.ok_or(cut)?;
        Ok(About { header: self.header, trailer, _held: self.purse })
    }

    /// Who runs where after the last event that was read.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    fn corrupt(&self, why: &'static str) -> TraceError {
        TraceError::CorruptBlock { block: self.blocks, why }
    }

    fn step(&mut self) -> Result<Option<Event>, TraceError> {
        while self.left == 0 {
            if self.trailer.is_some() {
                return Ok(None);
            }
            self.next_block()?;
        }
        let block = self.blocks - 1;
        let corrupt = |why| TraceError::CorruptBlock { block, why };
        let mut cur = Cursor::new(&self.raw[self.at..]);
        let before = cur.len();
        let event = self.context.event(&mut cur).map_err(corrupt)?;
        if self.version < format::since(&event.kind) {
            return Err(corrupt("an event's kind is unknown"));
        }
        self.at += before - cur.len();
        self.left -= 1;
        if self.left == 0 && !cur.is_empty() {
            return Err(corrupt("it is longer than its events"));
        }
        if event.time_ns < self.time_ns {
            return Err(corrupt("time goes backwards"));
        }
        self.time_ns = event.time_ns;
        self.purse.work(1)?;
        self.lineage.apply(&event).map_err(corrupt)?;
        self.purse.take(Thing::Spaces, event.kind.births(), cost::BIRTH)?;
        self.events += 1;
        self.faults += u64::from(matches!(event.kind, EventKind::Fault(_)));
        Ok(Some(event))
    }

    fn next_block(&mut self) -> Result<(), TraceError> {
        let events = self.events;
        let cut = || TraceError::Truncated { events };
        let mut head = Vec::with_capacity(format::BLOCK_HEAD);
        fill(&mut self.input, &mut head, format::BLOCK_HEAD)?;
        let head: [u8; format::BLOCK_HEAD] = head.try_into().map_err(|_| cut())?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (events, raw, packed, crc) = (word(1), word(5) as usize, word(9) as usize, word(13));
        if head[0] != format::TAG_EVENTS && head[0] != format::TAG_TRAILER {
            return Err(self.corrupt("its tag is unknown"));
        }
        if raw > format::RAW_MAX || packed > format::RAW_MAX {
            return Err(self.corrupt("its length is too large"));
        }
        self.hold(raw.max(packed))?;
        let mut data = Vec::new();
        fill(&mut self.input, &mut data, packed)?;
        if data.len() < packed {
            return Err(cut());
        }
        if format::block_crc(self.blocks, &head[..13], &data) != crc {
            return Err(self.corrupt("its checksum does not match"));
        }
        if head[0] == format::TAG_TRAILER {
            return self.end(events, raw, &data);
        }
        if events == 0 {
            return Err(self.corrupt("it holds no event"));
        }
        self.raw = miniz_oxide::inflate::decompress_to_vec_with_limit(&data, raw)
            .map_err(|_| self.corrupt("it does not unpack"))?;
        if self.raw.len() != raw {
            return Err(self.corrupt("it unpacks to another length"));
        }
        (self.at, self.left, self.context) = (0, events, Context::default());
        self.blocks += 1;
        Ok(())
    }

    /// Draws what a block of so many bytes takes, in the place of the one before.
    fn hold(&mut self, bytes: usize) -> Result<(), Spent> {
        let before = std::mem::replace(&mut self.block, 0);
        self.raw = Vec::new();
        self.purse.give(before, cost::RAW);
        // Unpacking and decoding it: a step for each 64 bytes, besides those for its events.
        self.purse.work(bytes as u64 / 64)?;
        self.purse.take(Thing::Blocks, bytes as u64, cost::RAW)?;
        self.block = bytes as u64;
        Ok(())
    }

    fn end(&mut self, events: u32, raw: usize, data: &[u8]) -> Result<(), TraceError> {
        let (trailer, blocks) = format::trailer(data).map_err(|why| self.corrupt(why))?;
        if events != 0 || raw != data.len() {
            return Err(self.corrupt("the trailer's head does not match"));
        }
        if (trailer.events, trailer.faults, blocks) != (self.events, self.faults, self.blocks) {
            return Err(self.corrupt("the trailer counts other events than there are"));
        }
        let mut rest = Vec::new();
        fill(&mut self.input, &mut rest, 1)?;
        if !rest.is_empty() {
            return Err(TraceError::TrailingBytes);
        }
        self.trailer = Some(trailer);
        Ok(())
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let step = self.step();
        self.failed = step.is_err();
        step.transpose()
    }
}

/// Appends up to `n` bytes, fewer at the end of the input; memory grows only with what is there.
fn fill(input: &mut impl Read, out: &mut Vec<u8>, n: usize) -> Result<(), TraceError> {
    match input.by_ref().take(n as u64).read_to_end(out) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(()),
        Err(e) => Err(e.into()),
    }
}
