//! Writing a trace as a stream.

use crate::error::TraceError;
use crate::event::{Event, EventKind};
use crate::format::{self, Context, Ending, Header, Trailer};
use crate::lineage::Lineage;
use std::io::Write;

/// Writes a trace: [`Writer::new`] writes the header, [`Writer::event`] the events, and
/// [`Writer::finish`] the trailer, without which the file counts as cut off.
///
/// Holds at most one block in memory. Nothing is flushed or synced to disk; that is the caller's.
pub struct Writer<W: Write> {
    out: W,
    raw: Vec<u8>,
    in_block: u32,
    context: Context,
    lineage: Lineage,
    blocks: u64,
    events: u64,
    faults: u64,
    time_ns: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    pub fn new(mut out: W, header: &Header) -> Result<Writer<W>, TraceError> {
        let mut body = Vec::new();
        format::put_header(&mut body, header);
        if body.len() > format::RAW_MAX {
            return Err(TraceError::BadEvent { why: "the command line is too long" });
        }
        let mut bytes = format::MAGIC.to_vec();
        bytes.extend(format::VERSION.to_le_bytes());
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        let crc = crc32fast::hash(&bytes);
        bytes.extend(crc.to_le_bytes());
        out.write_all(&bytes)?;
        Ok(Writer {
            out,
            raw: Vec::new(),
            in_block: 0,
            context: Context::default(),
            lineage: Lineage::new(),
            blocks: 0,
            events: 0,
            faults: 0,
            time_ns: 0,
        })
    }

    /// Appends one event; refuses one that breaks a rule of [`crate::event`] and writes nothing of
    /// it.
    pub fn event(&mut self, event: &Event) -> Result<(), TraceError> {
        if event.time_ns < self.time_ns {
            return Err(TraceError::BadEvent { why: "its time lies before that of the last one" });
        }
        format::check(&event.kind).map_err(|why| TraceError::BadEvent { why })?;
        if let EventKind::Exec(exec) = &event.kind {
            // 32 bytes are more than an area or a range can take.
            let bytes = exec.program.len() + 32 * (exec.areas.len() + exec.present.len());
            if bytes > format::RAW_MAX - 2 * format::RAW_TARGET {
                return Err(TraceError::BadEvent { why: "a program has too many areas" });
            }
        }
        self.lineage.apply(event).map_err(|why| TraceError::BadEvent { why })?;
        self.context.put_event(&mut self.raw, event);
        self.time_ns = event.time_ns;
        self.in_block += 1;
        self.events += 1;
        self.faults += u64::from(matches!(event.kind, EventKind::Fault(_)));
        if self.raw.len() >= format::RAW_TARGET { self.close_block() } else { Ok(()) }
    }

    /// Writes the trailer and returns it with the sink.
    pub fn finish(
        mut self,
        ending: Ending,
        lost: u64,
        remarks: Vec<String>,
    ) -> Result<(Trailer, W), TraceError> {
        if self.in_block > 0 {
            self.close_block()?;
        }
        let trailer = Trailer { events: self.events, faults: self.faults, lost, remarks, ending };
        let mut body = Vec::new();
        format::put_trailer(&mut body, &trailer, self.blocks);
        if body.len() > format::RAW_MAX {
            return Err(TraceError::BadEvent { why: "the remarks are too long" });
        }
        self.block(format::TAG_TRAILER, 0, body.len(), &body)?;
        self.out.flush()?;
        Ok((trailer, self.out))
    }

    fn close_block(&mut self) -> Result<(), TraceError> {
        let packed = miniz_oxide::deflate::compress_to_vec(&self.raw, 8);
        self.block(format::TAG_EVENTS, self.in_block, self.raw.len(), &packed)?;
        self.blocks += 1;
        self.in_block = 0;
        self.raw.clear();
        self.context = Context::default();
        Ok(())
    }

    fn block(&mut self, tag: u8, events: u32, raw: usize, data: &[u8]) -> Result<(), TraceError> {
        let mut head = vec![tag];
        for n in [events, raw as u32, data.len() as u32] {
            head.extend(n.to_le_bytes());
        }
        let crc = format::block_crc(self.blocks, &head, data);
        head.extend(crc.to_le_bytes());
        self.out.write_all(&head)?;
        Ok(self.out.write_all(data)?)
    }
}
