//! What is typed, what is in the line then, and what a terminal shows of it.

use crate::line::ROOM;
use crate::{COLUMNS, Prompt, Read};
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

const SIGN: &str = "> ";
const NAMES: [&str; 5] = ["map", "maps", "madvise", "help", "hugepages"];

/// Commands; and behind `map` their words.
fn words(before: &str, each: &mut dyn FnMut(&str)) {
    match before.trim() {
        "" => NAMES.iter().for_each(|name| each(name)),
        "map" => ["hugepage", "nohugepage", "cpus="].iter().for_each(|word| each(word)),
        _ => {}
    }
}

/// A terminal, as far as the prompt makes use of one.
#[derive(Default)]
struct Screen {
    rows: Vec<Vec<char>>,
    column: usize,
    bells: usize,
}

impl Screen {
    fn new() -> Screen {
        Screen { rows: vec![Vec::new()], ..Screen::default() }
    }
    fn take(&mut self, text: &str) {
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let row = self.rows.last_mut().unwrap();
            match c {
                '\r' => self.column = 0,
                '\n' => {
                    self.rows.push(Vec::new());
                    self.column = 0;
                }
                '\x07' => self.bells += 1,
                '\x1b' => {
                    assert_eq!(chars.next(), Some('['));
                    let rest = chars.as_str();
                    let digits =
                        rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                    let number = rest[..digits].parse().unwrap_or(1);
                    chars = rest[digits..].chars();
                    match chars.next().unwrap() {
                        'K' => row.truncate(self.column),
                        'D' => self.column = self.column.checked_sub(number).unwrap(),
                        'H' => self.column = 0,
                        'J' => self.rows = vec![Vec::new()],
                        other => panic!("ESC [ {other}"),
                    }
                }
                c => {
                    assert!((' '..='~').contains(&c), "{c:?}");
                    assert!(self.column < COLUMNS - 1, "the row is left");
                    row.resize(row.len().max(self.column + 1), ' ');
                    row[self.column] = c;
                    self.column += 1;
                }
            }
        }
    }
    fn row(&self) -> String {
        self.rows.last().unwrap().iter().collect()
    }
}

/// A prompt and a terminal before it.
struct Seat {
    prompt: Prompt,
    screen: Screen,
}

impl Seat {
    fn new() -> Seat {
        let mut seat = Seat { prompt: Prompt::new(SIGN), screen: Screen::new() };
        seat.begin();
        seat
    }
    fn begin(&mut self) {
        let mut shown = String::new();
        self.prompt.begin(&mut shown);
        self.screen.take(&shown);
    }
    /// Types; a line that is given begins the next one.
    fn type_in(&mut self, typed: &str) -> Option<(Read, String)> {
        let mut last = None;
        for byte in typed.bytes() {
            let mut shown = String::new();
            let read = self.prompt.byte(byte, &words, &mut shown);
            self.screen.take(&shown);
            if let Some(read) = read {
                last = Some((read, self.prompt.text().to_string()));
                self.begin();
            }
        }
        last
    }
}

/// What is typed, and the line that the terminal shows then, with the cursor as `|`.
fn check(typed: &str, expect: &str) {
    let mut seat = Seat::new();
    seat.type_in(typed);
    let mut row: Vec<char> = seat.screen.row().chars().collect();
    row.insert(seat.screen.column, '|');
    let row: String = row.into_iter().collect();
    assert_eq!(row.strip_prefix(SIGN), Some(expect), "{typed:?}");
}

#[test]
fn keys_edit_the_line() {
    check("abc", "abc|");
    for left in ["\x1b[D", "\x1bOD", "\x02"] {
        check(&format!("abc{left}x"), "abx|c");
        check(&format!("{left}a"), "a|");
    }
    check("abc\x02\x02\x1b[Cx\x06\x06y", "abxcy|");
    for home in ["\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~", "\x01"] {
        check(&format!("abc{home}x"), "x|abc");
    }
    for end in ["\x1b[F", "\x1bOF", "\x1b[4~", "\x1b[8~", "\x05"] {
        check(&format!("abc\x01{end}x"), "abcx|");
    }
    check("abc\x7f", "ab|");
    check("abc\x02\x08", "a|c");
    check("\x7f", "|");
    check("abc\x01\x1b[3~", "|bc");
    check("abc\x01\x04", "|bc");
    check("abc\x1b[3~", "abc|");
    check("abc def\x02\x15", "|f");
    check("abc def\x02\x0b", "abc de|");
    check("abc  def \x17x", "abc  x|");
    check("abc\x02\x17", "|c");
    check("abc\x02\x0c", "ab|c");
}

#[test]
fn a_sequence_that_is_no_key_types_nothing() {
    for sequence in [
        "\x1b[5~",
        "\x1b[1;5C",
        "\x1b[15~",
        "\x1bx",
        "\x1b[Z",
        "\x1b[?25h",
        "\x1b[999~",
        "\x1b\x1b[Z",
    ] {
        check(&format!("a{sequence}b"), "ab|");
    }
    check("a\u{e9}\x00b", "ab|");
}

#[test]
fn a_line_ends_as_terminals_and_pipes_end_it() {
    let line = |text: &str| Some((Read::Line, text.to_string()));
    for end in ["\r", "\n", "\r\n"] {
        assert_eq!(Seat::new().type_in(&format!("abc{end}")), line("abc"));
    }
    // The line feed belongs to the return before it, and is no empty line.
    let mut seat = Seat::new();
    seat.type_in("a\r\nb");
    assert_eq!(seat.prompt.text(), "b");
    // The cursor may be anywhere.
    assert_eq!(Seat::new().type_in("abc\x01\r"), line("abc"));
}

#[test]
fn control_c_drops_and_control_d_ends_an_empty_line() {
    let mut seat = Seat::new();
    assert_eq!(seat.type_in("abc\x03"), Some((Read::Dropped, "abc".to_string())));
    assert_eq!(seat.screen.rows[0].iter().collect::<String>(), "> abc^C");
    assert_eq!(seat.type_in("d\x7f\x04"), Some((Read::End, String::new())));
    assert_eq!(seat.type_in("d\x04"), None);
}

#[test]
fn older_lines_come_back_and_stay_what_they_were() {
    let (up, down) = ("\x1b[A", "\x1b[B");
    let of = |typed: &str, expect: &str| check(&format!("one\rtwo\rtwo\r  \r{typed}"), expect);
    of(up, "two|");
    of(&format!("{up}{up}"), "one|");
    of(&format!("{up}{up}{up}"), "one|");
    of(&format!("draft{up}{up}{down}"), "two|");
    of(&format!("draft{up}{up}{down}{down}"), "draft|");
    of(&format!("draft{down}"), "draft|");
    // An edited copy is given; what it was made of is unchanged.
    of(&format!("{up}{up}!\r{up}{up}{up}"), "one|");
    of(&format!("{up}{up}!\r{up}"), "one!|");
    // A line that was dropped is none, and the next one begins at the newest again.
    of(&format!("{up}{up}\x03{up}"), "two|");
    // The oldest goes.
    let mut seat = Seat::new();
    (0..20).for_each(|n| assert!(seat.type_in(&format!("line {n}\r")).is_some()));
    seat.type_in(&up.repeat(20));
    assert_eq!(seat.prompt.text(), "line 4");
}

#[test]
fn tab_completes_as_far_as_words_agree() {
    check("he\t", "help |");
    check("hu\tx", "hugepages x|");
    check("m\tp\t", "map|");
    check("map n\t", "map nohugepage |");
    check("map c\t", "map cpus=|");
    check("frob n\t", "frob n|");
    check("x\t", "x|");
    check("map \x01\x06\x06\x06\x0bd\t", "mapd|");
    // In the middle of a line: what is behind the cursor stays there.
    check("he 4m\x01\x06\x06\t", "help | 4m");
}

#[test]
fn tab_lists_what_a_word_may_become() {
    let mut seat = Seat::new();
    seat.type_in("ma\t");
    let rows: Vec<String> = seat.screen.rows.iter().map(|row| row.iter().collect()).collect();
    assert_eq!(rows, ["> ma", "map  maps  madvise  ", "> ma"]);
    assert_eq!((seat.screen.column, seat.screen.bells), (4, 0));
    seat.type_in("x\t");
    assert_eq!(seat.screen.bells, 1);
}

#[test]
fn a_full_line_takes_no_more() {
    let mut seat = Seat::new();
    seat.type_in(&"x".repeat(ROOM));
    assert_eq!((seat.prompt.text().len(), seat.screen.bells), (ROOM, 0));
    seat.type_in("y\x01z\x05");
    assert_eq!(seat.prompt.text(), "x".repeat(ROOM));
    assert_eq!(seat.screen.bells, 2);
    // Nor does completion.
    let mut seat = Seat::new();
    seat.type_in(&format!("{}\x01help\x15hel\t", "x".repeat(ROOM - 4)));
    assert_eq!(seat.prompt.text().len(), ROOM);
}

/// Random keys against a naive line, and the terminal against the line.
#[test]
fn the_terminal_shows_what_is_in_the_line() {
    let mut state = 1u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for _ in 0..200 {
        let (mut seat, mut text, mut at) = (Seat::new(), String::new(), 0usize);
        for _ in 0..300 {
            match draw(16) {
                0 => {
                    seat.type_in("\x1b[D");
                    at = at.saturating_sub(1);
                }
                1 => {
                    seat.type_in("\x1b[C");
                    at = text.len().min(at + 1);
                }
                2 => {
                    seat.type_in("\x01");
                    at = 0;
                }
                3 => {
                    seat.type_in("\x05");
                    at = text.len();
                }
                4 if at > 0 => {
                    seat.type_in("\x7f");
                    at -= 1;
                    text.remove(at);
                }
                5 if at < text.len() => {
                    seat.type_in("\x1b[3~");
                    text.remove(at);
                }
                _ => {
                    let c = (b'a' + draw(26) as u8) as char;
                    seat.type_in(&c.to_string());
                    if text.len() < ROOM {
                        text.insert(at, c);
                        at += 1;
                    }
                }
            }
            assert_eq!(seat.prompt.text(), text);
            let (row, column) = (seat.screen.row(), seat.screen.column - SIGN.len());
            let shown = row.strip_prefix(SIGN).unwrap();
            // A part of the line with the cursor where it is in the whole.
            let start = at.checked_sub(column).unwrap();
            assert_eq!(shown, &text[start..start + shown.len()]);
            assert!(start + shown.len() == text.len() || shown.len() == COLUMNS - 1 - SIGN.len());
        }
    }
}
