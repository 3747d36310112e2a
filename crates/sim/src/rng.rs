//! The source of chance of seeded runs: a counter that is mixed.
//!
//! It is written out here so that a printed seed replays the same history for ever, whatever crates
//! are at hand in whatever versions.
//!
//! **Not here**: anything that must be hard to guess.

/// A stream of numbers that depends on the seed alone.
#[derive(Clone, Debug)]
pub struct Rng {
    pub(crate) state: u64,
}

impl Rng {
    /// The stream `lane` of `seed`; lanes of one seed differ.
    pub fn new(seed: u64, lane: u64) -> Rng {
        let mut rng = Rng { state: seed ^ lane.wrapping_mul(0xa076_1d64_78bd_642f) };
        rng.draw();
        rng
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 where the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `every` draws on average; never where `every` is 0.
    pub fn once_in(&mut self, every: u32) -> bool {
        every != 0 && self.below(u64::from(every)) == 0
    }
}
