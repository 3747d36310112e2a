//! What all tests share: a tree with names that say what they are, and the audit of the invariants.

mod call;
mod changes;
mod entries;
mod host;
mod life;
mod model;
mod paths;
mod permissions;
mod random;
mod renames;
mod scripts;

use crate::{Body, Files, Last, NodeId, Place, Refused, Time};
use alloc::vec::Vec;
use linux_raw_sys::general::{S_IFDIR, S_IFLNK, S_IFMT};
use std::collections::{BTreeMap, BTreeSet};

fn at(seconds: i64) -> Time {
    Time { seconds, nanos: 7 }
}

/// No leaf is a link.
fn plain(_: &u64) -> Option<Vec<u8>> {
    None
}

/// Files whose every change is at a time of its own, and audited.
struct Tree {
    files: Files<u64>,
    clock: i64,
}

impl Tree {
    fn new() -> Tree {
        Tree { files: Files::new(at(0)), clock: 0 }
    }
    fn tick(&mut self) -> Time {
        self.clock += 1;
        at(self.clock)
    }
    fn place(&self, path: &str) -> Result<Place, Refused> {
        self.files.place(self.files.root(), path.as_bytes(), Last::Keep, &plain)
    }
    fn walk(&self, path: &str) -> Result<NodeId, Refused> {
        self.files.walk(self.files.root(), path.as_bytes(), Last::Follow, &plain)
    }
    /// The node itself, even if it is a link.
    fn keep(&self, path: &str) -> Result<NodeId, Refused> {
        self.files.walk(self.files.root(), path.as_bytes(), Last::Keep, &plain)
    }
    fn make(&mut self, path: &str, body: Body<u64>) -> Result<NodeId, Refused> {
        let (place, now) = (self.place(path)?, self.tick());
        let made = self.files.make(&place, 0o700, body, now);
        audit(&self.files);
        made
    }
    fn folder(&mut self, path: &str) -> NodeId {
        self.make(path, Body::Folder).unwrap()
    }
    fn leaf(&mut self, path: &str, content: u64) -> NodeId {
        self.make(path, Body::Leaf(content)).unwrap()
    }
    fn symlink(&mut self, text: &str, path: &str) -> NodeId {
        self.make(path, Body::Link(text.into())).unwrap()
    }
    fn link(&mut self, node: NodeId, path: &str) -> Result<(), Refused> {
        let (place, now) = (self.place(path)?, self.tick());
        let linked = self.files.link(node, &place, now);
        audit(&self.files);
        linked
    }
    fn unlink(&mut self, path: &str) -> Result<Option<u64>, Refused> {
        let (place, now) = (self.place(path)?, self.tick());
        let content = self.files.unlink(&place, now);
        audit(&self.files);
        content
    }
    fn rmdir(&mut self, path: &str) -> Result<(), Refused> {
        let (place, now) = (self.place(path)?, self.tick());
        let removed = self.files.remove_folder(&place, now);
        audit(&self.files);
        removed
    }
    fn rename(&mut self, from: &str, to: &str, flags: u32) -> Result<Option<u64>, Refused> {
        let (from, to) = (self.place(from)?, self.place(to)?);
        let now = self.tick();
        let content = self.files.rename(&from, &to, flags, now);
        audit(&self.files);
        content
    }
    fn links(&self, node: NodeId) -> u32 {
        self.files.facts(node).unwrap().links
    }
    fn path(&self, node: NodeId) -> Option<String> {
        Some(String::from_utf8(self.files.path_of(node)?).unwrap())
    }
    fn names(&self, folder: NodeId) -> Vec<String> {
        let names = self.files.entries(folder, 0).skip(2);
        names.map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()).collect()
    }
}

/// Recounts all that the invariants say.
fn audit<C>(files: &Files<C>) {
    let ids: BTreeSet<NodeId> = files.ids().collect();
    let mut seats: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut removed: BTreeMap<NodeId, u32> = BTreeMap::new();
    for id in &ids {
        let node = files.node(*id).expect("N1");
        let Some(folder) = node.folder() else { continue };
        folder.names.audit();
        let mut below = 0;
        for (cookie, name, child) in folder.names.from(0) {
            assert_eq!(folder.names.name(cookie), Some(name), "N3");
            assert!(files.node(child).is_some(), "N2: a name of a node that is gone");
            *seats.entry(child).or_default() += 1;
            if files.is_folder(child) {
                assert_eq!(files.parent(child), Some(*id), "N5");
                below += 1;
            }
        }
        let is_removed = *id != files.root() && node.seats.any().is_none();
        assert_eq!(node.facts.links, if is_removed { 0 } else { 2 + below }, "N4");
        assert!(ids.contains(&folder.parent), "N5");
        if is_removed {
            assert!(folder.names.is_empty(), "N5: something is in a removed folder");
            *removed.entry(folder.parent).or_default() += 1;
        }
    }
    for id in &ids {
        let node = files.node(*id).expect("N1");
        let names = seats.get(id).copied().unwrap_or(0);
        assert!(node.purposes.unsigned_abs() <= node.holders, "N8");
        assert_eq!(node.seats.len(), names, "N3");
        let of_removed = removed.get(id).copied().unwrap_or(0);
        let kind = node.facts.mode & S_IFMT;
        match node.folder() {
            Some(folder) => {
                assert_eq!((folder.removed, kind), (of_removed, S_IFDIR), "N2");
                assert!(names == 1 || (*id == files.root() || of_removed > 0 || node.holders > 0));
            }
            None => {
                assert_eq!(node.facts.links as usize, names, "N4");
                let may_be_unnamed = names > 0 || node.holders > 0 || files.may_be_named(*id);
                assert!(may_be_unnamed, "N2: a node that nothing keeps");
                assert_eq!(kind == S_IFLNK, files.link_text(*id).is_some(), "the kind of a link");
            }
        }
    }
}
