//! What is wished for a program's memory: switches of folio sizes for all, and advice for mappings
//! of its own.
//!
//! A replay judges a [`Remedy`], `foliant advise` recommends one, and `foliant run` applies it. A
//! mapping has no name that the next run would know, so a wish names what stays the same from run
//! to run: that it is the heap, the first thread's stack, or that code at this [`Site`] asked for
//! it, and its size.
//!
//! ```text
//!   Remedy ── switches: global, one for each size      for every program, by who may set them
//!          └─ wishes: Target ─▶ Wish, first that fits  for one program, by what is injected into it
//! ```
//!
//! **Invariants**
//! - W1. Of a remedy's wishes the first whose target fits a mapping is the mapping's; one that fits
//!   none has no wish.
//! - W2. A site is the same in each run of the same files: its offset is one in the object's file,
//!   whatever address that was mapped at.
//!
//! **Not here**: how a site is found (`record::site`); the file that a remedy is kept in (the
//! command).

use crate::event::advice;
pub use crate::site::Site;
use foliant::Policy;
use foliant::fault::{Global, PolicyError, Size};
use foliant_units::{Bytes, Order};
use std::fmt;

/// Which mappings a wish is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Target {
    /// The area of the program break.
    Heap,
    /// The stack of the first thread.
    Stack,
    /// Private memory without a file that `mmap` made.
    Made {
        /// Who asked for it; `None` for whoever did.
        site: Option<Site>,
        /// The least that was asked for.
        least: Bytes,
        /// The most that was asked for.
        most: Bytes,
    },
}

impl Target {
    /// Whether a mapping of so many bytes that was asked for at this site is one of these.
    pub fn fits_made(&self, site: Option<&Site>, bytes: Bytes) -> bool {
        match self {
            Target::Made { site: wanted, least, most } => {
                (*least..=*most).contains(&bytes) && (wanted.is_none() || wanted.as_ref() == site)
            }
            Target::Heap | Target::Stack => false,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Heap => f.write_str("heap"),
            Target::Stack => f.write_str("stack"),
            Target::Made { site, most, .. } => {
                match site {
                    Some(site) => write!(f, "{site}")?,
                    None => f.write_str("mmap")?,
                }
                let is_any = most.get() == u64::MAX;
                if is_any { Ok(()) } else { write!(f, ", up to {most}") }
            }
        }
    }
}

/// What `madvise` is told of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wish {
    /// Large folios, where a switch says `madvise`.
    HugePage,
    /// None, whatever the switches say.
    NoHugePage,
    /// What is there becomes 2 MiB folios at once.
    Collapse,
}

impl Wish {
    /// All of them.
    pub const ALL: [Wish; 3] = [Wish::HugePage, Wish::NoHugePage, Wish::Collapse];

    /// The kernel's number for it.
    pub const fn advice(self) -> u32 {
        match self {
            Wish::HugePage => advice::HUGEPAGE,
            Wish::NoHugePage => advice::NOHUGEPAGE,
            Wish::Collapse => advice::COLLAPSE,
        }
    }
    /// What a plan file calls it.
    pub const fn word(self) -> &'static str {
        match self {
            Wish::HugePage => "hugepage",
            Wish::NoHugePage => "nohugepage",
            Wish::Collapse => "collapse",
        }
    }
    /// Reads that word.
    pub fn parse(text: &str) -> Option<Wish> {
        Wish::ALL.into_iter().find(|wish| wish.word() == text)
    }
}

/// A wish and what it is about.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Wished {
    /// Which mappings.
    pub target: Target,
    /// What they are to get.
    pub wish: Wish,
}

/// Switches of sizes, and wishes: all that is done for a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remedy {
    /// The switch of all sizes.
    pub global: Global,
    /// Those of single sizes; one that is not named is off.
    pub sizes: Vec<(Order, Size)>,
    /// In order of precedence (W1).
    pub wishes: Vec<Wished>,
}

impl Remedy {
    /// Nothing is done: all switches are off.
    pub const NONE: Remedy =
        Remedy { global: Global::Never, sizes: Vec::new(), wishes: Vec::new() };

    /// The switches as the manager has them; an order without a switch is refused.
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        let mut policy = Policy { global: self.global, ..Policy::BASE_ONLY };
        for (order, size) in &self.sizes {
            policy.set(*order, *size)?;
        }
        Ok(policy)
    }

    /// What is wished for the heap.
    pub fn of_heap(&self) -> Option<&Wished> {
        self.first(|target| *target == Target::Heap)
    }
    /// What is wished for the stack of the first thread.
    pub fn of_stack(&self) -> Option<&Wished> {
        self.first(|target| *target == Target::Stack)
    }
    /// What is wished for a mapping of so many bytes that was asked for at this site.
    pub fn of_made(&self, site: Option<&Site>, bytes: Bytes) -> Option<&Wished> {
        self.first(|target| target.fits_made(site, bytes))
    }

    fn first(&self, fits: impl Fn(&Target) -> bool) -> Option<&Wished> {
        self.wishes.iter().find(|wished| fits(&wished.target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(offset: u64) -> Site {
        Site { object: "liba+b.so.1".to_owned(), offset }
    }

    fn made(site: Option<Site>, least: u64, most: u64, wish: Wish) -> Wished {
        Wished {
            target: Target::Made { site, least: Bytes::new(least), most: Bytes::new(most) },
            wish,
        }
    }

    #[test]
    fn the_first_wish_that_fits_is_the_mappings() {
        let remedy = Remedy {
            wishes: vec![
                made(Some(site(1)), 4096, 8192, Wish::NoHugePage),
                made(None, 8192, 16384, Wish::HugePage),
                Wished { target: Target::Heap, wish: Wish::Collapse },
            ],
            ..Remedy::NONE
        };
        let of = |offset: Option<u64>, bytes| {
            let found = remedy.of_made(offset.map(site).as_ref(), Bytes::new(bytes));
            found.map(|wished| wished.wish)
        };
        assert_eq!(of(Some(1), 4096), Some(Wish::NoHugePage));
        assert_eq!(of(Some(1), 8192), Some(Wish::NoHugePage));
        assert_eq!(of(Some(1), 8193), Some(Wish::HugePage));
        assert_eq!(of(Some(2), 8192), Some(Wish::HugePage));
        assert_eq!(of(None, 16384), Some(Wish::HugePage));
        assert_eq!((of(Some(2), 4096), of(None, 16385)), (None, None));
        assert_eq!((remedy.of_heap(), remedy.of_stack()), (Some(&remedy.wishes[2]), None));
        let names: Vec<String> =
            remedy.wishes.iter().map(|wished| wished.target.to_string()).collect();
        assert_eq!(names, ["liba+b.so.1+0x1, up to 8k", "mmap, up to 16k", "heap"]);
        assert_eq!(Target::Stack.to_string(), "stack");
        let any = made(Some(site(2)), 0, u64::MAX, Wish::Collapse);
        assert_eq!(any.target.to_string(), "liba+b.so.1+0x2");
    }

    #[test]
    fn switches_are_the_managers() {
        let order = |n| Order::new(n).unwrap();
        let sizes = vec![(order(4), Size::Always), (order(9), Size::Inherit)];
        let remedy = Remedy { global: Global::Madvise, sizes, ..Remedy::NONE };
        let policy = remedy.policy().unwrap();
        assert_eq!(policy.global, Global::Madvise);
        let sizes = [2, 4, 9].map(|n| policy.get(order(n)));
        assert_eq!(sizes, [Size::Never, Size::Always, Size::Inherit]);
        let unknown = Remedy { sizes: vec![(order(1), Size::Always)], ..Remedy::NONE };
        assert!(unknown.policy().is_err());
    }

    #[test]
    fn wishes_are_read_by_their_words() {
        for wish in Wish::ALL {
            assert_eq!(Wish::parse(wish.word()), Some(wish));
        }
        assert_eq!(Wish::ALL.map(Wish::advice), [14, 15, 25]);
        assert_eq!(Wish::parse("HUGEPAGE"), None);
    }
}
