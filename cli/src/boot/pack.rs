//! Which files a guest gets: a program, what it needs to run, and what is named.
//!
//! ```text
//!   PROGRAM ─▶ PATH ─▶ /bin/tool ─┬─▶ each link on the way, as a link   bin ─▶ usr/bin
//!                                 ├─▶ the file at the end               usr/bin/tool
//!                                 └─▶ who loads or reads it, and its libraries, by the same rule
//!   --with PATH ─▶ by the same rule; a folder with all that is in it
//! ```
//!
//! Everything lies where it lies here, so that every path means the same inside. Links stay links;
//! where one leads is packed as well, so that it leads there.
//!
//! **Invariants**
//! - P1. Whatever is packed is reached inside by the path by which it was reached here.
//! - P2. A walk ends: a folder is walked once, and a path leads over [`LINKS_MOST`] links at most.
//! - P3. Nothing of `/dev`, `/proc` and `/sys` is packed: these are the guest's own.
//! - P4. Nothing of this system's variables gets in, but the name of its terminal: a run is
//!   repeatable.
//!
//! **Not here**: how libraries are found (`loader`), the archive (`archive`).

use super::archive::{Entries, Entry, FILE_LIMIT, Mode, Note, large};
use super::loader::{self, Kind, Linked};
use super::login;
use crate::failure::{Done, Failure, why};
use crate::shown::{self, shown};
use foliant_units::Bytes;
use indicatif::ProgressBar;
use nix::errno::Errno;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// So many links lie on a path at most, as in Linux.
const LINKS_MOST: usize = 40;
/// So many scripts read each other at most, as in Linux.
const SCRIPTS_MOST: usize = 5;
/// What a shell inside looks through for programs.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
/// Folders that are the guest's own.
const OWN: [&str; 3] = ["/dev", "/proc", "/sys"];
/// Folders that each guest has.
const ALWAYS: [(&str, u32); 6] = [
    ("/tmp", 0o1777),
    ("/dev", 0o755),
    ("/proc", 0o755),
    ("/sys", 0o755),
    ("/root", 0o700),
    ("/etc", 0o755),
];
/// Where glibc's loader looks for libraries that lie in other folders than the usual ones.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// The program and its arguments.
    pub(super) command: &'a [OsString],
    pub(super) with: &'a [PathBuf],
    /// The folders that a shell here looks through for programs.
    pub(super) path: &'a OsStr,
    /// The current folder.
    pub(super) here: &'a Path,
    /// The terminal's name.
    pub(super) terminal: Option<&'a OsStr>,
    /// Whether the program is a shell that somebody logs in to.
    pub(super) login: Login,
}

/// Whether somebody logs in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Login {
    Yes,
    No,
}

/// What the guest gets.
#[derive(Debug)]
pub(super) struct Packed {
    /// The program's path.
    program: PathBuf,
    pub(super) notes: Vec<Note>,
    pub(super) entries: Entries,
}

/// Finds all that is asked for.
pub(super) fn gather(asked: Asked<'_>, progress: &ProgressBar) -> Done<Packed> {
    let mut pack = Pack::new(asked.here, progress);
    let typed = asked.command.first().map(OsString::as_os_str).unwrap_or_default();
    let program = asked.here.join(find(typed, asked.path, asked.here)?);
    let program: PathBuf = program.components().collect(); // without `.`
    if program.as_os_str().as_bytes().contains(&b'\n') {
        return Err(Failure::new(format_args!(
            "{} has a line end in its name; rename it",
            shown::path(&program)
        )));
    }
    pack.program(&program, 0)?;
    for path in asked.with {
        pack.with(path)?;
    }
    let mut entries = pack.done();
    let (mut command, mut variables) = (asked.command.to_vec(), environment(asked.terminal));
    if asked.login == Login::Yes {
        command[0] = login::name(&program);
        variables.extend(login::variables(&program));
        let end = program.canonicalize().unwrap_or_else(|_| program.clone());
        login::furnish(&mut entries, &end);
    }
    // Relative names mean the same inside where the folder is there.
    let is_there = matches!(entries.get(asked.here), Some(Entry::Folder(_)));
    let folder = match asked.login {
        Login::Yes => Path::new(login::HOME),
        Login::No if is_there => asked.here,
        Login::No => Path::new("/"),
    };
    let note = |name, bytes: &[u8]| Note { name, bytes: bytes.to_vec() };
    let notes = vec![
        Note { name: ARGUMENTS, bytes: ended(&command) },
        note(PROGRAM, program.as_os_str().as_bytes()),
        Note { name: ".foliant/environment", bytes: ended(&variables) },
        note(".foliant/folder", folder.as_os_str().as_bytes()),
    ];
    Ok(Packed { program, notes, entries })
}

impl Packed {
    /// The same with another program that starts this one: it gets words, the program's path, and
    /// its arguments.
    pub(super) fn below(mut self, first: &Path, words: &[String]) -> Packed {
        let path = |path: &Path| path.as_os_str().as_bytes().to_vec();
        for note in &mut self.notes {
            match note.name {
                ARGUMENTS => {
                    let words = words.iter().map(OsString::from);
                    let ahead: Vec<OsString> = [first.into()]
                        .into_iter()
                        .chain(words)
                        .chain([self.program.clone().into()])
                        .collect();
                    note.bytes = [ended(&ahead), core::mem::take(&mut note.bytes)].concat();
                }
                PROGRAM => note.bytes = path(first),
                _ => {}
            }
        }
        self
    }
}

/// The note that has the program's name and arguments.
const ARGUMENTS: &str = ".foliant/arguments";
/// The note that has its path.
const PROGRAM: &str = ".foliant/program";

/// Texts, each with a NUL behind it.
fn ended(texts: &[OsString]) -> Vec<u8> {
    texts.iter().flat_map(|text| text.as_bytes().iter().copied().chain([0])).collect()
}

/// The program's variables (P4).
fn environment(terminal: Option<&OsStr>) -> Vec<OsString> {
    let mut all = [format!("PATH={PATH}"), "HOME=/root".to_owned(), "LANG=C.UTF-8".to_owned()]
        .map(OsString::from)
        .to_vec();
    if let Some(terminal) = terminal {
        all.push(OsString::from_vec([b"TERM=", terminal.as_bytes()].concat()));
    }
    all
}

/// Looks for a program as a shell does; what it finds may be relative to `here`.
fn find(typed: &OsStr, path: &OsStr, here: &Path) -> Done<PathBuf> {
    let named = shown(&typed.to_string_lossy());
    if typed.is_empty() {
        return Err(Failure::new("the program's name is empty; name one behind --"));
    }
    if typed.as_bytes().contains(&b'/') {
        let file = PathBuf::from(typed);
        return match std::fs::metadata(here.join(&file)) {
            Ok(found) => runnable(&file, &found).map(|()| file),
            Err(e) => Err(Failure::new(format_args!(
                "there is no program {named} ({}); name another",
                why(&e)
            ))),
        };
    }
    let mut refused = None;
    for folder in std::env::split_paths(path) {
        let file = folder.join(typed);
        let Ok(found) = std::fs::metadata(here.join(&file)) else { continue };
        match runnable(&file, &found) {
            Ok(()) => return Ok(file),
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        Failure::new(format_args!(
            "there is no program {named} in the folders of PATH ({}); name its file with a slash, \
             like ./{named}",
            shown(&path.to_string_lossy())
        ))
    }))
}

/// Refuses what nobody can run.
fn runnable(path: &Path, found: &Metadata) -> Done {
    let path = shown::path(path);
    if found.is_dir() {
        return Err(Failure::new(format_args!("{path} is a folder; name a program")));
    }
    if !found.is_file() {
        return Err(Failure::new(format_args!("{path} is no file; name a program")));
    }
    if !mode(found).runs() {
        return Err(Failure::new(format_args!(
            "{path} is not executable; make it so with `chmod +x {path}`, or name another program"
        )));
    }
    Ok(())
}

fn mode(found: &Metadata) -> Mode {
    Mode::new(found.permissions().mode())
}

/// A way that does not lead anywhere.
#[derive(Debug)]
struct Astray {
    at: PathBuf,
    why: io::Error,
}

impl Astray {
    /// In the words of who wanted to get to `path`.
    fn said(self, path: &Path) -> Failure {
        let (at, path, why) = (shown::path(&self.at), shown::path(path), why(&self.why));
        let end = if at == path { String::new() } else { format!(" at {at}") };
        Failure::new(format_args!("{path} cannot be packed: {why}{end}"))
    }
}

/// Files that are being gathered.
struct Pack<'p> {
    entries: Entries,
    /// Folders all of whose contents are there, or will be (P2).
    walked: BTreeSet<PathBuf>,
    /// Who loads the program, also for libraries that name nobody.
    loader: Option<PathBuf>,
    here: &'p Path,
    progress: &'p ProgressBar,
}

impl<'p> Pack<'p> {
    fn new(here: &'p Path, progress: &'p ProgressBar) -> Pack<'p> {
        let (entries, walked) = (Entries::new(), BTreeSet::new());
        Pack { entries, walked, loader: None, here, progress }
    }

    /// All of it, with the folders that are always there.
    fn done(mut self) -> Entries {
        for (folder, mode) in ALWAYS {
            let folder = PathBuf::from(folder);
            self.entries.entry(folder).or_insert(Entry::Folder(Mode::new(mode)));
        }
        self.entries
    }

    /// Packs what lies on the way to `path`, links and where they lead (P1); gives its end, which
    /// has no links.
    fn follow(&mut self, path: &Path) -> Result<PathBuf, Astray> {
        let mut at = PathBuf::from("/");
        let mut ahead = steps(path);
        let mut links = 0;
        while let Some(step) = ahead.pop() {
            if step == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&step);
            let astray = |why| Astray { at: next.clone(), why };
            if is_own(&next) {
                let why = "it is the guest's own, which has another one";
                return Err(astray(io::Error::other(why)));
            }
            let found = std::fs::symlink_metadata(&next).map_err(astray)?;
            if found.is_symlink() {
                links += 1;
                if links > LINKS_MOST {
                    return Err(astray(Errno::ELOOP.into()));
                }
                let target = std::fs::read_link(&next).map_err(astray)?;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                ahead.append(&mut steps(&target));
                self.put(next, Entry::Link(target));
                continue;
            }
            if !self.lies(&next, &found) {
                return Err(astray(io::Error::other("it is no file and no folder")));
            }
            at = next;
        }
        Ok(at)
    }

    /// Packs a file or a folder without what is in it; whether it is one of them.
    fn lies(&mut self, path: &Path, found: &Metadata) -> bool {
        let entry = match found {
            found if found.is_dir() => Entry::Folder(mode(found)),
            found if found.is_file() => Entry::File(mode(found), Bytes::new(found.len())),
            _ => return false,
        };
        self.put(path.to_owned(), entry);
        true
    }

    fn put(&mut self, path: PathBuf, entry: Entry) {
        self.entries.insert(path, entry);
        let count = self.entries.len();
        if count.is_multiple_of(256) {
            self.progress.set_message(format!("looking for the guest's files: {count}"));
        }
    }

    /// Packs all that is in a folder, and in the folders to which links in there lead.
    fn walk(&mut self, folder: PathBuf) -> Result<(), Astray> {
        let mut due = vec![folder];
        while let Some(folder) = due.pop() {
            let is_folder = folder == Path::new("/")
                || matches!(self.entries.get(&folder), Some(Entry::Folder(_)));
            if !is_folder || !self.walked.insert(folder.clone()) {
                continue;
            }
            let astray = |why| Astray { at: folder.clone(), why };
            for item in std::fs::read_dir(&folder).map_err(astray)? {
                let path = item.map_err(astray)?.path();
                if is_own(&path) {
                    continue;
                }
                let found = std::fs::symlink_metadata(&path);
                let found = found.map_err(|why| Astray { at: path.clone(), why })?;
                if found.is_symlink() {
                    // One that leads nowhere here leads nowhere inside.
                    due.extend(self.follow(&path));
                } else if self.lies(&path, &found) && found.is_dir() {
                    due.push(path);
                }
            }
        }
        Ok(())
    }

    /// `--with`.
    fn with(&mut self, path: &Path) -> Done {
        if path.as_os_str().is_empty() {
            return Err(Failure::new("--with names nothing; name a file or a folder"));
        }
        let absolute = self.here.join(path);
        let said = |astray: Astray| {
            let what = Failure::sentence(astray.said(path));
            Failure::new(format_args!("--with {what}; name what is there, or leave it out"))
        };
        let end = self.follow(&absolute).map_err(said)?;
        self.walk(end.clone()).map_err(said)?;
        // A file that cannot be read is an error where it is packed.
        if matches!(self.entries.get(&end), Some(Entry::File(..)))
            && let Ok(kind) = loader::kind(&end)
        {
            self.needs(&end, kind, 0)?;
        }
        Ok(())
    }

    /// Packs a program and what it needs.
    fn program(&mut self, path: &Path, scripts: usize) -> Done {
        let end = self.follow(path).map_err(|astray| astray.said(path))?;
        let found =
            std::fs::metadata(&end).map_err(|why| Astray { at: end.clone(), why }.said(path))?;
        runnable(path, &found)?;
        let unread = |e: io::Error| {
            Failure::new(format_args!(
                "{} cannot be read ({}), so the guest cannot have it",
                shown::path(path),
                why(&e)
            ))
        };
        match loader::kind(&end).map_err(unread)? {
            Kind::Other => Err(Failure::new(format_args!(
                "{} is no program: neither an ELF file for x86-64 nor a script that begins with #!; \
                 name another one, or what reads it",
                shown::path(path)
            ))),
            kind => self.needs(&end, kind, scripts),
        }
    }

    /// Packs what a file of this kind needs to run.
    fn needs(&mut self, path: &Path, kind: Kind, scripts: usize) -> Done {
        match kind {
            Kind::Other => Ok(()),
            Kind::Script { .. } if scripts >= SCRIPTS_MOST => Err(Failure::new(format_args!(
                "{} is the script of a script, {SCRIPTS_MOST} deep, which Linux does not run; name \
                 a program that reads it",
                shown::path(path)
            ))),
            Kind::Script { interpreter, word } => {
                self.needed(path, "interpreter", &interpreter)?;
                self.program(&self.here.join(&interpreter), scripts + 1)?;
                match searched(&interpreter, &word) {
                    None => Ok(()),
                    Some(name) => {
                        let file = find(OsStr::new(name), OsStr::new(PATH), Path::new("/"));
                        self.program(&file?, scripts + 1)
                    }
                }
            }
            Kind::Elf { interpreter, linked } => {
                if let Some(loader) = interpreter {
                    self.needed(path, "loader", &loader)?;
                    self.loader = Some(self.here.join(loader));
                }
                match self.loader.clone() {
                    Some(loader) if linked == Linked::Dynamically => self.libraries(&loader, path),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Packs what another file names.
    fn needed(&mut self, by: &Path, what: &str, path: &Path) -> Done {
        let absolute = self.here.join(path);
        self.follow(&absolute).map(drop).map_err(|astray| {
            Failure::new(format_args!(
                "{} names the {what} {}, which is not to be had ({}); install it",
                shown::path(by),
                shown::path(path),
                why(&astray.why)
            ))
        })
    }

    /// Packs the libraries of a file.
    fn libraries(&mut self, loader: &Path, path: &Path) -> Done {
        for library in loader::libraries(loader, path)? {
            let library = self.here.join(library);
            self.follow(&library).map_err(|astray| astray.said(&library))?;
        }
        let _ = self.follow(Path::new(LOADER_CACHE)); // musl has none
        Ok(())
    }
}

/// The parts of a path, the first one last.
fn steps(path: &Path) -> Vec<OsString> {
    let step = |part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(step).rev().collect()
}

/// Whether a path is of what the guest has its own of (P3).
fn is_own(path: &Path) -> bool {
    OWN.iter().any(|own| path.starts_with(own))
}

/// The program that `env` looks for in the guest's own PATH, where it reads a script.
fn searched<'w>(interpreter: &Path, word: &'w str) -> Option<&'w str> {
    let is_env = interpreter.file_name() == Some(OsStr::new("env"));
    let mut words = word.split_ascii_whitespace();
    is_env.then(|| words.find(|word| !word.starts_with('-') && !word.contains('=')))?
}

/// Refuses what no guest with so much memory can take. `memory` is what was asked for.
pub(super) fn fits(entries: &Entries, archive: Bytes, memory: Option<Bytes>) -> Done {
    for (path, entry) in entries {
        match entry {
            Entry::File(_, bytes) if *bytes >= FILE_LIMIT => return Err(large(path, *bytes)),
            _ => {}
        }
    }
    match memory {
        Some(memory) if archive.get() > memory.get() / 2 => {
            let least = Bytes::new((2 * archive.get()).next_multiple_of(1 << 20));
            Err(Failure::new(format_args!(
                "the guest's files are {} MiB, more than half of --memory {memory}; give it \
                 --memory {least} or more, or fewer files",
                archive.get().div_ceil(1 << 20)
            )))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir, create_dir_all, set_permissions, write};
    use std::os::unix::fs::symlink;

    /// A folder without links above it.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        (folder, path)
    }

    /// What lies at or below `root`, each with a letter and where a link leads.
    fn listed(entries: &Entries, root: &Path) -> Vec<String> {
        let entry = |(path, entry): (&PathBuf, &Entry)| {
            let path = path.strip_prefix(root).ok()?.to_str()?;
            Some(match entry {
                _ if path.is_empty() => return None,
                Entry::Folder(_) => format!("{path}/"),
                Entry::File(..) | Entry::Text(..) => path.to_owned(),
                Entry::Link(target) => format!("{path} -> {}", target.display()),
            })
        };
        entries.iter().filter_map(entry).collect()
    }

    fn script(path: &Path, text: &str) {
        write(path, text).unwrap();
        set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    #[test]
    fn links_on_the_way_are_packed_with_where_they_lead() {
        let (_keep, here) = folder();
        create_dir_all(here.join("usr/bin")).unwrap();
        create_dir(here.join("other")).unwrap();
        write(here.join("usr/bin/tool-1"), "12").unwrap();
        write(here.join("other/unasked"), "").unwrap();
        symlink("usr/bin", here.join("bin")).unwrap();
        symlink(here.join("other/../bin/tool-1"), here.join("usr/bin/tool")).unwrap();
        let progress = ProgressBar::hidden();
        let mut pack = Pack::new(&here, &progress);
        let end = pack.follow(&here.join("bin/tool")).unwrap();
        assert_eq!(end, here.join("usr/bin/tool-1"));
        let absolute = format!("usr/bin/tool -> {}/other/../bin/tool-1", here.display());
        let expect = ["bin -> usr/bin", "other/", "usr/", "usr/bin/", &absolute, "usr/bin/tool-1"];
        assert_eq!(listed(&pack.entries, &here), expect);
        let file = Entry::File(Mode::new(0o644), Bytes::new(2));
        set_permissions(&end, PermissionsExt::from_mode(0o644)).unwrap();
        pack.follow(&end).unwrap();
        assert_eq!(pack.entries[&end], file);
    }

    #[test]
    fn ways_that_lead_nowhere_are_told() {
        let (_keep, here) = folder();
        symlink("nowhere", here.join("dangling")).unwrap();
        symlink("b", here.join("a")).unwrap();
        symlink("a", here.join("b")).unwrap();
        symlink("/dev/null", here.join("null")).unwrap();
        write(here.join("file"), "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(here.join("socket")).unwrap();
        let progress = ProgressBar::hidden();
        for (name, words) in [
            ("dangling", "no such folder or file at"),
            ("a", "Too many levels of symbolic links"),
            ("null", "the guest's own"),
            ("file/in", "a part of the path is no folder"),
            ("socket", "no file and no folder"),
            ("missing", "missing cannot be packed: there is no such"),
        ] {
            let mut pack = Pack::new(&here, &progress);
            let said = pack.with(Path::new(name)).unwrap_err().sentence();
            assert!(said.contains(words) && said.starts_with("--with "), "{name}: {said}");
            assert!(said.contains(name) && said.contains("leave it out"), "{name}: {said}");
        }
    }

    #[test]
    fn a_folder_is_packed_whole_and_once() {
        let (_keep, here) = folder();
        create_dir_all(here.join("a/in")).unwrap();
        create_dir_all(here.join("outside/deep")).unwrap();
        for file in ["a/in/file", "outside/deep/file", "unasked"] {
            write(here.join(file), "").unwrap();
        }
        for (target, link) in [
            ("..", "a/in/up"),
            ("../outside", "a/out"),
            ("nowhere", "a/dangling"),
            ("loop", "a/loop"),
            ("/proc/self", "a/proc"),
            ("../../a", "outside/deep/back"),
        ] {
            symlink(target, here.join(link)).unwrap();
        }
        let _socket = std::os::unix::net::UnixListener::bind(here.join("a/socket")).unwrap();
        let progress = ProgressBar::hidden();
        let mut pack = Pack::new(&here, &progress);
        pack.with(Path::new("a/../a")).unwrap();
        let expect = [
            "a/",
            "a/dangling -> nowhere",
            "a/in/",
            "a/in/file",
            "a/in/up -> ..",
            "a/loop -> loop",
            "a/out -> ../outside",
            "a/proc -> /proc/self",
            "outside/",
            "outside/deep/",
            "outside/deep/back -> ../../a",
            "outside/deep/file",
        ];
        assert_eq!(listed(&pack.entries, &here), expect);
        let done = pack.done();
        assert_eq!(done[Path::new("/proc")], Entry::Folder(Mode::new(0o755)));
        assert!(!done.keys().any(|path| path.starts_with("/proc/self")));
        for (folder, _) in ALWAYS {
            assert!(done.contains_key(Path::new(folder)), "{folder}");
        }
    }

    #[test]
    fn a_program_is_looked_for_as_a_shell_does() {
        let (_keep, here) = folder();
        for name in ["first/folder", "second", "third"] {
            create_dir_all(here.join(name)).unwrap();
        }
        write(here.join("first/tool"), "").unwrap();
        set_permissions(here.join("first/tool"), PermissionsExt::from_mode(0o644)).unwrap();
        script(&here.join("second/tool"), "");
        script(&here.join("third/tool"), "");
        script(&here.join("here"), "");
        let path = std::env::join_paths(["first", "second", "", "third"]).unwrap();
        let find = |name: &str| find(OsStr::new(name), &path, &here).map_err(Failure::sentence);
        assert_eq!(find("tool"), Ok("second/tool".into()));
        assert_eq!(find("here"), Ok("here".into()));
        assert_eq!(find("./here"), Ok("./here".into()));
        let absolute = here.join("third/tool");
        assert_eq!(find(absolute.to_str().unwrap()), Ok(absolute));
        for (name, words) in [
            ("", "name is empty"),
            ("frob", "no program frob in the folders of PATH (first:second::third)"),
            ("./frob", "no program ./frob (there is no such folder or file)"),
            ("./second", "./second is a folder"),
            ("folder", "first/folder is a folder"),
            ("first/tool", "`chmod +x first/tool`"),
        ] {
            let said = find(name).unwrap_err();
            assert!(said.contains(words), "{name}: {said}");
        }
    }

    fn asked<'a>(command: &'a [OsString], with: &'a [PathBuf], here: &'a Path) -> Asked<'a> {
        let terminal = Some(OsStr::new("dumb"));
        let (path, login) = (OsStr::new("/usr/bin:/bin"), Login::No);
        Asked { command, with, path, here, terminal, login }
    }

    fn note<'n>(packed: &'n Packed, name: &str) -> &'n [u8] {
        &packed.notes.iter().find(|note| note.name == name).unwrap().bytes
    }

    /// A script needs its interpreter, and that its loader and libraries.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn a_script_comes_with_all_that_reads_it() {
        let (_keep, here) = folder();
        script(&here.join("one"), "#!two word\n");
        script(&here.join("two"), "#! /bin/sh\n");
        write(here.join("data"), "").unwrap();
        let command = ["./one", "", "b c"].map(OsString::from);
        let with = [PathBuf::from("data")];
        let packed = gather(asked(&command, &with, &here), &ProgressBar::hidden()).unwrap();
        assert_eq!(listed(&packed.entries, &here), ["data", "one", "two"]);
        let has = |path: &Path| packed.entries.contains_key(path);
        // The same path leads to the same file, over links that are packed (P1).
        let leads = |path: &str| {
            let end = Path::new(path).canonicalize().unwrap();
            matches!(packed.entries.get(&end), Some(Entry::File(..)))
        };
        assert!(leads("/bin/sh"));
        let sh = Path::new("/bin/sh").canonicalize().unwrap();
        if let Ok(Kind::Elf { interpreter: Some(loader), .. }) = loader::kind(&sh) {
            assert!(leads(loader.to_str().unwrap()));
            let libraries = loader::libraries(&loader, &sh).unwrap();
            assert!(libraries.iter().all(|library| leads(library.to_str().unwrap())));
        }
        // No entry lies in a folder that is not there, or behind a link.
        for path in packed.entries.keys() {
            let above = path.ancestors().skip(1).filter(|above| *above != Path::new("/"));
            for above in above {
                assert!(has(above), "{} is missing", above.display());
                assert!(matches!(packed.entries[above], Entry::Folder(_)), "{}", above.display());
            }
        }
        assert_eq!(note(&packed, ".foliant/arguments"), b"./one\0\0b c\0");
        let program = note(&packed, ".foliant/program");
        assert_eq!(OsStr::from_bytes(program), here.join("one").as_os_str());
        assert_eq!(note(&packed, ".foliant/folder"), here.as_os_str().as_bytes());
        let environment = [
            "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin\0",
            "HOME=/root\0LANG=C.UTF-8\0TERM=dumb\0",
        ];
        assert_eq!(note(&packed, ".foliant/environment"), environment.concat().as_bytes());
        let names: Vec<_> = packed.notes.iter().map(|note| note.name).collect();
        let order = ["arguments", "program", "environment", "folder"];
        assert_eq!(names, order.map(|name| format!(".foliant/{name}")));
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let (_keep, here) = folder();
        script(&here.join("text"), "echo");
        script(&here.join("lost"), "#!/no/interpreter\n");
        script(&here.join("self"), "#!./self\n");
        script(&here.join("env"), "#!/usr/bin/env -S A=b no-such-program x\n");
        script(&here.join("line\nend"), "#!/bin/sh\n");
        for (name, words) in [
            ("./text", "neither an ELF file for x86-64 nor a script"),
            ("./lost", "lost names the interpreter /no/interpreter, which is not to be had"),
            ("./self", "script of a script, 5 deep"),
            ("./env", "no program no-such-program in the folders of PATH (/usr/local/bin:"),
            ("./line\nend", "line end in its name"),
        ] {
            let command = [OsString::from(name)];
            let packed = gather(asked(&command, &[], &here), &ProgressBar::hidden());
            let said = packed.unwrap_err().sentence();
            assert!(said.contains(words), "{name}: {said}");
        }
        assert_eq!(searched(Path::new("/usr/bin/env"), "-S A=b tool x"), Some("tool"));
        assert_eq!(searched(Path::new("/usr/bin/env"), "-S"), None);
        assert_eq!(searched(Path::new("/bin/sh"), "-e tool"), None);
    }

    #[test]
    fn what_is_too_large_is_refused_with_the_memory_that_it_takes() {
        let none = Entries::new();
        let mib = |n: u64| Bytes::new(n << 20);
        assert!(fits(&none, mib(1 << 20), None).is_ok());
        assert!(fits(&none, mib(32), Some(mib(64))).is_ok());
        let over = Bytes::new(mib(32).get() + 1);
        let said = fits(&none, over, Some(mib(64))).unwrap_err().sentence();
        assert!(said.contains("are 33 MiB") && said.contains("--memory 64m"), "{said}");
        assert!(said.contains("--memory 65m or more"), "{said}");
        let entry = Entry::File(Mode::new(0o644), FILE_LIMIT);
        let large = Entries::from([(PathBuf::from("/data"), entry)]);
        let said = fits(&large, mib(1), None).unwrap_err().sentence();
        assert!(said.contains("/data has 4g") && said.contains("--memory"), "{said}");
    }
}
