//! What pools of huge pages took on two published hosts and here, and what a shootdown and a page
//! cost if that is so.
//!
//! ```text
//!   folding off      base                                             fill, drain: the mean of two kernels
//!   here             on - off = folding, unfolding                    two CPUs, batched: the flushes vanish in it
//!   not batched      base + folding + shootdown × (1 + 1/64)          fill: its own remap, and a 64th of a leaf's split
//!                    base + unfolding + shootdown                     drain: its own remap
//!   batched          predicted: nothing here is taken from these rows
//! ```
//!
//! The published rows with folding on hold the work of folding and that of the shootdowns in one
//! number. The work of folding is known from measurements here, so each host's shootdown is what is
//! left of both its phases. Record 014 works it out by hand.
//!
//! **Not here**: prices of anything else (`tables`).

/// Something of each of the two phases of a pool's life.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Phases<T> {
    /// The pool grows.
    pub fill: T,
    /// The pool shrinks again.
    pub drain: T,
}

/// Seconds that a host took to fill and drain a pool of 2 MiB pages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PoolRows {
    /// Where the numbers are from.
    pub source: &'static str,
    /// Pages.
    pub pages: u64,
    /// Folding off, by the kernel without batched flushes.
    pub off: Phases<f64>,
    /// Folding on, by the same.
    pub unbatched: Phases<f64>,
    /// Folding off, by the kernel with batched flushes.
    pub batched_off: Phases<f64>,
    /// Folding on, by the same. Nothing is fitted to it.
    pub batched: Phases<f64>,
}

const SOURCE: &str = "Kravetz, Martins, Wilcox: batch hugetlb vmemmap modification operations, v2, September 2023; \
                      next-20230824 without and with it";

/// The bare-metal host of the table.
pub(super) const HOST_8_SOCKET: PoolRows = PoolRows {
    source: SOURCE,
    pages: 500_000,
    off: Phases { fill: 4.119, drain: 4.477 },
    unbatched: Phases { fill: 28.973, drain: 36.748 },
    batched_off: Phases { fill: 4.719, drain: 4.245 },
    batched: Phases { fill: 7.267, drain: 13.199 },
};

/// Its guest.
pub(super) const GUEST_252: PoolRows = PoolRows {
    source: SOURCE,
    pages: 524_288,
    off: Phases { fill: 2.463, drain: 2.931 },
    unbatched: Phases { fill: 147.609, drain: 149.924 },
    batched_off: Phases { fill: 2.715, drain: 3.186 },
    batched: Phases { fill: 4.799, drain: 5.273 },
};

/// Nanoseconds for a page on the host that Foliant was measured on: 2,000 pages, medians, with
/// batched flushes. It is what `foliant check --hugetlb` prints on a quiet day.
pub(super) const HERE_OFF: Phases<f64> = Phases { fill: 2600.0, drain: 2500.0 };
pub(super) const HERE_ON: Phases<f64> = Phases { fill: 7700.0, drain: 8600.0 };

/// Nanoseconds of folding and of unfolding a page, without any flush: the published rows hold both
/// in one number.
pub(super) const FOLDING: Phases<f64> =
    Phases { fill: HERE_ON.fill - HERE_OFF.fill, drain: HERE_ON.drain - HERE_OFF.drain };

/// Shootdowns for a page where they are not batched; one leaf maps the descriptors of 64 pages.
const SHOOTDOWNS: Phases<f64> = Phases { fill: 1.0 + 1.0 / 64.0, drain: 1.0 };

impl PoolRows {
    const fn each(&self, seconds: Phases<f64>) -> Phases<f64> {
        let nanos = 1e9 / self.pages as f64;
        Phases { fill: seconds.fill * nanos, drain: seconds.drain * nanos }
    }

    /// Nanoseconds for a page, folding off: the mean of both kernels, which do the same then.
    pub const fn base(&self) -> Phases<f64> {
        let (one, other) = (self.each(self.off), self.each(self.batched_off));
        Phases { fill: (one.fill + other.fill) / 2.0, drain: (one.drain + other.drain) / 2.0 }
    }

    /// Nanoseconds for a shootdown, the invalidation on the asking CPU included: what is left of
    /// both phases without base and folding, over the shootdowns of both.
    pub const fn shootdown(&self) -> f64 {
        let (on, base) = (self.each(self.unbatched), self.base());
        let left = on.fill - base.fill - FOLDING.fill + on.drain - base.drain - FOLDING.drain;
        left / (SHOOTDOWNS.fill + SHOOTDOWNS.drain)
    }

    /// Nanoseconds for a page as published, not batched.
    pub const fn unbatched_nanos(&self) -> Phases<f64> {
        self.each(self.unbatched)
    }
    /// Nanoseconds for a page as published, batched.
    pub const fn batched_nanos(&self) -> Phases<f64> {
        self.each(self.batched)
    }
    /// How many times longer the same kernel took with folding than without, batched.
    pub const fn batched_ratio(&self) -> Phases<f64> {
        let (on, off) = (self.batched, self.batched_off);
        Phases { fill: on.fill / off.fill, drain: on.drain / off.drain }
    }
    /// The same, not batched.
    pub const fn unbatched_ratio(&self) -> Phases<f64> {
        let (on, off) = (self.unbatched, self.off);
        Phases { fill: on.fill / off.fill, drain: on.drain / off.drain }
    }
    /// Nanoseconds for a page, batched, as predicted where the flushes of a batch are shared by all
    /// pages.
    pub const fn predicted(&self) -> Phases<f64> {
        let (base, shared) = (self.base(), self.shootdown() / self.pages as f64);
        Phases {
            fill: base.fill + FOLDING.fill + 2.0 * shared,
            drain: base.drain + FOLDING.drain + shared,
        }
    }
}
