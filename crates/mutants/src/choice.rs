//! Which mutants are tried.

use crate::mutant::Mutant;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// How many of each room are in a sample, if the room has them.
const ROOM_LEAST: usize = 10;

/// A part of several equal ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// Which part, from one.
    pub part: usize,
    /// Of how many.
    pub of: usize,
}

impl std::str::FromStr for Shard {
    type Err = String;
    fn from_str(text: &str) -> Result<Shard, String> {
        let number = |text: &str| text.parse::<usize>().ok();
        let shard = text.split_once('/').and_then(|(part, of)| Some((number(part)?, number(of)?)));
        match shard {
            Some((part, of)) if (1..=of).contains(&part) => Ok(Shard { part, of }),
            _ => Err(format!("'{text}' is no part: 1/4 to 4/4 are the four quarters")),
        }
    }
}

/// `count` of the `candidates`, by `seed`: some of each room first, then the others in order. Each
/// has a place in the order that depends on itself alone, so where a candidate is gone another one
/// comes in, and nothing else changes.
pub(crate) fn sample(
    mutants: &[Mutant],
    candidates: &[usize],
    count: usize,
    seed: u64,
) -> Vec<usize> {
    let place = |n: &usize| {
        let mut hasher = DefaultHasher::new();
        (seed, &mutants[*n].name, mutants[*n].kind).hash(&mut hasher);
        hasher.finish()
    };
    let mut shuffled = candidates.to_vec();
    shuffled.sort_by_cached_key(place);
    let mut by_room = BTreeMap::<&str, Vec<usize>>::new();
    for n in &shuffled {
        by_room.entry(&mutants[*n].room).or_default().push(*n);
    }
    let first = by_room.values().flat_map(|of| of.iter().take(ROOM_LEAST)).copied();
    let mut chosen: BTreeSet<usize> = first.take(count).collect();
    for n in shuffled {
        if chosen.len() < count {
            chosen.insert(n);
        }
    }
    chosen.into_iter().collect()
}

/// Lines of each file that differ from where the branch left `main`; on `main` itself, from the
/// last commit.
pub(crate) fn changed(root: &Path) -> Result<BTreeMap<String, Vec<Range<usize>>>, String> {
    let base = git(root, &["merge-base", "main", "HEAD"]).unwrap_or_else(|_| "HEAD".into());
    Ok(lines(&git(root, &["diff", "--unified=0", "--no-ext-diff", base.trim()])?))
}

/// Whether a mutant is on lines that changed.
pub(crate) fn is_changed(mutant: &Mutant, changed: &BTreeMap<String, Vec<Range<usize>>>) -> bool {
    let lines = changed.get(&mutant.name.file).into_iter().flatten();
    lines.into_iter().any(|lines| lines.start <= mutant.last_line && mutant.line < lines.end)
}

fn git(root: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(args).current_dir(root).output();
    let output = output.map_err(|why| format!("git does not start: {why}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            Err(format!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr)))
        }
    }
}

/// The new lines that a diff without context names.
pub(crate) fn lines(diff: &str) -> BTreeMap<String, Vec<Range<usize>>> {
    let mut files = BTreeMap::<String, Vec<Range<usize>>>::new();
    let mut file = String::new();
    for line in diff.lines() {
        if let Some(path) = line.strip_prefix("+++ b/") {
            path.clone_into(&mut file);
        } else if let Some(rest) = line.strip_prefix("@@ -")
            && let Some((_, new)) = rest.split_once(" +")
            && let Some(new) = new.split(' ').next()
        {
            let (start, count) = new.split_once(',').unwrap_or((new, "1"));
            let (start, count): (usize, usize) =
                (start.parse().unwrap_or(0), count.parse().unwrap_or(0));
            files.entry(file.clone()).or_default().push(start..start + count);
        }
    }
    files
}
