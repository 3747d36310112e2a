//! The rooms of the manager: which of them use which, as the imports say and as ARCHITECTURE.md
//! draws it.

use std::collections::BTreeSet;

/// The rooms, in dependency order: each may use those before it. They are folders of
/// `crates/mm/src`, or crates.
const ROOMS: [&str; 20] = [
    "sync", "claim", "frame", "folio", "table", "stock", "ranges", "flush", "zero", "memmap",
    "pool", "vmap", "rmap", "space", "object", "fault", "split", "compact", "manager", "adapt",
];

/// The rooms that are crates of their own.
const CRATES: [&str; 4] = ["sync", "claim", "folio", "table"];

/// Where the drawing stands, and between which lines.
pub(super) const MAP: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- rooms -->\n```text\n";
const END: &str = "```\n";

/// Which room uses which.
#[derive(Default)]
pub(super) struct Uses {
    pairs: BTreeSet<(usize, usize)>,
}

impl Uses {
    /// Notes what a file uses. A room uses only those before it.
    pub(super) fn note(&mut self, name: &str, text: &str, findings: &mut Vec<String>) {
        let Some(room) = room_of(name) else { return };
        let Some(place) = number(room) else {
            findings.push(format!(
                "{name}: the room {room} is unknown; give it a place in xtask/src/tidy/rooms.rs"
            ));
            return;
        };
        for (nth, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            let of_crates = line.split("foliant_").skip(1);
            for other in line.split("crate::").skip(1).chain(of_crates).filter_map(used) {
                self.pairs.insert((place, other));
                if other > place {
                    findings.push(format!(
                        "{name}:{}: {room} uses {}, which comes after it: return the need instead of calling up",
                        nth + 1,
                        ROOMS[other]
                    ));
                }
            }
        }
    }
    /// The drawing in the document says the same.
    pub(super) fn drawn(&self, document: &str, findings: &mut Vec<String>) {
        let found = document.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
        let drawn = self.draw();
        if found.is_none_or(|(found, _)| found != drawn) {
            findings.push(format!(
                "{MAP} draws other uses than the imports say. Behind `<!-- rooms -->` stands:\n```text\n{drawn}```"
            ));
        }
    }

    /// A row for each room, a column for each that somebody uses.
    fn draw(&self) -> String {
        let used: BTreeSet<usize> = self.pairs.iter().map(|(_, other)| *other).collect();
        let mut drawn = String::from("          uses");
        used.iter().for_each(|other| drawn += &format!(" {:^6}", ROOMS[*other]));
        for place in (0..ROOMS.len()).rev() {
            let mut row = format!("{:<14}", format!("   {}", ROOMS[place]));
            for other in &used {
                let mark = match self.pairs.contains(&(place, *other)) {
                    _ if place == *other => "╲",
                    false => "",
                    true => "●",
                };
                row += &format!(" {:^width$}", mark, width = ROOMS[*other].len().max(6));
            }
            drawn += &format!("\n{}", row.trim_end());
        }
        drawn + "\n"
    }
}

/// The room of the manager that a file belongs to, and the file's path in it.
pub(super) fn place_of(name: &str) -> Option<(&str, &str)> {
    let inside = name.strip_prefix("crates/")?;
    match inside.strip_prefix("mm/src/") {
        Some(inside) => inside.split_once('/'),
        None => inside.split_once("/src/").filter(|(room, _)| CRATES.contains(room)),
    }
}
/// The same, tests and models left out.
pub(super) fn room_of(name: &str) -> Option<&str> {
    let (room, file) = place_of(name)?;
    let is_test = ["test", "model", "stress"].iter().any(|word| file.contains(word));
    (!is_test).then_some(room)
}
/// The room that a path begins with.
fn used(path: &str) -> Option<usize> {
    number(word(path))
}
fn number(room: &str) -> Option<usize> {
    ROOMS.iter().position(|other| *other == room)
}
/// The name that a text begins with.
fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(files: &[(&str, &str)]) -> (Uses, Vec<String>) {
        let (mut uses, mut findings) = (Uses::default(), Vec::new());
        for (name, text) in files {
            uses.note(name, text, &mut findings);
        }
        (uses, findings)
    }

    #[test]
    fn a_room_uses_those_before_it() {
        let (uses, findings) = noted(&[
            ("crates/table/src/lock.rs", "use foliant_claim::Claim;\nuse foliant_sync::Inside;"),
            ("crates/mm/src/frame/mod.rs", "pub use foliant_claim::Claim;"),
            ("crates/mm/src/fault/policy.rs", "fn f(s: crate::space::ProcessSwitch) {}"),
            ("crates/table/src/tests/map.rs", "use crate::space::Area;"),
            ("crates/sim/src/walk.rs", "use crate::space::Area;"),
            ("crates/mm/src/frame/mod.rs", "// as crate::space does"),
        ]);
        assert_eq!(findings, Vec::<String>::new());
        assert_eq!(uses.pairs, [(2, 1), (4, 0), (4, 1), (15, 13)].into());
        let (_, findings) = noted(&[
            ("crates/mm/src/frame/mod.rs", "use crate::table::Entry;"),
            ("crates/mm/src/attic/mod.rs", ""),
        ]);
        assert_eq!(findings.len(), 2, "{findings:?}");
    }
    #[test]
    fn what_is_drawn_is_what_is_used() {
        let (uses, mut findings) =
            noted(&[("crates/mm/src/frame/mod.rs", "use crate::sync::Ordering;")]);
        let row = |name: &str| {
            let drawn = uses.draw();
            drawn.lines().find(|line| line.trim_start().starts_with(name)).map(str::to_string)
        };
        assert_eq!(row("frame").unwrap().matches('●').count(), 1);
        assert_eq!(row("folio").unwrap().matches('●').count(), 0);
        uses.drawn(&format!("# Map\n{BEGIN}{}{END}", uses.draw()), &mut findings);
        assert_eq!(findings, Vec::<String>::new());
        uses.drawn("# Map", &mut findings);
        uses.drawn(&format!("{BEGIN}{END}"), &mut findings);
        assert_eq!(findings.len(), 2);
    }
}
