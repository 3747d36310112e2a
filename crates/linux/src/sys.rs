//! The files of `/sys/kernel/mm` about folio sizes of anonymous memory and about pools: what they
//! show and what a write does.
//!
//! ```text
//!   transparent_hugepage/enabled                      always [madvise] never
//!   transparent_hugepage/hugepages-64kB/enabled       always inherit madvise [never]
//!   transparent_hugepage/hugepages-64kB/stats/nr_anon 12
//!   hugepages/hugepages-2048kB/nr_hugepages           128
//! ```
//!
//! Words are taken with a line's end or without. A size that the manager chooses shows one more
//! word, `auto`, which Linux does not have.
//!
//! **Invariants**
//! - Y1. What is read can be written back, where the file can be written, and changes nothing.
//!
//! **Not here**: descriptors, offsets, owners of files; sizes of files in memory (`shmem_enabled`).

use crate::controls::{CONTROLS, Control, ControlAccess, ControlError, Scope};
use crate::errno::Errno;
use crate::numbers::of_sysfs;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use foliant::fault::{Defrag, Global, Orders, Policy, Size, UseZeroPage};
use foliant::table::Paging;
use foliant::{Manager, SizeEvent};
use foliant_machine::Machine;
use foliant_units::Order;
use linux_raw_sys::errno;

pub(crate) const THP: &str = "transparent_hugepage";
const POOLS: &str = "hugepages";

/// The names of all files, from `/sys/kernel/mm` on.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = ["enabled", "defrag", "use_zero_page", "hpage_pmd_size"]
        .iter()
        .map(|name| format!("{THP}/{name}"))
        .collect();
    for order in Orders::ANON.largest_first() {
        let folder = format!("{THP}/{}", folder(order));
        names.push(format!("{folder}/enabled"));
        names
            .extend(SizeEvent::ALL.iter().map(|event| format!("{folder}/stats/{}", event.label())));
    }
    for order in [Order::SIZE_2M, Order::SIZE_1G] {
        let here = CONTROLS.iter().filter(|control| control.is_at(Scope::Pool(order)));
        names.extend(here.map(|control| format!("{POOLS}/{}/{}", folder(order), control.name())));
    }
    names
}

/// The name of a size's folder.
pub(crate) fn folder(order: Order) -> String {
    format!("hugepages-{}kB", order.bytes().get() >> 10)
}
/// The size of a folder.
pub(crate) fn order_of(folder: &str) -> Option<Order> {
    Order::all().find(|order| self::folder(*order) == folder)
}

/// What a file's name means.
enum File {
    Enabled,
    Defrag,
    UseZeroPage,
    PmdSize,
    Size(Order),
    Stat(Order, SizeEvent),
    Pool(Order, Control),
}

impl File {
    fn named(path: &str) -> Result<File, Errno> {
        let parts: Vec<&str> = path.split('/').collect();
        let anon = |name| order_of(name).filter(|order| Orders::ANON.contains(*order));
        let file = match parts[..] {
            [THP, "enabled"] => Some(File::Enabled),
            [THP, "defrag"] => Some(File::Defrag),
            [THP, "use_zero_page"] => Some(File::UseZeroPage),
            [THP, "hpage_pmd_size"] => Some(File::PmdSize),
            [THP, size, "enabled"] => anon(size).map(File::Size),
            [THP, size, "stats", name] => anon(size).and_then(|order| {
                let event = SizeEvent::ALL.iter().find(|event| event.label() == name)?;
                Some(File::Stat(order, *event))
            }),
            [POOLS, size, name] => order_of(size).and_then(|order| {
                let control = Control::named(name)?;
                control.is_at(Scope::Pool(order)).then_some(File::Pool(order, control))
            }),
            _ => None,
        };
        file.ok_or(Errno(errno::ENOENT))
    }
}

/// What a file shows.
pub fn read<M: Machine, P: Paging>(mm: &Manager<'_, M, P>, path: &str) -> Result<String, Errno> {
    let policy = mm.policy();
    let global = |global: Global| match global {
        Global::Always => "always",
        Global::Madvise => "madvise",
        Global::Never => "never",
    };
    let text = match File::named(path)? {
        File::Enabled => chosen(&["always", "madvise", "never"], global(policy.global)),
        File::Defrag => chosen(&Defrag::ALL.map(Defrag::word), mm.defrag().word()),
        File::UseZeroPage => u8::from(policy.use_zero_page == UseZeroPage::Yes).to_string(),
        File::PmdSize => Order::SIZE_2M.bytes().get().to_string(),
        File::Size(order) => {
            chosen(&["always", "inherit", "madvise", "never"], policy.get(order).label())
        }
        File::Stat(order, event) => mm.size_stats(order).get(event).to_string(),
        File::Pool(order, control) => {
            control.read(&mm.pools(), Scope::Pool(order)).map_err(refused)?.to_string()
        }
    };
    Ok(text + "\n")
}

/// Writes a file.
pub fn write<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    path: &str,
    text: &str,
) -> Result<(), Errno> {
    let word = text.strip_suffix('\n').unwrap_or(text);
    let set = |change: &dyn Fn(&mut Policy) -> Result<(), Errno>| {
        let mut policy = mm.policy();
        change(&mut policy)?;
        mm.set_policy(policy);
        Ok(())
    };
    match File::named(path)? {
        File::Enabled => set(&|policy| {
            policy.global = Global::parse(word).map_err(|_| Errno::INVAL)?;
            Ok(())
        }),
        File::UseZeroPage => set(&|policy| {
            policy.use_zero_page = match of_sysfs(text)? {
                0 => UseZeroPage::No,
                1 => UseZeroPage::Yes,
                _ => return Err(Errno::INVAL),
            };
            Ok(())
        }),
        File::Size(order) => set(&|policy| {
            let size = Size::parse(word).map_err(|_| Errno::INVAL)?;
            policy.set(order, size).map_err(|_| Errno::INVAL)
        }),
        File::Defrag => {
            mm.set_defrag(word.parse().map_err(|_| Errno::INVAL)?);
            Ok(())
        }
        File::PmdSize | File::Stat(..) => Err(Errno(errno::EACCES)),
        File::Pool(_, control) if control.rights() == ControlAccess::Read => {
            Err(Errno(errno::EACCES))
        }
        File::Pool(order, control) => {
            control.write(&mm.pools(), Scope::Pool(order), word).map_err(refused)?;
            Ok(())
        }
    }
}

/// What the words of `use_zero_page` mean.
pub fn use_zero_page(word: &str) -> Option<UseZeroPage> {
    match word {
        "0" => Some(UseZeroPage::No),
        "1" => Some(UseZeroPage::Yes),
        _ => None,
    }
}

/// All words, the one that holds in brackets; one that is not among them stands behind them.
pub(crate) fn chosen(words: &[&str], holds: &str) -> String {
    let shown = |word: &&str| if **word == *holds { format!("[{word}]") } else { (*word).into() };
    let mut words: Vec<String> = words.iter().map(shown).collect();
    if !words.iter().any(|word| word.starts_with('[')) {
        words.push(format!("[{holds}]"));
    }
    words.join(" ")
}

pub(crate) fn refused(why: ControlError<'_>) -> Errno {
    match why {
        ControlError::ReadOnly(_) | ControlError::WriteOnly(_) => Errno(errno::EACCES),
        ControlError::Elsewhere(..) | ControlError::Pool(_) => Errno(errno::ENOENT),
        _ => Errno::INVAL,
    }
}
