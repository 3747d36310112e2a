//! Which folio sizes a fault may use: a pure function of switches and wishes.
//!
//! ```text
//!   word   always: orders 0..=9 (10) │ madvise (10) │ inherit (10) │ auto (10) │ global (2) │ use_zero_page (1)
//! ```
//!
//! The switches of the sizes, the global one and that of zeros fit in one word, so a fault takes
//! one snapshot of them (fault::E2, TR-A9); `defrag` and the switch of the process are words of
//! their own. Supported sizes are 16 KiB to 2 MiB (orders 2 to 9). At the start 2 MiB inherits the
//! global switch and all others are off, and a read may map 2 MiB of zeros.

use super::defrag::Defrag;
use crate::space::{Flags, ProcessSwitch};
use crate::sync::{AtomicU64, Ordering};
use core::{error, fmt};
use foliant_units::{Bytes, Order, SizeError, Va, VaRange};

/// Orders as a set, up to 2 MiB.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Orders(u16);

impl Orders {
    /// No order: base pages only.
    pub const NONE: Orders = Orders(0);
    /// Those that anonymous memory can have: 16 KiB to 2 MiB.
    pub const ANON: Orders = Orders(0x3fc);
    const BITS: u32 = 10;
    const MASK: u64 = (1 << Orders::BITS) - 1;

    /// The set of `order` alone; empty above 2 MiB.
    pub const fn of(order: Order) -> Orders {
        if order.get() as u32 >= Orders::BITS { Orders(0) } else { Orders(1 << order.get()) }
    }
    /// Every supported order up to `order`.
    pub const fn up_to(order: Order) -> Orders {
        let top = if order.get() > 9 { 9 } else { order.get() };
        Orders(((1 << (top + 1)) - 1) & Orders::ANON.0)
    }
    /// Both together.
    pub const fn with(self, more: Orders) -> Orders {
        Orders(self.0 | more.0)
    }
    /// Those not in `less`.
    pub const fn without(self, less: Orders) -> Orders {
        Orders(self.0 & !less.0)
    }
    /// Whether `order` is in the set.
    pub const fn contains(self, order: Order) -> bool {
        (order.get() as u32) < Orders::BITS && self.0 >> order.get() & 1 == 1
    }
    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// The orders, largest first.
    pub fn largest_first(self) -> impl Iterator<Item = Order> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let top = left.checked_ilog2()?;
            left &= !(1 << top);
            Order::new(top as u8)
        })
    }
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.largest_first()).finish()
    }
}

/// The switch of all sizes (`transparent_hugepage/enabled`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Global {
    /// Sizes that inherit are off.
    Never,
    /// Sizes that inherit are for areas that ask.
    Madvise,
    /// Sizes that inherit are for all areas.
    Always,
}

/// The switch of one size (`transparent_hugepage/hugepages-*kB/enabled`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// Off.
    Never,
    /// For areas that ask.
    Madvise,
    /// As the global switch says.
    Inherit,
    /// For all areas.
    Always,
    /// Where the manager finds it worth its memory (`fault::tuned`); for areas that ask.
    Auto,
}

/// The switch of shared zeros (`transparent_hugepage/use_zero_page`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UseZeroPage {
    /// A read maps a page of zeros.
    No,
    /// A read maps 2 MiB of zeros where a folio of that size may be.
    Yes,
}

/// The switches of all sizes, the global one and that of zeros, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Sizes for all areas.
    pub always: Orders,
    /// Sizes for areas that ask.
    pub madvise: Orders,
    /// Sizes that follow `global`.
    pub inherit: Orders,
    /// Sizes that the manager chooses among.
    pub auto: Orders,
    /// The switch of all sizes.
    pub global: Global,
    /// The switch of shared zeros.
    pub use_zero_page: UseZeroPage,
}

impl Default for Policy {
    /// 2 MiB inherits, and the global switch says `madvise`.
    fn default() -> Policy {
        Policy { inherit: Orders::of(Order::SIZE_2M), global: Global::Madvise, ..Policy::BASE_ONLY }
    }
}

impl Policy {
    /// Everything off: 4 KiB pages only.
    pub const BASE_ONLY: Policy = Policy {
        always: Orders::NONE,
        madvise: Orders::NONE,
        inherit: Orders::NONE,
        auto: Orders::NONE,
        global: Global::Never,
        use_zero_page: UseZeroPage::Yes,
    };

    /// `sizes` for all areas, nothing else.
    pub const fn always(sizes: Orders) -> Policy {
        Policy { always: sizes, ..Policy::BASE_ONLY }
    }
    /// The manager chooses among `sizes`, nothing else.
    pub const fn tuned(sizes: Orders) -> Policy {
        Policy { auto: sizes, ..Policy::BASE_ONLY }
    }

    /// Sets the switch of one size.
    pub fn set(&mut self, order: Order, size: Size) -> Result<(), PolicyError> {
        let bit = Orders::of(order);
        if bit.without(Orders::ANON) != Orders::NONE || bit.is_empty() {
            return Err(PolicyError::Unsupported(order.bytes()));
        }
        for set in [&mut self.always, &mut self.madvise, &mut self.inherit, &mut self.auto] {
            *set = set.without(bit);
        }
        match size {
            Size::Never => {}
            Size::Madvise => self.madvise = self.madvise.with(bit),
            Size::Inherit => self.inherit = self.inherit.with(bit),
            Size::Always => self.always = self.always.with(bit),
            Size::Auto => self.auto = self.auto.with(bit),
        }
        Ok(())
    }

    /// The switch of one size.
    pub fn get(&self, order: Order) -> Size {
        match order {
            _ if self.always.contains(order) => Size::Always,
            _ if self.inherit.contains(order) => Size::Inherit,
            _ if self.madvise.contains(order) => Size::Madvise,
            _ if self.auto.contains(order) => Size::Auto,
            _ => Size::Never,
        }
    }

    /// Which sizes a fault in an area with `flags` of a process with `switch` may use.
    pub fn allowed(&self, flags: Flags, switch: ProcessSwitch) -> Orders {
        if bars(flags, switch) {
            return Orders::NONE;
        }
        let asks = flags.has(Flags::HUGEPAGE);
        let mut orders = self.always;
        if asks {
            orders = orders.with(self.madvise).with(self.auto);
        }
        if self.global == Global::Always || (self.global == Global::Madvise && asks) {
            orders = orders.with(self.inherit);
        }
        Orders(orders.0 & Orders::ANON.0)
    }

    /// Which sizes a fault there may use if the manager finds them worth it: none that it may use
    /// anyway.
    pub fn choice(&self, flags: Flags, switch: ProcessSwitch) -> Orders {
        if self.auto.is_empty() || bars(flags, switch) {
            return Orders::NONE;
        }
        Orders(self.auto.0 & Orders::ANON.0).without(self.allowed(flags, switch))
    }

    fn word(self) -> u64 {
        let sets = [self.always, self.madvise, self.inherit, self.auto];
        let rest = self.global as u64 | (self.use_zero_page as u64) << 2;
        sets.iter().rev().fold(rest, |word, set| word << Orders::BITS | set.0 as u64)
    }
    #[inline]
    fn from_word(word: u64) -> Policy {
        let set = |i: u32| Orders((word >> (i * Orders::BITS) & Orders::MASK) as u16);
        let global = match word >> (4 * Orders::BITS) & 3 {
            0 => Global::Never,
            1 => Global::Madvise,
            _ => Global::Always,
        };
        let use_zero_page = match word >> (4 * Orders::BITS + 2) {
            0 => UseZeroPage::No,
            _ => UseZeroPage::Yes,
        };
        let [always, madvise, inherit, auto] = [0, 1, 2, 3].map(set);
        Policy { always, madvise, inherit, auto, global, use_zero_page }
    }
}

/// Properties of areas that get none: of one that is armed each page is told of by itself.
const BARRING: Flags = Flags::NOHUGEPAGE.with(Flags::ARMED);

/// Whether an area, or its process, gets no large folios whatever the switches say.
fn bars(flags: Flags, switch: ProcessSwitch) -> bool {
    switch == ProcessSwitch::Off || flags.and(BARRING) != Flags::NONE
}

impl Size {
    /// Reads `always`, `auto`, `inherit`, `madvise` or `never`.
    pub fn parse(text: &str) -> Result<Size, PolicyError> {
        match text {
            "always" => Ok(Size::Always),
            "auto" => Ok(Size::Auto),
            "inherit" => Ok(Size::Inherit),
            "madvise" => Ok(Size::Madvise),
            "never" => Ok(Size::Never),
            _ => Err(PolicyError::UnknownState),
        }
    }
    /// The word that [`parse`](Size::parse) reads.
    pub const fn label(self) -> &'static str {
        match self {
            Size::Always => "always",
            Size::Auto => "auto",
            Size::Inherit => "inherit",
            Size::Madvise => "madvise",
            Size::Never => "never",
        }
    }
}

impl Global {
    /// Reads `always`, `madvise` or `never`.
    pub fn parse(text: &str) -> Result<Global, PolicyError> {
        match Size::parse(text)? {
            Size::Always => Ok(Global::Always),
            Size::Madvise => Ok(Global::Madvise),
            Size::Never => Ok(Global::Never),
            Size::Auto | Size::Inherit => Err(PolicyError::UnknownState),
        }
    }
}

/// Reads the size of a folio: a power of two from 16 KiB to 2 MiB. It is never rounded.
pub fn parse_order(text: &str) -> Result<Order, PolicyError> {
    let bytes = Bytes::parse(text).map_err(PolicyError::Size)?;
    match Order::fitting(bytes).filter(|o| o.bytes() == bytes) {
        Some(order) if Orders::ANON.contains(order) => Ok(order),
        Some(_) => Err(PolicyError::Unsupported(bytes)),
        None if bytes.get().is_power_of_two() => Err(PolicyError::Unsupported(bytes)),
        None => Err(PolicyError::NotAPower(bytes)),
    }
}

/// Why a switch was not set. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyError {
    /// Not a size at all.
    Size(SizeError),
    /// Not a power of two of base pages.
    NotAPower(Bytes),
    /// No folio size of anonymous memory.
    Unsupported(Bytes),
    /// Not one of the words for a state.
    UnknownState,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Size(error) => error.fmt(f),
            PolicyError::NotAPower(size) => write!(f, "{size} is not a power of two of 4k"),
            PolicyError::Unsupported(size) => {
                write!(f, "{size} is no folio size: use 16k to 2m")
            }
            PolicyError::UnknownState => {
                f.write_str("the state is one of always, auto, inherit, madvise, never")
            }
        }
    }
}
impl error::Error for PolicyError {}
/// The switches of a policy at one moment, to be read where they are needed.
#[derive(Clone, Copy)]
pub(crate) struct Snapshot(u64);

impl Snapshot {
    /// Whether sizes are guessed.
    #[inline]
    pub(crate) fn has_auto(self) -> bool {
        self.0 >> (3 * Orders::BITS) & Orders::MASK != 0
    }
    #[inline]
    pub(crate) fn policy(self) -> Policy {
        Policy::from_word(self.0)
    }
}

/// The switches as all CPUs share them.
#[derive(Debug)]
pub(crate) struct Switches {
    word: AtomicU64,
    defrag: AtomicU64,
}

impl Switches {
    pub(crate) fn new(policy: Policy) -> Switches {
        let defrag = AtomicU64::new(Defrag::default() as u64);
        Switches { word: AtomicU64::new(policy.word()), defrag }
    }
    /// One snapshot of the switches that a policy has.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot(self.word.load(Ordering::Relaxed))
    }
    pub(crate) fn load(&self) -> Policy {
        self.snapshot().policy()
    }
    pub(crate) fn store(&self, policy: Policy) {
        self.word.store(policy.word(), Ordering::Relaxed);
    }
    /// The switch for where no block is free.
    pub(crate) fn defrag(&self) -> Defrag {
        self.defrag_seen().get()
    }
    /// The same, for a fault that most often does not ask what it says.
    pub(crate) fn defrag_seen(&self) -> DefragSeen {
        DefragSeen(self.defrag.load(Ordering::Relaxed))
    }
    pub(crate) fn set_defrag(&self, defrag: Defrag) {
        self.defrag.store(defrag as u64, Ordering::Relaxed);
    }
}

/// The switch for where no block is free, as it was at one moment.
#[derive(Clone, Copy)]
pub(crate) struct DefragSeen(u64);

impl DefragSeen {
    pub(super) fn get(self) -> Defrag {
        Defrag::ALL[self.0 as usize]
    }
}

/// The naturally aligned range of `order` around `va`, where it lies inside `area`.
pub fn fitting(order: Order, va: Va, area: VaRange) -> Option<VaRange> {
    let range = VaRange::sized(va.align_down(order.bytes()), order.bytes())?;
    area.covers(range).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(n: u8) -> Order {
        Order::new(n).unwrap()
    }

    #[test]
    fn a_policy_survives_its_word() {
        let mut policy = Policy::default();
        policy.set(order(4), Size::Always).unwrap();
        policy.set(order(3), Size::Madvise).unwrap();
        for global in [Global::Never, Global::Madvise, Global::Always] {
            for use_zero_page in [UseZeroPage::No, UseZeroPage::Yes] {
                policy = Policy { global, use_zero_page, ..policy };
                assert_eq!(Policy::from_word(policy.word()), policy);
            }
        }
    }

    #[test]
    fn switches_and_wishes_decide_as_upstream_documents() {
        let plain = Flags::READ_WRITE;
        let (asks, bars) = (plain.with(Flags::HUGEPAGE), plain.with(Flags::NOHUGEPAGE));
        let mut policy = Policy::BASE_ONLY;
        policy.set(order(4), Size::Always).unwrap();
        policy.set(order(5), Size::Madvise).unwrap();
        policy.set(order(9), Size::Inherit).unwrap();
        let (o4, o5, o9) = (Orders::of(order(4)), Orders::of(order(5)), Orders::of(order(9)));
        for (global, flags, expect) in [
            (Global::Never, plain, o4),
            (Global::Never, asks, o4.with(o5)),
            (Global::Madvise, plain, o4),
            (Global::Madvise, asks, o4.with(o5).with(o9)),
            (Global::Always, plain, o4.with(o9)),
            (Global::Always, asks, o4.with(o5).with(o9)),
            (Global::Always, bars, Orders::NONE),
            (Global::Always, asks.with(Flags::USERFAULT), Orders::NONE),
        ] {
            policy.global = global;
            let got = policy.allowed(flags, ProcessSwitch::On);
            assert_eq!(got, expect, "{global:?} {flags:?}");
            assert_eq!(policy.allowed(flags, ProcessSwitch::Off), Orders::NONE);
        }
    }

    #[test]
    fn each_size_answers_what_was_set_last() {
        let mut policy = Policy::default();
        for n in 2..=9 {
            for size in [Size::Never, Size::Madvise, Size::Inherit, Size::Always, Size::Madvise] {
                policy.set(order(n), size).unwrap();
                assert_eq!(policy.get(order(n)), size);
            }
            let kept = Policy { madvise: policy.madvise.without(Orders::of(order(n))), ..policy };
            assert_eq!(kept.get(order(n)), Size::Never, "in one set alone");
        }
    }

    #[test]
    fn sizes_that_anonymous_memory_cannot_have_are_refused() {
        for n in [0, 1, 10, 18] {
            let mut policy = Policy::default();
            let refused = Err(PolicyError::Unsupported(order(n).bytes()));
            assert_eq!(policy.set(order(n), Size::Always), refused);
            assert_eq!(policy, Policy::default());
        }
        assert_eq!((0..=18).filter(|n| !Orders::of(order(*n)).is_empty()).count(), 10);
        assert!([10, 18].map(order).map(Orders::of).iter().all(|orders| orders.is_empty()));
    }

    #[test]
    fn a_state_is_read_by_the_name_that_it_is_shown_by() {
        for size in [Size::Never, Size::Madvise, Size::Inherit, Size::Always] {
            assert_eq!(Size::parse(size.label()), Ok(size));
        }
        let names = ["always", "inherit", "madvise", "never"].map(Size::parse);
        assert_eq!(names, [Size::Always, Size::Inherit, Size::Madvise, Size::Never].map(Ok));
        assert_eq!(Size::parse("Always"), Err(PolicyError::UnknownState));
    }

    #[test]
    fn orders_up_to_one_are_the_supported_ones_below_it() {
        for n in 0..=18 {
            let orders = Orders::up_to(order(n));
            for other in 0..=18 {
                let expected = (2..=9).contains(&other) && other <= n;
                assert_eq!(orders.contains(order(other)), expected, "{other} of up to {n}");
            }
            assert_eq!(orders.is_empty(), n < 2);
        }
    }

    #[test]
    fn no_set_contains_an_order_above_two_mib() {
        for order in Order::all().skip(Order::SIZE_2M.index() + 1) {
            assert!(!Orders::ANON.contains(order), "{order}");
            assert_eq!(Policy::always(Orders::ANON).get(order), Size::Never, "{order}");
        }
    }

    #[test]
    fn a_range_fits_only_where_the_area_holds_all_of_it() {
        let area = VaRange::new(Va::new(0x1_1000), Va::new(0x4_0000)).unwrap();
        assert_eq!(fitting(order(4), Va::new(0x1_5000), area), None);
        let range = fitting(order(4), Va::new(0x2_5000), area).unwrap();
        assert_eq!(range.start(), Va::new(0x2_0000));
        assert!(fitting(order(2), Va::new(0x1_5000), area).is_some());
    }
}
