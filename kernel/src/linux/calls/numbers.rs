//! Numbers of Linux that `linux-raw-sys` does not have: of `asm/prctl.h`, `linux/close_range.h` and
//! `linux/socket.h`.

pub(super) const ARCH_SET_GS: u32 = 0x1001;
pub(super) const ARCH_SET_FS: u32 = 0x1002;
pub(super) const ARCH_GET_FS: u32 = 0x1003;
pub(super) const ARCH_GET_GS: u32 = 0x1004;

pub(super) const CLOSE_RANGE_CLOEXEC: u32 = 1 << 2;

pub(super) const MSG_WAITFORONE: u32 = 1 << 16;
