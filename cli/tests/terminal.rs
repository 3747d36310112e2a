//! What is shown fits the terminal, and what is wrong with a command line is said where it helps.

use nix::pty::{Winsize, openpty};
use std::collections::BTreeMap;
use std::fs::{File, read_dir, read_to_string};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The command where nothing was calibrated and the environment says nothing of a terminal, in the
/// folder of the shipped recordings.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    // A continuous integration that says so, by CI, gets colours on a dumb terminal too.
    for name in ["COLUMNS", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        command.env_remove(name);
    }
    command.env("TERM", "xterm-256color");
    command.env("XDG_DATA_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-data"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces"));
    command.args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Standard output of what succeeds.
fn shown(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// In a pipe that is said to be so wide.
fn within(args: &[&str], columns: usize) -> String {
    let mut command = command(args);
    command.env("COLUMNS", columns.to_string());
    shown(command)
}

/// On a terminal that is so wide, and whose rows nobody has told, as after `stty cols 80`.
fn on_terminal(mut command: Command, columns: u16) -> String {
    let size = Winsize { ws_row: 0, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(&size, None).unwrap();
    let mut child = command.stdout(pty.slave).stderr(Stdio::null()).spawn().unwrap();
    drop(command); // and with it the last end that somebody could write to
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    let mut terminal = File::from(pty.master);
    // The end of a terminal is an error.
    while let Ok(n @ 1..) = terminal.read(&mut part) {
        bytes.extend_from_slice(&part[..n]);
    }
    assert!(child.wait().unwrap().success());
    text(&bytes).replace("\r\n", "\n")
}

/// What begins a colour.
const ESC: char = '\u{1b}';

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or_default()
}

/// The commands that the help lists.
fn commands() -> Vec<String> {
    let help = within(&["--help"], 200);
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let lines = list.lines().take_while(|line| !line.is_empty());
    let begin = lines.filter_map(|line| line.strip_prefix("  ")).filter(|l| !l.starts_with(' '));
    let names = begin.filter_map(|line| line.split_whitespace().next().map(str::to_owned));
    let names: Vec<String> = names.filter(|name| name != "help").collect();
    assert!(names.len() > 10 && names.iter().any(|name| name == "completions"), "{names:?}");
    names
}

fn refused(args: &[&str]) -> String {
    let Output { status, stdout, stderr } = command(args).output().unwrap();
    assert_eq!((status.code(), stdout.len()), (Some(2), 0), "{args:?}");
    text(&stderr)
}

/// How often each word is there.
fn words(text: &str) -> BTreeMap<&str, usize> {
    let mut words = BTreeMap::new();
    text.split_whitespace().for_each(|word| *words.entry(word).or_default() += 1);
    words
}

#[test]
fn help_is_wrapped_and_lists_exit_codes() {
    let commands = commands();
    let each = commands.iter().map(|name| vec![name.as_str(), "--help"]);
    for args in each.chain([vec!["--help"], vec!["-h"], vec!["lab", "-h"]]) {
        let help = within(&args, 80);
        assert!(widest(&help) <= 80, "{args:?}: {} columns\n{help}", widest(&help));
        assert!(help.contains("Exit codes:"), "{args:?}: {help}");
        assert!(widest(&shown(command(&args))) <= 100, "{args:?}");
    }
    for (name, code) in [("boot", "124  no verdict in time"), ("record", "--for"), ("sim", "1  ")] {
        assert!(within(&[name, "--help"], 80).contains(code), "{name}: {code}");
    }
}

#[test]
fn what_was_meant_is_suggested() {
    for (args, meant) in [
        (&["reply", "cc.trace"][..], "'replay'"),
        (&["replay", "--polcy", "4k", "cc.trace"], "'--policy'"),
        (&["lab", "--trust"], "'--truth'"),
        (&["boot", "--machine", "q3"], "'q35'"),
        (&["completions", "bas"], "'bash'"),
    ] {
        assert!(refused(args).contains(meant), "{args:?}: {}", refused(args));
    }
}

#[test]
fn a_wrong_line_is_answered_with_its_commands_usage_and_help() {
    for name in commands() {
        let said = refused(&[&name, "--no-such-option"]);
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].contains(&format!("see `foliant {name} --help`")), "{said}");
        assert!(lines[1].starts_with(&format!("Usage: foliant {name}")), "{said}");
    }
    let said = refused(&["record"]);
    for usage in ["record [OPTIONS] [--] <COMMAND>...", "record [OPTIONS] --pid <PID>"] {
        assert!(said.contains(usage), "{said}");
    }
    let said = refused(&["frobnicate"]);
    assert!(said.contains("see `foliant --help`\nUsage: foliant [COMMAND]"), "{said}");
    // A value that is wrong says nothing of the line.
    let said = refused(&["replay", "--cpus", "0", "cc.trace"]);
    assert!(said.ends_with(" from 1 to 1024\n") && said.lines().count() == 1, "{said}");
}

#[test]
fn completions_and_man_pages_know_every_command() {
    let commands = commands();
    for shell in ["bash", "zsh", "fish"] {
        let script = shown(command(&["completions", shell]));
        for name in &commands {
            assert!(script.contains(name.as_str()), "{shell}: {name}");
        }
        assert!(script.contains("--fragment") || script.contains("-l fragment"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let man = folder.path().join("new/man1");
    shown(command(&["man", man.to_str().unwrap()]));
    assert_eq!(read_dir(&man).unwrap().count(), commands.len() + 1);
    let page = |name: &str| read_to_string(man.join(name)).unwrap();
    for name in &commands {
        let heading = page(&format!("foliant-{name}.1"));
        assert!(heading.contains(&format!("foliant\\-{name}")), "{heading}");
        assert!(page("foliant.1").contains(&format!("foliant\\-{name}")), "{name}");
    }
    assert!(page("foliant-boot.1").contains("Exit codes"));
    std::fs::write(folder.path().join("file"), "").unwrap();
    let there = folder.path().join("file");
    assert!(refused(&["man", there.to_str().unwrap()]).contains("name another folder"));
}

/// What is quick and has a table.
const TABLES: [&[&str]; 12] = [
    &[],
    &["replay", "git.trace"],
    &["replay", "python.trace"],
    &["replay", "sort.trace"],
    &["replay", "python.trace", "--fragment", "80"],
    &["trace", "cc.trace"],
    &["trace", "git.trace"],
    &["trace", "python.trace"],
    &["trace", "sort.trace"],
    &["lab", "--list"],
    &["lab", "flush", "pages=8"],
    &["sim", "--plants"],
];

#[test]
fn nothing_is_lost_where_the_terminal_is_narrow() {
    for args in TABLES {
        let whole = shown(command(args));
        assert!(!whole.contains(ESC), "{args:?}: a pipe has no colours");
        for columns in [80, 40] {
            let narrow = within(args, columns);
            assert!(widest(&narrow) <= columns, "{args:?} at {columns}:\n{narrow}");
            let there = words(&narrow);
            let squeezed: String = narrow.split_whitespace().collect();
            for (word, n) in words(&whole) {
                let found = there.get(word).copied().unwrap_or_default();
                // A path that is too long for a line goes on in the next one.
                let is_broken = columns == 40 && word.len() > 24 && squeezed.contains(word);
                assert!(
                    found >= n || is_broken,
                    "{args:?} at {columns}: {word:?} is lost:\n{narrow}"
                );
            }
        }
    }
}

/// Times are others each time, so that only the widths are the same.
#[test]
fn what_is_measured_fits_too() {
    for args in [
        &["lab", "hugetlb", "pages=8", "--cpus", "2"][..],
        &["lab", "vmalloc", "--table-size", "4m", "--device", "2m", "--sizes", "3"],
        &["lab", "zero", "--total", "10m", "--rounds", "1", "--explain"],
        &["lab", "thpscale", "workers=1,3", "turns=4", "--cpus", "3"],
        &["lab", "compare", "pages=512", "rows=sizes,calls", "--cpus", "2"],
        &["sim", "--seed", "7", "--cpus", "2", "--steps", "60"],
    ] {
        for columns in [80, 40] {
            let narrow = within(args, columns);
            assert!(widest(&narrow) <= columns, "{args:?} at {columns}:\n{narrow}");
        }
    }
}

/// Where what a parameter means begins, in all lines of all scenarios.
#[test]
fn the_list_of_scenarios_keeps_its_columns() {
    let list = within(&["lab", "--list"], 80);
    let lines = list.lines().filter(|line| line.starts_with("  "));
    let mut n = 0;
    for line in lines {
        let beside = line.get(24..).is_some_and(|text| !text.starts_with(' '));
        let is_alone = line.len() > 22 && line[2..].split_whitespace().count() == 1;
        assert!(beside && line[..24].ends_with(' ') || is_alone, "{line:?}\n{list}");
        n += 1;
    }
    assert!(n > 25, "{list}");
}

#[test]
fn a_terminal_is_asked_how_wide_it_is_and_gets_colours_unless_told_otherwise() {
    let replay = ["replay", "sort.trace"];
    let coloured = on_terminal(command(&replay), 80);
    assert!(coloured.contains(ESC), "the best row has a colour");
    let plain = |name: &str, value: &str| {
        let mut command = command(&replay);
        command.env(name, value);
        on_terminal(command, 80)
    };
    let told = plain("NO_COLOR", "1");
    assert_eq!(told, within(&replay, 80));
    assert_eq!(plain("TERM", "dumb"), told);
    let help = on_terminal(command(&["replay", "--help"]), 80);
    assert!(help.contains(ESC), "{help}");
    let lines = within(&["replay", "--help"], 80).lines().count();
    assert_eq!(help.lines().count(), lines, "it is wrapped there as at 80 columns in a pipe");
    // A pipe has none, whatever is written to it.
    for args in [&["--help"][..], &["replay", "--help"], &["lab", "--list", "--no"], &["replay"]] {
        let Output { stdout, stderr, .. } = command(args).output().unwrap();
        assert!(!text(&stdout).contains(ESC) && !text(&stderr).contains(ESC), "{args:?}");
    }
    let mut forced = command(&replay);
    forced.env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1");
    assert!(!shown(forced).contains(ESC));
}
