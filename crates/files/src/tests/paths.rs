//! Where paths lead that the host is not asked about: from the root, and over leaves that are
//! links.

use super::{Tree, plain};
use crate::{Body, Files, Final, LINKS_MAX, Last, NAME_MAX, NodeId, PATH_MAX, Refused, Slash};
use alloc::vec::Vec;
use linux_raw_sys::errno::{EINVAL, ELOOP, ENAMETOOLONG, ENOENT, ENOTEMPTY, EPERM};

#[test]
fn the_root_is_above_itself() {
    let tree = Tree::new();
    let root = tree.files.root();
    for path in ["/", "//", "/..", "/../..", "..", "./..", "/./", "."] {
        assert_eq!(tree.walk(path), Ok(root), "{path}");
    }
    assert_eq!(tree.files.parent(root), Some(root));
    assert_eq!(tree.path(root).as_deref(), Some("/"));
}

#[test]
fn the_root_stays() {
    let mut tree = Tree::new();
    tree.folder("a");
    assert_eq!(tree.rmdir("/"), Err(Refused::Busy));
    assert_eq!(tree.rmdir("/.."), Err(Refused::NotEmpty));
    assert_eq!(tree.rmdir("/."), Err(Refused::Invalid));
    assert_eq!(tree.unlink("//"), Err(Refused::IsFolder));
    assert_eq!(tree.make("/", Body::Folder), Err(Refused::Exists));
    assert_eq!(tree.rename("/", "b", 0), Err(Refused::Busy));
    assert_eq!(tree.rename("a", "/", 0), Err(Refused::Busy));
    let root = tree.files.root();
    tree.files.hold(root);
    assert_eq!(tree.files.let_go(root), None);
    assert_eq!(tree.files.let_go(root), None);
    assert!(tree.files.is_folder(root));
}

#[test]
fn an_absolute_path_and_an_absolute_link_begin_at_the_root() {
    let mut tree = Tree::new();
    let a = tree.folder("a");
    let leaf = tree.leaf("a/leaf", 1);
    tree.symlink("/a", "a/up");
    tree.symlink("//", "a/top");
    tree.symlink("/a/./leaf", "a/there");
    assert_eq!(tree.walk("a/up/up/top/a/there"), Ok(leaf));
    assert_eq!(tree.walk("a/top"), Ok(tree.files.root()));
    assert_eq!(tree.walk("a/top/"), Ok(tree.files.root()));
    // Where the walk begins does not matter then: not even whether it is a folder.
    assert_eq!(tree.files.walk(leaf, b"/a", Last::Follow, &plain), Ok(a));
    assert_eq!(tree.files.walk(leaf, b".", Last::Follow, &plain), Err(Refused::NotFolder));
    assert_eq!(tree.files.walk(leaf, b"", Last::Follow, &plain), Err(Refused::NotFound));
    let place = tree.files.place(a, b"top", Last::Follow, &plain).unwrap();
    assert_eq!((place.last(), place.node()), (&Final::Root, Some(tree.files.root())));
}

#[test]
fn a_place_says_what_a_path_ends_in() {
    let mut tree = Tree::new();
    let (root, a) = (tree.files.root(), tree.folder("a"));
    let name = |name: &str| Final::Name(name.into());
    for (path, folder, last, slash, node) in [
        ("a", root, name("a"), Slash::No, Some(a)),
        ("a//", root, name("a"), Slash::Yes, Some(a)),
        ("a/b/", a, name("b"), Slash::Yes, None),
        ("a/.", a, Final::Dot, Slash::No, Some(a)),
        ("a/..", a, Final::DotDot, Slash::No, Some(root)),
        ("..", root, Final::DotDot, Slash::No, Some(root)),
        ("//", root, Final::Root, Slash::Yes, Some(root)),
    ] {
        let place = tree.place(path).unwrap();
        assert_eq!((place.folder(), place.last(), place.slash()), (folder, &last, slash), "{path}");
        assert_eq!(place.node(), node, "{path}");
    }
    assert_eq!(tree.place("b/c"), Err(Refused::NotFound));
    assert_eq!(tree.place(""), Err(Refused::NotFound));
}

#[test]
fn a_leaf_may_be_a_link_whose_text_depends_on_who_asks() {
    let mut tree = Tree::new();
    let one = tree.folder("1");
    let file = tree.leaf("1/status", 7);
    let magic = tree.leaf("self", 99);
    let asked = |text: &'static str| {
        move |content: &u64| (*content == 99).then(|| Vec::from(text.as_bytes()))
    };
    let walk = |files: &Files<u64>, path: &str, last, text| {
        files.walk(files.root(), path.as_bytes(), last, &asked(text))
    };
    let files = &tree.files;
    assert_eq!(walk(files, "self/status", Last::Follow, "1"), Ok(file));
    assert_eq!(walk(files, "self", Last::Follow, "1"), Ok(one));
    assert_eq!(walk(files, "self", Last::Keep, "1"), Ok(magic));
    assert_eq!(walk(files, "self/", Last::Keep, "/1/"), Ok(one));
    assert_eq!(walk(files, "self", Last::Follow, "2"), Err(Refused::NotFound));
    assert_eq!(walk(files, "self", Last::Follow, ""), Err(Refused::NotFound));
    assert_eq!(walk(files, "self/x", Last::Follow, ""), Err(Refused::NotFound));
    assert_eq!(walk(files, "self/x", Last::Follow, "self"), Err(Refused::Loop));
    assert_eq!(tree.walk("self/status"), Err(Refused::NotFolder));
    let opened = |text| files.place_to_open(files.root(), b"self", Last::Follow, &asked(text));
    assert_eq!(opened("1/new").map(|place| (place.folder(), place.node())), Ok((one, None)));
    // Its name is taken like any other.
    assert_eq!(tree.unlink("self"), Ok(Some(99)));
}

#[test]
fn forty_links_may_be_on_a_path_together() {
    let mut tree = Tree::new();
    tree.symlink(".", "l");
    let path = |links: u32| "l/".repeat(links as usize) + ".";
    assert_eq!(tree.walk(&path(LINKS_MAX)), Ok(tree.files.root()));
    assert_eq!(tree.walk(&path(LINKS_MAX + 1)), Err(Refused::Loop));
    // Forty texts of as many bytes as there may be.
    tree.symlink(&"./".repeat(PATH_MAX / 2), "long");
    assert_eq!(tree.walk(&"long/".repeat(40)), Ok(tree.files.root()));
}

#[test]
fn nobody_is_found_from_a_node_that_is_gone() {
    let mut tree = Tree::new();
    let gone = tree.folder("a");
    tree.rmdir("a").unwrap();
    let from = |path: &[u8]| tree.files.walk(gone, path, Last::Follow, &plain);
    assert_eq!(from(b"."), Err(Refused::NotFound));
    assert_eq!(from(b"x/y"), Err(Refused::NotFound));
    assert_eq!(tree.files.place(gone, b"x", Last::Keep, &plain), Err(Refused::NotFound));
    assert_eq!(from(b"/"), Ok::<NodeId, _>(tree.files.root()));
}

#[test]
fn limits_and_numbers_are_linux_s() {
    assert_eq!((NAME_MAX, PATH_MAX, LINKS_MAX), (255, 4095, 40));
    assert_eq!(Refused::NotFound.errno(), ENOENT);
    assert_eq!(Refused::Loop.errno(), ELOOP);
    assert_eq!(Refused::NameTooLong.errno(), ENAMETOOLONG);
    assert_eq!(Refused::NotEmpty.errno(), ENOTEMPTY);
    assert_eq!(Refused::IntoItself.errno(), EINVAL);
    assert_eq!(Refused::NotPermitted.errno(), EPERM);
    assert_eq!(Refused::Loop.to_string(), "too many symbolic links");
}
