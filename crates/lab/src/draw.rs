//! Numbers in no order, the same in every run and on every machine.

/// A sequence that its seed decides.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw(seed)
    }
    /// The next number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // A counter with its bits mixed (SplitMix64): neighbours in the sequence have nothing in
        // common.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        // Scaled, not divided: the high half of a product.
        ((u128::from(z ^ z >> 31) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Draw;

    #[test]
    fn numbers_stay_below_and_fall_everywhere() {
        let mut draw = Draw::new(1);
        let mut hits = [0u32; 10];
        for _ in 0..10_000 {
            hits[draw.below(10) as usize] += 1;
        }
        assert!(hits.iter().all(|n| (850..1150).contains(n)), "{hits:?}");
        assert!((0..100).all(|_| draw.below(1) == 0));
    }
}
