//! The file that a recording goes to: it gets its name when it is whole.
//!
//! **Invariants**
//! - O1. Under the name is what was there before, or the whole recording.
//! - O2. Where the file system knows files without a name, nothing is left of a recording that was
//!   not finished, however it ended. Elsewhere a killed recorder leaves `.foliant-*.partial`.

use super::{User, sys};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// A file without its name.
pub(crate) enum Unfinished {
    Unnamed(File),
    /// It has another name until then.
    Named(tempfile::NamedTempFile),
}

impl Unfinished {
    /// One in the directory of `path`, as this user's.
    pub(crate) fn beside(path: &Path, user: Option<&User>) -> io::Result<Unfinished> {
        let mut options = OpenOptions::new();
        options.write(true).mode(MODE).custom_flags(libc::O_TMPFILE);
        let unfinished = match options.open(directory(path)) {
            Ok(file) => Unfinished::Unnamed(file),
            Err(_) => Unfinished::Named(builder().tempfile_in(directory(path))?),
        };
        if let Some(user) = user {
            user.owns(unfinished.file())?;
        }
        Ok(unfinished)
    }

    /// What to write to.
    pub(crate) fn file(&self) -> &File {
        match self {
            Unfinished::Unnamed(file) => file,
            Unfinished::Named(file) => file.as_file(),
        }
    }

    /// Gives it its name (O1).
    pub(crate) fn finish(self, path: &Path) -> io::Result<()> {
        let file = match self {
            Unfinished::Named(file) => return file.persist(path).map(drop).map_err(|e| e.error),
            Unfinished::Unnamed(file) => file,
        };
        match sys::link(&file, path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                // No call puts a file without a name over another: it has one for a moment.
                let link = |name: &Path| sys::link(&file, name);
                let named = builder().make_in(directory(path), link)?;
                named.persist(path).map(drop).map_err(|e| e.error)
            }
            linked => linked,
        }
    }
}

const MODE: u32 = 0o666;

fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".foliant-").suffix(".partial").permissions(PermissionsExt::from_mode(MODE));
    builder
}

/// Where a file of this path lies.
pub(crate) fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_appears_whole_and_only_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.trace");
        let count = || folder.path().read_dir().unwrap().count();
        for text in ["one", "another"] {
            let before = count();
            let unfinished = Unfinished::beside(&path, None).unwrap();
            unfinished.file().write_all(text.as_bytes()).unwrap();
            match &unfinished {
                Unfinished::Unnamed(_) => assert_eq!(count(), before),
                Unfinished::Named(_) => eprintln!("skipped: files have names here"),
            }
            unfinished.finish(&path).unwrap();
            assert_eq!((count(), std::fs::read_to_string(&path).unwrap().as_str()), (1, text));
        }
        drop(Unfinished::beside(&path, None).unwrap());
        assert_eq!((count(), std::fs::read_to_string(&path).unwrap().as_str()), (1, "another"));
        // By another name first, as where the file system wants one.
        let named = Unfinished::Named(builder().tempfile_in(folder.path()).unwrap());
        named.finish(&path).unwrap();
        assert_eq!((count(), std::fs::read_to_string(&path).unwrap().as_str()), (1, ""));
    }
}
