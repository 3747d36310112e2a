//! How long nodes live, and what an id means afterwards.

use super::{Tree, at, audit, plain};
use crate::Owner;
use crate::{Files, Last, Purpose, Refused};

#[test]
fn an_id_that_is_gone_is_refused_everywhere() {
    let mut tree = Tree::new();
    let gone = tree.leaf("f", 1);
    assert_eq!(tree.unlink("f"), Ok(Some(1)));
    // The slot is used again.
    let new = tree.leaf("g", 2);
    assert_ne!(gone, new);
    assert_ne!(gone.inode(), new.inode());
    let place = tree.place("h").unwrap();
    let files = &mut tree.files;
    files.hold(gone);
    assert_eq!(files.let_go(gone), None);
    assert_eq!((files.facts(gone), files.leaf(gone)), (None, None));
    assert_eq!(files.leaf_mut(gone), None);
    assert_eq!((files.link_text(gone), files.parent(gone)), (None, None));
    assert_eq!((files.path_of(gone), files.is_folder(gone)), (None, false));
    assert_eq!((files.entries(gone, 0).count(), files.entries_end(gone)), (0, None));
    assert_eq!(files.link(gone, &place, at(9)), Err(Refused::NotFound));
    assert_eq!(files.leaf(new), Some(&2));
}

#[test]
fn a_slot_without_generations_is_not_used_again() {
    let mut tree = Tree::new();
    tree.leaf("f", 1);
    tree.unlink("f").unwrap();
    tree.files.age();
    let last = tree.leaf("f", 2);
    tree.unlink("f").unwrap();
    let next = tree.leaf("f", 3);
    assert_ne!(last.inode() & u64::from(u32::MAX), next.inode() & u64::from(u32::MAX));
    assert_eq!(tree.files.facts(last), None);
}

#[test]
fn a_file_that_is_held_outlives_its_name() {
    let mut tree = Tree::new();
    let leaf = tree.leaf("f", 1);
    tree.files.hold(leaf);
    tree.files.hold(leaf);
    assert_eq!(tree.path(leaf).as_deref(), Some("/f"));
    assert_eq!(tree.unlink("f"), Ok(None));
    assert_eq!((tree.links(leaf), tree.path(leaf)), (0, None));
    *tree.files.leaf_mut(leaf).unwrap() += 1;
    assert_eq!(tree.link(leaf, "f"), Err(Refused::NotFound));
    assert_eq!(tree.files.let_go(leaf), None);
    assert_eq!(tree.files.let_go(leaf), Some(2));
    assert_eq!(tree.files.let_go(leaf), None);
}

#[test]
fn a_file_that_runs_is_not_written_and_the_other_way_round() {
    use Purpose::{Run, Write};
    // All ways to hold a file six times, or to let go of it: beside two counts.
    const KINDS: u32 = 4;
    for way in 0..KINDS.pow(6) {
        let mut tree = Tree::new();
        let leaf = tree.leaf("f", 1);
        let mut counts = [0, 0];
        for step in 0..6 {
            let kind = way / KINDS.pow(step) % KINDS;
            let (purpose, one, other) =
                if kind.is_multiple_of(2) { (Write, 0, 1) } else { (Run, 1, 0) };
            if kind < 2 {
                let refusal = [Refused::Runs, Refused::Written][one];
                let expect = if counts[other] == 0 { Ok(()) } else { Err(refusal) };
                assert_eq!(tree.files.hold_for(leaf, purpose), expect, "way {way}");
                counts[one] += u32::from(expect.is_ok());
            } else if counts[one] > 0 {
                assert_eq!(tree.files.let_go_for(leaf, purpose), None);
                counts[one] -= 1;
            }
            audit(&tree.files);
        }
    }
}

#[test]
fn what_runs_or_is_written_outlives_its_name() {
    for (purpose, other, refusal) in [
        (Purpose::Run, Purpose::Write, Refused::Runs),
        (Purpose::Write, Purpose::Run, Refused::Written),
    ] {
        let mut tree = Tree::new();
        let leaf = tree.leaf("f", 1);
        tree.files.hold_for(leaf, purpose).unwrap();
        tree.link(leaf, "g").unwrap();
        // A second name, and none, are the same file; one that takes its name is another.
        assert_eq!(tree.unlink("f"), Ok(None));
        assert_eq!(tree.files.hold_for(tree.walk("g").unwrap(), other), Err(refusal));
        let new = tree.leaf("f", 2);
        tree.files.hold_for(new, other).unwrap();
        assert_eq!(tree.rename("f", "g", 0), Ok(None));
        assert_eq!(tree.files.hold_for(leaf, other), Err(refusal));
        // Holders without a purpose are not asked, and keep nobody away.
        tree.files.hold(leaf);
        assert_eq!(tree.files.let_go_for(leaf, purpose), None);
        assert_eq!(tree.files.hold_for(leaf, other), Ok(()));
        assert_eq!(tree.files.let_go(leaf), None);
        assert_eq!(tree.files.let_go_for(leaf, other), Some(1));
        assert_eq!(tree.files.hold_for(leaf, purpose), Err(Refused::NotFound));
        assert_eq!(tree.files.let_go_for(leaf, purpose), None);
    }
}

#[test]
fn letting_go_of_a_name_that_nobody_holds_does_nothing() {
    let mut tree = Tree::new();
    let (leaf, folder) = (tree.leaf("f", 1), tree.folder("d"));
    assert_eq!((tree.files.let_go(leaf), tree.files.let_go(folder)), (None, None));
    assert_eq!((tree.walk("f"), tree.walk("d")), (Ok(leaf), Ok(folder)));
}

#[test]
fn a_name_is_left_after_the_first_went() {
    let mut tree = Tree::new();
    tree.folder("d");
    let leaf = tree.leaf("f", 1);
    for name in ["d/g", "h", "i"] {
        tree.link(leaf, name).unwrap();
    }
    for (gone, name) in ["f", "d/g", "h", "i"].into_iter().enumerate() {
        assert_eq!(tree.links(leaf), 4 - gone as u32);
        assert_eq!(tree.walk(&tree.path(leaf).unwrap()), Ok(leaf));
        assert_eq!(tree.unlink(name), Ok((name == "i").then_some(1)));
    }
    assert_eq!(tree.files.facts(leaf), None);
}

#[test]
fn an_unnamed_file_gets_one_first_name() {
    let mut tree = Tree::new();
    let leaf = tree.files.make_unnamed(0o600, Owner::ROOT, 1, at(1));
    audit(&tree.files);
    assert_eq!((tree.links(leaf), tree.path(leaf)), (0, None));
    tree.files.hold(leaf);
    tree.link(leaf, "f").unwrap();
    assert_eq!((tree.walk("f"), tree.links(leaf)), (Ok(leaf), 1));
    assert_eq!(tree.unlink("f"), Ok(None));
    assert_eq!(tree.link(leaf, "f"), Err(Refused::NotFound));
    assert_eq!(tree.files.let_go(leaf), Some(1));
    // One that nobody ever held, too, ends when it is let go.
    let leaf = tree.files.make_unnamed(0o600, Owner::ROOT, 2, at(1));
    assert_eq!(tree.files.let_go(leaf), Some(2));
}

#[test]
fn removed_folders_keep_those_above_them() {
    let mut tree = Tree::new();
    let path = |depth: usize| vec!["d"; depth].join("/");
    let folders: Vec<_> = (1..=50).map(|depth| tree.folder(&path(depth))).collect();
    let innermost = folders[49];
    tree.files.hold(innermost);
    for depth in (1..=50).rev() {
        tree.rmdir(&path(depth)).unwrap();
    }
    let up = "../".repeat(50);
    let walk = |files: &Files<u64>| files.walk(innermost, up.as_bytes(), Last::Follow, &plain);
    assert_eq!(walk(&tree.files), Ok(tree.files.root()));
    assert_eq!(tree.path(innermost), None);
    assert_eq!(tree.files.ids().count(), 51);
    assert_eq!(tree.files.let_go(innermost), None);
    audit(&tree.files);
    assert_eq!(tree.files.ids().count(), 1);
}

#[test]
fn all_leaves_are_told_once() {
    let mut tree = Tree::new();
    tree.folder("d");
    tree.symlink("d", "l");
    for (name, content) in [("d/a", 1), ("b", 2), ("c", 3)] {
        tree.leaf(name, content);
    }
    tree.link(tree.walk("b").unwrap(), "d/b").unwrap();
    tree.unlink("c").unwrap();
    let unnamed = tree.files.make_unnamed(0o600, Owner::ROOT, 4, at(9));
    let mut told: Vec<_> = tree.files.leaves().copied().collect();
    told.sort_unstable();
    assert_eq!(told, [1, 2, 4]);
    assert_eq!(tree.files.let_go(unnamed), Some(4));
    assert_eq!(tree.files.leaves().count(), 2);
}

#[test]
fn nothing_recurses_however_deep_a_tree_is() {
    let mut files = Files::<u64>::new(at(0));
    let mut at_node = files.root();
    for _ in 0..100_000 {
        let place = files.place(at_node, b"d", Last::Keep, &plain).unwrap();
        at_node = files.make(&place, 0o755, crate::Body::Folder, at(0)).unwrap();
    }
    assert_eq!(files.path_of(at_node).unwrap().len(), 200_000);
    files.hold(at_node);
    let mut up = at_node;
    while up != files.root() {
        up = files.parent(up).unwrap();
        let place = files.place(up, b"d", Last::Keep, &plain).unwrap();
        files.remove_folder(&place, at(0)).unwrap();
    }
    assert_eq!(files.let_go(at_node), None);
    assert_eq!(files.ids().count(), 1);
}
