//! What lanes touch, and words that stand for much: mixed, and the same in every process.

use core::hash::{BuildHasherDefault, Hasher};

/// Lanes of a scene, at most.
pub(crate) const LANES_MAX: usize = 4;

/// What is touched, by a number; conflicts are between equal ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Touched {
    pub(crate) location: u64,
    pub(crate) writes: bool,
}

/// Mixes two words into one.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut x = (a ^ b.rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(b);
    x ^= x >> 32;
    x = x.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^ x >> 29
}

/// Where tables have what they know of a location: locations that are neighbours have neighbouring
/// places, because a word is seldom touched without those beside it, and each page that a process
/// is the first to touch after a fork costs it a fault of the host.
pub(crate) fn place_of(location: u64) -> u64 {
    let inside = location % NEIGHBOURS;
    // The upper bits tell neighbours apart where a table compares those first.
    mix(location / NEIGHBOURS, 3).wrapping_mul(NEIGHBOURS) ^ inside ^ inside.rotate_right(7)
}
/// So many locations in a row have places in a row.
pub(crate) const NEIGHBOURS: u64 = 64;

/// A word for a text.
pub(crate) fn word_of(text: &str) -> u64 {
    text.bytes().fold(7, |word, byte| mix(word, u64::from(byte)))
}

/// Hashes locations to their places: the tables of one scene are asked at every access.
#[derive(Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = mix(self.0, u64::from(*byte)));
    }
    fn write_u64(&mut self, location: u64) {
        self.0 = place_of(location);
    }
}

/// Makes mixers.
pub(crate) type Mixers = BuildHasherDefault<Mixer>;
