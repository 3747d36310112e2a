//! A folder's names, one after the other.

use crate::files::Files;
use crate::folder::{DOT, DOT_DOT};
use crate::id::NodeId;

/// One name of a folder, as `getdents64` tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'f> {
    /// The name.
    pub name: &'f [u8],
    /// Whose name it is.
    pub node: NodeId,
    /// Its mode, with the kind (`S_IFMT`).
    pub mode: u32,
    /// The cookie to go on from.
    pub next: u64,
}

impl<C> Files<C> {
    /// The names of a folder from a cookie on: 0, or an entry's [`Entry::next`]. `.` and `..` come
    /// first. A name that is there all the time comes once, whatever other names come, go and move
    /// between two calls (N6).
    ///
    /// A removed folder has no entries, not even `.`: Linux refuses `getdents64` there with
    /// `ENOENT`, and its [`Facts::links`](crate::Facts::links) are 0. What is no folder has none
    /// either.
    ///
    /// Names that are made come behind all others, so a program that makes one for each one it
    /// reads would never reach the end. Linux ends at [`Files::entries_end`] as it was when the
    /// folder was opened or rewound.
    pub fn entries(&self, folder: NodeId, from: u64) -> impl Iterator<Item = Entry<'_>> {
        let there = self.node(folder).filter(|node| node.facts.links > 0);
        let inner = there.and_then(|node| node.folder());
        let dots = inner.map(|inner| {
            let dots = [(DOT, &b"."[..], folder), (DOT_DOT, &b".."[..], inner.parent)];
            dots.into_iter().filter(move |(cookie, ..)| *cookie >= from)
        });
        let names = inner.map(|inner| inner.names.from(from));
        let all = dots.into_iter().flatten().chain(names.into_iter().flatten());
        all.filter_map(|(cookie, name, node)| {
            let mode = self.node(node)?.facts.mode;
            Some(Entry { name, node, mode, next: cookie + 1 })
        })
    }

    /// The cookie that the next new name of a folder gets: entries whose [`Entry::next`] is beyond
    /// it were made later.
    pub fn entries_end(&self, folder: NodeId) -> Option<u64> {
        Some(self.folder(folder)?.names.end())
    }
}
