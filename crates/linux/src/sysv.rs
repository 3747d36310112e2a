//! Numbers of System V, which `linux-raw-sys` does not have: those of Linux's `ipc.h` and `shm.h`.
//!
//! **Not here**: what they mean to a segment (`segments`) and to a process (`shm`).

/// The key of a segment that no other call finds.
pub const IPC_PRIVATE: i32 = 0;
/// `shmget` makes the segment if there is none.
pub const IPC_CREAT: u32 = 0o1000;
/// With [`IPC_CREAT`]: there must be none.
pub const IPC_EXCL: u32 = 0o2000;
/// The segment has huge pages of a pool.
pub const SHM_HUGETLB: u32 = 0o4000;
/// With [`SHM_HUGETLB`]: where the logarithm of their size stands.
pub const SHM_HUGE_SHIFT: u32 = 26;
/// The bits of that.
pub const SHM_HUGE_MASK: u32 = 0x3f;
/// No memory is promised to the segment.
pub const SHM_NORESERVE: u32 = 0o10000;
/// `shmat`: to read alone.
pub const SHM_RDONLY: u32 = 0o10000;
/// `shmat`: the address is rounded down to pages.
pub const SHM_RND: u32 = 0o20000;
/// `shmat`: what lies there goes.
pub const SHM_REMAP: u32 = 0o40000;
/// `shmat`: to execute too.
pub const SHM_EXEC: u32 = 0o100000;
/// `shmctl`: removes the segment.
pub const IPC_RMID: u32 = 0;
/// `shmctl`: sets modes and owners.
pub const IPC_SET: u32 = 1;
/// `shmctl`: tells what a segment is.
pub const IPC_STAT: u32 = 2;
/// `shmctl`: keeps its pages in memory.
pub const SHM_LOCK: u32 = 11;
/// `shmctl`: does so no longer.
pub const SHM_UNLOCK: u32 = 12;
/// In a mode: it was removed, and goes with its last vma.
pub const SHM_DEST: u32 = 0o1000;
/// In a mode: its pages are kept in memory.
pub const SHM_LOCKED: u32 = 0o2000;
