//! What a node is made with, and what a change leaves behind.

use super::{Tree, at};
use crate::Owner;
use crate::{Body, Facts, Files, Last, PATH_MAX, Refused, Time};
use linux_raw_sys::general::{S_IFCHR, S_IFDIR, S_IFLNK, S_IFREG, S_ISGID};

fn facts(tree: &Tree, path: &str) -> Facts {
    tree.files.facts(tree.keep(path).unwrap()).unwrap()
}
/// When it was accessed, modified and changed.
fn times(tree: &Tree, path: &str) -> (i64, i64, i64) {
    let facts = facts(tree, path);
    (facts.accessed.seconds, facts.modified.seconds, facts.changed.seconds)
}

#[test]
fn a_new_node_has_the_mode_of_its_kind() {
    let mut tree = Tree::new();
    let now = at(1);
    let mut make = |path: &str, mode, body| {
        let place = tree.place(path).unwrap();
        tree.files.make(&place, mode, body, now).map(|node| tree.files.facts(node).unwrap().mode)
    };
    assert_eq!(make("d", 0o7777, Body::Folder), Ok(S_IFDIR | 0o1777));
    assert_eq!(make("l", 0, Body::Link("x".into())), Ok(S_IFLNK | 0o777));
    assert_eq!(make("f", 0o4755, Body::Leaf(1)), Ok(S_IFREG | 0o4755));
    assert_eq!(make("c", S_IFCHR | 0o620, Body::Leaf(1)), Ok(S_IFCHR | 0o620));
    assert_eq!(make("m", S_IFLNK | 0o777, Body::Leaf(1)), Ok(S_IFLNK | 0o777));
    assert_eq!(make("w", S_IFDIR | 0o777, Body::Leaf(1)), Err(Refused::Invalid));
    let unnamed = tree.files.make_unnamed(S_IFDIR | 0o600, Owner::ROOT, 2, now);
    assert_eq!(tree.files.facts(unnamed).unwrap().mode, S_IFREG | 0o600);
    assert_eq!(tree.files.facts(tree.files.root()).unwrap().mode, S_IFDIR | 0o755);
}

#[test]
fn a_group_is_handed_on() {
    let mut tree = Tree::new();
    let folder = tree.folder("g");
    let change = |facts: &mut Facts| (facts.gid, facts.mode) = (5, facts.mode | S_ISGID);
    tree.files.change_facts(folder, change).unwrap();
    tree.folder("g/below");
    tree.leaf("g/below/f", 1);
    assert_eq!(facts(&tree, "g/below").mode & S_ISGID, S_ISGID);
    let file = facts(&tree, "g/below/f");
    assert_eq!((file.gid, file.uid, file.mode & S_ISGID), (5, 0, 0));
}

#[test]
fn a_link_has_a_text_that_fits() {
    let mut tree = Tree::new();
    assert_eq!(tree.make("l", Body::Link("".into())), Err(Refused::NotFound));
    let long = vec![b'x'; PATH_MAX + 1];
    assert_eq!(tree.make("l", Body::Link(long.clone())), Err(Refused::NameTooLong));
    let link = tree.make("l", Body::Link(long[1..].into())).unwrap();
    assert_eq!(tree.files.link_text(link), Some(&long[1..]));
    assert_eq!(tree.files.leaf(link), None);
    assert!(!tree.files.is_folder(link));
}

#[test]
fn a_folder_notes_when_its_names_changed() {
    let mut tree = Tree::new();
    tree.folder("d"); // 1
    let leaf = tree.leaf("d/f", 1);
    assert_eq!((times(&tree, "d"), times(&tree, "d/f")), ((1, 2, 2), (2, 2, 2)));
    tree.link(leaf, "d/g").unwrap();
    assert_eq!((times(&tree, "d"), times(&tree, "d/f")), ((1, 3, 3), (2, 2, 3)));
    tree.unlink("d/g").unwrap();
    assert_eq!((times(&tree, "d"), times(&tree, "d/f")), ((1, 4, 4), (2, 2, 4)));
    tree.rename("d/f", "f", 0).unwrap();
    assert_eq!((times(&tree, "d"), times(&tree, "f")), ((1, 5, 5), (2, 2, 5)));
    assert_eq!(times(&tree, "/"), (0, 5, 5));
    let removed = tree.folder("d/e"); // 6
    tree.files.hold(removed);
    tree.rmdir("d/e").unwrap();
    assert_eq!(times(&tree, "d"), (1, 7, 7));
    assert_eq!(tree.files.facts(removed).unwrap().changed, at(7));
    assert_eq!(tree.unlink("d/e"), Err(Refused::NotFound));
    assert_eq!(times(&tree, "d"), (1, 7, 7), "a refusal leaves no trace");
}

#[test]
fn kinds_and_links_are_nobody_s_to_change() {
    let mut tree = Tree::new();
    let leaf = tree.leaf("f", 1);
    let change = |facts: &mut Facts| {
        (facts.links, facts.mode, facts.uid) = (9, S_IFDIR | 0o4711, 3);
        facts.modified = Time { seconds: -1, nanos: 999_999_999 };
    };
    tree.files.change_facts(leaf, change).unwrap();
    let facts = facts(&tree, "f");
    assert_eq!((facts.links, facts.mode, facts.uid), (1, S_IFREG | 0o4711, 3));
    assert_eq!(facts.modified, Time { seconds: -1, nanos: 999_999_999 });
    tree.unlink("f").unwrap();
    assert_eq!(tree.files.change_facts(leaf, |_| ()), Err(Refused::NotFound));
}

#[test]
fn links_that_cannot_be_counted_are_refused() {
    let mut tree = Tree::new();
    let (folder, leaf) = (tree.folder("d"), tree.leaf("f", 1));
    tree.folder("e");
    tree.leaf("d/g", 2);
    let [in_d, second] = ["d/x", "f2"].map(|path| tree.place(path).unwrap());
    let [e, d_g] = ["e", "d/g"].map(|path| tree.place(path).unwrap());
    for node in [folder, leaf] {
        tree.files.node_mut(node).unwrap().facts.links = u32::MAX;
    }
    let (now, files) = (at(9), &mut tree.files);
    let full = Err(Refused::TooManyLinks);
    assert_eq!(files.make(&in_d, 0o755, Body::Folder, now).map(drop), full);
    assert_eq!(files.link(leaf, &second, now), full);
    assert_eq!(files.rename(&e, &in_d, 0, now).map(drop), full);
    let exchange = linux_raw_sys::general::RENAME_EXCHANGE;
    assert_eq!(files.rename(&e, &d_g, exchange, now).map(drop), full);
    assert_eq!(files.rename(&d_g, &e, exchange, now).map(drop), full);
    assert!(files.make(&in_d, 0o755, Body::Leaf(3), now).is_ok());
}

#[test]
fn a_place_that_is_stale_is_refused() {
    let mut tree = Tree::new();
    tree.folder("d");
    let place = tree.place("d/x").unwrap();
    tree.leaf("d/x", 1);
    assert_eq!(tree.files.make(&place, 0, Body::Leaf(2), at(9)), Err(Refused::Exists));
    assert_eq!(tree.files.unlink(&place, at(9)), Ok(Some(1)));
    tree.rmdir("d").unwrap();
    assert_eq!(tree.files.make(&place, 0, Body::Leaf(2), at(9)), Err(Refused::NotFound));
    // The slot is used again, by something else.
    tree.leaf("e", 3);
    assert_eq!(tree.files.unlink(&place, at(9)), Err(Refused::NotFound));
    assert_eq!(tree.files.rename(&place, &place, 0, at(9)), Err(Refused::NotFound));
    // The place of other files.
    let other = Files::<u64>::new(at(0));
    let strange = tree.place("e").unwrap();
    let none = |_: &u64| None;
    assert!(other.walk(strange.node().unwrap(), b".", Last::Follow, &none).is_err());
}

/// Every way to a name in such a folder asks for it to be filled, and none of them changes it.
#[test]
fn a_folder_that_was_put_off_is_filled_before_a_name_is_looked_for() {
    let mut tree = Tree::new();
    tree.folder("other");
    let folder = tree.folder("d");
    let kept = tree.place("d/kept").unwrap();
    tree.files.put_off(folder, 9);
    assert_eq!(tree.files.due(folder), Some(&9));
    let due = Refused::Due(folder);
    for path in ["d/f", "d/f/g", "d/./f", "other/../d/f"] {
        assert_eq!(tree.walk(path), Err(due), "{path}");
        assert_eq!(tree.place(path).map(drop), Err(due), "{path}");
        let root = tree.files.root();
        let opens = tree.files.place_to_open(root, path.as_bytes(), Last::Follow, &super::plain);
        assert_eq!(opens.map(drop), Err(due), "{path}");
    }
    assert_eq!(tree.files.make(&kept, 0o600, Body::Leaf(1), at(1)), Err(due), "a stale place");
    for (path, leads) in [("d", folder), ("d/.", folder), ("d/..", tree.files.root())] {
        assert_eq!(tree.walk(path), Ok(leads), "{path}");
    }
    assert_eq!(tree.rmdir("d"), Err(Refused::NotEmpty));
    assert_eq!(tree.rename("other", "d", 0), Err(Refused::NotEmpty));
    assert!(tree.files.entries(folder, 0).all(|entry| matches!(entry.name, b"." | b"..")));
    assert_eq!(tree.files.fill(folder), Some(9));
    assert_eq!(tree.files.fill(folder), None, "it is filled once");
    let leaf = tree.leaf("d/f", 7);
    assert_eq!(tree.walk("d/f"), Ok(leaf));
    tree.files.put_off(leaf, 9);
    assert_eq!(tree.files.due(leaf), None, "no folder");
    assert_eq!(tree.files.fill(leaf), None, "no folder");
}
