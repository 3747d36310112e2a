//! What walks and changes of names are refused to a caller who is not root (N9).

use super::{Tree, at};
use crate::{Body, Caller, Facts, Last, NodeId, Owner, Place, Refused};
use alloc::vec::Vec;
use linux_raw_sys::general::{RENAME_EXCHANGE, S_ISGID, S_ISVTX};

const ALICE: User = User(1000);
const BOB: User = User(1001);

/// A user without groups but one of the same number.
#[derive(Clone, Copy)]
struct User(u32);

impl Caller<u64> for User {
    fn link(&self, _: &u64) -> Option<Vec<u8>> {
        None
    }
    fn may(&self, facts: &Facts, wanted: u32) -> bool {
        let shift = if facts.uid == self.0 { 6 } else { 0 };
        facts.mode >> shift & wanted == wanted
    }
    fn owner(&self) -> Owner {
        Owner { uid: self.0, gid: self.0 }
    }
}

impl Tree {
    fn allow(&mut self, path: &str, mode: u32, user: User) {
        let node = self.keep(path).unwrap();
        let User(uid) = user;
        let set = |facts: &mut Facts| (facts.mode, facts.uid, facts.gid) = (mode, uid, uid);
        self.files.change_facts(node, set).unwrap();
    }
    fn place_for(&self, user: User, path: &str) -> Result<Place, Refused> {
        self.files.place(self.files.root(), path.as_bytes(), Last::Keep, &user)
    }
    fn walk_for(&self, user: User, path: &str) -> Result<NodeId, Refused> {
        self.files.walk(self.files.root(), path.as_bytes(), Last::Follow, &user)
    }
    fn rename_for(&mut self, user: User, from: &str, to: &str, flags: u32) -> Result<(), Refused> {
        let (from, to) = (self.place_for(user, from)?, self.place_for(user, to)?);
        self.files.rename(&from, &to, flags, at(9)).map(drop)
    }
}

#[test]
fn a_walk_searches_each_folder() {
    let mut tree = Tree::new();
    let (shut, inner) = (tree.folder("shut"), tree.folder("shut/inner"));
    tree.allow("shut", 0o600, ALICE);
    tree.allow("shut/inner", 0o777, ALICE);
    tree.symlink("shut/inner", "link");
    for user in [ALICE, BOB] {
        assert_eq!(tree.walk_for(user, "shut"), Ok(shut), "its own name is in the root");
        assert_eq!(tree.walk_for(user, "shut/"), Ok(shut), "no name is looked up in it");
        for path in ["shut/inner", "shut/inner/", "shut/.", "shut/..", "shut/none", "link"] {
            assert_eq!(tree.walk_for(user, path), Err(Refused::Denied), "{path}");
            let place =
                tree.files.place_to_open(tree.files.root(), path.as_bytes(), Last::Follow, &user);
            assert_eq!(place, Err(Refused::Denied), "{path}");
        }
        assert_eq!(tree.place_for(user, "shut/new"), Err(Refused::Denied));
        assert_eq!(tree.files.walk(inner, b"/", Last::Follow, &user), Ok(tree.files.root()));
        assert_eq!(tree.files.walk(shut, b"inner", Last::Follow, &user), Err(Refused::Denied));
    }
    tree.allow("shut", 0o100, ALICE);
    assert_eq!(tree.walk_for(ALICE, "shut/inner"), Ok(inner));
    assert_eq!(tree.walk_for(BOB, "shut/inner"), Err(Refused::Denied));
}

#[test]
fn names_come_and_go_where_the_folder_may_be_written() {
    let mut tree = Tree::new();
    tree.folder("open");
    tree.folder("open/folder");
    let leaf = tree.leaf("open/leaf", 1);
    tree.allow("open", 0o755, ALICE);
    let place = |tree: &Tree, user, path| tree.place_for(user, path).unwrap();
    let (new, old) = (place(&tree, BOB, "open/new"), place(&tree, BOB, "open/leaf"));
    let folder = place(&tree, BOB, "open/folder");
    let denied = Err(Refused::Denied);
    assert_eq!(tree.files.make(&new, 0o777, Body::Leaf(2), at(1)), Err(Refused::Denied));
    assert_eq!(tree.files.make(&old, 0o777, Body::Leaf(2), at(1)), Err(Refused::Exists));
    assert_eq!(tree.files.link(leaf, &new, at(1)), denied);
    assert_eq!(tree.files.unlink(&old, at(1)).map(drop), denied);
    assert_eq!(tree.files.unlink(&folder, at(1)).map(drop), denied, "before its kind is looked at");
    assert_eq!(tree.files.unlink(&new, at(1)).map(drop), Err(Refused::NotFound));
    assert_eq!(tree.files.remove_folder(&folder, at(1)), denied);
    assert_eq!(tree.rename_for(BOB, "open/leaf", "open/new", 0), denied);
    assert_eq!(tree.rename_for(BOB, "open/leaf", "open/leaf", 0), Ok(()), "nothing changes");
    let new = place(&tree, ALICE, "open/new");
    let made = tree.files.make(&new, 0o640, Body::Leaf(2), at(1)).unwrap();
    let facts = tree.files.facts(made).unwrap();
    assert_eq!((facts.uid, facts.gid), (1000, 1000));
    assert_eq!(tree.rename_for(ALICE, "open/leaf", "open/folder", 0), Err(Refused::IsFolder));
    assert_eq!(tree.rename_for(ALICE, "open/leaf", "open/other", 0), Ok(()));
}

#[test]
fn a_new_node_has_the_group_of_a_folder_that_hands_it_on() {
    let mut tree = Tree::new();
    tree.folder("team");
    tree.allow("team", 0o777 | S_ISGID, BOB);
    let place = tree.place_for(ALICE, "team/leaf").unwrap();
    let made = tree.files.make(&place, 0o600, Body::Leaf(1), at(1)).unwrap();
    let facts = tree.files.facts(made).unwrap();
    assert_eq!((facts.uid, facts.gid), (1000, 1001));
    let unnamed = tree.files.make_unnamed(0o600, ALICE.owner(), 2, at(1));
    assert_eq!(tree.files.facts(unnamed).unwrap().uid, 1000);
    tree.files.let_go(unnamed);
}

#[test]
fn names_of_others_stay_in_a_sticky_folder() {
    let mut tree = Tree::new();
    for path in ["tmp", "tmp/own", "tmp/others"] {
        tree.folder(path);
    }
    tree.leaf("tmp/leaf", 1);
    tree.allow("tmp", 0o777 | S_ISVTX, User(0));
    tree.allow("tmp/own", 0o700, ALICE);
    tree.allow("tmp/others", 0o777, BOB);
    tree.allow("tmp/leaf", 0o666, BOB);
    let not_owner = Err(Refused::NotOwner);
    let place = |tree: &Tree, user, path| tree.place_for(user, path).unwrap();
    let (leaf, others) = (place(&tree, ALICE, "tmp/leaf"), place(&tree, ALICE, "tmp/others"));
    assert_eq!(tree.files.unlink(&leaf, at(1)).map(drop), not_owner);
    assert_eq!(tree.files.remove_folder(&others, at(1)), not_owner);
    assert_eq!(tree.rename_for(ALICE, "tmp/leaf", "tmp/new", 0), not_owner);
    assert_eq!(tree.rename_for(ALICE, "tmp/own", "tmp/others", 0), not_owner, "it is replaced");
    assert_eq!(tree.rename_for(ALICE, "tmp/own", "tmp/others", RENAME_EXCHANGE), not_owner);
    assert_eq!(tree.rename_for(ALICE, "tmp/own", "tmp/mine", 0), Ok(()));
    assert_eq!(tree.unlink("tmp/leaf"), Ok(Some(1)), "root takes all");
    tree.allow("tmp", 0o777 | S_ISVTX, ALICE);
    let others = place(&tree, ALICE, "tmp/others");
    assert_eq!(tree.files.remove_folder(&others, at(1)), Ok(()), "the folder is hers");
}

#[test]
fn a_folder_that_gets_another_parent_is_written() {
    let mut tree = Tree::new();
    for path in ["a", "b", "a/folder", "b/folder"] {
        tree.folder(path);
    }
    tree.allow("a", 0o777, ALICE);
    tree.allow("b", 0o777, ALICE);
    tree.allow("a/folder", 0o755, ALICE);
    tree.allow("b/folder", 0o755, BOB);
    let denied = Err(Refused::Denied);
    assert_eq!(tree.rename_for(BOB, "a/folder", "b/moved", 0), denied);
    assert_eq!(tree.rename_for(BOB, "a/folder", "a/moved", 0), Ok(()), "its parent stays");
    assert_eq!(tree.rename_for(ALICE, "a/moved", "b/folder", RENAME_EXCHANGE), denied);
    assert_eq!(tree.rename_for(ALICE, "a/moved", "b/moved", 0), Ok(()));
    let (place, to) = (tree.place_for(BOB, "b/folder").unwrap(), tree.place_for(BOB, "a/x"));
    tree.rename("b/folder", "b/away", 0).unwrap();
    tree.rename("b/moved", "b/folder", 0).unwrap();
    let stale = tree.files.rename(&place, &to.unwrap(), 0, at(9)).map(drop);
    assert_eq!(stale, denied, "it is not the folder that was found");
}
