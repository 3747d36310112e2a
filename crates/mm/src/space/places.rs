//! What stands in the place of a page that is missing, beside 0.
//!
//! **Not here**: when which of them is put there (`huge`, `watch`, `zap`, `fault::fill`).

use crate::table::{Attrs, Soft, SoftKind};

/// Stands where a page is missing that is watched (`watch`).
pub(super) const MARKER: u64 = marker(0);

/// Stands where a page was lost, or the program said that memory is broken.
const POISON: u64 = poison(0);

/// Of a huge page: stands where a reserved page was and was dropped: the next one is not reserved.
pub(super) const SPENT: u64 = word(0);
/// The same where the page was dropped just now: the operation that dropped it sees whether the
/// place gets a reservation again (`huge::regain`). To all others it is spent.
pub(super) const DROPPED: u64 = word(1);
/// Stands where the page was taken away from a child, whose parent wanted it: no page comes there
/// any more.
pub(super) const LOST: u64 = word(2);

const fn word(payload: u64) -> u64 {
    Soft { kind: SoftKind::Other, payload }.word()
}
const fn marker(payload: u64) -> u64 {
    Soft { kind: SoftKind::Marker, payload }.word()
}
const fn poison(payload: u64) -> u64 {
    Soft { kind: SoftKind::Poison, payload }.word()
}

/// What stands in a place of a huge page: as it is, watched, poisoned. In that of a small page only
/// the first of each does.
const TWINS: [[u64; 3]; 3] =
    [[0, MARKER, POISON], [SPENT, marker(1), poison(1)], [DROPPED, marker(2), poison(2)]];
const PLAIN: usize = 0;
const WATCHED: usize = 1;
const POISONED: usize = 2;

/// What stands in the place of a page where that is watched from here on; other words as they are.
pub(super) fn watched_place(word: u64) -> u64 {
    turned(word, PLAIN, WATCHED)
}
/// What stood there before; other words as they are.
pub(super) fn unwatched_place(word: u64) -> u64 {
    turned(word, WATCHED, PLAIN)
}
/// What stands in the place of a page that is poisoned from here on; other words as they are.
pub(crate) fn poisoned_place(word: u64) -> u64 {
    turned(word, PLAIN, POISONED)
}
/// What stands there if it is neither watched nor poisoned: whether a page there is a reserved one.
pub(crate) fn plain_place(word: u64) -> u64 {
    TWINS.iter().find(|twins| twins.contains(&word)).map_or(word, |twins| twins[PLAIN])
}
/// The plain place `place` as it is where `word` stands: watched, poisoned or neither.
pub(super) fn place_like(word: u64, place: u64) -> u64 {
    let kind = TWINS.iter().find_map(|twins| twins.iter().position(|twin| *twin == word));
    turned(place, PLAIN, kind.unwrap_or(PLAIN))
}
fn turned(word: u64, from: usize, to: usize) -> u64 {
    TWINS.iter().find(|twins| twins[from] == word).map_or(word, |twins| twins[to])
}

/// Of the entry of an object's page in a private area: the reservation of its place is spent. Such
/// an entry is not written to, so it is dirty for no other reason.
pub(crate) const SPENT_BEHIND: Attrs = Attrs::DIRTY;

/// Whether a word says that the page was taken away.
pub(crate) const fn is_lost(word: u64) -> bool {
    word == LOST
}
