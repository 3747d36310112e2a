//! The names and folders of a file system in memory, as Linux has them: which path leads where,
//! which name may come, go or move, and what a program is told when it may not.
//!
//! ```text
//!   path ──walk──▶ NodeId ─▶ Facts (mode, links, times)
//!     │                  └─▶ content: the embedder's own type, which is never looked into
//!     └──place──▶ Place ──▶ make, link, unlink, remove_folder, rename
//! ```
//!
//! A node is a folder, a symbolic link, or a leaf: whatever has a content, which may be a regular
//! file, a device, a pipe or a file of `/proc`. A call of Linux that takes a path becomes two calls
//! here: one that walks the path, and one that does something with what was found.
//!
//! | call of Linux | here |
//! |---|---|
//! | `stat`, `chdir`, `open` without `O_CREAT` | [`Files::walk`] |
//! | `open` with `O_CREAT` | [`Files::place_to_open`], and [`Files::make`] if nothing is there |
//! | `mkdir`, `mknod`, `symlink` | [`Files::place`], [`Files::make`] |
//! | `link` | [`Files::walk`] for what gets a name, [`Files::place`], [`Files::link`] |
//! | `unlink`; `rmdir` | [`Files::place`], [`Files::unlink`]; [`Files::remove_folder`] |
//! | `rename` | [`rename_flags`], [`Files::place`] twice, [`Files::rename`] |
//! | `getdents64` | [`Files::entries`] |
//! | what a program is run from; `open` for writing, `truncate` | [`Files::hold_for`] |
//!
//! **Invariants**
//! - N1. A [`NodeId`] means one node for ever. When that is gone, the id is refused.
//! - N2. A node is there as long as it has a name, or somebody holds it, or a removed folder has it
//!   as its parent. A leaf that was made without a name waits for its first holder as well.
//! - N3. Each name of a node is in one folder, under one cookie, and the node knows both. A folder
//!   has one name, but for the root, which has none and is never removed.
//! - N4. A folder's links are 2 and one for each folder in it; a removed folder's are 0. All other
//!   nodes have as many links as names.
//! - N5. Parents lead to the root. A removed folder keeps its parent, so that `..` leads out of it.
//! - N6. A cookie of a folder means one name of it, and those of new names grow. A name that is
//!   given to another node keeps its cookie, and so does a node that is renamed within a folder.
//! - N7. No name is looked up in a folder that was put off, until it is filled: whoever looks is
//!   told to fill it.
//! - N8. No node is held to be run and to be written at once: whoever would be the second is
//!   refused. Those that hold it otherwise are not asked.
//! - N9. The [`Caller`] says what the permissions of a node let it do: it is asked for each folder
//!   in which a name is looked up, and a [`Place`] has what it may change there. No name comes,
//!   goes or moves without.
//!
//! **Locking.** One lock around [`Files`] is all that is needed. Walks, facts and entries only read
//! and may run beside each other. A [`Place`] that was found under the lock says what was there
//! then; whatever is done with it looks again, so that a stale one is refused and does no harm.
//! What its caller may change there is as it was then, too.
//!
//! **Not here**: contents and their sizes; what the permissions of a leaf let anybody do with it,
//! who may change facts, and the mask of new files; descriptors; other mounts (`EXDEV`); whiteouts;
//! memory that runs out; the settings `protected_hardlinks` and its like, which are as if 0.
//!
//! ```
//! use foliant_files::{Body, Files, Last, Refused, Time};
//!
//! let now = Time { seconds: 1, nanos: 0 };
//! let no_links = |_: &&str| None;
//! let mut files = Files::new(now);
//! let place = files.place(files.root(), b"/etc", Last::Keep, &no_links)?;
//! let etc = files.make(&place, 0o755, Body::Folder, now)?;
//! let place = files.place_to_open(etc, b"motd", Last::Follow, &no_links)?;
//! let motd = files.make(&place, 0o644, Body::Leaf("hello"), now)?;
//!
//! assert_eq!(files.walk(files.root(), b"/etc/../etc/motd", Last::Follow, &no_links)?, motd);
//! assert_eq!(files.path_of(motd).as_deref(), Some(&b"/etc/motd"[..]));
//! files.hold(motd);
//! assert_eq!(files.unlink(&place, now)?, None);
//! assert_eq!(files.walk(etc, b"motd", Last::Follow, &no_links), Err(Refused::NotFound));
//! assert_eq!(files.let_go(motd), Some("hello"));
//! # Ok::<(), Refused>(())
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod caller;
mod change;
mod entries;
mod facts;
mod files;
mod folder;
mod id;
mod life;
mod look;
mod node;
mod place;
mod refused;
mod rename;
mod walk;

#[cfg(test)]
mod tests;

pub use caller::Caller;
pub use entries::Entry;
pub use facts::{Facts, Owner, Time};
pub use files::Files;
pub use id::NodeId;
pub use life::Purpose;
pub use node::Body;
pub use place::{Final, Place, Slash};
pub use refused::Refused;
pub use rename::rename_flags;
pub use walk::Last;

/// Bytes of a name, at most.
pub const NAME_MAX: usize = linux_raw_sys::general::NAME_MAX as usize;
/// Bytes of a path and of a symbolic link's text, at most; Linux counts the nul behind it as well.
pub const PATH_MAX: usize = linux_raw_sys::general::PATH_MAX as usize - 1;
/// Symbolic links that one path may lead over.
pub const LINKS_MAX: u32 = 40;
