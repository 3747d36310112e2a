//! Lists that are continued while names come, go and move.

use super::Tree;
use crate::NodeId;
use linux_raw_sys::general::{RENAME_EXCHANGE, S_IFDIR, S_IFMT, S_IFREG};

/// One entry, from a cookie on.
fn next(tree: &Tree, folder: NodeId, cookie: &mut u64) -> Option<String> {
    let entry = tree.files.entries(folder, *cookie).next()?;
    *cookie = entry.next;
    Some(String::from_utf8(entry.name.to_vec()).unwrap())
}

#[test]
fn dots_come_first() {
    let mut tree = Tree::new();
    let (root, a) = (tree.files.root(), tree.folder("a"));
    let leaf = tree.leaf("a/f", 1);
    let entries: Vec<_> = tree.files.entries(a, 0).collect();
    let shown: Vec<_> = entries.iter().map(|entry| (entry.name, entry.node)).collect();
    assert_eq!(shown, [(&b"."[..], a), (b"..", root), (b"f", leaf)]);
    let kinds: Vec<_> = entries.iter().map(|entry| entry.mode & S_IFMT).collect();
    assert_eq!(kinds, [S_IFDIR, S_IFDIR, S_IFREG]);
    for (index, entry) in entries.iter().enumerate() {
        let rest: Vec<_> = tree.files.entries(a, entry.next).collect();
        assert_eq!(rest, entries[index + 1..]);
    }
    let above = tree.files.entries(root, 1).next().unwrap();
    assert_eq!((above.name, above.node), (&b".."[..], root));
    assert_eq!(tree.files.entries(a, u64::MAX).count(), 0);
    assert_eq!(tree.files.entries(leaf, 0).count(), 0);
}

#[test]
fn every_name_that_stays_is_seen_once() {
    let mut tree = Tree::new();
    let root = tree.files.root();
    for name in ["z", "y", "x", "w"] {
        tree.leaf(name, 1);
    }
    let mut cookie = 2;
    assert_eq!(next(&tree, root, &mut cookie).as_deref(), Some("z"));
    tree.unlink("z").unwrap();
    tree.unlink("y").unwrap();
    tree.leaf("a", 1);
    assert_eq!(next(&tree, root, &mut cookie).as_deref(), Some("x"));
    // A name whose node is another one now is neither seen again nor missed.
    tree.rename("a", "x", 0).unwrap();
    tree.rename("x", "w", RENAME_EXCHANGE).unwrap();
    assert_eq!(next(&tree, root, &mut cookie).as_deref(), Some("w"));
    assert_eq!(next(&tree, root, &mut cookie), None);
}

#[test]
fn a_name_that_is_renamed_in_its_folder_keeps_its_turn() {
    let mut tree = Tree::new();
    let root = tree.files.root();
    for name in ["a", "b", "c"] {
        tree.leaf(name, 1);
    }
    let (mut cookie, mut seen) = (2, Vec::new());
    while let Some(name) = next(&tree, root, &mut cookie) {
        // A program that renames all that it reads comes to an end.
        tree.rename(&name, &format!("{name}.old"), 0).unwrap();
        seen.push(name);
    }
    assert_eq!(seen, ["a", "b", "c"]);
    assert_eq!(tree.names(root), ["a.old", "b.old", "c.old"]);
}

#[test]
fn the_end_is_before_all_that_is_made_later() {
    let mut tree = Tree::new();
    let root = tree.files.root();
    tree.leaf("a", 1);
    tree.folder("d");
    tree.leaf("d/moved", 1);
    let end = tree.files.entries_end(root).unwrap();
    tree.leaf("b", 1);
    tree.rename("d/moved", "c", 0).unwrap();
    let before = |tree: &Tree| {
        let entries = tree.files.entries(root, 2).take_while(|entry| entry.next <= end);
        entries.map(|entry| entry.name.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(before(&tree), [b"a", b"d"]);
    // The last name goes, and its cookie is not another one's.
    tree.unlink("c").unwrap();
    tree.leaf("e", 1);
    assert_eq!(before(&tree), [b"a", b"d"]);
}

#[test]
fn a_removed_folder_has_no_entries() {
    let mut tree = Tree::new();
    let folder = tree.folder("d");
    tree.files.hold(folder);
    tree.rmdir("d").unwrap();
    assert_eq!(tree.files.entries(folder, 0).count(), 0);
    assert_eq!(tree.links(folder), 0);
    assert!(tree.files.is_folder(folder));
}
