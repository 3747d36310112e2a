//! Texts from files and other programs, as they may be shown on a terminal.
//!
//! A recording holds names that whoever made it chose: of programs, of arguments, of machines.
//! Printed as they are, an escape sequence in one would move the cursor, change the terminal's
//! title or colours, or write over what was said before, and a line end would let it speak in this
//! command's name. Whatever is no visible character is shown as its escape.

use std::path::Path;

/// A text without anything that a terminal obeys or that looks like another text: controls, line
/// ends, marks that turn the direction of writing, characters of no width.
pub(crate) fn shown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '"' | '\'' => safe.push(c), // a mere Debug would escape these as well
            c => safe.extend(c.escape_debug()),
        }
    }
    safe
}

/// A path likewise.
pub(crate) fn path(path: &Path) -> String {
    shown(&path.to_string_lossy())
}

/// A sentence that this command made: line ends are its own.
pub(crate) fn said(text: &str) -> String {
    text.split('\n').map(shown).collect::<Vec<_>>().join("\n")
}

/// JSON, in which every character that a terminal may obey is an escape: there it stands in texts
/// only.
pub(crate) fn json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() || c.escape_debug().len() == 1 {
            safe.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            safe += &format!("\\u{unit:04x}");
        }
    }
    safe.replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "\u{1b}]0;x\u{7}\u{9b}31m\r\nfoliant: all is well\u{202e}\u{200b}\u{7f}";

    #[test]
    fn finding_x11_nothing_that_a_terminal_obeys_is_left() {
        let visible = |text: &str| {
            text.chars().all(|c| !c.is_control() && c.escape_debug().len() == 1 || c == '\\')
        };
        assert!(visible(&shown(EVIL)), "{:?}", shown(EVIL));
        assert!(visible(&path(Path::new(EVIL))));
        assert!(said("one\ntwo\u{1b}").starts_with("one\ntwo\\u{1b}"));
        for plain in ["/usr/bin/gcc-12", "a b \"c\" 'd' \\e", "Grüße, 世界 🦀"] {
            assert_eq!(shown(plain), plain);
            assert_eq!(json(plain), plain);
        }
    }

    #[test]
    fn finding_x11_json_says_the_same_and_holds_no_escapes() {
        let value = serde_json::json!({ "name": EVIL, "crab": "🦀\u{e0001}" });
        let text = json(&serde_json::to_string(&value).unwrap());
        assert!(
            text.chars()
                .all(|c| !c.is_control() && c.escape_debug().len() == 1 || "\"\\".contains(c)),
            "{text:?}"
        );
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
