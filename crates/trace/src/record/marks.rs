//! Bits for places among a recording's events: what is known of an event only after it was written.

use std::collections::BTreeMap;

/// Places of events, a bit each where there are any near.
#[derive(Default, Debug)]
pub(crate) struct Marks(BTreeMap<u64, Box<[u64; Marks::WORDS]>>);

impl Marks {
    const WORDS: usize = 64;

    fn at(place: u64) -> (u64, usize, u64) {
        let word = place / 64;
        (word / Marks::WORDS as u64, (word % Marks::WORDS as u64) as usize, 1 << (place % 64))
    }
    pub(crate) fn set(&mut self, place: u64) {
        let (block, word, bit) = Marks::at(place);
        self.0.entry(block).or_insert_with(|| Box::new([0; Marks::WORDS]))[word] |= bit;
    }
    pub(crate) fn has(&self, place: u64) -> bool {
        let (block, word, bit) = Marks::at(place);
        self.0.get(&block).is_some_and(|words| words[word] & bit != 0)
    }
}

impl Extend<u64> for Marks {
    fn extend<T: IntoIterator<Item = u64>>(&mut self, places: T) {
        places.into_iter().for_each(|place| self.set(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_bits() {
        let mut marks = Marks::default();
        let places = [0, 63, 64, 4095, 4096, 1 << 40];
        marks.extend(places);
        for place in places {
            assert!(marks.has(place) && !marks.has(place + 1000), "{place}");
        }
        assert_eq!(marks.0.len(), 3);
    }
}
