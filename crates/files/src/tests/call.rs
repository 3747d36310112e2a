//! Calls of Linux as words on a line, so that a sequence that failed can be read and put into
//! `scripts`.
//!
//! A path is `folder:path`, with the number of an open handle before the colon; without one it is
//! handle 0's. In a path, `name255` is a name of so many bytes and `dots4095` a path of so many
//! that leads nowhere else; `""` is the empty path.

use alloc::vec::Vec;
use linux_raw_sys::general::{
    O_CREAT, O_EXCL, O_NOFOLLOW, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT,
};
use std::collections::BTreeMap;

/// A path, and the handle that it begins at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct At {
    pub(super) handle: usize,
    pub(super) path: Vec<u8>,
}

/// A call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Call {
    Mkdir(At),
    /// With the flags beside `O_CREAT`.
    Create(At, u32),
    Mknod(At),
    Symlink(Vec<u8>, At),
    /// With `AT_SYMLINK_FOLLOW`, or without.
    Link(At, At, Follow),
    Unlink(At),
    Rmdir(At),
    Rename(At, At, u32),
    Stat(At, Follow),
    Readlink(At),
    List(At),
    /// Opens one more handle, which is a folder's or a file's.
    Hold(At, Follow),
    /// Opens a file without a name.
    Tmpfile(At),
    /// Gives a name to what is open.
    LinkHandle(usize, At),
    /// Closes the last handle but 0.
    Drop,
}

/// Whether a link at the end is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Follow {
    Yes,
    No,
}

/// What a call that succeeded told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Done,
    Stat(Stat),
    Text(Vec<u8>),
    /// The names that are there, with their kinds.
    Names(BTreeMap<Vec<u8>, u32>),
}

/// What both sides know of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stat {
    /// `S_IFMT`.
    pub(super) kind: u32,
    /// Of a folder, only where the host counts as Linux's own file systems do.
    pub(super) links: Option<u32>,
    /// Which file it is.
    pub(super) token: Option<u64>,
}

/// What one call makes of the world: an answer, or one of Linux's errors.
pub(super) type Told = Result<Answer, u32>;

/// One side of the comparison.
pub(super) trait Side {
    /// Carries a call out. A file that it makes is the one of this token.
    fn call(&mut self, call: &Call, token: u64) -> Told;
    /// How many handles are open.
    fn handles(&self) -> usize;
}

impl At {
    fn new(word: &str) -> At {
        let (handle, path) = word.split_once(':').unwrap_or(("0", word));
        At { handle: handle.parse().unwrap(), path: text(path) }
    }
}

fn text(word: &str) -> Vec<u8> {
    if word == "\"\"" {
        return Vec::new();
    }
    let mut parts = Vec::new();
    for part in word.split('/') {
        let count = |word| part.strip_prefix(word)?.parse::<usize>().ok();
        parts.push(match (count("name"), count("dots")) {
            (Some(len), _) => "n".repeat(len),
            (_, Some(len)) => "./".repeat(len)[..len].to_string(),
            _ => part.to_string(),
        });
    }
    parts.join("/").into_bytes()
}

impl Call {
    /// A call of a line.
    pub(super) fn new(line: &str) -> Call {
        let words: Vec<&str> = line.split_whitespace().collect();
        let path = |index: usize| At::new(words[index]);
        match words[0] {
            "mkdir" => Call::Mkdir(path(1)),
            "creat" => Call::Create(path(1), O_CREAT),
            "creat-excl" => Call::Create(path(1), O_CREAT | O_EXCL),
            "creat-nofollow" => Call::Create(path(1), O_CREAT | O_NOFOLLOW),
            "mknod" => Call::Mknod(path(1)),
            "symlink" => Call::Symlink(text(words[1]), path(2)),
            "link" => Call::Link(path(1), path(2), Follow::No),
            "link-follow" => Call::Link(path(1), path(2), Follow::Yes),
            "unlink" => Call::Unlink(path(1)),
            "rmdir" => Call::Rmdir(path(1)),
            "rename" => Call::Rename(path(1), path(2), 0),
            "rename-noreplace" => Call::Rename(path(1), path(2), RENAME_NOREPLACE),
            "exchange" => Call::Rename(path(1), path(2), RENAME_EXCHANGE),
            "rename-wrong" => Call::Rename(path(1), path(2), RENAME_EXCHANGE | RENAME_WHITEOUT),
            "stat" => Call::Stat(path(1), Follow::Yes),
            "lstat" => Call::Stat(path(1), Follow::No),
            "readlink" => Call::Readlink(path(1)),
            "list" => Call::List(path(1)),
            "hold" => Call::Hold(path(1), Follow::Yes),
            "hold-link" => Call::Hold(path(1), Follow::No),
            "tmpfile" => Call::Tmpfile(path(1)),
            "link-handle" => Call::LinkHandle(words[1].parse().unwrap(), path(2)),
            "drop" => Call::Drop,
            other => panic!("no call: {other}"),
        }
    }
}
