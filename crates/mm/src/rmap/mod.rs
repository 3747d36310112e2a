//! The reverse map: from an anonymous folio to the spaces and addresses that may map it.
//!
//! ```text
//!   folio ─▶ Origin { tree, creator, index }
//!                       │               └── the address at which it was made, as a page number
//!                       ▼
//!   tree:    first ─▶ shell ─▶ ▸worker ─▶ ▸▸helper ─▶ ▸worker      members, each behind its parent and deeper than it
//!                              └─ creator and its descendants ─┘
//!
//!   at(member, index) = index - offset, for each offset of the member:   0, and one for each distance that an area was moved
//! ```
//!
//! A space that is made empty founds a fork tree; a fork joins its parent's. Nothing leaves a fork
//! tree's page tables except to be flushed and dropped, so whatever maps a folio is in a member's
//! tables, at the folio's index less one of the member's offsets. A walk looks there, and the
//! tables say what is so. Nothing is noted per page or per area: a fault writes two words into the
//! descriptor, a fork links one record, a move of an area notes its distance. A page that goes to
//! another address by itself counts as made there (`space::transfer`, record 125). Record 020
//! compares this with what else there is.
//!
//! **Invariants**
//! - R1. An entry that names a frame of an anonymous folio, or is its migration entry, is in a
//!   member of the folio's fork tree, at the address that the frame's index has under one of the
//!   member's offsets; or, where the folio is an object's, in the space of one of the object's
//!   attachments, at the address that the index has under the attachment's.
//! - R2. A member is linked before its first entry is made and unlinked after its last one was
//!   flushed and dropped. So while a folio counts entries its fork tree has members, and the first
//!   member's record is there.
//! - R3. The record of a fork tree is in the frame of its first member, which stays until the last
//!   member is gone and a grace period is over.
//! - R4. A child stands behind its parent, before all members that are not the parent's
//!   descendants. So the descendants of a living member are all among the deeper members right
//!   behind it, perhaps with some others.
//! - R5. A walk that sees as many entries as the folio counts has seen them all. A walk that sees
//!   fewer may have missed some: they were made meanwhile, or are being given up, or a member ended
//!   and others are taken for the creator's line. A walk that looks for migration entries passes no
//!   member over: it goes through all of them from the first one on, and those that hold migration
//!   entries stay.
//! - R6. A pinned member or attachment is on its fork tree's list: it is taken off when nobody has
//!   it pinned, and from the moment that it wants to leave nobody new pins it. So a walker that has
//!   one pinned finds the one behind it under the fork tree's lock.
//!
//! **What a pin keeps whole**: the member's record and place on the list (R6), the root of its
//! tables, and its list of offsets, whose places are only added to (`offsets::H1`). It does not
//! keep the members before and behind, which are pinned one by one, nor the areas and the tables
//! below the root, which are read in a reader's section or under a table's lock. The fork tree's
//! record is kept by any pinned member, by counted entries in a reader's section, and by migration
//! entries (R2, R3).
//!
//! **Locking.** The fork tree's lock is a leaf lock: held for a few words. A member that a walk
//! looks at is pinned: it neither ends nor leaves the list meanwhile.
//!
//! **Not here**: what is done with the entries (`split`), areas (`space`).

mod attachment;
mod offsets;
mod tree;
mod walk;

pub(crate) use attachment::{Attachment, AttachmentName, Distances};
pub(crate) use tree::{Last, Member, Pin};
pub(crate) use walk::{family, relatives};
