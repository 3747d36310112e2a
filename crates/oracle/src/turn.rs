//! Whose turn it is: runs that need the pool of this host for themselves, and all others.
//!
//! A sequence of calls may map pages of the host's pool and expects none there. So a run that fills
//! the pool waits until no other one is at work, and those that begin meanwhile wait for it. They
//! agree by a lock on a file in the folder for temporary files, which a process that ends lets go.

use std::fs::File;
use std::io;

const NAME: &str = "foliant-oracle.lock";

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(#[allow(dead_code, reason = "its lock is what it is kept for")] File);

impl Turn {
    fn file() -> io::Result<File> {
        let path = std::env::temp_dir().join(NAME);
        let opened = File::options().create(true).truncate(false).append(true).open(&path);
        opened.map_err(|why| io::Error::new(why.kind(), format!("{}: {why}", path.display())))
    }
    /// Waits for a turn without any other run.
    pub(crate) fn alone() -> io::Result<Turn> {
        let file = Turn::file()?;
        file.lock()?;
        Ok(Turn(file))
    }
    /// Waits for a turn beside others of its kind.
    pub(crate) fn shared() -> io::Result<Turn> {
        let file = Turn::file()?;
        file.lock_shared()?;
        Ok(Turn(file))
    }
}
