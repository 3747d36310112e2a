//! Names that move: what is handed back, and where things are afterwards.

use super::Tree;
use crate::{Refused, rename_flags};
use linux_raw_sys::general::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT};

#[test]
fn what_is_replaced_is_handed_back() {
    let mut tree = Tree::new();
    let (one, two) = (tree.leaf("one", 1), tree.leaf("two", 2));
    assert_eq!(tree.rename("one", "two", 0), Ok(Some(2)));
    assert_eq!((tree.walk("two"), tree.files.facts(two)), (Ok(one), None));
    // Not if somebody holds it, nor if it has another name.
    let three = tree.leaf("three", 3);
    tree.files.hold(three);
    assert_eq!(tree.rename("two", "three", 0), Ok(None));
    assert_eq!(tree.links(three), 0);
    assert_eq!(tree.files.let_go(three), Some(3));
    let four = tree.leaf("four", 4);
    tree.link(four, "five").unwrap();
    assert_eq!(tree.rename("three", "five", 0), Ok(None));
    assert_eq!((tree.walk("four"), tree.links(four)), (Ok(four), 1));
}

#[test]
fn two_names_of_one_node_stay() {
    let mut tree = Tree::new();
    let leaf = tree.leaf("one", 1);
    tree.link(leaf, "two").unwrap();
    let before = tree.files.facts(tree.files.root());
    for flags in [0, RENAME_EXCHANGE] {
        assert_eq!(tree.rename("one", "two", flags), Ok(None));
        assert_eq!(tree.rename("one", "one", flags), Ok(None));
    }
    assert_eq!(tree.rename("one", "two", RENAME_NOREPLACE), Err(Refused::Exists));
    assert_eq!((tree.names(tree.files.root()).len(), tree.links(leaf)), (2, 2));
    assert_eq!(tree.files.facts(tree.files.root()), before);
}

#[test]
fn a_folder_takes_what_is_in_it_along() {
    let mut tree = Tree::new();
    for path in ["a", "a/b", "x"] {
        tree.folder(path);
    }
    let leaf = tree.leaf("a/b/f", 1);
    tree.rename("a", "x/y", 0).unwrap();
    assert_eq!(tree.path(leaf).as_deref(), Some("/x/y/b/f"));
    let b = tree.walk("x/y/b").unwrap();
    tree.rename("x/y/b", "b", 0).unwrap();
    assert_eq!(tree.files.parent(b), Some(tree.files.root()));
    assert_eq!((tree.walk("b/../x/y"), tree.path(b).as_deref()), (tree.walk("x/y"), Some("/b")));
}

#[test]
fn a_folder_does_not_get_into_itself() {
    let mut tree = Tree::new();
    for path in ["a", "a/b", "a/b/c"] {
        tree.folder(path);
    }
    tree.leaf("f", 1);
    for to in ["a/x", "a/b/x", "a/b/c", "a/b"] {
        assert_eq!(tree.rename("a", to, 0), Err(Refused::IntoItself), "{to}");
    }
    for (one, two) in [("a", "a/b/c"), ("a/b/c", "a")] {
        assert_eq!(tree.rename(one, two, RENAME_EXCHANGE), Err(Refused::IntoItself));
    }
    assert_eq!(tree.rename("a/b/c", "a", 0), Err(Refused::NotEmpty));
    assert_eq!(tree.rename("a/b", "a", 0), Err(Refused::NotEmpty));
    tree.rename("a/b/c", "a/c", 0).unwrap();
    tree.rename("a/b", "a/c/b", 0).unwrap();
    assert!(tree.walk("a/c/b").is_ok());
}

#[test]
fn a_folder_and_a_file_change_places() {
    let mut tree = Tree::new();
    let (one, two) = (tree.folder("one"), tree.folder("two"));
    let (inner, leaf) = (tree.folder("one/d"), tree.leaf("two/f", 1));
    tree.rename("one/d", "two/f", RENAME_EXCHANGE).unwrap();
    assert_eq!((tree.walk("two/f"), tree.walk("one/d")), (Ok(inner), Ok(leaf)));
    assert_eq!((tree.links(one), tree.links(two)), (2, 3));
    assert_eq!(tree.files.parent(inner), Some(two));
    let clock = tree.clock;
    for node in [one, two, inner, leaf] {
        assert_eq!(tree.files.facts(node).unwrap().changed.seconds, clock);
    }
    assert_ne!(tree.files.facts(leaf).unwrap().modified.seconds, clock);
}

#[test]
fn a_replaced_folder_that_is_held_is_a_removed_one() {
    let mut tree = Tree::new();
    let (root, old) = (tree.files.root(), tree.folder("old"));
    let new = tree.folder("new");
    tree.files.hold(old);
    assert_eq!(tree.rename("new", "old", 0), Ok(None));
    assert_eq!((tree.links(old), tree.links(root), tree.path(old)), (0, 3, None));
    assert_eq!((tree.walk("old"), tree.files.parent(old)), (Ok(new), Some(root)));
    assert_eq!(tree.files.let_go(old), None);
    assert_eq!(tree.files.parent(old), None);
}

#[test]
fn flags_that_nobody_knows_are_refused_first() {
    for flags in [0, RENAME_NOREPLACE, RENAME_EXCHANGE] {
        assert_eq!(rename_flags(flags), Ok(()));
    }
    for flags in [RENAME_NOREPLACE | RENAME_EXCHANGE, RENAME_WHITEOUT, 8, u32::MAX] {
        assert_eq!(rename_flags(flags), Err(Refused::Invalid));
        assert_eq!(Tree::new().rename("missing", "/", flags), Err(Refused::Invalid));
    }
}
