//! What stands in the place of a page that is missing, beside 0.
//!
//! **Not here**: when which of them is put there (`huge`, `watch`, `zap`).

use crate::table::{Attrs, Soft, SoftKind};

/// Stands where a page is missing that is watched (`watch`).
pub(super) const MARKER: u64 = marker(0);

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

/// What stands in a place of a huge page, by whether it is watched.
const WATCHED: [(u64, u64); 3] = [(0, MARKER), (SPENT, marker(1)), (DROPPED, marker(2))];

/// What stands in the place of a huge page where that is watched from here on.
pub(super) fn watched_place(word: u64) -> u64 {
    WATCHED.into_iter().find(|(plain, _)| *plain == word).map_or(word, |(_, watched)| watched)
}
/// What stood there before; other words as they are.
pub(crate) fn unwatched_place(word: u64) -> u64 {
    WATCHED.into_iter().find(|(_, watched)| *watched == word).map_or(word, |(plain, _)| plain)
}

/// Of the entry of an object's page in a private area: the reservation of its place is spent. Such
/// an entry is not written to, so it is dirty for no other reason.
pub(crate) const SPENT_BEHIND: Attrs = Attrs::DIRTY;

/// Whether a word says that the page was taken away.
pub(crate) const fn is_lost(word: u64) -> bool {
    word == LOST
}
