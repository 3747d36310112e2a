//! What a recording keeps on disk while it grows: a file without a name, in streams of chunks.
//!
//! ```text
//!   drainer ── a stream per ring ──┐
//!                                  ├─ channel ─▶ thread ─▶ Spool ─▶ merge, settle (after the end)
//!   tracer ─── a stream ───────────┘
//! ```
//!
//! Whoever empties the rings must not wait for a disk, so a thread of its own writes. The channel
//! holds a few MiB; only when that is full does a slow disk hold the drainer up.
//!
//! **Invariants**
//! - S1. The file has no name from its first moment on: whatever ends the recorder, nothing is left
//!   of it.
//! - S2. Memory is a place for each chunk, 16 bytes for 32 KiB, and what is in the channel.
//! - S3. After the first failed write nothing more is written, and [`Spooler::finish`] says why.

use super::RecordError;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// A chunk is sent once it holds so many bytes.
pub(crate) const CHUNK: usize = 32 << 10;
/// Chunks that may wait to be written.
const WAITING: usize = 128;

/// The number of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stream(u32);

impl Stream {
    /// What the tracer told.
    pub(crate) const TOLD: Stream = Stream(0);
    /// Events, put together and not yet settled.
    pub(crate) const EVENTS: Stream = Stream(1);

    /// What came out of one ring.
    pub(crate) fn ring(at: usize) -> Stream {
        Stream(2 + at as u32)
    }
}

struct Chunk {
    at: u64,
    bytes: u32,
}

/// The file, and where each stream's chunks are.
pub(crate) struct Spool {
    file: File,
    folder: PathBuf,
    end: u64,
    streams: Vec<Vec<Chunk>>,
}

impl Spool {
    /// One in this folder, or in that for temporary files.
    pub(crate) fn new(folder: Option<&Path>) -> Result<Spool, RecordError> {
        let folder = folder.map_or_else(std::env::temp_dir, Path::to_owned);
        match tempfile::tempfile_in(&folder) {
            Ok(file) => Ok(Spool { file, folder, end: 0, streams: Vec::new() }),
            // The name that it never had means nothing to the caller.
            Err(why) => Err(RecordError::Spool { folder, why: why.kind().into() }),
        }
    }

    /// Puts a chunk at the end of a stream.
    pub(crate) fn append(&mut self, Stream(stream): Stream, bytes: &[u8]) -> io::Result<()> {
        let too_long = || io::Error::from(io::ErrorKind::FileTooLarge);
        let length = u32::try_from(bytes.len()).map_err(|_| too_long())?;
        self.file.write_all_at(bytes, self.end)?;
        let stream = stream as usize;
        if self.streams.len() <= stream {
            self.streams.resize_with(stream + 1, Vec::new);
        }
        self.streams[stream].push(Chunk { at: self.end, bytes: length });
        self.end += u64::from(length);
        Ok(())
    }

    /// Reads a stream's chunk; `None` behind its last one.
    pub(crate) fn chunk(&self, stream: Stream, place: usize) -> io::Result<Option<Vec<u8>>> {
        let found = self.streams.get(stream.0 as usize).and_then(|stream| stream.get(place));
        let Some(Chunk { at, bytes }) = found else { return Ok(None) };
        let mut chunk = vec![0; *bytes as usize];
        self.file.read_exact_at(&mut chunk, *at)?;
        Ok(Some(chunk))
    }

    /// An error of the file's.
    pub(crate) fn failed(&self, why: io::Error) -> RecordError {
        RecordError::Spool { folder: self.folder.clone(), why }
    }
}

enum Message {
    Chunk(Stream, Vec<u8>),
    End,
}

/// The thread that writes.
pub(crate) struct Spooler {
    failed: Arc<AtomicBool>,
    sender: SyncSender<Message>,
    thread: JoinHandle<(Spool, io::Result<()>)>,
}

impl Spooler {
    /// Starts it.
    pub(crate) fn start(mut spool: Spool) -> io::Result<Spooler> {
        let (sender, messages) = sync_channel(WAITING);
        let failed = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&failed);
        let thread = std::thread::Builder::new().name("foliant-spool".to_owned());
        let thread = thread.spawn(move || {
            let mut written = Ok(());
            while let Ok(Message::Chunk(stream, bytes)) = messages.recv() {
                if written.is_ok() {
                    written = spool.append(stream, &bytes);
                    told.store(written.is_err(), Ordering::Relaxed);
                }
            }
            (spool, written)
        })?;
        Ok(Spooler { failed, sender, thread })
    }

    /// Where chunks of a stream go.
    pub(crate) fn outlet(&self, stream: Stream) -> Outlet {
        Outlet { stream, sender: self.sender.clone(), bytes: Vec::with_capacity(CHUNK + 256) }
    }

    /// Whether a write has failed, so that nothing more is kept.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Waits until all that was sent before is written.
    pub(crate) fn finish(self) -> Result<Spool, RecordError> {
        let _ = self.sender.send(Message::End);
        let gone = || io::Error::other("the thread that writes panicked");
        let (spool, written) = self
            .thread
            .join()
            .map_err(|_| RecordError::System { what: "writing down", why: gone() })?;
        match written {
            Ok(()) => Ok(spool),
            Err(why) => Err(spool.failed(why)),
        }
    }
}

/// The end of a stream that is written to.
pub(crate) struct Outlet {
    stream: Stream,
    sender: SyncSender<Message>,
    /// The chunk that is being filled.
    pub(crate) bytes: Vec<u8>,
}

impl Outlet {
    /// Whether the chunk is full.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= CHUNK
    }

    /// Sends what there is and begins a chunk.
    pub(crate) fn send(&mut self) {
        if !self.bytes.is_empty() {
            let next = Vec::with_capacity(CHUNK + 256);
            let chunk = std::mem::replace(&mut self.bytes, next);
            // The thread is gone after the end only, when nobody waits for more.
            let _ = self.sender.send(Message::Chunk(self.stream, chunk));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_come_back_chunk_by_chunk_and_leave_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let spooler = Spooler::start(Spool::new(Some(folder.path())).unwrap()).unwrap();
        let mut outlets = [spooler.outlet(Stream::TOLD), spooler.outlet(Stream::ring(3))];
        for n in 0..400u32 {
            let outlet = &mut outlets[n as usize % 2];
            outlet.bytes.extend(n.to_le_bytes());
            outlet.send();
            outlet.send(); // nothing
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        let spool = spooler.finish().unwrap();
        outlets[0].bytes.push(1);
        outlets[0].send(); // goes nowhere
        for (first, stream) in [(0, Stream::TOLD), (1, Stream::ring(3))] {
            for place in 0..200u32 {
                let chunk = spool.chunk(stream, place as usize).unwrap().unwrap();
                assert_eq!(chunk, (first + 2 * place).to_le_bytes());
            }
            assert!(spool.chunk(stream, 200).unwrap().is_none());
        }
        assert!(spool.chunk(Stream::EVENTS, 0).unwrap().is_none());
    }

    #[test]
    fn a_full_disk_is_told_at_the_end() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let spool = Spool { file, folder: "here".into(), end: 0, streams: Vec::new() };
        let spooler = Spooler::start(spool).unwrap();
        let mut outlet = spooler.outlet(Stream::TOLD);
        for _ in 0..1000 {
            outlet.bytes.push(1);
            outlet.send();
        }
        match spooler.finish() {
            Err(RecordError::Spool { why, .. }) => {
                assert_eq!(why.kind(), io::ErrorKind::StorageFull);
            }
            other => panic!("{:?}", other.map(drop)),
        }
    }

    #[test]
    fn no_place_is_an_error_that_names_it() {
        let nowhere = Spool::new(Some(Path::new("/nowhere/at/all"))).map(drop).unwrap_err();
        assert!(nowhere.to_string().contains("/nowhere/at/all"), "{nowhere}");
    }
}
