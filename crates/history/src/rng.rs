//! The streams of chance of a history. What they are is the simulator's; that its own scheduler draws from others is here.

pub(crate) use foliant_sim::Rng;

/// The stream `lane` of `seed`.
pub(crate) fn lane(seed: u64, lane: u64) -> Rng {
    Rng::new(seed.rotate_left(17) ^ lane.wrapping_mul(0xd134_2543_de82_ef95), 0)
}
