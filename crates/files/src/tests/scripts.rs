//! Sequences with a point each, to the crate and to the host: which error comes first, and what a
//! folder is that was removed. Behind the arrow is what both must say.

use super::call::Answer;
use super::host::Twins;
use linux_raw_sys::errno;

/// Runs a script; ` => ERROR` behind a line is what it must be refused with, and nothing that it
/// must succeed.
fn check(script: &str) {
    let mut twins = Twins::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (line, wanted) = line.split_once(" => ").unwrap_or((line, "OK"));
        let told = twins.line(line).unwrap_or_else(|why| panic!("{why}"));
        let name = match told {
            Ok(_) => "OK",
            Err(errno::ENOENT) => "ENOENT",
            Err(errno::EPERM) => "EPERM",
            Err(errno::EEXIST) => "EEXIST",
            Err(errno::ENOTDIR) => "ENOTDIR",
            Err(errno::EISDIR) => "EISDIR",
            Err(errno::EINVAL) => "EINVAL",
            Err(errno::EBUSY) => "EBUSY",
            Err(errno::ELOOP) => "ELOOP",
            Err(errno::ENOTEMPTY) => "ENOTEMPTY",
            Err(errno::ENAMETOOLONG) => "ENAMETOOLONG",
            Err(_) => "another one",
        };
        assert_eq!(name, wanted, "{line}");
    }
    twins.compare().unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn a_slash_behind_a_new_name() {
    check(
        "mkdir d/
         creat f/ => EISDIR
         creat d/ => EISDIR
         creat-excl d/ => EISDIR
         creat missing/f/ => ENOENT
         mknod f/ => ENOENT
         symlink d l/ => ENOENT
         creat f
         mknod f/ => EEXIST
         mkdir f/ => EEXIST
         link f g/ => ENOENT
         link d g/ => ENOENT
         link f d/ => EEXIST
         link f/ g => ENOTDIR
         unlink f/ => ENOTDIR
         unlink d/ => EISDIR
         unlink missing/ => ENOENT
         rmdir f/ => ENOTDIR
         rmdir d/",
    );
}

#[test]
fn a_slash_behind_a_link() {
    check(
        "symlink nowhere l
         mkdir l/ => EEXIST
         mkdir l => EEXIST
         mknod l/ => EEXIST
         creat l/ => EISDIR
         lstat l/ => ENOENT
         mkdir d
         symlink d to-d
         symlink d/ to-d-slash
         lstat to-d/
         rmdir to-d/ => ENOTDIR
         unlink to-d/ => ENOTDIR
         rename to-d/ x => ENOTDIR
         rename d to-d/ => ENOTDIR
         creat f
         symlink f/ to-f-slash
         stat to-f-slash => ENOTDIR
         creat to-f-slash => EISDIR
         symlink to-f-slash twice
         stat twice => ENOTDIR
         readlink to-d/ => EINVAL
         unlink to-d",
    );
}

#[test]
fn a_link_that_leads_nowhere_is_where_open_makes_a_file() {
    check(
        "mkdir d
         symlink d/new l
         symlink l l2
         creat-excl l2 => EEXIST
         creat-nofollow l2 => ELOOP
         stat l2 => ENOENT
         creat l2
         lstat d/new
         stat l2
         creat l2
         symlink x/y far
         creat far => ENOENT
         symlink . dot
         creat dot => EISDIR
         symlink loop loop
         creat loop => ELOOP
         creat-excl loop => EEXIST
         unlink loop",
    );
}

#[test]
fn forty_links_and_one_more() {
    let mut script = String::from("creat l0\nmkdir d0\n");
    for link in 1..=41 {
        script += &format!("symlink l{} l{link}\nsymlink d{} d{link}\n", link - 1, link - 1);
    }
    script += "stat l40\nstat l41 => ELOOP\nlstat l41\ncreat l40\ncreat l41 => ELOOP\n";
    script += "stat d40/.\nstat d41/. => ELOOP\nstat d20/../d20\nstat d20/../d21 => ELOOP\n";
    script += "mkdir d41/x => ELOOP\nmkdir d40/x\nlstat d40/\nlstat d41/ => ELOOP";
    check(&script);
}

#[test]
fn what_stays_where_it_is() {
    check(
        "mkdir d
         mkdir . => EEXIST
         mkdir .. => EEXIST
         creat . => EISDIR
         creat-excl . => EEXIST
         unlink . => EISDIR
         unlink d/.. => EISDIR
         rmdir . => EINVAL
         rmdir d/.. => ENOTEMPTY
         rmdir d/./ => EINVAL
         rename . x => EBUSY
         rename d .. => EBUSY
         rename missing .. => EBUSY
         rename-noreplace d . => EEXIST
         rename-noreplace . . => EBUSY
         rename missing/.. x => ENOENT
         rename-wrong missing/x missing/y => EINVAL",
    );
}

#[test]
fn one_kind_over_another() {
    check(
        "mkdir d
         mkdir e
         creat f
         creat e/g
         rename d f => ENOTDIR
         rename f d => EISDIR
         rename d e => ENOTEMPTY
         rename f missing/ => ENOTDIR
         rename f/ missing => ENOTDIR
         rename missing/ f/ => ENOENT
         rename d d/x => EINVAL
         rename d d/x/y => ENOENT
         rename d d
         rename f e => EISDIR
         rename e/g e => ENOTEMPTY
         rename-noreplace d e => EEXIST
         exchange d missing => ENOENT
         exchange e e/g => EINVAL
         exchange e/g e => EINVAL
         exchange d f/ => ENOTDIR
         exchange d/ f
         stat d
         stat f/
         exchange f e
         link d second
         rename d second
         lstat d
         rename-noreplace d second => EEXIST
         rename e new/
         rename new/ d => ENOTDIR",
    );
}

#[test]
fn folders_count_folders_that_move() {
    check(
        "mkdir a
         mkdir b
         mkdir a/x
         mkdir b/y
         creat a/f
         stat a
         rename a/x b/x
         stat a
         stat b
         rename b/x b/y
         stat b
         exchange a/f b/y
         stat a
         stat b
         exchange a b
         stat a/..
         rename b/f a/new/
         stat a
         stat b",
    );
}

#[test]
fn a_removed_folder() {
    check(
        "mkdir d
         mkdir d/e
         hold d/e
         rmdir d/e
         rmdir d
         stat 1:.
         stat 1:..
         stat 1:../..
         list 1:. => ENOENT
         list 1:.. => ENOENT
         mkdir 1:x => ENOENT
         mkdir 1:. => EEXIST
         mkdir 1:../x => ENOENT
         creat 1:x => ENOENT
         creat 1:name256 => ENOENT
         symlink x 1:x => ENOENT
         creat f
         link f 1:f => ENOENT
         rename f 1:f => ENOENT
         rename 1:f f => ENOENT
         rmdir 1:x => ENOENT
         stat 1:name256 => ENOENT
         mkdir 1:../../d
         stat 1:../../d
         drop",
    );
}

#[test]
fn a_removed_file_gets_no_name_and_an_unnamed_one_does() {
    check(
        "creat f
         hold f
         unlink f
         stat 1: => ENOENT
         stat 1:x => ENOTDIR
         link-handle 1 f => ENOENT
         link-handle 1 . => EEXIST
         hold .
         link-handle 2 x => EPERM
         tmpfile .
         link-handle 3 one
         link-handle 3 two
         stat one
         unlink one
         unlink two
         link-handle 3 one => ENOENT
         tmpfile one => ENOENT",
    );
}

#[test]
fn lengths() {
    check(
        "mkdir name255
         mkdir name256 => ENAMETOOLONG
         creat name256 => ENAMETOOLONG
         stat name256/x => ENAMETOOLONG
         unlink name256 => ENAMETOOLONG
         rename name256 missing/x => ENOENT
         rename missing name256 => ENOENT
         rename name255 name256 => ENAMETOOLONG
         creat name256/ => EISDIR
         mkdir name256/ => ENAMETOOLONG
         link missing name256 => ENOENT
         stat dots4095
         stat dots4096 => ENAMETOOLONG
         stat dots4094/a => ENAMETOOLONG
         symlink dots4095 l
         stat l
         symlink dots4096 m => ENAMETOOLONG
         mkdir \"\" => ENOENT
         stat \"\" => ENOENT
         creat f
         stat f/name256 => ENOTDIR",
    );
}

#[test]
fn a_difference_is_noticed() {
    let mut twins = Twins::new();
    assert_eq!(twins.line("mkdir a"), Ok(Ok(Answer::Done)));
    assert_eq!(twins.compare(), Ok(()));
    let (base, now) = (twins.model.handles[0], super::at(9));
    let place = twins.model.files.place(base, b"a", crate::Last::Keep, &super::plain).unwrap();
    twins.model.files.remove_folder(&place, now).unwrap();
    assert!(twins.compare().is_err());
    assert!(twins.line("stat a").is_err());
}
