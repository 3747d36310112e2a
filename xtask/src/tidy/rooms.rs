//! The rooms of the manager: which of them use which, as the imports say and as ARCHITECTURE.md
//! draws it.

use std::collections::BTreeSet;

/// The rooms of `crates/mm/src`, in dependency order: each may use those before it.
const ROOMS: [&str; 18] = [
    "sync", "frame", "folio", "table", "stock", "ranges", "flush", "zero", "memmap", "pool",
    "vmap", "rmap", "space", "fault", "split", "compact", "manager", "adapt",
];

/// Pairs that look up on purpose, with the reason.
const ALLOWED: [(&str, &str, &str); 2] = [
    ("stock", "zero", "a record is cleared before it is handed out; zero counts in the stock"),
    ("space", "fault", "the process switch is a word of the space's record"),
];

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
            for other in line.split("crate::").skip(1).filter_map(|rest| number(word(rest))) {
                self.pairs.insert((place, other));
                if other > place && !is_allowed(place, other) {
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
                    true if *other > place => "▲",
                    true => "●",
                };
                row += &format!(" {:^width$}", mark, width = ROOMS[*other].len().max(6));
            }
            drawn += &format!("\n{}", row.trim_end());
        }
        drawn + "\n"
    }
}

/// The room of the manager that a file belongs to, tests and models left out.
pub(super) fn room_of(name: &str) -> Option<&str> {
    let inside = name.strip_prefix("crates/mm/src/")?;
    let (room, file) = inside.split_once('/')?;
    let is_test = ["test", "model", "stress"].iter().any(|word| file.contains(word));
    (!is_test).then_some(room)
}
fn number(room: &str) -> Option<usize> {
    ROOMS.iter().position(|other| *other == room)
}
fn is_allowed(place: usize, other: usize) -> bool {
    ALLOWED.iter().any(|(from, to, _)| (*from, *to) == (ROOMS[place], ROOMS[other]))
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
            ("crates/mm/src/table/lock.rs", "use crate::frame::Claim;\nuse crate::sync::Inside;"),
            ("crates/mm/src/space/record.rs", "fn f(s: crate::fault::ProcessSwitch) {}"),
            ("crates/mm/src/table/tests/map.rs", "use crate::space::Area;"),
            ("crates/sim/src/walk.rs", "use crate::space::Area;"),
            ("crates/mm/src/frame/mod.rs", "// as crate::space does"),
        ]);
        assert_eq!(findings, Vec::<String>::new());
        assert_eq!(uses.pairs, [(3, 0), (3, 1), (11, 12)].into());
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
