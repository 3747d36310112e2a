//! What the kernel's work costs on the machine that runs this process, as far as a process can see
//! it: small loops of page faults, system calls, forks and unmappings, each over many pages.
//!
//! What a cost model has a price for is often a part of what can be timed, so most prices are
//! differences of two loops of the same round:
//!
//! ```text
//!   write to a new page ─┬─ read of a new page (shared zeros) ─┬─ fault
//!                        │                                     └─ entry: unmapping of zeros
//!                        ├─ clearing 4 KiB: reading zeros from the kernel
//!                        └─ the rest: taking the page
//!   write to a shared page ─ write to a new one, with copying in the place of clearing
//!   unmapping a page ────── unmapping of zeros ───────────────── giving it back
//! ```
//!
//! **Invariants**
//! - K1. Each round takes every quantity once, so that what disturbs one disturbs all. The first
//!   round is not counted.
//! - K2. Memory is refused to huge pages, so each page is a fault of its own.
//! - K3. What is cleared and copied is no child's: else each page would be shared by a fork, and
//!   the next write to it a fault.
//!
//! **Not here**: what a process cannot see (descriptors, loading a root, the invalidation of one
//! entry), and what becomes of the quantities (`cli`).
#![allow(unsafe_code)]

use memmap2::{Advice, MmapMut};
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $unit:literal),* $(,)?) => {
        /// Something that is measured.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Quantity { $($(#[$doc])* $name,)* }

        impl Quantity {
            /// All of them.
            pub const ALL: &'static [Quantity] = &[$(Quantity::$name),*];

            /// What it is, in a few words.
            pub const fn about(self) -> &'static str {
                match self { $(Quantity::$name => $text,)* }
            }
            /// What one of it is.
            pub const fn unit(self) -> &'static str {
                match self { $(Quantity::$name => $unit,)* }
            }
        }
    };
}

quantities! {
    /// The first write to a page, all of it.
    Touch = "write to a new page of 4 KiB", "page",
    /// The first read of a page, without its entry.
    Fault = "read of a new page, less its entry", "fault",
    /// What a first write takes besides.
    Take = "write to a new page, less fault, entry and clearing", "page",
    /// Taking an entry away.
    Entry = "unmapping a page of shared zeros", "page",
    /// Unmapping a page with memory.
    Unmap = "unmapping a page of 4 KiB", "page",
    /// What that takes besides.
    Give = "unmapping a page, less its entry", "page",
    /// Clearing page by page, as the kernel does it.
    Clear = "reading zeros from the kernel, which are made a page at a time", "byte",
    /// Clearing in large extents.
    ClearLarge = "clearing, 2 MiB at a time", "byte",
    /// Copying a page in the place of clearing it.
    Copy = "write to a shared page, less write to a new one, plus clearing", "byte",
    /// A system call that does nothing.
    Call = "empty system call", "call",
    /// A fork, for each page that both share afterwards.
    ForkPage = "fork, for each page of 4 KiB", "page",
    /// A fork, for each page table.
    ForkTable = "fork, for each page table of a page", "table",
    /// A write to a page that is shared since a fork.
    CopyFault = "write to a page shared by a fork", "page",
    /// Asking other CPUs where none runs this process.
    Send = "membarrier, no other thread at work", "call",
    /// Asking another CPU that does; where there is another.
    Wait = "membarrier, another thread at work, less the former", "call",
}

/// What the rounds gave for a quantity, in nanoseconds for one of its unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Timed {
    /// The quantity.
    pub quantity: Quantity,
    /// The median.
    pub median: f64,
    /// A quarter of the rounds are below.
    pub low: f64,
    /// A quarter of the rounds are above.
    pub high: f64,
}

const PAGE: usize = 4096;
const TABLE: usize = 2 << 20;
/// Pages of a loop, and page tables of a fork.
const PAGES: usize = 4096;
const TABLES: usize = 128;
/// Bytes that are cleared in a round: more than most caches hold.
const BYTES: usize = 64 << 20;
const CALLS: u32 = 20_000;
const BARRIERS: u32 = 200;

/// Measures all quantities in so many rounds. One that cannot be measured here is not in the list.
pub fn costs(rounds: u32) -> io::Result<Vec<Timed>> {
    let mut bench = Bench::new()?;
    let mut seen: Vec<Vec<f64>> = vec![Vec::new(); Quantity::ALL.len()];
    for round in 0..=rounds.max(1) {
        for (quantity, nanos) in bench.round()? {
            if round > 0 {
                seen[quantity as usize].push(nanos);
            }
        }
    }
    let timed = |quantity: &Quantity| {
        let mut all = std::mem::take(&mut seen[*quantity as usize]);
        all.sort_unstable_by(f64::total_cmp);
        let at = |quarter: usize| all.get(all.len() * quarter / 4).copied();
        let (low, median, high) = (at(1)?, at(2)?, at(3)?);
        // A difference of two loops can come out as nothing on a busy machine.
        (median.is_finite() && median > 0.0).then_some(Timed {
            quantity: *quantity,
            median,
            low,
            high,
        })
    };
    Ok(Quantity::ALL.iter().filter_map(timed).collect())
}

/// What is kept over the rounds.
struct Bench {
    memory: MmapMut,
    zeros: File,
    barrier: bool,
    two: bool,
}

impl Bench {
    fn new() -> io::Result<Bench> {
        let two = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
        let barrier = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
        let mut memory = pages_of(BYTES)?;
        memory.advise(Advice::DontFork)?; // K3
        write(&mut memory, PAGE);
        Ok(Bench { memory, zeros: File::open("/dev/zero")?, barrier, two })
    }

    /// Every quantity once (K1).
    fn round(&mut self) -> io::Result<Vec<(Quantity, f64)>> {
        let pages = |nanos: f64| nanos / PAGES as f64;
        let mut map = pages_of(PAGES * PAGE)?;
        let touch = pages(timed(|| write(&mut map, PAGE)));
        let unmap = pages(timed(|| drop(map)));
        let map = pages_of(PAGES * PAGE)?;
        let read = pages(timed(|| read(&map)));
        let entry = pages(timed(|| drop(map)));
        let byte = |nanos: f64| nanos / BYTES as f64;
        let begun = Instant::now();
        self.zeros.read_exact(&mut self.memory)?;
        let clear = byte(begun.elapsed().as_nanos() as f64);
        let extents = || self.memory.chunks_mut(TABLE).for_each(|part| black_box(part).fill(0));
        let large = byte(timed(extents));
        let call = timed(|| (0..CALLS).for_each(|_| empty_call())) / f64::from(CALLS);
        // What the process has besides is copied by each fork alike.
        let alone = forked(None)?.0;
        let mut map = pages_of(PAGES * PAGE)?;
        write(&mut map, PAGE);
        let (fork, copies) = forked(Some(&mut map))?;
        let copies = pages(copies);
        drop(map);
        let fork_page = pages(fork - alone);
        let mut map = pages_of(TABLES * TABLE)?;
        write(&mut map, TABLE);
        let sparse = forked(None)?.0;
        drop(map);
        let fault = read - entry;
        let mut all = vec![
            (Quantity::Touch, touch),
            (Quantity::Fault, fault),
            (Quantity::Take, touch - read - clear * PAGE as f64),
            (Quantity::Entry, entry),
            (Quantity::Unmap, unmap),
            (Quantity::Give, unmap - entry),
            (Quantity::Clear, clear),
            (Quantity::ClearLarge, large),
            (Quantity::Copy, (copies - touch) / PAGE as f64 + clear),
            (Quantity::Call, call),
            (Quantity::ForkPage, fork_page),
            (Quantity::ForkTable, (sparse - alone) / TABLES as f64 - fork_page),
            (Quantity::CopyFault, copies),
        ];
        if self.barrier {
            let send = barriers();
            all.push((Quantity::Send, send));
            if self.two {
                all.push((Quantity::Wait, beside_another(barriers) - send));
            }
        }
        Ok(all)
    }
}

/// Nanoseconds that it takes.
fn timed(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_nanos() as f64
}

/// New memory, each page of which will be a fault of its own (K2).
fn pages_of(bytes: usize) -> io::Result<MmapMut> {
    let map = MmapMut::map_anon(bytes)?;
    // A kernel without huge pages refuses, and has none.
    let _ = map.advise(Advice::NoHugePage);
    Ok(map)
}

/// Writes a byte in each stretch of `step` bytes.
fn write(map: &mut [u8], step: usize) {
    map.iter_mut().step_by(step).for_each(|byte| *black_box(byte) = 1);
}
fn read(map: &[u8]) {
    map.iter().step_by(PAGE).for_each(|byte| {
        black_box(*black_box(byte));
    });
}

fn empty_call() {
    // SAFETY: it takes nothing and changes nothing.
    black_box(unsafe { libc::syscall(libc::SYS_getppid) });
}

/// Asks for a barrier on all CPUs that run this process; false where that is refused.
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call reads its three numbers and touches no memory of this process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Nanoseconds for each barrier.
fn barriers() -> f64 {
    let ask = || {
        membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    };
    timed(|| (0..BARRIERS).for_each(|_| ask())) / f64::from(BARRIERS)
}

/// What `work` returns while another thread of this process is at work.
fn beside_another(work: impl FnOnce() -> f64) -> f64 {
    let (begun, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begun.store(true, Ordering::Relaxed);
            while !ended.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        while !begun.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        let result = work();
        ended.store(true, Ordering::Relaxed);
        result
    })
}

/// Nanoseconds of a fork, and of writing to each page of `map` while the child still shares it.
fn forked(map: Option<&mut MmapMut>) -> io::Result<(f64, f64)> {
    let (child_reads, parent_writes) = io::pipe()?;
    let begun = Instant::now();
    // SAFETY: the child calls `wait_for_end` alone, which is made of system calls, so it needs no
    // lock that another thread may have held.
    let child = unsafe { libc::fork() };
    let fork = begun.elapsed().as_nanos() as f64;
    match child {
        -1 => return Err(io::Error::last_os_error()),
        0 => wait_for_end(&child_reads, &parent_writes),
        _ => {}
    }
    let copies = map.map_or(0.0, |map| timed(|| write(map, PAGE)));
    drop(parent_writes);
    // SAFETY: the status is not asked for; the child is this call's own.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    Ok((fork, copies))
}

/// A child's life: it ends when its parent has closed the pipe, or has ended.
fn wait_for_end(reads: &io::PipeReader, writes: &io::PipeWriter) -> ! {
    use std::os::fd::AsRawFd;
    let mut byte = 0u8;
    // SAFETY: the descriptor is the child's copy, which nothing uses after this.
    unsafe { libc::close(writes.as_raw_fd()) };
    // SAFETY: one byte of this frame may be written.
    unsafe { libc::read(reads.as_raw_fd(), (&raw mut byte).cast(), 1) };
    // SAFETY: it does not return, and runs nothing of the parent's.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_positive_and_the_median_lies_between_the_quarters() {
        let all = costs(3).unwrap();
        let has = |quantity| all.iter().any(|timed| timed.quantity == quantity);
        // No difference of two loops.
        for quantity in [Quantity::Touch, Quantity::Unmap, Quantity::Clear, Quantity::Call] {
            assert!(has(quantity), "{quantity:?}");
        }
        for Timed { quantity, median, low, high } in &all {
            assert!(median.is_finite() && *median > 0.0, "{quantity:?}");
            assert!(low <= median && median <= high, "{quantity:?}: {low} {median} {high}");
        }
    }
}
