//! Accesses to 8 GiB of guest memory, against the crate `vm-memory`'s own backend of mappings.
//!
//! Same work for all, by the traits: places at random in the first 4 KiB of 8 huge pages that are
//! spread over the guest, all written before: few enough for the caches, so that the way to a byte
//! is measured and not the byte's. `CALLS` accesses make a round; the memories
//! take turns, and a figure is the median of the rounds. `4,096 regions` is the same backend with a
//! region for each 2 MiB, as this crate had them before pages were shown side by side. Two columns
//! have a bitmap of 4 KiB pages, `vm-memory`'s own, and in one a page was given back, so that each
//! access looks whether its own is there.
#![allow(unsafe_code, reason = "a file's frames are vouched for by whoever has the machine")]

use foliant::manager::{BootPages, Setup};
use foliant::pool::Folding;
use foliant::{Manager, Policy, table::X86_64};
use foliant_guest::{FrameFile, GuestRam};
use foliant_sim::{Backing, Config, Sim};
use foliant_units::{Bytes, Order};
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use vm_memory::bitmap::AtomicBitmap;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

const GUEST: u64 = 8 << 30;
const PAGE: u64 = 2 << 20;
const STRETCHES: u64 = 8;
const CALLS: usize = 5_000;
const ROUNDS: usize = 101;

/// Where the accesses go: aligned to 64, and what they reach ends 4 KiB behind them at most.
fn places() -> Vec<GuestAddress> {
    let mut state = 1u64;
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut place = || {
        let stretch = random(STRETCHES) * (GUEST / STRETCHES);
        GuestAddress(stretch + random(4096 / 64) * 64)
    };
    (0..CALLS).map(|_| place()).collect()
}

/// Nanoseconds of an access, in a round of one kind made to one memory.
fn round(memory: &impl GuestMemoryBackend, row: usize, places: &[GuestAddress]) -> f64 {
    let mut buffer = [7u8; 4096];
    let begun = Instant::now();
    macro_rules! each {
        ($at:ident => $access:expr) => {
            for $at in places.iter().copied() {
                black_box($access);
            }
        };
    }
    match row {
        0 => each!(at => memory.find_region(at).is_some()),
        1 => each!(at => GuestMemoryBackend::get_slice(memory, at, 64).unwrap().len()),
        2 => each!(at => memory.read_obj::<u64>(at).unwrap()),
        3 => each!(at => memory.write_obj(at.0, at).unwrap()),
        4 => each!(at => memory.load::<u64>(at, Relaxed).unwrap()),
        5 => each!(at => memory.store(at.0, at, Relaxed).unwrap()),
        6 => each!(at => memory.read_slice(&mut buffer[..64], at).unwrap()),
        7 => each!(at => memory.read_slice(&mut buffer, at).unwrap()),
        8 => each!(at => memory.write_slice(&buffer, at).unwrap()),
        _ => each!(at => {
            let edge = GuestAddress((at.0 & !(PAGE - 1)) + PAGE - 32);
            memory.write_slice(&buffer[..64], edge).unwrap()
        }),
    }
    begun.elapsed().as_nanos() as f64 / places.len() as f64
}

/// Has the stretches touched, so that no access waits for the host.
fn touch(memory: &impl GuestMemoryBackend) {
    for stretch in (0..STRETCHES).map(|nth| nth * (GUEST / STRETCHES)) {
        memory.write_slice(&vec![1; PAGE as usize + 32], GuestAddress(stretch)).unwrap();
    }
}

const ROWS: [&str; 10] = [
    "find the region",
    "a slice of 64 bytes",
    "read 8 bytes",
    "write 8 bytes",
    "atomic load",
    "atomic store",
    "read 64 bytes",
    "read 4 KiB",
    "write 4 KiB",
    "write 64 bytes over an edge",
];

fn main() {
    let machine =
        Sim::new(Config { backing: Backing::File, ..Config::free(1, Bytes::new(26 << 30)) });
    let machine = machine.unwrap();
    let boot = BootPages { size_2m: 3 * GUEST / PAGE, size_1g: 0, folding: Folding::On };
    let setup = Setup { boot, ..Setup::of(&machine.config().memory, Policy::BASE_ONLY) };
    let host: Manager<'_, Sim, X86_64<4>> = Manager::new(&machine, &setup).unwrap();
    let (file, first) = machine.memory_file().unwrap();
    // SAFETY: the machine maps its memory from there, shared.
    let file = unsafe { FrameFile::new(file, first) };
    let ranges = [(GuestAddress(0), Bytes::new(GUEST))];
    let in_view = || GuestRam::in_file(&host, &file, Order::SIZE_2M, &ranges).unwrap();

    let mmap = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), GUEST as usize)]).unwrap();
    let pieces: Vec<_> =
        (0..GUEST / PAGE).map(|nth| (GuestAddress(nth * PAGE), PAGE as usize)).collect();
    let pieces = GuestMemoryMmap::<()>::from_ranges(&pieces).unwrap();
    let noted = GuestMemoryMmap::<AtomicBitmap>::from_ranges(&[(GuestAddress(0), GUEST as usize)]);
    let noted = noted.unwrap();
    let (view, away) = (in_view(), in_view());
    away.give_back(GuestAddress(GUEST - PAGE), Bytes::new(PAGE)).unwrap();
    let tracked = in_view().tracked::<AtomicBitmap>();
    println!("regions: {} in view, {} mapped", view.num_regions(), mmap.num_regions());

    touch(&mmap);
    touch(&pieces);
    touch(&view);
    touch(&away);
    touch(&noted);
    touch(&tracked);
    let places = places();
    let works: [&dyn Fn(usize) -> f64; 6] = [
        &|row| round(&mmap, row, &places),
        &|row| round(&pieces, row, &places),
        &|row| round(&view, row, &places),
        &|row| round(&away, row, &places),
        &|row| round(&noted, row, &places),
        &|row| round(&tracked, row, &places),
    ];
    println!(
        "{:<28} {:>9} {:>14} {:>9} {:>11} {:>13} {:>9}",
        "ratio to mmap",
        "mmap, ns",
        "4,096 regions",
        "in view",
        "one away",
        "mmap, bitmap",
        "in view, bitmap"
    );
    for (row, name) in ROWS.iter().enumerate() {
        let mut nanos = vec![Vec::new(); works.len()];
        for _ in 0..ROUNDS {
            works.iter().zip(&mut nanos).for_each(|(work, nanos)| nanos.push(work(row)));
        }
        let median = |all: &mut Vec<f64>| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let all: Vec<f64> = nanos.iter_mut().map(median).collect();
        println!(
            "{name:<28} {:>9.1} {:>14.2} {:>9.2} {:>11.2} {:>13.2} {:>9.2}",
            all[0],
            all[1] / all[0],
            all[2] / all[0],
            all[3] / all[0],
            all[4] / all[0],
            all[5] / all[4]
        );
    }
}
