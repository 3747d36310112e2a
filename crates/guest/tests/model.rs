//! Random accesses, of both kinds of memory, beside vectors of bytes.

mod common;

use common::{KINDS, Kind, PAGE, books, host, range, scatter};
use foliant_units::{Bytes, Order};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::sync::atomic::Ordering;
use vm_memory::bitmap::{AtomicBitmap, Bitmap};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

/// Two stretches of guest addresses, with a hole between them.
const RANGES: [(u64, u64); 2] = [(PAGE, 4), (8 * PAGE, 2)];
const BASE: u64 = 4096;

/// A place: near an edge of a huge page or of one of 4 KiB, more often than anywhere else.
#[derive(Clone, Copy, Debug)]
struct At(u64);

fn at() -> impl Strategy<Value = At> {
    let near = |step: u64| {
        (0..10 * PAGE / step, -70i64..70)
            .prop_map(move |(nth, by)| At((nth * step).saturating_add_signed(by)))
    };
    prop_oneof![3 => near(PAGE), 1 => near(BASE), 1 => (0..10 * PAGE).prop_map(At)]
}

#[derive(Clone, Debug)]
enum Op {
    Write(At, u64, u8),
    Read(At, u64),
    WriteThroughSlices(At, u64, u8),
    Store(At, u64),
    StoreByte(At, u8),
    Load(At),
    GiveBack(u64, u64),
    BringBack(u64, u64),
}

fn op() -> impl Strategy<Value = Op> {
    let length = || prop_oneof![6 => 0u64..150, 1 => 0..PAGE + BASE];
    prop_oneof![
        4 => (at(), length(), any::<u8>()).prop_map(|(at, n, byte)| Op::Write(at, n, byte)),
        4 => (at(), length()).prop_map(|(at, n)| Op::Read(at, n)),
        2 => (at(), length(), any::<u8>())
            .prop_map(|(at, n, byte)| Op::WriteThroughSlices(at, n, byte)),
        3 => (at(), any::<u64>()).prop_map(|(at, word)| Op::Store(at, word)),
        1 => (at(), any::<u8>()).prop_map(|(at, byte)| Op::StoreByte(at, byte)),
        3 => at().prop_map(Op::Load),
        2 => (0u64..11, 1u64..4).prop_map(|(page, n)| Op::GiveBack(page, n)),
        1 => (0u64..11, 1u64..4).prop_map(|(page, n)| Op::BringBack(page, n)),
    ]
}

/// What a guest's memory is, naively.
struct Naive {
    /// By guest address, none in holes.
    bytes: Vec<Option<u8>>,
    /// By page of 4 KiB.
    dirty: Vec<bool>,
    /// By huge page.
    gone: Vec<bool>,
}

impl Naive {
    fn new() -> Naive {
        let mut bytes = vec![None; 10 * PAGE as usize];
        for (start, pages) in RANGES {
            bytes[start as usize..(start + pages * PAGE) as usize].fill(Some(0));
        }
        Naive { bytes, dirty: vec![false; (10 * PAGE / BASE) as usize], gone: vec![false; 10] }
    }
    /// How many of `count` bytes there are from `at` on without a hole.
    fn there(&self, at: u64, count: u64) -> u64 {
        let (start, end) = (at as usize, (at + count) as usize);
        let all = self.bytes.get(start..end.min(self.bytes.len())).unwrap_or_default();
        all.iter().take_while(|byte| byte.is_some()).count() as u64
    }
    fn touch(&mut self, at: u64, count: u64) {
        if count == 0 {
            return;
        }
        for page in at / PAGE..(at + count).div_ceil(PAGE) {
            self.gone[page as usize] = false;
        }
    }
    fn write(&mut self, at: u64, data: impl ExactSizeIterator<Item = u8>) {
        for (byte, at) in data.zip(at..) {
            self.bytes[at as usize] = Some(byte);
            self.dirty[(at / BASE) as usize] = true;
        }
    }
    /// Gives back, or brings back, if there is such a range.
    fn turn(&mut self, page: u64, count: u64, gone: bool) -> Option<u64> {
        let whole = self.there(page * PAGE, count * PAGE) == count * PAGE;
        let pages = || (page..page + count).map(|page| page as usize);
        let turned: Vec<usize> =
            whole.then(|| pages().filter(|p| self.gone[*p] != gone).collect())?;
        for page in &turned {
            self.gone[*page] = gone;
            if gone {
                let start = *page * PAGE as usize;
                self.bytes[start..start + PAGE as usize].fill(Some(0));
                let first = start / BASE as usize;
                self.dirty[first..first + (PAGE / BASE) as usize].fill(true);
            }
        }
        Some(turned.len() as u64)
    }
}

/// Bytes that differ from their neighbours.
fn pattern(seed: u8, count: u64) -> impl ExactSizeIterator<Item = u8> + Clone {
    (0..count as usize).map(move |n| seed.wrapping_add((n % 251) as u8))
}

fn same(kind: Kind, ops: &[Op]) {
    let machine = kind.small();
    let host = host(&machine, Order::SIZE_2M, 16);
    let others = scatter(&host);
    let before = books(&host, Order::SIZE_2M);
    let ranges = RANGES.map(|(start, pages)| range(start, pages));
    let guest = kind.guest(&host, Order::SIZE_2M, &ranges).unwrap().tracked::<AtomicBitmap>();
    let mut naive = Naive::new();
    for op in ops {
        match *op {
            Op::Write(At(at), count, seed) => {
                let data: Vec<u8> = pattern(seed, count).collect();
                let there = naive.there(at, count);
                let wrote = guest.write(&data, GuestAddress(at)).unwrap_or(0) as u64;
                assert_eq!(wrote, there, "{op:?}");
                naive.touch(at, there);
                naive.write(at, pattern(seed, count).take(there as usize));
            }
            Op::Read(At(at), count) => {
                let mut data = vec![0xaa; count as usize];
                let there = naive.there(at, count);
                let read = guest.read(&mut data, GuestAddress(at)).unwrap_or(0) as u64;
                assert_eq!(read, there, "{op:?}");
                naive.touch(at, there);
                let all = naive.bytes[..].iter().skip(at as usize).take(there as usize);
                assert!(
                    all.eq(data[..there as usize]
                        .iter()
                        .map(|b| Some(*b))
                        .collect::<Vec<_>>()
                        .iter()),
                    "{op:?}"
                );
            }
            Op::WriteThroughSlices(At(at), count, seed) => {
                let data: Vec<u8> = pattern(seed, count).collect();
                let mut done = 0;
                for slice in
                    GuestMemoryBackend::get_slices(&guest, GuestAddress(at), count as usize)
                {
                    let Ok(slice) = slice else { break };
                    slice.copy_from(&data[done..done + slice.len()]);
                    done += slice.len();
                }
                assert_eq!(done as u64, naive.there(at, count), "{op:?}");
                naive.touch(at, done as u64);
                naive.write(at, pattern(seed, count).take(done));
            }
            Op::Store(At(at), word) => {
                let fits = at.is_multiple_of(8) && naive.there(at, 8) == 8;
                let stored = guest.store(word, GuestAddress(at), Ordering::SeqCst);
                assert_eq!(stored.is_ok(), fits, "{op:?}");
                naive.touch(at, naive.there(at, 8)); // what is not aligned is touched as well
                if fits {
                    naive.write(at, word.to_ne_bytes().into_iter());
                }
            }
            Op::StoreByte(At(at), byte) => {
                let there = naive.there(at, 1);
                let stored = guest.store(byte, GuestAddress(at), Ordering::SeqCst);
                assert_eq!(stored.is_ok(), there == 1, "{op:?}");
                naive.touch(at, there);
                naive.write(at, [byte].into_iter().take(there as usize));
            }
            Op::Load(At(at)) => {
                let at = at & !7;
                let loaded = guest.load::<u64>(GuestAddress(at), Ordering::SeqCst).ok();
                let bytes = naive.bytes[..].get(at as usize..at as usize + 8);
                let bytes = bytes.and_then(|all| all.iter().copied().collect::<Option<Vec<u8>>>());
                let word = bytes.map(|all| u64::from_ne_bytes(all.try_into().unwrap()));
                assert_eq!(loaded, word, "{op:?}");
                naive.touch(at, naive.there(at, 8));
            }
            Op::GiveBack(page, count) | Op::BringBack(page, count) => {
                let (start, bytes) = range(page * PAGE, count);
                let turned = match *op {
                    Op::GiveBack(..) => guest.give_back(start, bytes),
                    _ => guest.bring_back(start, bytes),
                };
                if kind == Kind::InView {
                    let model = naive.turn(page, count, matches!(op, Op::GiveBack(..)));
                    assert_eq!(turned.ok(), model.map(|n| Bytes::new(n * PAGE)), "{op:?}");
                }
            }
        }
        let gone = naive.gone.iter().filter(|gone| **gone).count() as u64;
        assert_eq!(guest.given_back(), Bytes::new(gone * PAGE), "{op:?}");
    }
    // Exactly the pages of 4 KiB are dirty that were written to, or given back.
    for region in guest.iter() {
        for at in (0..region.len()).step_by(BASE as usize) {
            let page = ((region.start_addr().0 + at) / BASE) as usize;
            assert_eq!(region.bitmap().dirty_at(at as usize), naive.dirty[page], "page {page}");
        }
    }
    for (start, pages) in RANGES {
        let mut all = vec![0; (pages * PAGE) as usize];
        guest.read_slice(&mut all, GuestAddress(start)).unwrap();
        let naive = &naive.bytes[start as usize..(start + pages * PAGE) as usize];
        assert!(all.iter().zip(naive).all(|(is, should)| Some(*is) == *should));
    }
    drop(guest);
    assert_eq!(books(&host, Order::SIZE_2M), before);
    drop(others);
    host.audit(&[]).unwrap();
    assert_eq!(machine.finish(), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, rng_seed: RngSeed::Fixed(41), ..ProptestConfig::default() })]

    #[test]
    fn accesses_are_those_of_a_vector(ops in prop::collection::vec(op(), 1..80)) {
        for kind in KINDS {
            same(kind, &ops);
        }
    }
}
