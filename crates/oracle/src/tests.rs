//! Some sequences agree, and planted mistakes are found and shrunk.

use super::*;

/// Both sides, or nothing where this host cannot be asked.
fn oracle(planted: Planted) -> Option<Oracle> {
    match Oracle::planted(planted) {
        Ok(oracle) => Some(oracle),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

#[test]
fn some_sequences_agree() {
    let Some(oracle) = oracle(Planted::Nothing) else { return };
    let hunted = oracle.hunt(4000, 1, 100).unwrap();
    if let Some((seed, calls, difference)) = hunted.found {
        panic!("seed {seed}\n{}", program(&calls, &difference));
    }
    let Compared { calls, bytes, pages, areas } = hunted.compared;
    assert!(calls >= 4000 && bytes > 10_000 && pages > 10_000 && areas > 10_000);
}

/// What is found of a planted mistake.
fn found(planted: Planted) -> Option<(Vec<Call>, Difference)> {
    let hunted = oracle(planted)?.hunt(20_000, 7, 100).unwrap();
    let (_, calls, difference) = hunted.found.expect("a planted mistake is found");
    Some((calls, difference))
}

#[test]
fn a_hole_that_is_ignored_is_found_and_shrunk() {
    let Some((calls, difference)) = found(Planted::HoleIgnored) else { return };
    let last = calls.last().unwrap();
    assert_eq!((last.name, difference.what), (Name::Mprotect, "answers"), "{difference}");
    assert!(calls.len() <= 2, "{calls:?}");
    assert_eq!(difference.at + 1, calls.len());
    assert!(difference.host.starts_with("-12 ") && difference.ours == "0x0", "{difference}");
}

#[test]
fn a_store_that_is_lost_is_found_and_shrunk() {
    let Some((calls, difference)) = found(Planted::StoreLost) else { return };
    // It is seen where it was made, or in another mapping of its file.
    assert_eq!(calls.last().unwrap().name, Name::Store);
    assert!(difference.what.starts_with("pages"), "{difference}");
    assert!(calls.len() <= 3, "{calls:?}");
}

#[test]
fn a_seed_is_a_sequence() {
    assert_eq!(sequence(3, 50), sequence(3, 50));
    assert_ne!(sequence(3, 50), sequence(4, 50));
    let all = sequence(5, 20_000);
    for name in Name::ALL {
        assert!(all.iter().any(|call| call.name == name), "{name} is never drawn");
    }
}

#[test]
fn a_difference_is_a_program() {
    let arena = Arg::Addr(Base::Arena, 0);
    let word = Arg::Word;
    let calls = [
        Call::new(0, Name::Mmap, &[arena, word(4096), word(3), word(0x32), word(0), word(0)]),
        Call::new(1, Name::Fork, &[]),
        Call::new(1, Name::Store, &[arena, word(7)]),
        Call::new(0, Name::Mprotect, &[arena, word(8192), word(1)]),
    ];
    let (host, ours) = (Answer::Word((-12i64) as u64).to_string(), Answer::Word(0).to_string());
    let difference = Difference { at: 3, what: "answers", host, ours };
    let text = program(&calls, &difference);
    assert!(text.starts_with(
        "/*\n * after call 3: answers differ\n *   Linux    -12 (Cannot allocate memory (os error 12))\n *   Foliant  0x0\n */\n"
    ));
    let made = text.split_once("processes = 1;\n").unwrap().1;
    assert_eq!(
        made,
        "\t/* 0 */ if (me == 0 % processes) say(\"mmap\", syscall(SYS_mmap, arena + 0x0ul, 0x1000ul, 0x3ul, 0x32ul, 0x0ul, 0x0ul));\n\
         \t/* 1 */ if (me == 1 % processes) { if (!fork()) me = processes; else wait(0); } processes++;\n\
         \t/* 2 */ if (me == 1 % processes) { if (!sigsetjmp(back, 1)) *(volatile unsigned char *)(arena + 0x0ul) = 0x7ul; }\n\
         \t/* 3 */ if (me == 0 % processes) say(\"mprotect\", syscall(SYS_mprotect, arena + 0x0ul, 0x2000ul, 0x1ul));\n\
         \tmaps();\n\treturn 0;\n}\n"
    );
}
