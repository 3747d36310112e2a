//! What is typed, what is shown of it, and what a program reads.

use super::Ours;
use crate::{Discipline, LONG, SHORT, SIZE, Screen, Settings};
use linux_raw_sys::general::{
    B4000000, BOTHER, ECHO, ICANON, ICRNL, ISIG, SIGINT, SIGQUIT, SIGTSTP, VMIN, VTIME,
};

fn check(typed: &str, shown: &str, read: &[&str]) {
    let mut ours = Ours::new(Settings::USUAL);
    for piece in typed.split('|') {
        ours.receive(piece.as_bytes());
    }
    assert_eq!(String::from_utf8(ours.shown()).unwrap(), shown, "{typed:?}");
    let lines: Vec<_> = core::iter::from_fn(|| ours.read(100)).collect();
    let lines: Vec<_> = lines.iter().map(|line| core::str::from_utf8(line).unwrap()).collect();
    assert_eq!(lines, read, "{typed:?}");
}

#[test]
fn lines_are_edited() {
    check("ls\r", "ls\r\n", &["ls\n"]);
    check("lx\x7fs\r", "lx\x08 \x08s\r\n", &["ls\n"]);
    check("\x7fa\n", "a\r\n", &["a\n"]);
    check("one two\x17\n", "one two\x08 \x08\x08 \x08\x08 \x08\r\n", &["one \n"]);
    check("ab\x15c\n", "ab\x08 \x08\x08 \x08c\r\n", &["c\n"]);
    check("a\tb\x7f\x7f\n", "a\tb\x08 \x08\x08\x08\x08\x08\x08\x08\x08\r\n", &["a\n"]);
    check("\x16\x03\n", "^\x08^C\r\n", &["\x03\n"]);
    check("ab\x12c\n", "ab^R\r\nabc\r\n", &["abc\n"]);
    // The end of the input ends a line, and alone it is one without bytes.
    check("ab\x04\x04", "ab", &["ab", ""]);
    check("not yet", "not yet", &[]);
}

#[test]
fn a_read_gets_a_line_at_most() {
    let mut ours = Ours::new(Settings::USUAL);
    ours.receive(b"first\nsecond\nab\x04");
    assert_eq!(ours.discipline.count(), 15);
    assert_eq!(ours.read(3).unwrap(), b"fir");
    assert_eq!(ours.read(100).unwrap(), b"st\n");
    assert_eq!(ours.read(7).unwrap(), b"second\n");
    // What ends just there has no other end behind it.
    assert_eq!(ours.read(2).unwrap(), b"ab");
    assert_eq!(ours.read(2), None);
}

#[test]
fn signals_take_away_what_waits() {
    for (byte, number) in [(3, SIGINT), (28, SIGQUIT), (26, SIGTSTP)] {
        let mut ours = Ours::new(Settings::USUAL);
        ours.receive(b"line\nab");
        assert_eq!(ours.shown(), b"line\r\nab");
        let received = ours.receive(&[b'c', byte]);
        assert_eq!(received.signals().collect::<Vec<_>>(), [number]);
        assert_eq!(ours.shown(), [b'^', byte ^ 0x40], "what was not shown yet is not");
        assert_eq!((ours.read(10), ours.shown.flushes), (None, 1));
    }
}

#[test]
fn nothing_is_shown_until_it_goes_on() {
    let mut ours = Ours::new(Settings::USUAL);
    ours.receive(b"\x13ab");
    assert_eq!((ours.write(b"out"), ours.shown()), (0, vec![]));
    ours.receive(b"\x11");
    assert_eq!(ours.shown(), b"ab");
    assert_eq!((ours.write(b"out\n"), ours.shown()), (4, b"out\r\n".to_vec()));
}

/// L1.
#[test]
fn a_line_that_is_too_long_can_end() {
    let mut ours = Ours::new(Settings::USUAL);
    let long = vec![b'a'; SIZE + 100];
    assert_eq!(ours.receive(&long).taken, long.len());
    assert_eq!(ours.receive(b"\n").taken, 1);
    let line = ours.read(2 * SIZE).unwrap();
    assert_eq!((line.len(), line.last()), (SIZE, Some(&b'\n')));
    // Behind a line that nobody reads only so many fit.
    ours.receive(b"line\n");
    let taken = ours.receive(&long).taken;
    assert!((SIZE - 10..SIZE).contains(&taken), "{taken}");
    assert_eq!(ours.read(100).unwrap(), b"line\n");
    assert_eq!(ours.receive(b"b").taken, 1);
    // Without lines all that waits is read at once.
    let plain = Settings { local: 0, ..Settings::USUAL };
    let mut ours = Ours::new(plain);
    assert_eq!(ours.receive(&long).taken, SIZE - 1);
    assert_eq!(ours.read(2 * SIZE).unwrap().len(), SIZE - 1);
}

/// L2: what waits to be echoed is bounded as well.
#[test]
fn nothing_grows() {
    struct Full;
    impl Screen for Full {
        fn room(&self) -> usize {
            0
        }
        fn show(&mut self, _: &[u8]) {
            panic!("there is no room");
        }
        fn flush(&mut self) {}
    }
    let mut discipline = Discipline::new(Settings::USUAL).unwrap();
    let (bytes, echoes) = (discipline.bytes.capacity(), discipline.echoes.capacity());
    for _ in 0..100 {
        discipline.receive(&[b'a'; 200], &mut Full);
        assert_eq!(discipline.write(b"out", &mut Full), 0);
    }
    assert_eq!((discipline.bytes.capacity(), discipline.echoes.capacity()), (bytes, echoes));
}

#[test]
fn settings_are_as_programs_have_them() {
    let bytes = Settings::USUAL.bytes();
    assert_eq!(Settings::of_bytes(&bytes), Settings::USUAL);
    assert_eq!(bytes.len(), LONG);
    // What `stty raw` writes, without speeds.
    let mut raw = Settings { local: 0, input: 0, ..Settings::USUAL };
    raw.chars[VMIN as usize] = 1;
    let short = Settings::of_bytes(&raw.bytes()[..SHORT]);
    assert_eq!(short, Settings { speeds: [0; 2], ..raw });
    assert_eq!(short.kept(), raw);
    let speed = |control: u32, told: [u32; 2]| {
        let mut asked = raw;
        (asked.control, asked.speeds) = (control, told);
        asked.kept().speeds
    };
    assert_eq!(speed(B4000000, [0; 2]), [4_000_000; 2]);
    assert_eq!(speed(BOTHER, [7, 12_345]), [12_345; 2]);
    assert_eq!(speed(BOTHER | BOTHER << 16, [7, 12_345]), [7, 12_345]);
    assert_eq!(speed(u32::MAX, [1, 2])[1], 4_000_000);
    assert_eq!(speed(0x100e | 0x4000, [1, 2]), [3_500_000; 2]);
    assert_eq!(Settings::of_bytes(&[]).chars, [0; 19]);
}

#[test]
fn what_waits_is_kept_when_lines_are_wanted_no_more() {
    let mut ours = Ours::new(Settings::USUAL);
    ours.receive(b"ab");
    assert!(!ours.discipline.has());
    let mut raw = Settings { local: ECHO | ISIG, input: ICRNL, ..Settings::USUAL };
    ours.set(raw);
    assert_eq!(ours.read(1).unwrap(), b"a");
    // And all of it is a line when they are wanted again.
    ours.set(Settings { local: raw.local | ICANON, ..raw });
    assert_eq!((ours.read(9).unwrap(), ours.read(9)), (b"b".to_vec(), None));
    // A program that waits for three bytes is told of three, unless it waits for a time as well.
    raw.chars[VMIN as usize] = 3;
    ours.set(raw);
    ours.receive(b"12");
    assert!(ours.discipline.has() && !ours.discipline.is_ready());
    raw.chars[VTIME as usize] = 1;
    ours.set(raw);
    assert!(ours.discipline.is_ready());
}
