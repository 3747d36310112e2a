//! Numbers of Linux that `linux-raw-sys` does not have: of `asm/prctl.h`, `linux/capability.h`,
//! `linux/close_range.h`, `linux/fcntl.h`, `linux/ipc.h`, `linux/shm.h`, `linux/socket.h` and
//! `linux/userfaultfd.h`.

pub(super) const ARCH_SET_GS: u32 = 0x1001;
pub(super) const ARCH_SET_FS: u32 = 0x1002;
pub(super) const ARCH_GET_FS: u32 = 0x1003;
pub(super) const ARCH_GET_GS: u32 = 0x1004;

pub(super) const CLOSE_RANGE_CLOEXEC: u32 = 1 << 2;

pub(super) const F_OFD_GETLK: u32 = 36;
pub(super) const F_OFD_SETLK: u32 = 37;
pub(super) const F_OFD_SETLKW: u32 = 38;

pub(super) const IPC_INFO: u32 = 3;
pub(super) const SHM_STAT: u32 = 13;
pub(super) const SHM_INFO: u32 = 14;
pub(super) const SHM_STAT_ANY: u32 = 15;

pub(super) const USERFAULTFD_IOC_NEW: u32 = 0xaa00;

pub(super) const CAPABILITY_VERSION_1: u32 = 0x1998_0330;
pub(super) const CAPABILITY_VERSION_2: u32 = 0x2007_1026;
pub(super) const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

pub(super) const MSG_WAITFORONE: u32 = 1 << 16;
