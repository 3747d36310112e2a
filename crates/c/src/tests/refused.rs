//! What is refused: null, other handles, memory that is too small, numbers without a meaning. And
//! numbers of every kind, at random: no call panics on them.
#![allow(unsafe_code)]

use super::life::World;
use super::sim_table::table;
use super::{Lent, done, refused, well};
use crate::frames::*;
use crate::lent::Layout;
use crate::machine::{CpuSet, Machine};
use crate::manager::*;
use crate::pool::*;
use crate::space::*;
use crate::status::Status;
use crate::tables::*;
use crate::values::*;
use crate::vmalloc::*;
use core::mem::MaybeUninit;
use core::ptr;
use foliant_machine::{Kept, PhysMem, Root, Tlb};
use foliant_sim::{Checks, Config, Rng, Sim};
use foliant_units::{Bytes, Cpu, Pa, Va};

const MEMORY: [Range; 2] = [Range { first: 0x100, pages: 0x400 }, Range { first: 0x800, pages: 8 }];

fn layout(cpus: u32) -> Layout {
    done(|place, why| {
        // SAFETY: two ranges.
        unsafe { foliant_frames_layout(MEMORY.as_ptr(), 2, cpus, place, why) }
    })
}
fn frames(lent: &mut Lent, bytes: u64) -> *const Frames {
    done(|place, why| {
        // SAFETY: two ranges, and lent memory.
        unsafe { foliant_frames_new(lent.at(), bytes, MEMORY.as_ptr(), 2, 2, place, why) }
    })
}
/// A place for a result that nobody looks at.
fn lost<T>() -> MaybeUninit<T> {
    MaybeUninit::uninit()
}

#[test]
fn an_allocator_refuses_with_the_value() {
    let Layout { bytes, .. } = layout(2);
    let mut lent = Lent::of(bytes);
    // SAFETY: made just now, in memory of this test.
    let handle = Some(unsafe { &*frames(&mut lent, bytes) });
    let frame: u64 = done(|place, why| foliant_frames_alloc(handle, 1, 2, 1, place, why));
    let alloc = |cpu, order, kind, status| {
        refused(status, |why| {
            foliant_frames_alloc(handle, cpu, order, kind, Some(&mut lost()), why)
        })
    };
    assert_eq!(alloc(2, 0, 0, Status::Cpu), "CPU 2 of 2, counted from 0");
    assert_eq!(
        alloc(1 << 16, 0, 0, Status::Cpu),
        "CPU 65536: there are 1024 at most, counted from 0"
    );
    assert_eq!(alloc(0, 19, 0, Status::Value), "order 0x13 stands for nothing");
    assert_eq!(alloc(0, 0, 3, Status::Value), "class 0x3 stands for nothing");
    assert_eq!(alloc(0, 18, 0, Status::NoMemory), "no free block of order 18 for movable memory");
    let free = |frame, order, status| {
        refused(status, |why| foliant_frames_free(handle, 0, frame, order, why))
    };
    assert_eq!(
        free(0x900, 0, Status::Foreign),
        "frame 0x900 (order 0) lies in no range of this allocator"
    );
    free(u64::MAX, 0, Status::Foreign);
    free(u64::MAX, 18, Status::Misaligned);
    free(frame + 1, 2, Status::Misaligned);
    free(frame, 1, Status::WrongOrder);
    refused(Status::Value, |why| foliant_frames_split(handle, frame, 2, 3, why));
    well(|why| foliant_frames_split(handle, frame, 2, 0, why));
    for nth in 0..4 {
        well(|why| foliant_frames_free(handle, 0, frame + nth, 0, why));
    }
    free(frame, 0, Status::Free);
    well(|why| foliant_frames_reserve(handle, MEMORY[1], why));
    free(MEMORY[1].first, 0, Status::Reserved);
    let beyond = Range { first: u64::MAX, pages: 2 };
    refused(Status::Range, |why| foliant_frames_reserve(handle, beyond, why));
    refused(Status::InUse, |why| foliant_frames_reserve(handle, MEMORY[1], why));
    refused(Status::Cpu, |why| foliant_frames_drain(handle, 2, why));
    let left: u64 = done(|place, why| foliant_frames_count(handle, place, why));
    assert_eq!(left, 0x400);
}

#[test]
fn what_is_lent_is_looked_at() {
    let Layout { bytes, .. } = layout(2);
    let mut lent = Lent::of(bytes);
    let at = lent.at();
    let new = |at, bytes, ranges: &[Range], cpus, status| {
        refused(status, |why| {
            let place = Some(&mut lost());
            let (first, count) = (ranges.as_ptr(), ranges.len());
            // SAFETY: ranges of this test; memory that is refused is not touched.
            unsafe { foliant_frames_new(at, bytes, first, count, cpus, place, why) }
        })
    };
    let small = new(at, bytes - 1, &MEMORY, 2, Status::Lent);
    assert!(small.contains(&format!("{bytes} are needed")), "{small}");
    new(at.wrapping_byte_add(1), bytes, &MEMORY, 2, Status::Lent);
    assert_eq!(new(ptr::null_mut(), bytes, &MEMORY, 2, Status::Null), "`memory` is null");
    new(at, bytes, &[], 0, Status::Cpu);
    new(at, bytes, &[MEMORY[0]; 2], 2, Status::Range);
    assert_eq!(
        new(at, bytes, &[MEMORY[0]; 65], 2, Status::Limit),
        "65 ranges in `ranges`; 64 are the most"
    );
    let none = refused(Status::Null, |why| {
        // SAFETY: a null pointer is what is tried.
        unsafe { foliant_frames_layout(ptr::null(), 1, 1, Some(&mut lost()), why) }
    });
    assert_eq!(none, "`ranges` is null");
    // Memory that `_new` has not made is no handle, nor is another one.
    let mut zeros = Lent::of(bytes);
    // SAFETY: memory of this test.
    unsafe { zeros.at().write_bytes(0, bytes as usize) };
    // SAFETY: nothing is read but the tag (handle::H1).
    let zeroed = Some(unsafe { &*zeros.at().cast::<Frames>() });
    let told = refused(Status::Handle, |why| foliant_frames_count(zeroed, Some(&mut lost()), why));
    assert_eq!(told, "`frames` is no such handle: make it with the `_new` of its kind");
    assert_eq!(foliant_frames_count(None, Some(&mut lost()), None), Status::Null);
}

#[test]
fn a_table_without_a_function_is_refused_by_its_name() {
    let sim = Sim::new(Config::free(1, Bytes::new(1 << 20))).unwrap();
    let whole = table(&sim);
    let mut lent = Lent::of(foliant_tables_layout().bytes);
    let mut made = |table: Option<&Machine>, root, half| {
        let mut why = lost();
        let place = Some(&mut lost());
        let bytes = foliant_tables_layout().bytes;
        let at = lent.at();
        // SAFETY: lent memory, and a frame of the machine as root.
        let status =
            unsafe { foliant_tables_new(at, bytes, table, root, half, place, Some(&mut why)) };
        (status, super::text(&why, status))
    };
    let root = 1 << 20;
    assert_eq!(made(Some(&whole), root, 0).0, Status::Ok);
    assert_eq!(made(None, root, 0).0, Status::Null);
    let without: [(&str, Machine); 11] = [
        ("reach", Machine { reach: None, ..whole }),
        ("activate", Machine { activate: None, ..whole }),
        ("invalidate", Machine { invalidate: None, ..whole }),
        ("ask", Machine { ask: None, ..whole }),
        ("wait", Machine { wait: None, ..whole }),
        ("me", Machine { me: None, ..whole }),
        ("pin", Machine { pin: None, ..whole }),
        ("unpin", Machine { unpin: None, ..whole }),
        ("relax", Machine { relax: None, ..whole }),
        ("now", Machine { now: None, ..whole }),
        ("yield_now", Machine { yield_now: None, ..whole }),
    ];
    for (name, table) in &without {
        let (status, text) = made(Some(table), root, 0);
        assert_eq!(status, Status::Machine);
        assert!(text.contains(&format!("no function `{name}`")), "{text}");
    }
    for cpus in [0, 1025] {
        assert_eq!(made(Some(&Machine { cpus, ..whole }), root, 0).0, Status::Machine);
    }
    assert_eq!(made(Some(&whole), root + 8, 0).0, Status::Value);
    assert_eq!(made(Some(&whole), 1 << 60, 0).0, Status::Value);
    assert_eq!(made(Some(&whole), root, 2), (Status::Value, "half 0x2 stands for nothing".into()));
}

#[test]
fn a_gather_is_flushed_before_it_is_used_again() {
    let config = Config { checks: Checks::None, ..Config::seeded(2, Bytes::new(16 << 20), 3) };
    let sim = Sim::new(config).unwrap();
    let mut lent = Lent::of(foliant_tables_layout().bytes);
    let first = sim.config().memory[0].start().get();
    let (at, bytes) = (lent.at(), foliant_tables_layout().bytes);
    let handle: *const Tables = done(|place, why| {
        // SAFETY: lent memory, and the machine's first frame as root.
        unsafe { foliant_tables_new(at, bytes, Some(&table(&sim)), first << 12, 0, place, why) }
    });
    // SAFETY: made just now.
    let tables = Some(unsafe { &*handle });
    let mut spare = Spare::default();
    let map = |spare: &mut Spare, va, frame, attrs, level, status| {
        refused(status, |why| {
            // SAFETY: frames of the machine that nobody uses.
            unsafe {
                foliant_tables_map(
                    tables,
                    va,
                    8192,
                    frame,
                    attrs,
                    level,
                    Some(spare),
                    Some(&mut lost()),
                    why,
                )
            }
        })
    };
    let write = FOLIANT_ATTR_WRITE;
    map(&mut spare, 0, 0x200, write, 2, Status::NeedTable);
    for nth in 1..9 {
        // SAFETY: frames of the machine that nobody uses.
        well(|why| unsafe { foliant_spare_lend(tables, Some(&mut spare), first + nth, why) });
    }
    refused(Status::Full, |why| {
        // SAFETY: it is refused.
        unsafe { foliant_spare_lend(tables, Some(&mut spare), first + 9, why) }
    });
    map(&mut spare, 0, 0x200, FOLIANT_ATTR_ACCESSED, 0, Status::Value);
    map(&mut spare, 0, 0x200, write, 3, Status::Value);
    map(&mut spare, 5, 0x200, write, 0, Status::Misaligned);
    map(&mut spare, 0, u64::MAX, write, 0, Status::Range);
    map(&mut spare, !0 << 47, 0x200, write, 0, Status::Range);
    map(&mut spare, u64::MAX, 0x200, write, 0, Status::Range);
    assert_eq!(spare.count, 8, "what is refused takes none");
    map(&mut spare, 0, 0x200, write, 0, Status::Ok);
    assert_eq!((spare.count, spare.frames[0]), (5, first + 4), "the first three were taken");
    map(&mut spare, 0, 0x200, write, 0, Status::Mapped);
    let mut broken = Spare { count: 9, ..spare };
    map(&mut broken, 1 << 20, 0x200, write, 0, Status::Value);

    let mut gather = Gather::NOTHING;
    let unmap = |gather: &mut Gather, prune, status| {
        refused(status, |why| {
            foliant_tables_unmap(tables, 0, 8192, prune, Some(gather), Some(&mut lost()), why)
        })
    };
    let flush = |gather: &mut Gather, words: u64, status| {
        let mut cpus = CpuSet::default();
        cpus.words[0] = words;
        refused(status, |why| foliant_tables_flush(tables, Some(&cpus), Some(gather), why))
    };
    flush(&mut gather, 3, Status::Value);
    unmap(&mut gather, 3, Status::Value);
    unmap(&mut gather, 1, Status::Ok);
    assert_eq!((gather.run_count, gather.table_count), (1, 2), "the table below the top stays");
    assert_eq!((gather.runs[0].pa, gather.runs[0].count), (0x20_0000, 2));
    unmap(&mut gather, 1, Status::NotFlushed);
    assert_eq!(gather.run_count, 1);
    assert_eq!(flush(&mut gather, 7, Status::Cpu), "CPU 2: there are 1024 at most, counted from 0");
    flush(&mut gather, 3, Status::Ok);
    flush(&mut gather, 3, Status::Value);
    unmap(&mut gather, 2, Status::Ok);
    assert_eq!((gather.run_count, gather.table_count), (0, 1));
    flush(&mut gather, 1, Status::Ok);
    gather.state = 3;
    unmap(&mut gather, 2, Status::Value);
    refused(Status::NotMapped, |why| foliant_tables_look_up(tables, 0, Some(&mut lost()), why));
    assert_eq!(sim.violations(), []);
}

/// A page table that a call removes was emptied by an earlier one, whose leaves are flushed
/// already: CPUs forget the pointers to it all the same (G2).
#[test]
fn a_removed_table_is_reached_no_more() {
    let config = Config { checks: Checks::None, ..Config::seeded(2, Bytes::new(16 << 20), 3) };
    let sim = Sim::new(config).unwrap();
    let mut lent = Lent::of(foliant_tables_layout().bytes);
    let first = sim.config().memory[0].start().get();
    let (at, bytes) = (lent.at(), foliant_tables_layout().bytes);
    let handle: *const Tables = done(|place, why| {
        // SAFETY: lent memory, and the machine's first frame as root.
        unsafe { foliant_tables_new(at, bytes, Some(&table(&sim)), first << 12, 0, place, why) }
    });
    // SAFETY: made just now.
    let tables = Some(unsafe { &*handle });
    let (mut spare, mut gather) = (Spare::default(), Gather::NOTHING);
    for nth in 1..4 {
        // SAFETY: frames of the machine that nobody uses.
        well(|why| unsafe { foliant_spare_lend(tables, Some(&mut spare), first + nth, why) });
    }
    let (va, user) = (1 << 30, FOLIANT_ATTR_WRITE | FOLIANT_ATTR_USER);
    let frame = first + 8;
    let _: u64 = done(|upto, why| {
        // SAFETY: frames of the machine that nobody uses.
        unsafe { foliant_tables_map(tables, va, 8192, frame, user, 0, Some(&mut spare), upto, why) }
    });
    let root = Pa::new(first << 12);
    let touch = |page: u64| sim.on(Cpu(1), || sim.user_load(Va::new(va + page * 4096), 8));
    sim.on(Cpu(1), || sim.activate(Root { user: root, kernel: root }, Kept::Nothing));
    assert!(touch(0).is_ok());
    let mut unmap = |prune| {
        let both = CpuSet { words: core::array::from_fn(|word| if word == 0 { 3 } else { 0 }) };
        let gather = &mut gather;
        let _: u64 = done(|upto, why| {
            foliant_tables_unmap(tables, va, 8192, prune, Some(gather), upto, why)
        });
        well(|why| foliant_tables_flush(tables, Some(&both), Some(gather), why));
        (gather.run_count, gather.table_count)
    };
    assert_eq!(unmap(Prune::Keep as u32), (1, 0));
    assert!(touch(1).is_err(), "it walks, and notes the table that holds nothing now");
    assert_eq!(unmap(Prune::All as u32), (0, 3));
    // The frame of the lowest table has another use; what is written there looks like a leaf.
    let slot = ((va >> 12) & 511) + 1;
    let leaf = (frame << 12) | 0b111;
    for nth in 1..4 {
        // SAFETY: the frames are this test's again.
        unsafe { sim.store(Pa::new(((first + nth) << 12) + slot * 8), leaf) };
    }
    assert!(touch(1).is_err());
    assert_eq!(sim.violations(), []);
}

/// Numbers that are likely to lie at an edge of something.
fn number(rng: &mut Rng) -> u64 {
    const EDGES: [u64; 14] = [
        0,
        1,
        4095,
        4096,
        1 << 21,
        1 << 30,
        (1 << 30) + 4096,
        1 << 47,
        (1 << 47) - 4096,
        0xffff_8000_0000_0000,
        0xffff_8080_0000_0000,
        u64::MAX - 4095,
        u64::MAX,
        1 << 63,
    ];
    match rng.below(4) {
        0 => rng.below(1 << 14),
        1 => (1 << 30) + rng.below(1 << 12) * 4096,
        2 => rng.draw(),
        _ => EDGES[rng.below(EDGES.len() as u64) as usize],
    }
}
fn small(rng: &mut Rng) -> u32 {
    if rng.below(8) == 0 { number(rng) as u32 } else { rng.below(20) as u32 }
}

/// No call panics on its arguments: it would end this process (C1). In the end all memory comes
/// back.
#[test]
fn no_number_panics() {
    for seed in 0..4 {
        let world = World::new(Config {
            checks: Checks::All,
            ..Config::seeded(1, Bytes::new(32 << 20), seed)
        });
        let (mm, mut rng) = (world.mm(), Rng::new(seed, 0));
        let (mut spaces, mut ranges) = (vec![Space::default()], vec![0]);
        let mut went_well = 0;
        for _ in 0..3000 {
            let rng = &mut rng;
            let space = match rng.below(8) {
                0 => Space { frame: number(rng), stamp: small(rng) },
                _ => spaces[rng.below(spaces.len() as u64) as usize],
            };
            let (va, bytes) = (number(rng), number(rng) >> (rng.below(3) * 20));
            let (mut place, mut made) = (lost(), MaybeUninit::new(Space::default()));
            let status = match rng.below(22) {
                0 if spaces.len() < 9 => {
                    let limit = rng.below(3) * 300;
                    foliant_space_create(mm, limit, Some(&mut made), None)
                }
                1 if spaces.len() < 9 => foliant_space_fork(mm, space, Some(&mut made), None),
                2 => foliant_space_end(mm, space, None),
                3 | 4 => {
                    let request = MapRequest {
                        va,
                        bytes,
                        place: small(rng) % 5,
                        flags: small(rng) | 3,
                        tag: rng.below(2),
                    };
                    foliant_space_map(mm, space, Some(&request), Some(&mut place), None)
                }
                5 => foliant_space_unmap(mm, space, va, bytes, None),
                6 => foliant_space_protect(mm, space, va, bytes, small(rng) % 9, None),
                7 => foliant_space_advise(mm, space, va, bytes.min(1 << 24), small(rng) % 11, None),
                8..=11 => foliant_space_fault(mm, space, va, small(rng) % 4, None, None),
                12 => {
                    let request = VmallocRequest {
                        bytes,
                        align: number(rng),
                        largest: small(rng) % 4,
                        rights: small(rng) % 8,
                        is_zeroed: small(rng) % 2,
                        is_unguarded: small(rng) % 2,
                        caller: va,
                    };
                    let status = foliant_vmalloc(mm, Some(&request), Some(&mut place), None);
                    if status == Status::Ok {
                        // SAFETY: the call went well.
                        ranges.push(unsafe { place.assume_init() });
                    }
                    status
                }
                13 => {
                    let va = if rng.below(2) == 0 {
                        va
                    } else {
                        ranges[rng.below(ranges.len() as u64) as usize]
                    };
                    match rng.below(4) {
                        0 => foliant_vfree_later(mm, va, None),
                        1 => foliant_iounmap(mm, va, None),
                        _ => foliant_vfree(mm, va, None),
                    }
                }
                14 => {
                    let status =
                        foliant_ioremap(mm, va, bytes.min(1 << 24), 0, Some(&mut place), None);
                    if status == Status::Ok {
                        // SAFETY: the call went well.
                        ranges.push(unsafe { place.assume_init() });
                    }
                    status
                }
                15 => foliant_vmalloc_purge(mm, Some(&mut place), None),
                16 => foliant_pool_resize(mm, small(rng), rng.below(6), Some(&mut lost()), None),
                17 => foliant_pool_counters(mm, small(rng), Some(&mut lost()), None),
                18 => foliant_manager_take_back(mm, va, small(rng), None),
                19 => foliant_manager_drain(mm, small(rng), None),
                20 => foliant_space_frame(mm, space, va, Some(&mut place), None),
                _ => foliant_space_charge(mm, space, Some(&mut lost()), None),
            };
            went_well += u32::from(status == Status::Ok);
            // SAFETY: it began as a space that is none.
            spaces.push(unsafe { made.assume_init() });
            spaces.retain(|space| {
                foliant_space_charge(mm, *space, Some(&mut lost()), None) == Status::Ok
            });
            spaces.push(Space::default());
        }
        assert!(went_well > 400, "{went_well} of 3000 calls had an effect");
        for space in spaces.into_iter().filter(|space| *space != Space::default()) {
            well(|why| foliant_space_end(mm, space, why));
        }
        for va in ranges {
            let _ended = foliant_vfree(mm, va, None) == Status::Ok
                || foliant_iounmap(mm, va, None) == Status::Ok;
        }
        let _: u64 = done(|place, why| foliant_vmalloc_purge(mm, place, why));
        let _: Resized = done(|place, why| foliant_pool_resize(mm, 9, 0, place, why));
        let memory: Memory = done(|place, why| foliant_manager_memory(mm, place, why));
        assert_eq!((memory.anonymous, world.count(c"nr_vmalloc_pages")), (0, 0));
        assert_eq!(world.sim.finish(), []);
    }
}
