//! A program's input on its way through a serial line, which has no end.
//!
//! ```text
//!   61 ff 0a, end   ──▶   00 00 …, ff 01, 61 ff ff 0a, ff 00
//! ```
//!
//! **Invariants**
//! - R2. Zeros go ahead: where the guest sets its end of the line up, the line may lose a byte or
//!   two. It listens from the beginning on, `ff 01`.
//! - R3. A size that changes goes between two pieces of input, never into one.
//! - R1. What was read is written at once: what waits for a line gets it when it was typed.
//!
//! **Not here**: what a program says, which ends with QEMU and goes through as it is (`qemu`).

use std::io::{ErrorKind, Read, Write};
use std::sync::{Mutex, PoisonError};

/// What stands before itself, or before what is no byte of the input.
const MARK: u8 = 0xff;
/// The terminal has another size.
const WINDOW: u8 = 2;
/// The key that is for this command, and the one behind it that ends the guest.
const KEY: u8 = 0x1d;
const LEAVE: u8 = b'x';
/// No more will come.
const END: [u8; 2] = [MARK, 0];
/// What comes before all input (R2).
pub(super) const BEGIN: [u8; 34] = {
    let mut bytes = [0; 34];
    [bytes[32], bytes[33]] = [MARK, 1];
    bytes
};

/// The bytes with every [`MARK`] doubled.
fn framed(bytes: &[u8]) -> Vec<u8> {
    let double = |byte: &u8| std::iter::repeat_n(*byte, if *byte == MARK { 2 } else { 1 });
    bytes.iter().flat_map(double).collect()
}

/// A size of a terminal, rows and columns.
pub(super) fn window([rows, columns]: [u16; 2]) -> [u8; 6] {
    let ([r, rr], [c, cc]) = (rows.to_le_bytes(), columns.to_le_bytes());
    [MARK, WINDOW, r, rr, c, cc]
}

/// Keys on their way to a guest.
#[derive(Default)]
pub(super) struct Keys {
    /// The last one was for this command.
    is_held: bool,
}

impl Keys {
    /// What is handed on of keys; `None` where they end the guest. The key that is for this command
    /// is handed on when it is typed twice, or when another one follows.
    fn pass(&mut self, typed: &[u8]) -> Option<Vec<u8>> {
        let mut handed = Vec::new();
        for key in typed {
            match (core::mem::take(&mut self.is_held), *key) {
                (true, LEAVE) => return None,
                (true, KEY) => handed.push(KEY),
                (true, key) => handed.extend([KEY, key]),
                (false, KEY) => self.is_held = true,
                (false, key) => handed.push(key),
            }
        }
        Some(handed)
    }
}

/// Hands on the keys of a terminal, until they end the guest or there are no more; says whether it
/// is to end.
pub(super) fn feed_keys(input: &mut impl Read, output: &Mutex<impl Write>) -> bool {
    let mut keys = Keys::default();
    let mut leaves = false;
    feed_with(input, output, |bytes| {
        let handed = keys.pass(bytes);
        leaves = handed.is_none();
        handed
    });
    leaves
}

/// Hands on an input to its end, and the end. Where nobody takes it any more it stops.
pub(super) fn feed(input: &mut impl Read, output: &Mutex<impl Write>) {
    feed_with(input, output, |bytes| Some(bytes.to_vec()));
}

/// Writes at once (R1, R3).
pub(super) fn hand(bytes: &[u8], output: &Mutex<impl Write>) -> std::io::Result<()> {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    output.write_all(bytes).and_then(|()| output.flush())
}

fn feed_with(
    input: &mut impl Read,
    output: &Mutex<impl Write>,
    mut pass: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) {
    let mut bytes = vec![0; 1 << 16];
    let hand = |bytes: &[u8]| hand(bytes, output);
    if hand(&BEGIN).is_err() {
        return;
    }
    loop {
        match input.read(&mut bytes) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // An input that cannot be read has ended.
            Ok(0) | Err(_) => break,
            Ok(n) => match pass(&bytes[..n]).map(|handed| hand(&framed(&handed))) {
                Some(Ok(())) => {}
                Some(Err(_)) | None => return,
            },
        }
    }
    let _ = hand(&END); // QEMU may be gone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_from_all_bytes() {
        for (input, expect) in [
            (&b""[..], &b"\xff\0"[..]),
            (b"a\xff\n", b"a\xff\xff\n\xff\0"),
            (b"\xff\0", b"\xff\xff\0\xff\0"),
            (b"\xff\xff", b"\xff\xff\xff\xff\xff\0"),
        ] {
            let output = Mutex::new(Vec::new());
            feed(&mut &input[..], &output);
            let output = output.into_inner().unwrap();
            assert_eq!(output.strip_prefix(&BEGIN), Some(expect), "{input:?}");
        }
        // Also where a mark is the last byte that is read at once.
        let long = vec![MARK; (1 << 16) + 1];
        let output = Mutex::new(Vec::new());
        feed(&mut &long[..], &output);
        let output = output.into_inner().unwrap();
        assert_eq!(output, [BEGIN.to_vec(), vec![MARK; 2 * long.len()], END.to_vec()].concat());
    }

    #[test]
    fn one_key_is_for_this_command() {
        for (typed, handed, leaves) in [
            (&["ls\r"][..], &b"ls\r"[..], false),
            (&["a\x1d", "xb"], b"a", true),
            (&["\x1dx"], b"", true),
            (&["\x1d\x1dx"], b"\x1dx", false),
            (&["\x1d", "y"], b"\x1dy", false),
        ] {
            let keys = typed.iter().map(|typed| Ok(typed.as_bytes())).chain([Ok(&b""[..])]);
            let output = Mutex::new(Vec::new());
            assert_eq!(feed_keys(&mut Typed(keys.collect()), &output), leaves, "{typed:?}");
            let end: &[u8] = if leaves { b"" } else { &END };
            assert_eq!(output.into_inner().unwrap(), [&BEGIN, handed, end].concat(), "{typed:?}");
        }
        assert_eq!(window([0xff02, 80]), [MARK, WINDOW, 2, 0xff, 80, 0]);
    }

    /// Lines as a terminal gives them, an interruption between, and an error behind.
    struct Typed(Vec<std::io::Result<&'static [u8]>>);

    impl Read for Typed {
        fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
            let line = self.0.remove(0)?;
            bytes[..line.len()].copy_from_slice(line);
            Ok(line.len())
        }
    }

    /// `R1`.
    #[test]
    fn what_was_typed_is_handed_on_at_once() {
        struct Taken(Vec<Vec<u8>>);
        impl Write for Taken {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.push(bytes.to_vec());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let interrupted = Err(ErrorKind::Interrupted.into());
        let broken = Err(ErrorKind::BrokenPipe.into());
        let mut typed = Typed(vec![Ok(b"one\n"), interrupted, Ok(b"two\n"), broken]);
        let taken = Mutex::new(Taken(Vec::new()));
        feed(&mut typed, &taken);
        let taken = taken.into_inner().unwrap();
        let lines = [&b"one\n"[..], b"two\n"];
        assert_eq!(taken.0, [&BEGIN[..], lines[0], lines[1], &END]);
    }
}
