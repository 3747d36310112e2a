//! A program's input on its way through a serial line, which has no end.
//!
//! ```text
//!   61 ff 0a, end   ──▶   00 00 …, ff 01, 61 ff ff 0a, ff 00
//! ```
//!
//! **Invariants**
//! - R2. Zeros go ahead: where the guest sets its end of the line up, the line may lose a byte or
//!   two. It listens from the beginning on, `ff 01`.
//! - R1. What was read is written at once: what waits for a line gets it when it was typed.
//!
//! **Not here**: what a program says, which ends with QEMU and goes through as it is (`qemu`).

use std::io::{ErrorKind, Read, Write};

/// What stands before itself, or before what is no byte of the input.
const MARK: u8 = 0xff;
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

/// Hands on an input to its end, and the end. Where nobody takes it any more it stops.
pub(super) fn feed(input: &mut impl Read, mut output: impl Write) {
    let mut bytes = vec![0; 1 << 16];
    let mut hand = |bytes: &[u8]| output.write_all(bytes).and_then(|()| output.flush());
    if hand(&BEGIN).is_err() {
        return;
    }
    loop {
        match input.read(&mut bytes) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // An input that cannot be read has ended.
            Ok(0) | Err(_) => break,
            Ok(n) if hand(&framed(&bytes[..n])).is_err() => return,
            Ok(_) => {}
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
            let mut output = Vec::new();
            feed(&mut &input[..], &mut output);
            assert_eq!(output.strip_prefix(&BEGIN), Some(expect), "{input:?}");
        }
        // Also where a mark is the last byte that is read at once.
        let long = vec![MARK; (1 << 16) + 1];
        let mut output = Vec::new();
        feed(&mut &long[..], &mut output);
        assert_eq!(output, [BEGIN.to_vec(), vec![MARK; 2 * long.len()], END.to_vec()].concat());
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
        impl Write for &mut Taken {
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
        let mut taken = Taken(Vec::new());
        feed(&mut typed, &mut taken);
        let lines = [&b"one\n"[..], b"two\n"];
        assert_eq!(taken.0, [&BEGIN[..], lines[0], lines[1], &END]);
    }
}
