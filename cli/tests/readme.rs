//! The terminal sessions of the README and of the measurements are true.

use std::process::Command;

const DOCUMENTS: [&str; 2] =
    [include_str!("../../README.md"), include_str!("../../docs/measurements.md")];

/// The commands of the sessions, each with what it prints.
fn sessions() -> Vec<(String, String)> {
    let blocks = DOCUMENTS.into_iter().flat_map(|text| text.split("```console\n").skip(1));
    let session = |block: &str| {
        let block = block.split("```").next().unwrap_or_default();
        let (command, output) = block.split_once('\n').expect("a command and its output");
        (command.trim_start_matches("$ ").to_owned(), output.trim_end().to_owned())
    };
    blocks.map(session).collect()
}

/// What the command prints where nothing was calibrated.
fn foliant(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    command.env("XDG_DATA_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-data"));
    let output = command.env_remove("COLUMNS").args(words).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// The text without the digest of a simulated run, which every change of its steps changes.
fn without_digest(text: &str) -> String {
    let Some((head, tail)) = text.split_once("digest ") else { return text.to_owned() };
    let rest = tail.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    assert_eq!(tail.len() - rest.len(), 16, "a digest has sixteen digits: {text}");
    format!("{head}{rest}")
}

#[test]
fn the_sessions_print_what_they_show() {
    let sessions = sessions();
    assert_eq!(sessions.len(), 3);
    for (command, expect) in sessions {
        let got = match command.as_str() {
            "cargo run --release" => foliant(&[]),
            command => {
                let words = command.strip_prefix("foliant ").expect("a session of the command");
                foliant(&words.split(' ').collect::<Vec<_>>())
            }
        };
        let (got, expect) = (without_digest(&got), without_digest(&expect));
        assert_eq!(got, expect, "the documents show something else for `{command}`");
    }
}
