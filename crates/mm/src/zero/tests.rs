//! Preemption points, and how much is cleared between them, on a machine whose clock the test
//! drives.

use super::*;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_machine::Around;
use foliant_sim::{Checks, Config, Sim};
use foliant_units::{Nanos, Pa, Pages};
use std::sync::Mutex;
use std::vec::Vec;

const BUDGET: Nanos = Nanos(3_000_000);

/// A machine that clears at a given rate and remembers what it was asked for.
struct Fake {
    sim: Sim,
    /// Bytes per microsecond.
    rate: AtomicU64,
    clock: AtomicU64,
    /// When it yielded last, and the longest time between two of them.
    yielded: AtomicU64,
    longest: AtomicU64,
    clears: Mutex<Vec<(Pa, Bytes, Caching)>>,
}

impl Fake {
    fn new(rate: u64) -> Fake {
        let config = Config { checks: Checks::None, ..Config::seeded(1, Bytes::new(4 << 20), 1) };
        let [clock, yielded, longest] = [0; 3].map(AtomicU64::new);
        let sim = Sim::new(config).unwrap();
        Fake { sim, rate: rate.into(), clock, yielded, longest, clears: Mutex::default() }
    }
    fn stretch_ends(&self) {
        let now = self.clock.load(Ordering::Relaxed);
        let stretch = now - self.yielded.swap(now, Ordering::Relaxed);
        self.longest.fetch_max(stretch, Ordering::Relaxed);
    }
    fn clear(&self, order: Order, touched: Option<u64>, clearing: &Clearing, pace: &Pace) -> Tally {
        let block = (Frame::new(0), order);
        let touched = touched.map(Frame::new);
        let mut outside = Outside::at_the_face();
        let near = (touched, Some(&mut outside));
        let tally = carry_out(self, pace, clearing, block, near, Some).unwrap();
        self.stretch_ends();
        tally
    }
    fn cleared(&self) -> Vec<(Pa, Bytes, Caching)> {
        std::mem::take(&mut self.clears.lock().unwrap())
    }
}

#[allow(unsafe_code)]
// SAFETY: clearing reaches no memory; the rest is the simulator's.
unsafe impl Around for Fake {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        &self.sim
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, caching: Caching) {
        let time = bytes.get() * 1000 / self.rate.load(Ordering::Relaxed);
        self.clock.fetch_add(time, Ordering::Relaxed);
        self.clears.lock().unwrap().push((pa, bytes, caching));
    }
    fn now(&self) -> Nanos {
        Nanos(self.clock.load(Ordering::Relaxed))
    }
    fn yield_now(&self) {
        self.stretch_ends();
    }
}

/// One string instruction over 1 GiB once kept a CPU for tens of milliseconds.
#[test]
fn tr_z6_no_stretch_is_longer_than_the_budget() {
    let whole = Clearing::default();
    let page = Clearing { grain: ZeroGrain::PAGE, ..whole };
    let rates = [200, 1000, 2500, 9300, 26_000, 120_000].map(|rate| (rate, whole));
    for (rate, clearing) in rates.into_iter().chain([(9300, page)]) {
        let (fake, pace) = (Fake::new(rate), Pace::default());
        // What is assumed at first is a floor; a machine below it is learnt by its first clear.
        let learnt = fake.clear(Order::SIZE_2M, None, &clearing, &pace);
        fake.longest.store(0, Ordering::Relaxed);
        let tally = fake.clear(Order::SIZE_1G, Some(77_777), &clearing, &pace);
        assert_eq!((learnt.cleared, tally.cleared), (Bytes::SIZE_2M, Bytes::SIZE_1G));
        let longest = fake.longest.load(Ordering::Relaxed);
        assert!(longest <= BUDGET.0, "{longest} ns at {rate} bytes per us");
        // Time in sum tells how many stretches there must be; they are filled to half at least.
        let least = Bytes::SIZE_1G.get() * 1000 / rate / BUDGET.0;
        assert!((least..=2 * least + 8).contains(&tally.yields), "{} at {rate}", tally.yields);
    }
}

/// The rate falls while a block is being cleared: the next stretch is shorter at once.
#[test]
fn tr_z6_a_rate_that_falls_costs_one_stretch() {
    let (fake, pace, clearing) = (Fake::new(10_000), Pace::default(), Clearing::default());
    (0..12).for_each(|_| {
        assert_eq!(fake.clear(Order::SIZE_2M, None, &clearing, &pace).cleared, Bytes::SIZE_2M)
    });
    fake.clear(Order::SIZE_1G, None, &clearing, &pace);
    assert!(fake.longest.load(Ordering::Relaxed) <= BUDGET.0);
    fake.rate.store(5000, Ordering::Relaxed);
    fake.cleared();
    fake.clear(Order::SIZE_1G, None, &clearing, &pace);
    let mut times: Vec<u64> = fake.cleared().iter().map(|c| c.1.get() / 5).collect();
    let first = times.remove(0);
    assert!(first <= 2 * BUDGET.0 && times.iter().all(|time| *time <= BUDGET.0), "{times:?}");
}

/// A CPU that was away for a while once cleared in small pieces ever after.
#[test]
fn a_moment_elsewhere_is_forgotten() {
    let (fake, pace, clearing) = (Fake::new(10_000), Pace::default(), Clearing::default());
    let clears = || fake.clear(Order::SIZE_2M, Some(9), &clearing, &pace).clears;
    (0..12).for_each(|_| assert!(clears() <= 3));
    for rate in [1, 10] {
        fake.rate.store(rate, Ordering::Relaxed);
        clears();
        fake.rate.store(10_000, Ordering::Relaxed);
        (0..12).for_each(|_| assert!(clears() > 0));
        assert!(clears() <= 3, "{rate}");
    }
}

/// Extents of 8 MiB once stayed below the size from which the processor goes past its caches, and
/// gained nothing.
#[test]
fn tr_z4_extents_are_as_large_as_the_budget_allows() {
    const THRESHOLD: u64 = 32 << 20;
    let (fake, pace, clearing) = (Fake::new(16_000), Pace::default(), Clearing::default());
    (0..12).for_each(|_| {
        assert_eq!(fake.clear(Order::SIZE_2M, None, &clearing, &pace).cleared, Bytes::SIZE_2M)
    });
    fake.clear(Order::SIZE_1G, None, &clearing, &pace);
    fake.cleared();
    fake.clear(Order::SIZE_1G, Some(200_000), &clearing, &pace);
    let extents = fake.cleared();
    // All but what is left at the end of each part and the neighbourhood.
    let large = extents.iter().filter(|(_, bytes, _)| bytes.get() >= THRESHOLD).count();
    assert!(extents.len() - large <= 3, "{large} of {} reach 32 MiB", extents.len());
    // Without a bound on time there are three extents.
    let free = Clearing { budget: Nanos(u64::MAX), ..clearing };
    let tally = fake.clear(Order::SIZE_1G, Some(200_000), &free, &pace);
    assert_eq!((tally.clears, tally.yields), (3, 0));
}

/// The page around the fault once was cleared first and cold when its user came back.
#[test]
fn tr_z7_the_neighbourhood_of_the_fault_is_written_last() {
    let clearing = Clearing { far: Far::NonTemporal, ..Clearing::default() };
    for order in [Order::SIZE_2M, Order::SIZE_1G] {
        let pages = order.pages().get();
        for touched in [0, 1, 2, 3, 255, pages / 2 + 7, pages - 3, pages - 1] {
            let (fake, pace) = (Fake::new(10_000), Pace::default());
            fake.clear(order, Some(touched), &clearing, &pace);
            let (pa, bytes, caching) = *fake.cleared().last().unwrap();
            let (start, end) = (touched.saturating_sub(2), (touched + 3).min(pages));
            assert_eq!(caching, Caching::Cached);
            assert_eq!((pa.get(), bytes.get()), (start * 4096, (end - start) * 4096), "{touched}");
        }
    }
    let (fake, pace) = (Fake::new(10_000), Pace::default());
    fake.clear(Order::new(4).unwrap(), Some(3), &clearing, &pace);
    assert_eq!(fake.cleared(), [(Pa::new(0), Bytes::new(64 << 10), Caching::Cached)]);
}

#[test]
fn a_huge_page_takes_at_most_three_extents_and_512_at_the_grain_of_a_page() {
    let pace = Pace::default();
    for touched in (0..512).step_by(7).map(Some).chain([None]) {
        let fake = Fake::new(10_000);
        let usual = fake.clear(Order::SIZE_2M, touched, &Clearing::default(), &pace);
        assert!(usual.clears <= 3, "{usual:?}");
        let page = Clearing { grain: ZeroGrain::PAGE, ..Clearing::default() };
        let tally = fake.clear(Order::SIZE_2M, touched, &page, &pace);
        assert_eq!((tally.clears, tally.cleared, tally.yields), (512, Bytes::SIZE_2M, 0));
    }
}

/// Half of the 2 MiB blocks are known to be zero: the other half is cleared, each block in one
/// extent.
#[test]
fn what_is_known_is_left_out_without_more_extents() {
    let (fake, pace) = (Fake::new(10_000), Pace::default());
    let clearing = Clearing { budget: Nanos(u64::MAX), ..Clearing::default() };
    let block = (Frame::new(0), Order::SIZE_1G);
    let odd = |frames: FrameRange| (frames.start().get() / 512 % 2 == 1).then_some(frames);
    let tally = carry_out(&fake, &pace, &clearing, block, (None, None), odd).unwrap();
    assert_eq!((tally.cleared.get(), tally.spared.get(), tally.clears), (1 << 29, 1 << 29, 256));
    // The second halves of all: neighbours do not touch; the upper half of all in one go.
    let half = |frames: FrameRange| {
        let middle = Frame::new(frames.start().get() + frames.pages().get() / 2);
        Some(plan::between(middle, frames.end()))
    };
    let tally = carry_out(&fake, &pace, &clearing, block, (None, None), half).unwrap();
    assert_eq!((tally.cleared.get(), tally.clears), (1 << 29, 512));
    let upper = |frames: FrameRange| (frames.start().get() >= 1 << 17).then_some(frames);
    let tally = carry_out(&fake, &pace, &clearing, block, (None, None), upper).unwrap();
    assert_eq!((tally.cleared.get(), tally.clears), (1 << 29, 1));
    let nothing = carry_out(&fake, &pace, &clearing, block, (None, None), |_| None).unwrap();
    assert_eq!((nothing.cleared.get(), nothing.spared, nothing.clears), (0, Bytes::SIZE_1G, 0));
    assert_eq!(Pages::new(0).bytes(), nothing.cleared);
}

/// What is cleared in parts is not short, from the very order on that is cleared so; nor is what is
/// larger than a sample, or than one clear may be.
#[test]
fn a_short_go_is_small_and_in_one_part() {
    let [base, order] = [Order::BASE, Order::new(2).unwrap()];
    let with = |parts_from, grain| Clearing { parts_from, grain, ..Clearing::default() };
    let grain = |pages: u64| ZeroGrain::new(Pages::new(pages).bytes()).unwrap();
    for (clearing, of, short) in [
        (Clearing::default(), order, true),
        (Clearing::default(), Order::fitting(SAMPLE).unwrap(), true),
        (Clearing::default(), Order::fitting(Bytes::new(SAMPLE.get() + 1)).unwrap(), false),
        (with(Order::new(3).unwrap(), ZeroGrain::WHOLE), order, true),
        (with(order, ZeroGrain::WHOLE), order, false),
        (with(base, ZeroGrain::WHOLE), order, false),
        (with(Order::SIZE_2M, grain(4)), order, true),
        (with(Order::SIZE_2M, grain(3)), order, false),
    ] {
        assert_eq!(is_short(&clearing, of), short, "{of:?} by {clearing:?}");
    }
}
