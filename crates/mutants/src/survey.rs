//! All mutants of the sources, in the order of files and lines: which files are asked, and what
//! room each is in.

use crate::built::is_built;
use crate::find::{Pairs, find, pairs};
use crate::mutant::Mutant;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use syn::Item;

/// Where the rooms are: a crate's first file; the part of the crate that is asked; and the room
/// that this part is, or none where its folders are rooms.
const PLACES: [(&str, &str, Option<&str>); 8] = [
    ("crates/claim/src/lib.rs", "crates/claim/src/", Some("claim")),
    ("crates/folio/src/lib.rs", "crates/folio/src/", Some("folio")),
    ("crates/machine/src/lib.rs", "crates/machine/src/", Some("machine")),
    ("crates/mm/src/lib.rs", "crates/mm/src/", None),
    ("crates/sync/src/lib.rs", "crates/sync/src/", Some("sync")),
    ("crates/table/src/lib.rs", "crates/table/src/", Some("table")),
    ("crates/sim/src/lib.rs", "crates/sim/src/check/", Some("check")),
    ("crates/x86/src/lib.rs", "crates/x86/src/", Some("x86")),
];

/// The laws are not asked: they are tests that a machine is put to, and that each can fail the
/// machines in the simulator's tests show.
const LAWS: &str = "crates/machine/src/laws/";

/// The sources, and what can go wrong in them.
#[derive(Debug)]
pub(crate) struct Survey {
    /// Text of each file that is asked, by path from the root.
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) mutants: Vec<Mutant>,
}

impl Survey {
    /// Reads the workspace at `root`.
    pub(crate) fn read(root: &Path) -> Result<Survey, String> {
        let mut trees = BTreeMap::new();
        for (first, _, _) in PLACES {
            modules(root, first, true, &mut trees)?;
        }
        let mut known = Pairs::new();
        trees.values().for_each(|(_, tree)| pairs(tree, &mut known));
        let mut survey = Survey { files: BTreeMap::new(), mutants: Vec::new() };
        for (path, (text, tree)) in trees {
            if let Some(room) = room(&path) {
                survey.mutants.extend(find(&path, &room, &text, &tree, &known));
                survey.files.insert(path, text);
            }
        }
        Ok(survey)
    }

    /// The mutants of a file.
    pub(crate) fn of_file(&self, path: &str) -> Vec<usize> {
        let here = |n: &usize| self.mutants[*n].name.file == path;
        (0..self.mutants.len()).filter(here).collect()
    }
}

/// The room that a file is in.
pub(crate) fn room(path: &str) -> Option<String> {
    if path.starts_with(LAWS) {
        return None;
    }
    let (_, folder, room) = PLACES.iter().find(|(_, folder, _)| path.starts_with(folder))?;
    match room {
        Some(room) => Some((*room).to_owned()),
        None => path[folder.len()..].split_once('/').map(|(room, _)| room.to_owned()),
    }
}

/// A file and the modules that it names, as far as they are built.
fn modules(
    root: &Path,
    path: &str,
    opens_folder: bool,
    trees: &mut BTreeMap<String, (String, syn::File)>,
) -> Result<(), String> {
    let text = fs::read_to_string(root.join(path)).map_err(|why| format!("{path}: {why}"))?;
    let tree = syn::parse_file(&text).map_err(|why| format!("{path}: {why}"))?;
    if !is_built(&tree.attrs) {
        return Ok(());
    }
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let folder = match opens_folder {
        true => folder.to_owned(),
        false => format!("{folder}/{}", file.trim_end_matches(".rs")),
    };
    for item in &tree.items {
        let Item::Mod(item) = item else { continue };
        if item.content.is_some() || !is_built(&item.attrs) {
            continue;
        }
        let beside = format!("{folder}/{}.rs", item.ident);
        let inside = format!("{folder}/{}/mod.rs", item.ident);
        match root.join(&beside).exists() {
            true => modules(root, &beside, false, trees)?,
            false => modules(root, &inside, true, trees)?,
        }
    }
    trees.insert(path.to_owned(), (text, tree));
    Ok(())
}
