//! Keys, of the bytes that a terminal sends for them.

/// What was pressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Key {
    /// A printable character of ASCII.
    Char(u8),
    Left,
    Right,
    Home,
    End,
    Up,
    Down,
    Backspace,
    Delete,
    /// Ctrl-U.
    EraseBefore,
    /// Ctrl-K.
    EraseBehind,
    /// Ctrl-W.
    EraseWord,
    Tab,
    /// Ctrl-L.
    Clear,
    Return,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    EndOrDelete,
    /// Nothing that has a meaning here.
    Other,
}

/// Where in a sequence of bytes the next one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Text,
    /// Behind a carriage return: a line feed belongs to it.
    Returned,
    /// Behind ESC.
    Escape,
    /// Behind `ESC O`.
    Single,
    /// Behind `ESC [` and the first number, if there is one.
    Sequence(u8),
    /// Behind what makes it no key, before its last byte.
    Rest,
}

/// The decoder.
#[derive(Debug)]
pub(crate) struct Keys(Place);

impl Keys {
    pub(crate) const fn new() -> Keys {
        Keys(Place::Text)
    }

    /// The key that the byte completes, if it completes one.
    pub(crate) fn key(&mut self, byte: u8) -> Option<Key> {
        match (core::mem::replace(&mut self.0, Place::Text), byte) {
            (Place::Returned, b'\n') => None,
            (Place::Text | Place::Returned, byte) => self.plain(byte),
            (Place::Escape, b'[') => self.to(Place::Sequence(0)),
            (Place::Escape, b'O') => self.to(Place::Single),
            // Alt with a key, or ESC alone and then a key: neither means a thing.
            (Place::Escape, byte) => {
                if byte == 0x1b {
                    self.to(Place::Escape)
                } else {
                    Some(Key::Other)
                }
            }
            (Place::Sequence(number), b'0'..=b'9') => {
                self.to(Place::Sequence(number.saturating_mul(10).saturating_add(byte - b'0')))
            }
            (Place::Sequence(number), b'~') => Some(numbered(number)),
            (Place::Sequence(0) | Place::Single, byte) => match byte {
                0x20..=0x3f => self.to(Place::Rest),
                byte => Some(lettered(byte)),
            },
            (Place::Sequence(_) | Place::Rest, byte) => match byte {
                0x20..=0x3f => self.to(Place::Rest),
                _ => Some(Key::Other),
            },
        }
    }

    fn to(&mut self, place: Place) -> Option<Key> {
        self.0 = place;
        None
    }

    fn plain(&mut self, byte: u8) -> Option<Key> {
        Some(match byte {
            b' '..=b'~' => Key::Char(byte),
            0x01 => Key::Home,
            0x02 => Key::Left,
            0x03 => Key::Interrupt,
            0x04 => Key::EndOrDelete,
            0x05 => Key::End,
            0x06 => Key::Right,
            0x08 | 0x7f => Key::Backspace,
            b'\t' => Key::Tab,
            b'\n' => Key::Return,
            0x0b => Key::EraseBehind,
            0x0c => Key::Clear,
            b'\r' => {
                self.0 = Place::Returned;
                Key::Return
            }
            0x0e => Key::Down,
            0x10 => Key::Up,
            0x15 => Key::EraseBefore,
            0x17 => Key::EraseWord,
            0x1b => return self.to(Place::Escape),
            _ => Key::Other,
        })
    }
}

/// `ESC [ number ~`.
fn numbered(number: u8) -> Key {
    match number {
        1 | 7 => Key::Home,
        3 => Key::Delete,
        4 | 8 => Key::End,
        _ => Key::Other,
    }
}

/// `ESC [ letter`, `ESC O letter`.
fn lettered(letter: u8) -> Key {
    match letter {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        _ => Key::Other,
    }
}
