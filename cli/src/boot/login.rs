//! `foliant boot --shell`: which shell that is, and what a person who logs in finds.
//!
//! ```text
//!   --shell=kernel           the kernel's own
//!   --shell=PROGRAM          that one, as a login
//!   --shell  at a terminal, where busybox is installed ─▶ busybox, as a login; else the kernel's
//! ```

use super::archive::{Entries, Entry, Mode};
use crate::failure::{Done, Failure};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program that a login gets, where nothing else is named.
const USUAL: &str = "busybox";
/// The name of the shell that is no program.
const KERNEL: &str = "kernel";
/// Where a person is at home.
pub(super) const HOME: &str = "/root";
/// What is there for programs that look a user up, unless it was packed.
const USERS: [(&str, &str); 2] =
    [("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("/etc/group", "root:x:0:\n")];

/// A shell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Which {
    /// The kernel's own, and why it is that one where nobody named it.
    Kernel(Option<&'static str>),
    /// A program of this system.
    Login(OsString),
}

/// Which shell is meant; `named` is empty where none is named.
pub(super) fn which(named: &OsStr, is_seated: bool, path: &OsStr) -> Which {
    if !named.is_empty() {
        let is_kernel = named == KERNEL;
        return if is_kernel { Which::Kernel(None) } else { Which::Login(named.to_owned()) };
    }
    if !is_seated {
        return Which::Kernel(Some("standard input and output are no terminal"));
    }
    match std::env::split_paths(path).any(|folder| folder.join(USUAL).is_file()) {
        true => Which::Login(USUAL.into()),
        false => Which::Kernel(Some("busybox is not installed")),
    }
}

/// Refuses what the kernel's shell has no use for.
pub(super) fn refuse(given: &str, why: Option<&str>) -> Done {
    let why = why.unwrap_or("the kernel's was asked for");
    Err(Failure::new(format_args!(
        "{given} goes with a program, and the kernel's own shell is none ({why}); name one: \
         --shell=/bin/busybox"
    )))
}

/// The name by which a shell knows that it is a login.
pub(super) fn name(shell: &Path) -> OsString {
    let own = shell.file_name().unwrap_or_default();
    let own = if own == USUAL { OsStr::new("sh") } else { own };
    OsString::from_vec([b"-", own.as_bytes()].concat())
}
/// Variables of a login, beside those of every program.
pub(super) fn variables(shell: &Path) -> Vec<OsString> {
    let own = OsString::from_vec([b"SHELL=", shell.as_os_str().as_bytes()].concat());
    let others = ["USER=root", "LOGNAME=root", r"PS1=foliant:\w\$ "].map(OsString::from);
    [own].into_iter().chain(others).collect()
}

/// Adds what a login finds. `shell` is the shell's file, without links on the way to it: where that
/// is many programs in one, each has its name beside it.
pub(super) fn furnish(entries: &mut Entries, shell: &Path) {
    let applets =
        if shell.file_name() == Some(OsStr::new(USUAL)) { applets(shell) } else { vec![] };
    add(entries, shell, &applets);
}
/// The programs that one is besides.
fn applets(shell: &Path) -> Vec<String> {
    let listed = Command::new(shell).arg("--list").stdin(Stdio::null()).output();
    let text = listed.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().filter(|name| !name.contains('/')).map(str::to_owned).collect()
}
fn add(entries: &mut Entries, shell: &Path, applets: &[String]) {
    for (path, text) in USERS {
        let text = Entry::Text(Mode::new(0o644), text.into());
        entries.entry(path.into()).or_insert(text);
    }
    let Some(folder) = shell.parent() else { return };
    for name in applets {
        let link = Entry::Link(shell.to_owned());
        entries.entry(folder.join(name)).or_insert(link);
    }
    // Scripts and programs look for their shell there.
    if folder.starts_with("/usr") {
        let link = Entry::Link(PathBuf::from(folder.strip_prefix("/").unwrap_or(folder)));
        entries.entry("/bin".into()).or_insert(link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_a_login_where_there_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let (empty, with) = (folder.path().join("empty"), folder.path().join("with"));
        std::fs::create_dir_all(&with).unwrap();
        std::fs::write(with.join(USUAL), "").unwrap();
        let of = |named: &str, is_seated, path: &Path| {
            which(OsStr::new(named), is_seated, path.as_os_str())
        };
        assert_eq!(of("", true, &with), Which::Login(USUAL.into()));
        assert!(
            matches!(of("", true, &empty), Which::Kernel(Some(why)) if why.contains("busybox"))
        );
        assert!(
            matches!(of("", false, &with), Which::Kernel(Some(why)) if why.contains("terminal"))
        );
        assert_eq!(of("kernel", true, &with), Which::Kernel(None));
        assert_eq!(of("bash", false, &empty), Which::Login("bash".into()));
        assert_eq!(name(Path::new("/bin/busybox")), "-sh");
        assert_eq!(name(Path::new("/usr/bin/bash")), "-bash");
    }

    #[test]
    fn a_login_finds_programs_and_users_and_keeps_what_was_packed() {
        let own = Entry::Text(Mode::new(0o600), b"mine".to_vec());
        let mut entries = Entries::from([("/etc/passwd".into(), own.clone())]);
        let shell = Path::new("/usr/bin/busybox");
        add(&mut entries, shell, &["sh".to_owned(), "ls".to_owned()]);
        assert_eq!(entries[Path::new("/etc/passwd")], own);
        assert!(matches!(&entries[Path::new("/etc/group")], Entry::Text(..)));
        assert_eq!(entries[Path::new("/usr/bin/ls")], Entry::Link(shell.into()));
        assert_eq!(entries[Path::new("/bin")], Entry::Link("usr/bin".into()));
    }
}
