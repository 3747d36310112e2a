//! Which bytes are letters, and which are control characters.

pub(crate) fn is_control(byte: u8) -> bool {
    byte.is_ascii_control()
}

/// Letters are those of Latin-1.
pub(crate) fn is_lower(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | 0xdf..=0xf6 | 0xf8..=0xff)
}
pub(crate) fn is_upper(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde)
}
pub(crate) fn lower(byte: u8) -> u8 {
    if is_upper(byte) { byte + 32 } else { byte }
}
pub(crate) fn upper(byte: u8) -> u8 {
    if is_lower(byte) { byte - 32 } else { byte }
}
