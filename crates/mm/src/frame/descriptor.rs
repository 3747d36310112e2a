//! The 64-byte descriptor of a frame: the meaning of its words.
//!
//! ```text
//!   word 0   kind (8) │ order (8) │ flags (16) │ stamp (32)      of a head; a tail has kind and order only
//!   word 1   pins (24) │ entries (40): base pages mapped, one per entry (`References`)
//!   word 2, 3  links of the list that a head is on: idle huge pages, folios that wait to be split (`Link`);
//!              of the first page of kernel memory: its place in the queue of what is to be freed (`vmap`)
//!   word 4, 5  where an anonymous folio or a huge page in use was made (`Origin`)
//!   word 6      of any frame of a folio that is held: its holder's count
//!   word 7      of a folio whose size was guessed: what is known of its use (`Guess`); of a huge page that is
//!               taken: the subpool that it counts for
//! ```
//!
//! A tail holds the order and no pointer: its head follows from its own number (`Order::head`), so
//! all tails of one order are alike, and 64 of them in one read-only frame can stand for every tail
//! of every huge page (`memmap`).
//!
//! **Invariants**
//! - D1. Word 0 of a frame that is not part of an allocated folio, space or special page is 0.
//! - D2. The entries counted by a folio are the page-table entries, in base pages, that map any
//!   part of it or are its migration entries, plus those in unfinished gathers. They are counted up
//!   before an entry is published and down after the flush. Pins are counted beside them, in the
//!   same word: a folio that is *frozen* has neither, and nobody gets any. A page of kernel memory
//!   has one entry more for its area, whatever the leaf that maps it.
//! - D3. Nobody writes the descriptor of a `HugeTail`; nor that of the head, while it carries
//!   `Flag::Folding`.

use foliant_units::{Bytes, Frame, Order, Va};

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: Bytes = Bytes::new(64);

/// The words of a head that link it into a list. The owner of the list says what they hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// The next page.
    Next = 2,
    /// The page before.
    Before = 3,
}

/// The first of the words that say where an anonymous folio or a huge page in use was made.
pub(crate) const ORIGIN: u64 = 4;
/// The word that the holder of a folio counts in.
pub(crate) const TALLY: u64 = 6;

/// The word of a guessed folio that says what is known of its use.
pub(crate) const GUESS: u64 = 7;

/// The word of a huge page that is taken that names the subpool it counts for.
pub(crate) const SUBPOOL: u64 = 7;

/// What is known of the use of a folio whose size was guessed, and since when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Guess {
    /// Pages that are not known to be used.
    pub(crate) idle: u64,
    /// When one more was last seen to be used, in 64 pages that had come by then.
    pub(crate) since: u32,
    /// When it was last looked at, likewise; both wrap.
    pub(crate) looked: u32,
}

impl Guess {
    const IDLE_BITS: u32 = 10;
    const TIME_BITS: u32 = 27;
    const TIME: u32 = (1 << Guess::TIME_BITS) - 1;

    /// The time when so many pages had been guessed or come alone.
    pub(crate) const fn time(pages: u64) -> u32 {
        (pages / 64) as u32 & Guess::TIME
    }
    /// Pages that came between two times.
    pub(crate) const fn between(from: u32, to: u32) -> u64 {
        (to.wrapping_sub(from) & Guess::TIME) as u64 * 64
    }
    /// A guess of a folio of `order` that was not looked at yet.
    pub(crate) const fn new(order: Order, now: u32) -> Guess {
        Guess { idle: order.pages().get() - 1, since: now, looked: now }
    }
    /// Whether it is time to look: for the first time when twice its pages came since, then each
    /// time that `again` pages did. A look at a small one gains little: the next comes when as much
    /// came again as before the last.
    pub(crate) fn is_due(self, order: Order, now: u32, again: u64) -> bool {
        let first = 2 * order.pages().get();
        let age = Guess::between(self.since, self.looked);
        let wait = match order {
            _ if self == Guess::new(order, self.looked) => first,
            Order::SIZE_2M => again.max(first),
            _ => again.max(first).max(age),
        };
        Guess::between(self.looked, now) >= wait
    }
    pub(crate) const fn word(self) -> u64 {
        let times = (self.since as u64) << Guess::TIME_BITS | self.looked as u64;
        self.idle | times << Guess::IDLE_BITS
    }
    pub(crate) const fn from_word(word: u64) -> Guess {
        let times = word >> Guess::IDLE_BITS;
        Guess {
            idle: word & ((1 << Guess::IDLE_BITS) - 1),
            since: (times >> Guess::TIME_BITS) as u32 & Guess::TIME,
            looked: times as u32 & Guess::TIME,
        }
    }
}

/// The references that keep a folio: word 1 of its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct References(u64);

impl References {
    const ENTRY_BITS: u32 = 40;
    /// No reference: the folio is free, or frozen.
    pub(crate) const NONE: References = References(0);

    /// So many entries, in base pages.
    pub(crate) const fn of_entries(entries: u64) -> References {
        References(entries)
    }
    /// One pin: a reference without an entry, for access to the folio's memory or descriptor.
    pub(crate) const PIN: References = References(1 << References::ENTRY_BITS);

    /// An anchor (space::anchor): so many pins that a folio with one is told from one that a few
    /// walkers keep.
    pub(crate) const ANCHOR: References = References(References::PIN.0 << 10);

    /// Pins that a folio may have, half of what there is room for.
    pub(crate) const PINS_MAX: u64 = 1 << (u64::BITS - References::ENTRY_BITS - 1);
    /// The same for the manager's own, which are few and let go of: a report of broken memory, a
    /// late release.
    pub(crate) const PINS_OWN: u64 = 2 * References::PINS_MAX - 1;

    pub(crate) const fn from_word(word: u64) -> References {
        References(word)
    }
    pub(crate) const fn word(self) -> u64 {
        self.0
    }
    pub(crate) const fn entries(self) -> u64 {
        self.0 & ((1 << References::ENTRY_BITS) - 1)
    }
    pub(crate) const fn pins(self) -> u64 {
        self.0 >> References::ENTRY_BITS
    }
    /// Whether there is an anchor among the pins, or as many walkers as one counts for.
    pub(crate) const fn may_be_anchored(self) -> bool {
        self.pins() >= References::ANCHOR.pins()
    }
    /// Both together.
    pub(crate) const fn with(self, more: References) -> References {
        References(self.0 + more.0)
    }
    /// The references that are left without `less`; `None` where there are not so many.
    pub(crate) const fn without(self, less: References) -> Option<References> {
        if self.entries() < less.entries() || self.pins() < less.pins() {
            return None;
        }
        Some(References(self.0 - less.0))
    }
}

/// The kind of a described frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Nothing that needs a descriptor: free, a page table, a record.
    Plain,
    /// The head of an anonymous folio.
    Anon,
    /// A later frame of a folio.
    Tail,
    /// The record of an address space.
    Space,
    /// The head of a huge page.
    Huge,
    /// A later frame of a huge page.
    HugeTail,
    /// A page of kernel memory (`vmap`): a block of its own, whatever the leaf that maps it.
    Kernel,
}

/// A property that stays with a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    /// Fewer entries counted than the folio has pages; it waits to be split. Entries of several
    /// spaces may make up for pages that none of them maps: then there is no mark.
    PartlyMapped = 1,
    /// The machine reported the memory as broken: never read, never reused.
    Poisoned = 2,
    /// The tails of this huge page are in one shared frame.
    Optimized = 4,
    /// Some CPUs see the head in its old frame and some in its new one: nobody writes it until the
    /// flag is gone.
    Folding = 8,
    /// The tails of this huge page were folded from the start: there were no descriptors before.
    Born = 16,
    /// It is on a list of folios that may be worth splitting.
    Deferred = 32,
    /// A holder takes its mappings out of use, to split it or to move it.
    Locked = 64,
    /// The manager chose its size, and does not know yet whether all of it is used.
    Guessed = 128,
    /// An object has it because that was asked for, and nobody has touched it since.
    Promised = 256,
}

/// Word 0 of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity(u64);

impl Identity {
    /// The identity of a frame that is nothing in particular.
    pub const PLAIN: Identity = Identity(0);

    /// The identity of a head or tail of a block of `order`.
    pub const fn new(kind: Kind, order: Order) -> Identity {
        Identity(kind as u64 | (order.get() as u64) << 8)
    }
    /// The identity of a space's record; `stamp` tells it from earlier ones in the same frame.
    pub const fn space(stamp: u32) -> Identity {
        Identity(Kind::Space as u64 | (stamp as u64) << 32)
    }
    /// As it stands in memory.
    pub const fn word(self) -> u64 {
        self.0
    }
    /// From memory.
    pub const fn from_word(word: u64) -> Identity {
        Identity(word)
    }
    /// The kind of the frame.
    pub const fn kind(self) -> Kind {
        match self.0 as u8 {
            1 => Kind::Anon,
            2 => Kind::Tail,
            3 => Kind::Space,
            4 => Kind::Huge,
            5 => Kind::HugeTail,
            6 => Kind::Kernel,
            _ => Kind::Plain,
        }
    }
    /// The order of the block it belongs to.
    pub const fn order(self) -> Order {
        match Order::new((self.0 >> 8) as u8) {
            Some(order) => order,
            None => Order::SIZE_1G,
        }
    }
    /// The head of the block that `frame`, whose word this is, belongs to.
    pub const fn head(self, frame: Frame) -> Frame {
        self.order().head(frame)
    }
    /// Whether `flag` is set.
    pub const fn has(self, flag: Flag) -> bool {
        self.0 >> 16 & flag as u64 != 0
    }
    /// With `flag` set.
    pub const fn with(self, flag: Flag) -> Identity {
        Identity(self.0 | (flag as u64) << 16)
    }
    /// Marked as broken, because the nth frame of the huge page is.
    pub(crate) const fn with_broken(self, nth: u64) -> Identity {
        let marked = self.with(Flag::Poisoned);
        let broken = match (marked.0 >> 32) as u32 {
            0 => nth as u32 + 1,
            known if known == nth as u32 + 1 => known,
            _ => u32::MAX, // it is not known which all are
        };
        Identity(marked.0 as u32 as u64 | (broken as u64) << 32)
    }
    /// Which frame of a huge page that is marked as broken it is, if it is one alone.
    pub(crate) fn broken(self) -> Option<u64> {
        (self.0 >> 32).checked_sub(1).filter(|nth| *nth + 1 < u32::MAX as u64)
    }
    /// Whether the nth frame of a huge page that is marked as broken may be what broke.
    pub(crate) fn is_broken_at(self, nth: u64) -> bool {
        self.broken().is_none_or(|broken| broken == nth)
    }
    /// With `flag` clear.
    pub const fn without(self, flag: Flag) -> Identity {
        Identity(self.0 & !((flag as u64) << 16))
    }
    /// The bits that `/proc/kpageflags` shows for such a frame, with Linux's numbers.
    pub const fn kpageflags(self) -> u64 {
        const ANON: u64 = 1 << 12;
        const HEAD: u64 = 1 << 15;
        const TAIL: u64 = 1 << 16;
        const HUGE: u64 = 1 << 17;
        const POISON: u64 = 1 << 19;
        const THP: u64 = 1 << 22;
        let large = self.order().get() > 0;
        let what = match self.kind() {
            Kind::Plain | Kind::Space | Kind::Kernel => 0,
            Kind::Anon if large => ANON | HEAD | THP,
            Kind::Anon => ANON,
            Kind::Tail => ANON | TAIL | THP,
            Kind::Huge => HEAD | HUGE,
            Kind::HugeTail => TAIL | HUGE,
        };
        if self.has(Flag::Poisoned) { what | POISON } else { what }
    }
}

/// Where word `word` of a frame's descriptor stands in the descriptor array at `array`.
pub const fn word_at(array: Va, frame: Frame, word: u64) -> Va {
    array.add(frame.get() * DESCRIPTOR_BYTES.get() + word * 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_shows_what_linux_shows() {
        let flags = |kind, order| Identity::new(kind, order).kpageflags();
        assert_eq!(Identity::PLAIN.kpageflags(), 0);
        assert_eq!(flags(Kind::Huge, Order::SIZE_2M), 1 << 15 | 1 << 17);
        assert_eq!(flags(Kind::HugeTail, Order::SIZE_2M), 1 << 16 | 1 << 17);
        assert_eq!(flags(Kind::Anon, Order::BASE), 1 << 12);
        assert_eq!(flags(Kind::Anon, Order::new(1).unwrap()), 1 << 12 | 1 << 15 | 1 << 22);
        assert_eq!(flags(Kind::Anon, Order::SIZE_2M), 1 << 12 | 1 << 15 | 1 << 22);
        assert_eq!(flags(Kind::Tail, Order::SIZE_2M), 1 << 12 | 1 << 16 | 1 << 22);
        assert_eq!(flags(Kind::Space, Order::BASE), 0);
        assert_eq!(flags(Kind::Kernel, Order::BASE), 0);
        let broken = Identity::new(Kind::Huge, Order::SIZE_2M).with(Flag::Poisoned);
        assert_eq!(broken.kpageflags(), 1 << 15 | 1 << 17 | 1 << 19);
    }

    #[test]
    fn a_huge_page_knows_which_frame_broke_first() {
        let huge = Identity::new(Kind::Huge, Order::SIZE_1G).with(Flag::Optimized);
        let is_broken = |page: Identity| [0, 6, 7, (1 << 18) - 1].map(|nth| page.is_broken_at(nth));
        for (nth, wanted) in
            [(0, [true, false, false, false]), ((1 << 18) - 1, [false, false, false, true])]
        {
            let once = huge.with_broken(nth);
            assert_eq!((is_broken(once), once.with_broken(nth)), (wanted, once));
            assert_eq!((once.kind(), once.order()), (Kind::Huge, Order::SIZE_1G));
            assert!(once.has(Flag::Poisoned) && once.has(Flag::Optimized));
        }
        assert_eq!(is_broken(huge.with_broken(6).with_broken(7)), [true; 4]);
        assert_eq!(is_broken(huge.with_broken(6).with_broken(7).with_broken(6)), [true; 4]);
    }

    #[test]
    fn small_guesses_are_looked_at_ever_less_often_and_leaves_go_on() {
        let small = Order::new(4).unwrap();
        let due = |order, since, looked, after: u64| {
            let guess = Guess { idle: 9, since: Guess::time(since), looked: Guess::time(looked) };
            guess.is_due(order, Guess::time(looked + after), 640)
        };
        let fresh = Guess::new(small, Guess::time(64));
        assert!(!fresh.is_due(small, Guess::time(64), 640));
        assert!(fresh.is_due(small, Guess::time(128), 640), "32 pages, in units of 64");
        assert!(Guess::new(Order::SIZE_2M, 0).is_due(Order::SIZE_2M, Guess::time(1024), 1 << 20));
        assert!(!Guess::new(Order::SIZE_2M, 0).is_due(Order::SIZE_2M, Guess::time(1000), 1 << 20));
        assert!(!due(small, 0, 64, 576) && due(small, 0, 64, 640));
        assert!(!due(small, 0, 6400, 6336) && due(small, 0, 6400, 6400), "as long again");
        assert!(!due(Order::SIZE_2M, 0, 64000, 960) && due(Order::SIZE_2M, 0, 64000, 1024));
    }

    #[test]
    fn references_are_taken_back_as_far_as_they_are_there() {
        let pins = |n| (0..n).fold(References::NONE, |all, _| all.with(References::PIN));
        let entries = References::of_entries;
        let all = entries(3).with(pins(2));
        assert_eq!((all.entries(), all.pins()), (3, 2));
        assert_eq!(all.without(entries(3).with(pins(2))), Some(References::NONE));
        assert_eq!(all.without(entries(1)), Some(entries(2).with(pins(2))));
        assert_eq!(all.without(pins(1)), Some(entries(3).with(pins(1))));
        assert_eq!(all.without(entries(4)), None, "an entry too many is not taken from the pins");
        assert_eq!(all.without(pins(3)), None);
        assert_eq!(all.without(entries(4).with(pins(1))), None);
    }

    #[test]
    fn an_identity_tells_back_what_it_was_made_of() {
        let tail = Identity::new(Kind::Tail, Order::SIZE_2M);
        assert_eq!((tail.kind(), tail.order()), (Kind::Tail, Order::SIZE_2M));
        assert_eq!(tail.head(Frame::new(1025)), Frame::new(1024));
        let marked = Identity::new(Kind::Anon, Order::BASE).with(Flag::Poisoned);
        assert!(marked.has(Flag::Poisoned) && !marked.has(Flag::PartlyMapped));
        assert_eq!(Identity::from_word(marked.word()), marked);
        assert_eq!(Identity::space(7).word() >> 32, 7);
        let huge =
            Identity::new(Kind::Huge, Order::SIZE_1G).with(Flag::Optimized).with(Flag::Folding);
        assert_eq!((huge.kind(), huge.order()), (Kind::Huge, Order::SIZE_1G));
        let open = huge.without(Flag::Folding);
        assert!(open.has(Flag::Optimized) && !open.has(Flag::Folding));
    }
}
