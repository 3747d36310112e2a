//! The kernel's own page tables: what the manager's top table repeats.
//!
//! The tables of `boot.s` map everything writable and executable. These give each part of the image
//! its rights, and drop the low half. They are static, so nothing can run out.
//!
//! **Invariants**
//! - P1. No address is both writable and executable.
#![allow(unsafe_code)]

use crate::layout::{DIRECT, DIRECT_MAX, IMAGE, WINDOW};
use crate::port::load_top;
use core::cell::UnsafeCell;
use foliant::table::{Attrs, Paging, Slot, X86_64};
use foliant_units::{FrameRange, Level, Pa, Va};

type Format = X86_64<4>;

/// Tables of 2 MiB leaves for the direct map, where memory fills less than 1 GiB.
const EDGE_TABLES: usize = 16;
/// Tables of 4 KiB pages for the image: 8 MiB.
const IMAGE_TABLES: usize = 4;

#[repr(C, align(4096))]
struct Table(UnsafeCell<[u64; 512]>);
// SAFETY: written by CPU 0 before the others start; afterwards the words belong to the manager's
// tables room.
unsafe impl Sync for Table {}

static TOP: Table = Table::empty();
static DIRECT_MAP: Table = Table::empty();
static EDGES: [Table; EDGE_TABLES] = [const { Table::empty() }; EDGE_TABLES];
static WINDOW_TABLE: Table = Table::empty();
static IMAGE_1G: Table = Table::empty();
static IMAGE_2M: Table = Table::empty();
static IMAGE_PAGES: [Table; IMAGE_TABLES] = [const { Table::empty() }; IMAGE_TABLES];

unsafe extern "C" {
    static image_start: u8;
    static text_start: u8;
    static ro_start: u8;
    static data_start: u8;
    static image_end: u8;
}

/// The physical address of something in the image.
pub(crate) fn image_pa(at: u64) -> Pa {
    Pa::new(at - IMAGE)
}

/// Where the image lies in memory.
pub(crate) fn image() -> (Pa, Pa) {
    (image_pa(&raw const image_start as u64), image_pa(&raw const image_end as u64))
}

impl Table {
    const fn empty() -> Table {
        Table(UnsafeCell::new([0; 512]))
    }
    fn pa(&self) -> Pa {
        image_pa(self.0.get() as u64)
    }
    fn set(&self, va: u64, level: Level, word: u64) {
        let slot = Slot::of(Va::new(va), level).index();
        // SAFETY: see `Sync`.
        unsafe { (*self.0.get())[slot] = word };
    }
}

/// The rights of a page of the image; `None` for what lies below it and behind it.
fn rights(va: u64) -> Option<Attrs> {
    let at = |symbol: *const u8| symbol as u64;
    let (text, ro) = (at(&raw const text_start), at(&raw const ro_start));
    let (data, end) = (at(&raw const data_start), at(&raw const image_end));
    match va {
        _ if va < text || va >= end => None,
        _ if va < ro => Some(Attrs::EXEC),
        _ if va < data => Some(Attrs::NONE),
        _ => Some(Attrs::WRITE),
    }
}

/// Fills the direct map with the 2 MiB pages that hold a part of one of `pieces`, and with nothing
/// between them: devices live there, which are not memory to the CPU's caches. Whole pages of 1 GiB
/// are one leaf, and so are, where the tables run out, others.
fn map_memory(pieces: impl Iterator<Item = FrameRange> + Clone) {
    let kernel = Attrs::GLOBAL.with(Attrs::TOUCHED).with(Attrs::WRITE);
    let (size_2m, size_1g) = (Level::SIZE_2M.span().get(), Level::SIZE_1G.span().get());
    let ends = |piece: FrameRange| (piece.start().pa().get(), piece.end().pa().get());
    let touches = |start, end| pieces.clone().map(ends).any(|(a, b)| a < end && start < b);
    let fills = |start, end| pieces.clone().map(ends).any(|(a, b)| a <= start && end <= b);
    let leaf = |pa, level| Format::leaf(Pa::new(pa), level, kernel);
    let mut edges = EDGES.iter();
    for start in (0..DIRECT_MAX).step_by(size_1g as usize) {
        let end = start + size_1g;
        if !touches(start, end) {
            continue;
        }
        let edge = if fills(start, end) { None } else { edges.next() };
        let Some(edge) = edge else {
            DIRECT_MAP.set(DIRECT + start, Level::SIZE_1G, leaf(start, Level::SIZE_1G));
            continue;
        };
        DIRECT_MAP.set(DIRECT + start, Level::SIZE_1G, Format::table(edge.pa()));
        for pa in (start..end).step_by(size_2m as usize) {
            if touches(pa, pa + size_2m) {
                edge.set(DIRECT + pa, Level::SIZE_2M, leaf(pa, Level::SIZE_2M));
            }
        }
    }
}

/// Fills the tables for the memory in `pieces` and loads them. Returns the top table.
pub(crate) fn load(pieces: impl Iterator<Item = FrameRange> + Clone) -> Pa {
    let kernel = Attrs::GLOBAL.with(Attrs::TOUCHED);
    let point = |table: &Table| Format::table(table.pa());
    for (region, table) in [(DIRECT, &DIRECT_MAP), (WINDOW, &WINDOW_TABLE), (IMAGE, &IMAGE_1G)] {
        TOP.set(region, Level(3), point(table));
    }
    map_memory(pieces);
    IMAGE_1G.set(IMAGE, Level::SIZE_1G, point(&IMAGE_2M));
    for (n, pages) in IMAGE_PAGES.iter().enumerate() {
        let base = IMAGE + n as u64 * Level::SIZE_2M.span().get();
        IMAGE_2M.set(base, Level::SIZE_2M, point(pages));
        for va in (base..base + Level::SIZE_2M.span().get()).step_by(4096) {
            if let Some(rights) = rights(va) {
                let word = Format::leaf(image_pa(va), Level::BASE, kernel.with(rights));
                pages.set(va, Level::BASE, word);
            }
        }
    }
    let room = IMAGE_TABLES as u64 * Level::SIZE_2M.span().get();
    assert!(image().1.get() <= room, "the image ends at {}, its tables at {room:#x}", image().1);
    // SAFETY: image, direct map and so the stack stay where they are.
    unsafe { load_top(TOP.pa().get()) };
    TOP.pa()
}
