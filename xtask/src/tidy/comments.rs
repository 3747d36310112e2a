//! Comments: lines that fit beside each other on a screen, and sentences whose subject is named.

use super::rooms::room_of;

/// Columns of a comment line, as `rustfmt.toml` has it for code. Drawings and tables may be wider.
const WIDTH: usize = 100;

/// What stands in the place of a subject.
const NOBODY: [&str; 3] = ["who", "whoever", "whom"];

/// Looks at the comment lines of a file.
pub(super) fn read(name: &str, text: &str, findings: &mut Vec<String>) {
    let is_manager = room_of(name).is_some();
    let mut is_drawing = false;
    for (number, line) in text.lines().enumerate() {
        let Some(words) = line.trim_start().strip_prefix("//") else {
            is_drawing = false;
            continue;
        };
        let words = words.trim_start_matches(['/', '!']).trim();
        if words.starts_with("```") {
            is_drawing = !is_drawing;
        }
        if is_drawing || words.starts_with('|') {
            continue;
        }
        let columns = line.chars().count();
        if columns > WIDTH {
            findings.push(format!(
                "{name}:{}: a comment of {columns} columns: wrap it at {WIDTH}",
                number + 1
            ));
        }
        let mut each = words.split(|c: char| !c.is_alphanumeric());
        let nobody = each.find(|word| NOBODY.contains(&word.to_lowercase().as_str()));
        if let (true, Some(word)) = (is_manager, nobody) {
            findings.push(format!(
                "{name}:{}: \"{word}\" is nobody: name the holder, the walker, the flusher, or the one it is",
                number + 1
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        read(name, text, &mut findings);
        findings
    }

    #[test]
    fn comments_end_at_column_100_but_for_drawings_and_tables() {
        let wide = "é".repeat(94);
        let text = format!(
            "//! {wide} é\n    /// {wide}\n//! ```text\n//! {wide} ───▶\n//! ```\n//! | {wide} |\nlet s = \"{wide} //\";\n// {wide} wide"
        );
        let name = "crates/sim/src/walk.rs";
        let said =
            [2, 8].map(|line| format!("{name}:{line}: a comment of 102 columns: wrap it at 100"));
        assert_eq!(found(name, &text), said);
        let open = format!("//! ```\nfn f() {{}}\n// {wide} wide");
        assert_eq!(found(name, &open).len(), 1, "a fence ends with its comment");
    }

    #[test]
    fn the_manager_names_the_one_that_acts() {
        let text = "// Whoever looks\n// for who has it\n// the holder, whose page it is\n";
        let said = found("crates/mm/src/zero/run.rs", text);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("run.rs:1: \"Whoever\" is nobody"), "{said:?}");
        assert_eq!(found("crates/sim/src/walk.rs", text), [""; 0], "another crate");
    }
}
