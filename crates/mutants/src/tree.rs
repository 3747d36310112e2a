//! A copy of the workspace with mutants in it, below `target/mutants`. A file is written only where
//! it differs, so that what did not change is not built again.

use crate::survey::Survey;
use crate::weave::{Place, weave};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates that programs of tests are made of.
const CRATES: [&str; 11] = [
    "units", "machine", "sync", "claim", "folio", "table", "mm", "sim", "x86", "history", "explore",
];
/// What the kernel is made of besides; it is in a workspace of its own.
const KERNEL: [&str; 2] = ["kernel", "crates/lab"];
/// The switch, which becomes a module of the lowest crate.
const SWITCH: &str = include_str!("../switch/mutants.rs");

/// The part of its text that says how many numbers there are.
const COUNT: &str = "const COUNT: usize = 1";
const COUNT_IS: &str = "const COUNT: usize = ";

/// The copy.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    copy: PathBuf,
}

/// Where each mutant of a file stands in the copy.
pub(crate) type Places = BTreeMap<String, Vec<(usize, Place)>>;

impl Tree {
    pub(crate) fn new(root: &Path, copy: PathBuf) -> Tree {
        Tree { root: root.to_owned(), copy }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.copy
    }

    /// Writes the copy. `forms` says for each mutant which of its edits is taken, if any.
    pub(crate) fn write(&self, survey: &Survey, forms: &[Option<usize>]) -> Result<Places, String> {
        let mut files = BTreeMap::new();
        for name in CRATES {
            self.collect(&PathBuf::from("crates").join(name), &mut files)?;
        }
        for name in KERNEL {
            self.collect(&PathBuf::from(name), &mut files)?;
        }
        for name in ["Cargo.lock", "rust-toolchain.toml"] {
            files.insert(PathBuf::from(name), read(&self.root.join(name))?);
        }
        files.insert("Cargo.toml".into(), workspace(&self.root)?.into_bytes());
        let units = PathBuf::from("crates/units/src");
        let switch = SWITCH.replace(COUNT, &format!("{COUNT_IS}{}", survey.mutants.len() + 1));
        files.insert(units.join("mutants.rs"), switch.into());
        switched(files.entry(units.join("lib.rs")).or_default())?;

        let mut places = Places::new();
        for (path, text) in &survey.files {
            let woven: Vec<(usize, &_)> = survey
                .of_file(path)
                .into_iter()
                .filter_map(|n| Some((n, &survey.mutants[n].edits[forms[n]?])))
                .collect();
            let edits: Vec<_> = woven.iter().map(|(n, edit)| (number(*n), *edit)).collect();
            let out = weave(text, &edits);
            places.insert(path.clone(), woven.iter().map(|(n, _)| *n).zip(out.places).collect());
            files.insert(path.into(), out.text.into_bytes());
        }
        self.put(&files)?;
        Ok(places)
    }

    fn collect(&self, folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<(), String> {
        let of = self.root.join(folder);
        let entries = fs::read_dir(&of).map_err(|why| format!("{}: {why}", of.display()))?;
        for entry in entries.flatten() {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                if entry.file_name() != "target" {
                    self.collect(&path, files)?;
                }
            } else {
                files.insert(path, read(&entry.path())?);
            }
        }
        Ok(())
    }

    /// Makes the copy hold these files, and no others.
    fn put(&self, files: &BTreeMap<PathBuf, Vec<u8>>) -> Result<(), String> {
        let failed = |path: &Path, why: std::io::Error| format!("{}: {why}", path.display());
        let wanted: BTreeSet<PathBuf> = files.keys().map(|path| self.copy.join(path)).collect();
        remove_others(&self.copy, &wanted);
        for (path, content) in files {
            let to = self.copy.join(path);
            if fs::read(&to).is_ok_and(|there| there == *content) {
                continue;
            }
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder).map_err(|why| failed(folder, why))?;
            }
            fs::write(&to, content).map_err(|why| failed(&to, why))?;
        }
        Ok(())
    }
}

/// The number that a mutant is switched on by; zero is none.
pub(crate) fn number(n: usize) -> u32 {
    n as u32 + 1
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|why| format!("{}: {why}", path.display()))
}

fn remove_others(folder: &Path, wanted: &BTreeSet<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            remove_others(&path, wanted);
        } else if !wanted.contains(&path)
            && path.file_name().is_some_and(|name| name != "Cargo.lock")
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// The workspace's manifest with the crates that are copied.
fn workspace(root: &Path) -> Result<String, String> {
    let text = String::from_utf8_lossy(&read(&root.join("Cargo.toml"))?).into_owned();
    let members = CRATES.map(|name| format!("\"crates/{name}\"")).join(", ");
    let line = |line: &str| match line.split_once(" = ") {
        Some(("members", _)) => format!("members = [{members}]\n"),
        Some(("exclude" | "default-members", _)) => String::new(),
        _ => format!("{line}\n"),
    };
    Ok(text.lines().map(line).collect())
}

/// The lowest crate gets the switch, which needs the environment.
fn switched(lib: &mut Vec<u8>) -> Result<(), String> {
    let text = String::from_utf8_lossy(lib).replace("#![forbid(unsafe_code)]", "");
    let place = text.find("\nmod ").ok_or("crates/units/src/lib.rs names no module")?;
    let (head, tail) = text.split_at(place);
    *lib =
        format!("{head}\n#[cfg(not(foliant_kernel))]\nextern crate std;\npub mod mutants;{tail}")
            .into_bytes();
    Ok(())
}
