//! Comments: lines that fit beside each other on a screen, sentences whose subject is named, and
//! key letters that are explained above the struct that uses them.

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

/// Looks at the structs of a file: letters of locks at their fields are explained above them.
pub(super) fn keys(name: &str, text: &str, findings: &mut Vec<String>) {
    let mut above = String::new();
    let mut inside: Option<(String, String)> = None;
    for line in text.lines() {
        let words = line.trim_start();
        if let Some((what, key)) = &inside {
            for letter in words.split_once("//").into_iter().flat_map(|(_, said)| letters(said)) {
                if !letters(key).any(|known| known == letter) {
                    findings.push(format!(
                        "{name}: {what} has the key letter [{letter}]: explain it above the struct, behind \"Key:\""
                    ));
                }
            }
            if line.starts_with('}') {
                inside = None;
            }
        } else if words.starts_with("///") {
            above.push_str(words);
        } else if let (Some(what), true) = (struct_named(line), line.ends_with('{')) {
            let key = above.split_once("Key:").map_or("", |(_, key)| key);
            inside = Some((what.to_string(), key.to_string()));
            above.clear();
        } else if !words.starts_with("#[") {
            above.clear();
        }
    }
}

/// The name of the struct that begins here.
fn struct_named(line: &str) -> Option<&str> {
    let rest = match line.strip_prefix("pub") {
        Some(rest) => rest.trim_start_matches(|c| c != ' ').trim_start(),
        None => line,
    };
    rest.strip_prefix("struct ")?.split(|c: char| !c.is_alphanumeric()).next()
}

/// Letters in brackets.
fn letters(text: &str) -> impl Iterator<Item = char> {
    let bytes = text.as_bytes();
    bytes.windows(3).filter_map(|window| match window {
        [b'[', letter @ b'a'..=b'z', b']'] => Some(char::from(*letter)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_letters_are_explained_above_the_struct() {
        let text = |key: &str| {
            format!(
                "/// A pool.\n///\n/// {key}\n#[derive(Debug)]\npub(crate) struct Pool<'m> {{\n    lock: Spin,\n    /// What is free. [l]\n    free: u64, // [a], counted\n    a: [u8; 3],\n}}\nstruct Next {{\n    word: u64, // [l]\n}}\n/// Key: [x]\nfn other() {{}}\nstruct Bare {{\n    word: u64, // [x]\n}}\n"
            )
        };
        let found = |key: &str| {
            let mut findings = Vec::new();
            keys("crates/mm/src/pool/mod.rs", &text(key), &mut findings);
            findings
                .iter()
                .map(|text| text.split(':').nth(1).unwrap().to_string())
                .collect::<Vec<_>>()
        };
        let [next, bare] = [" Next has the key letter [l]", " Bare has the key letter [x]"];
        assert_eq!(found("Key: [l] `lock` held; [a] atomic."), [next, bare]);
        assert_eq!(found("Key: [l] `lock` held."), [" Pool has the key letter [a]", next, bare]);
        assert_eq!(found("[l] and [a]").len(), 4, "they stand behind the word");
    }

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
