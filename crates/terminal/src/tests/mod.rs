//! Lines that are typed, by hand and at random; the random ones to a pseudo terminal of this host
//! as well.

mod cases;
mod host;
mod random;

use crate::{Discipline, Screen, Settings};
use linux_raw_sys::general::{VMIN, VTIME};

/// What is shown.
#[derive(Default, Debug)]
struct Shown {
    bytes: Vec<u8>,
    flushes: usize,
}

impl Screen for Shown {
    fn room(&self) -> usize {
        usize::MAX
    }
    fn show(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }
    fn flush(&mut self) {
        self.bytes.clear();
        self.flushes += 1;
    }
}

/// A terminal of ours, with what it shows.
struct Ours {
    discipline: Discipline,
    shown: Shown,
}

impl Ours {
    fn new(settings: Settings) -> Ours {
        Ours { discipline: Discipline::new(settings).unwrap(), shown: Shown::default() }
    }
    fn receive(&mut self, bytes: &[u8]) -> crate::Received {
        self.discipline.receive(bytes, &mut self.shown)
    }
    fn write(&mut self, bytes: &[u8]) -> usize {
        self.discipline.write(bytes, &mut self.shown)
    }
    fn set(&mut self, settings: Settings) {
        self.discipline.set(settings, &mut self.shown);
    }
    fn shown(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.shown.bytes)
    }
    /// What a read that does not wait gets of so many bytes; `None` where it would wait. It reads
    /// piece by piece, as a kernel may.
    fn read(&mut self, most: usize) -> Option<Vec<u8>> {
        if !self.discipline.has() {
            let settings = self.discipline.settings();
            let waits = settings.char(VMIN) > 0 || settings.char(VTIME) > 0;
            return (!waits && !self.discipline.is_canonical()).then(Vec::new);
        }
        let mut all = Vec::new();
        loop {
            let mut piece = [0; 7];
            let room = piece.len().min(most - all.len());
            let read = self.discipline.read(&mut piece[..room]);
            all.extend(&piece[..read.count]);
            let is_raw = !self.discipline.is_canonical();
            if all.len() == most || read.count == 0 || !(read.goes_on || is_raw) {
                return Some(all);
            }
        }
    }
}
