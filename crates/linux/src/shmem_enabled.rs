//! `shmem_enabled`: which sizes folios of files in memory have, as words of Linux's.
//!
//! ```text
//!   transparent_hugepage/shmem_enabled                 always within_size advise [never] deny force
//!   transparent_hugepage/hugepages-64kB/shmem_enabled  always inherit within_size advise [never]
//! ```
//!
//! Linux has more words than the manager has switches. A folio of an object never reaches beyond
//! the object's end, so `always` and `within_size` are the same to the manager; `deny` switches
//! every size off, and `force` switches those on that inherit. The words stand here.
//!
//! **Invariants**
//! - W1. The manager's switches for objects say what the words say: nobody else sets them.
//! - W2. What is read can be written back and changes nothing (sys::Y1), but for `force`, which is
//!   refused once another size than 2 MiB alone inherits.
//!
//! **Locking.** A write takes `&mut self`; one after the other, as under Linux's lock.

use crate::errno::Errno;
use crate::sys::{THP, chosen, folder, order_of};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use foliant::Manager;
use foliant::fault::{Global, Orders, Policy};
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::Order;
use linux_raw_sys::errno;

const NAME: &str = "shmem_enabled";

/// A word of the file of all sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum All {
    Always,
    WithinSize,
    Advise,
    Never,
    Deny,
    Force,
}

impl All {
    const WORDS: [(All, &str); 6] = [
        (All::Always, "always"),
        (All::WithinSize, "within_size"),
        (All::Advise, "advise"),
        (All::Never, "never"),
        (All::Deny, "deny"),
        (All::Force, "force"),
    ];
}

/// A word of the file of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum One {
    Always,
    Inherit,
    WithinSize,
    Advise,
    Never,
}

impl One {
    const WORDS: [(One, &str); 5] = [
        (One::Always, "always"),
        (One::Inherit, "inherit"),
        (One::WithinSize, "within_size"),
        (One::Advise, "advise"),
        (One::Never, "never"),
    ];
}

/// The word of a value.
fn word<T: PartialEq>(words: &[(T, &'static str)], of: &T) -> &'static str {
    words.iter().find(|(value, _)| value == of).map_or("", |(_, word)| word)
}
/// All words, the value's in brackets.
fn shown<T: PartialEq>(words: &[(T, &'static str)], of: &T) -> String {
    let all: Vec<&str> = words.iter().map(|(_, word)| *word).collect();
    chosen(&all, word(words, of)) + "\n"
}
/// The value of a word, which a line's end may follow.
fn parse<T: Copy>(words: &[(T, &'static str)], text: &str) -> Result<T, Errno> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let found = words.iter().find(|(_, word)| *word == text);
    found.map(|(value, _)| *value).ok_or(Errno::INVAL)
}

/// Sizes that Linux has a file for: 8 KiB to 2 MiB.
fn orders() -> impl Iterator<Item = Order> {
    Order::all().filter(|order| (Order::BASE..=Order::SIZE_2M).contains(order)).skip(1)
}

/// A file's name.
enum File {
    All,
    One(Order),
}

impl File {
    fn named(path: &str) -> Result<File, Errno> {
        let parts: Vec<&str> = path.split('/').collect();
        let file = match parts[..] {
            [THP, NAME] => Some(File::All),
            [THP, size, NAME] => {
                order_of(size).filter(|size| orders().any(|order| order == *size)).map(File::One)
            }
            _ => None,
        };
        file.ok_or(Errno(errno::ENOENT))
    }
}

/// The files `shmem_enabled` of a manager: a kernel has one of these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShmemEnabled {
    all: All,
    /// By order.
    one: [One; Order::SIZE_2M.index() + 1],
}

impl ShmemEnabled {
    /// As when Linux begins: 2 MiB inherit, and all is `never`. The manager's switches become so.
    pub fn new<M: Machine, P: Paging>(mm: &Manager<'_, M, P>) -> ShmemEnabled {
        let mut one = [One::Never; Order::SIZE_2M.index() + 1];
        one[Order::SIZE_2M.index()] = One::Inherit;
        let words = ShmemEnabled { all: All::Never, one };
        mm.set_object_policy(words.policy());
        words
    }

    /// The names of its files, from `/sys/kernel/mm` on.
    pub fn names() -> Vec<String> {
        let sizes = orders().map(|order| format!("{THP}/{}/{NAME}", folder(order)));
        [format!("{THP}/{NAME}")].into_iter().chain(sizes).collect()
    }
    /// What a file shows.
    pub fn read(&self, path: &str) -> Result<String, Errno> {
        Ok(match File::named(path)? {
            File::All => shown(&All::WORDS, &self.all),
            File::One(order) => shown(&One::WORDS, &self.one[order.index()]),
        })
    }
    /// Writes a file, and has the manager do so from then on. Faults at work keep what they saw.
    pub fn write<M: Machine, P: Paging>(
        &mut self,
        mm: &Manager<'_, M, P>,
        path: &str,
        text: &str,
    ) -> Result<(), Errno> {
        match File::named(path)? {
            File::All => self.set_all(parse(&All::WORDS, text)?)?,
            File::One(order) => self.set_one(order, parse(&One::WORDS, text)?)?,
        }
        mm.set_object_policy(self.policy());
        Ok(())
    }
    /// What is forced is 2 MiB, so Linux refuses it where other sizes inherit.
    fn set_all(&mut self, all: All) -> Result<(), Errno> {
        if all == All::Force && self.sizes(One::Inherit) != Orders::of(Order::SIZE_2M) {
            return Err(Errno::INVAL);
        }
        self.all = all;
        Ok(())
    }
    fn set_one(&mut self, order: Order, one: One) -> Result<(), Errno> {
        let is_forced = self.all == All::Force && one == One::Inherit;
        let has_folios = Orders::ANON.contains(order) || one == One::Never;
        if is_forced && order != Order::SIZE_2M || !has_folios {
            return Err(Errno::INVAL);
        }
        self.one[order.index()] = one;
        Ok(())
    }

    /// The sizes that have this word.
    fn sizes(&self, word: One) -> Orders {
        let has = |order: &Order| self.one[order.index()] == word;
        orders().filter(has).fold(Orders::NONE, |sizes, order| sizes.with(Orders::of(order)))
    }
    /// The switches that the words stand for.
    fn policy(&self) -> Policy {
        let inherit = self.sizes(One::Inherit);
        let global = match self.all {
            All::Deny => return Policy::BASE_ONLY,
            All::Force => return Policy::always(inherit),
            All::Always | All::WithinSize => Global::Always,
            All::Advise => Global::Madvise,
            All::Never => Global::Never,
        };
        let always = self.sizes(One::Always).with(self.sizes(One::WithinSize));
        let madvise = self.sizes(One::Advise);
        Policy { always, madvise, inherit, global, ..Policy::BASE_ONLY }
    }
}
