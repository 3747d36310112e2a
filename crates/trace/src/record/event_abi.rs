//! Numbers of the kernel's interface for counters (`perf_event_open`), as far as they are used.

// What a counter counts.
pub(crate) const SW_PAGE_FAULTS: u64 = 2;
pub(crate) const SW_DUMMY: u64 = 9;
pub(crate) const TYPE_SOFTWARE: u32 = 1;
pub(crate) const TYPE_TRACEPOINT: u32 = 2;

// What a sample carries.
pub(crate) const SAMPLE_IP: u64 = 1;
pub(crate) const SAMPLE_TID: u64 = 1 << 1;
pub(crate) const SAMPLE_TIME: u64 = 1 << 2;
pub(crate) const SAMPLE_ADDR: u64 = 1 << 3;
pub(crate) const SAMPLE_CPU: u64 = 1 << 7;
pub(crate) const SAMPLE_RAW: u64 = 1 << 10;
pub(crate) const SAMPLE_REGS_USER: u64 = 1 << 12;
pub(crate) const SAMPLE_IDENTIFIER: u64 = 1 << 16;

// How it counts, and what else it tells.
pub(crate) const DISABLED: u64 = 1;
pub(crate) const INHERIT: u64 = 1 << 1;
pub(crate) const EXCLUDE_KERNEL: u64 = 1 << 5;
pub(crate) const EXCLUDE_HV: u64 = 1 << 6;
pub(crate) const MMAP: u64 = 1 << 8;
pub(crate) const COMM: u64 = 1 << 9;
pub(crate) const ENABLE_ON_EXEC: u64 = 1 << 12;
pub(crate) const TASK: u64 = 1 << 13;
pub(crate) const WATERMARK: u64 = 1 << 14;
pub(crate) const MMAP_DATA: u64 = 1 << 17;
pub(crate) const SAMPLE_ID_ALL: u64 = 1 << 18;
pub(crate) const MMAP2: u64 = 1 << 23;
pub(crate) const COMM_EXEC: u64 = 1 << 24;
pub(crate) const USE_CLOCKID: u64 = 1 << 25;

// What a record is.
pub(crate) const MISC_KERNEL: u16 = 1;
pub(crate) const MISC_CPUMODE: u16 = 7;
pub(crate) const MISC_COMM_EXEC: u16 = 1 << 13;
pub(crate) const RECORD_LOST: u32 = 2;
pub(crate) const RECORD_COMM: u32 = 3;
pub(crate) const RECORD_EXIT: u32 = 4;
pub(crate) const RECORD_FORK: u32 = 7;
pub(crate) const RECORD_SAMPLE: u32 = 9;
pub(crate) const RECORD_MMAP2: u32 = 10;
