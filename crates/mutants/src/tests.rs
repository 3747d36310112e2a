//! Each kind of mutant on a few lines, and what is left alone.

use crate::boot::Boot;
use crate::choice::{Shard, is_changed, lines, sample};
use crate::find::{Pairs, find, pairs};
use crate::known;
use crate::mutant::{Edit, Kind, Mutant};
use crate::report::Report;
use crate::switch::Switch;
use crate::verdict::{Fate, Verdict};
use crate::weave::weave;
use std::collections::BTreeMap;
use std::fs;

fn mutants(text: &str) -> Vec<Mutant> {
    let tree = syn::parse_file(text).expect("it is Rust");
    let mut known = Pairs::new();
    pairs(&tree, &mut known);
    find("crates/mm/src/zero/plan.rs", "zero", text, &tree, &known)
}

/// The changed lines of the text's mutants of the kinds asked for.
fn found(text: &str, asked: &[Kind]) -> Vec<String> {
    let is_asked = |mutant: &&Mutant| asked.contains(&mutant.kind);
    mutants(text).iter().filter(is_asked).map(|mutant| mutant.name.after.clone()).collect()
}

#[track_caller]
fn check(text: &str, kind: Kind, after: &[&str]) {
    assert_eq!(found(text, &[kind]), after, "{kind}");
}

#[test]
fn each_kind_is_found() {
    use Kind::*;
    check("fn f() { let x = a <= b; }", Comparison, &["fn f() { let x = a < b; }"]);
    check("fn f() { let x = a && b; }", Logic, &["fn f() { let x = a || b; }"]);
    check(
        "fn f() { x -= a + b; }",
        Arithmetic,
        &["fn f() { x += a + b; }", "fn f() { x -= a - b; }"],
    );
    check("fn f() { g(a << b) }", Bits, &["fn f() { g(a >> b) }"]);
    check("fn f() { g(!a) }", Negation, &["fn f() { g(a) }"]);
    let forced = ["fn f() { if true { g() } }", "fn f() { if false { g() } }"];
    check("fn f() { if a { g() } }", Condition, &forced);
    check("fn f() { while a { g() } }", Condition, &["fn f() { while false { g() } }"]);
    check("fn f() { g(); x = 1; }", Statement, &["fn f() { x = 1; }", "fn f() { g(); }"]);
    check("fn f() { a; loop { g() } }", Statement, &["fn f() { a; loop { } }"]);
    check(
        "fn f() -> bool { a }",
        Body,
        &["fn f() -> bool { return true; a }", "fn f() -> bool { return false; a }"],
    );
    check("fn f() -> Option<u8> { a }", Body, &["fn f() -> Option<u8> { return None; a }"]);
    check("fn f() -> Result<(), E> { a }", Body, &["fn f() -> Result<(), E> { return Ok(()); a }"]);
    check(
        "fn f() { match a { 1 => b, _ => c } }",
        Arm,
        &["fn f() { match a { (no such arm) _ => c } }"],
    );
    check(
        "fn f() { g(0x1f, 0u8, true) }",
        Literal,
        &[
            "fn f() { g(0x20, 0u8, true) }",
            "fn f() { g(0x1f, 1u8, true) }",
            "fn f() { g(0x1f, 0u8, false) }",
        ],
    );
    check("fn f() { g(a..b) }", Range, &["fn f() { g(a..b + 1) }"]);
    check("fn f() { a.min(b) }", Method, &["fn f() { a.max(b) }"]);
    check("enum E { A, B } fn f() { g(E::A) }", Variant, &["enum E { A, B } fn f() { g(E::B) }"]);
}

#[test]
fn what_is_no_code_of_the_manager_is_left_alone() {
    let nothing = |text: &str| assert_eq!(mutants(text).len(), 0, "{text}");
    nothing("#[cfg(test)] mod tests { fn f() -> bool { a < b } }");
    nothing("#[cfg(all(loom, test))] fn f() -> bool { a < b }");
    nothing("#[cfg(not(feature = \"verify\"))] fn f() -> bool { a < b }");
    nothing("#[test] fn f() { a(); }");
    nothing("const N: usize = 1 + 2; static S: u8 = 1;");
    nothing("impl fmt::Display for A { fn fmt(&self) -> R { self.0 < 1 } }");
    nothing("fn f() -> ! { assert!(a < b); let x: [u8; 4] = [a; 4]; }");
    nothing("fn f() {}");
    nothing("fn f(a: u8) { unreachable!(\"{a} is in use\") }");
    nothing("fn f(a: u8, b: u8) { let _ = (a, b); }");
    assert_eq!(
        found("fn f() -> bool { true }", &[Kind::Body]),
        ["fn f() -> bool { return false; true }"]
    );
}

#[test]
fn a_condition_with_a_pattern_is_forced_without_it() {
    check(
        "fn f() { if a && let Some(b) = c { g() } }",
        Kind::Condition,
        &[
            "fn f() { if true && let Some(b) = c { g() } }",
            "fn f() { if false && let Some(b) = c { g() } }",
        ],
    );
    check("fn f() { if a && let Some(b) = c { g() } }", Kind::Logic, &[]);
    check(
        "fn f() { match a { b if c => d, _ => e } }",
        Kind::Condition,
        &[
            "fn f() { match a { b if true => d, _ => e } }",
            "fn f() { match a { b if false => d, _ => e } }",
        ],
    );
}

/// The text with all mutants in it.
fn woven(text: &str) -> String {
    let mutants = mutants(text);
    let edits: Vec<(u32, &Edit)> =
        (1..).zip(mutants.iter().map(|mutant| &mutant.edits[0])).collect();
    weave(text, &edits).text
}

#[test]
fn mutants_nest_and_lines_stay() {
    let text = "fn f() -> u8 {\n    if !a && // why\n        b < 1 {\n        g(a + b * c);\n    }\n    d\n}\n";
    let woven = woven(text);
    syn::parse_file(&woven).unwrap_or_else(|why| panic!("{why}: {woven}"));
    assert_eq!(woven.lines().count(), text.lines().count());
    assert!(woven.contains("// why\n"), "{woven}");
    assert!(woven.contains(") { a } else { !a })"), "{woven}");
}

/// Each added text with a switch has the number of its own mutant, and lies in its region.
#[test]
fn a_place_is_where_its_text_is() {
    let text = "fn f() { g(a < b); h(c + d); }";
    let mutants = mutants(text);
    let edits: Vec<(u32, &Edit)> =
        (1..).zip(mutants.iter().map(|mutant| &mutant.edits[0])).collect();
    let woven = weave(text, &edits);
    for ((n, edit), place) in edits.iter().zip(&woven.places) {
        for added in
            place.added.iter().filter(|added| woven.text[(*added).clone()].contains("mutants::"))
        {
            assert!(woven.text[added.clone()].contains(&n.to_string()), "{edit:?}");
        }
        assert!(
            place
                .added
                .iter()
                .all(|added| place.region.start <= added.start && added.end <= place.region.end)
        );
    }
}

#[test]
fn the_list_is_read_and_strangers_are_told() {
    let mutants = mutants("fn f() -> bool { a || b }");
    let rows: Vec<String> = mutants.iter().map(|mutant| known::row(&mutant.name)).collect();
    let list = known::read(&format!("# Mutants\n\n| file |\n|---|\n{}\n", rows.join("\n")))
        .expect("rows of its own");
    assert_eq!(list.len(), mutants.len());
    assert_eq!(known::strangers(&list, &mutants), Vec::<&crate::Name>::new());
    assert_eq!(known::strangers(&list, &mutants[1..]).len(), 1);
    assert!(known::read("| `a` | `b` | why |").unwrap_err().contains("3 cells"));
    assert!(known::read("| `a` | `b` | `c` | `d` | |").unwrap_err().contains("no reason"));
}

#[test]
fn a_sample_has_some_of_each_room_and_a_seed_says_which() {
    let one = mutants("fn f() { g(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) }");
    let other =
        one.iter().cycle().take(one.len() * 9).map(|m| Mutant { room: "vmap".into(), ..m.clone() });
    let all: Vec<Mutant> = one.iter().cloned().chain(other).collect();
    let candidates: Vec<usize> = (0..all.len()).collect();
    let chosen = sample(&all, &candidates, 30, 1);
    let of = |room: &str| chosen.iter().filter(|n| all[**n].room == room).count();
    assert_eq!(chosen.len(), 30);
    assert!(of("zero") >= 10 && of("vmap") >= 10);
    assert_eq!(chosen, sample(&all, &candidates, 30, 1));
    assert_ne!(chosen, sample(&all, &candidates, 30, 2));
}

#[test]
fn a_part_is_one_of_all() {
    assert_eq!("2/4".parse(), Ok(Shard { part: 2, of: 4 }));
    for bad in ["0/4", "5/4", "1", "a/b"] {
        assert!(bad.parse::<Shard>().unwrap_err().contains("no part"));
    }
}

#[test]
fn lines_of_a_diff_say_which_mutants_are_asked() {
    let diff = "--- a/x.rs\n+++ b/crates/mm/src/zero/plan.rs\n@@ -1 +1,2 @@ fn f()\n+a\n+b\n@@ -9,2 +10,0 @@\n-c\n";
    let changed = lines(diff);
    let text = "fn f() {\n    g(1);\n    g(2);\n}\n";
    let asked = mutants(text).into_iter().filter(|mutant| is_changed(mutant, &changed));
    let lines: Vec<usize> = asked.map(|mutant| mutant.line).collect();
    assert_eq!(lines, [1, 2, 2], "the body, the call and its number");
}

#[test]
fn a_room_in_which_too_little_is_noticed_is_named() {
    let mutant = mutants("fn f() { g(1) }").remove(0);
    let verdict = |room: &str, fate: Fate| Verdict {
        mutant: Mutant { room: room.into(), ..mutant.clone() },
        fate,
        seconds: 1.0,
    };
    let killed = Fate::Killed { program: "p".into(), test: "t".into(), ran_away: false };
    let mut verdicts = vec![verdict("zero", killed.clone()); 19];
    verdicts.push(verdict("zero", Fate::Survived { tests: Vec::new(), asked: 0 }));
    verdicts.push(verdict("vmap", Fate::Equivalent { why: "w".into() }));
    let report =
        |verdicts: &[Verdict]| Report { viable: BTreeMap::new(), verdicts: verdicts.to_vec() };
    assert_eq!(report(&verdicts).too_few(95.0, 90.0), Vec::<String>::new(), "19 of 20 is 95");
    verdicts.extend(vec![verdict("flush", killed); 8]);
    verdicts.push(verdict("flush", Fate::Survived { tests: Vec::new(), asked: 0 }));
    let named = [
        "93.1 % were noticed of all rooms, and not 95 %",
        "88.9 % were noticed of flush, and not 90 %",
    ];
    assert_eq!(report(&verdicts).too_few(95.0, 90.0), named);
}

#[test]
fn a_boot_gets_its_number_and_tells_what_it_reached() {
    let folder = std::env::temp_dir().join(format!("foliant-mutants-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let [image, notes] = ["kernel", "notes"].map(|name| folder.join(name));
    let mut bytes = vec![9; 32];
    bytes.extend(b"foliant.mutants.");
    bytes.extend([0; 4 + 3]);
    fs::write(&image, &bytes).unwrap();
    fs::write(&notes, [1, 0, 0]).unwrap();
    let argument = |boot: &Boot, behind: &str| {
        let command = boot.command("laws").unwrap();
        let words: Vec<String> =
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let at = words.iter().position(|word| word == behind).expect("it is there");
        words[at + 1].clone()
    };

    let boot = Boot::new(&image, Switch::On(0x107)).unwrap();
    let booted = argument(&boot, "-kernel");
    assert_eq!(fs::read(&booted).unwrap()[48..], [7, 1, 0, 0, 0, 0, 0]);
    drop(boot);
    assert!(fs::read(&booted).is_err(), "it goes with the boot");

    let boot = Boot::new(&image, Switch::Note(&notes)).unwrap();
    assert_eq!(fs::read(argument(&boot, "-kernel")).unwrap()[48..52], [0xff; 4]);
    let memory = argument(&boot, "-object");
    let memory = memory.rsplit('=').next().unwrap();
    *bytes.last_mut().unwrap() = 1;
    fs::write(memory, &bytes).unwrap();
    boot.note(&notes).unwrap();
    assert_eq!(fs::read(&notes).unwrap(), [1, 0, 1]);
    drop(boot);

    fs::write(&image, [0; 64]).unwrap();
    assert!(Boot::new(&image, Switch::On(1)).err().is_some_and(|why| why.contains("no switch")));
    fs::remove_dir_all(&folder).unwrap();
}
