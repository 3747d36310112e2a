//! Bytes that nobody foresees.

use spin::Mutex;

/// A state that nobody foresees who does not count instructions. Nothing here keeps secrets: a
/// program under an emulator that counts instructions runs the same way twice.
static RANDOM: Mutex<Option<u64>> = Mutex::new(None);

/// Fills bytes with what nobody foresees.
pub(super) fn fill(bytes: &mut [u8]) {
    let mut state = RANDOM.lock();
    let state = state.get_or_insert_with(foliant_x86::ticks);
    for piece in bytes.chunks_mut(8) {
        // SplitMix64.
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = *state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
    }
}
