//! One word, one meaning: no two rooms of the manager define a type of the same name.

use super::rooms::room_of;
use std::collections::BTreeMap;

/// What begins the definition of a type, behind its visibility.
const DEFINES: [&str; 5] = ["struct ", "enum ", "trait ", "type ", "union "];

/// The types defined so far: the room and the file of each.
#[derive(Default)]
pub(super) struct Types {
    defined: BTreeMap<String, (String, String)>,
}

impl Types {
    /// Notes what a file defines, at its top level.
    pub(super) fn note(&mut self, name: &str, text: &str, findings: &mut Vec<String>) {
        let Some(room) = room_of(name) else { return };
        for defined in text.lines().filter_map(defined) {
            let here = (room.to_string(), name.to_string());
            let (other, file) =
                self.defined.entry(defined.to_string()).or_insert_with(|| here.clone());
            if *other != here.0 {
                findings.push(format!(
                    "{name}: {room} defines a type {defined}, and so does {file}: call it by what it is here"
                ));
            }
        }
    }
}

/// The name of the type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let rest = DEFINES.iter().find_map(|word| line.strip_prefix(word))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_belongs_to_one_room() {
        let mut types = Types::default();
        let mut noted = |name: &str, text: &str| {
            let mut findings = Vec::new();
            types.note(name, text, &mut findings);
            findings
        };
        let inside =
            "pub(super) struct Run<'a> {\n    type Item = u8;\n}\nfn f() {\n    struct Here;\n}";
        assert_eq!(noted("crates/table/src/harvest.rs", inside), [""; 0]);
        assert_eq!(noted("crates/table/src/sweep.rs", "enum Run {}"), [""; 0], "the same room");
        assert_eq!(noted("crates/mm/src/zero/tests.rs", "enum Run {}"), [""; 0], "a test");
        assert_eq!(noted("crates/sim/src/walk.rs", "enum Run {}"), [""; 0], "another crate");
        let other =
            "enum Here {}\nimpl Iterator for Here {\n    type Item = u8;\n}\npub type Run = u64;";
        let findings = noted("crates/mm/src/zero/run.rs", other);
        let said = "crates/mm/src/zero/run.rs: zero defines a type Run, and so does \
                    crates/table/src/harvest.rs: call it by what it is here";
        assert_eq!(findings, [said]);
    }
}
