//! What stands in the place of a page that is missing, beside 0.
//!
//! **Not here**: when which of them is put there (`huge`, `watch`, `zap`).

use crate::table::{Attrs, Soft, SoftKind};

/// Stands where a page is missing that is watched (`watch`).
pub(super) const MARKER: u64 = Soft { kind: SoftKind::Marker, payload: 0 }.word();

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

/// Of the entry of an object's page in a private area: the reservation of its place is spent. Such
/// an entry is not written to, so it is dirty for no other reason.
pub(crate) const SPENT_BEHIND: Attrs = Attrs::DIRTY;

/// Whether a word says that the page was taken away.
pub(crate) const fn is_lost(word: u64) -> bool {
    word == LOST
}
