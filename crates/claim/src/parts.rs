//! A claim in parts.

use super::claim::{Claim, Touched};
use foliant_units::{Frame, Order, Pages};

/// The equal parts of a claim, to be taken in any order, each once: up to 512.
#[must_use = "parts that nobody takes leak their frames"]
#[derive(Debug)]
pub struct Parts {
    first: Frame,
    order: Order,
    touched: Touched,
    left: [u64; 8],
}

impl Claim {
    /// Parts of `order`. The allocator is told by the caller that they are blocks of their own.
    #[inline]
    pub fn into_parts(self, order: Order) -> Parts {
        let count = self.order().pages().get() / order.pages().get();
        assert!((1..=512).contains(&count), "{count} parts");
        let left = |word: u64| match count.saturating_sub(word * 64) {
            0 => 0,
            bits => !0 >> 64u64.saturating_sub(bits),
        };
        let left = core::array::from_fn(|word| left(word as u64));
        let touched = self.touched();
        Parts { first: self.into_raw().0, order, touched, left }
    }
}

impl Parts {
    /// Takes the part at a place, unless it was taken.
    #[inline]
    pub fn part(&mut self, nth: u64) -> Option<Claim> {
        let (word, bit) = (self.left.get_mut((nth / 64) as usize)?, 1 << (nth % 64));
        let is_left = *word & bit != 0;
        *word &= !bit;
        let frame = self.first.add(Pages::new(nth * self.order.pages().get()));
        is_left.then(|| Claim::of(frame, self.order, self.touched))
    }
}

/// Takes the first one that is left.
impl Iterator for Parts {
    type Item = Claim;

    #[inline]
    fn next(&mut self) -> Option<Claim> {
        let word = self.left.iter().position(|word| *word != 0)?;
        self.part(word as u64 * 64 + u64::from(self.left[word].trailing_zeros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_taken_once() {
        let block = Claim::of(Frame::new(1 << 18), Order::SIZE_1G, Touched::Perhaps);
        let mut parts = block.into_parts(Order::SIZE_2M);
        let last = parts.part(511).expect("there are 512");
        assert_eq!((last.frame().get(), last.order()), ((1 << 18) + 511 * 512, Order::SIZE_2M));
        assert_eq!(parts.part(511), None);
        assert_eq!(parts.part(512), None);
        let frames = (0..511).map(|nth| Frame::new((1 << 18) + nth * 512));
        assert!(parts.map(|part| part.frame()).eq(frames));
    }
    #[test]
    fn parts_are_known_as_the_whole_was() {
        for count in [1, 2, 64, 512u64] {
            let order = Order::fitting(Pages::new(count).bytes()).unwrap();
            let parts = Claim::of(Frame::new(512), order, Touched::No).into_parts(Order::BASE);
            assert_eq!(parts.filter(|part| part.touched() == Touched::No).count() as u64, count);
        }
    }
}
