//! `/proc/sys/vm`: what its files show, and what a write does.
//!
//! ```text
//!   nr_hugepages, nr_overcommit_hugepages, hugetlb_optimize_vmemmap ──▶ the pool of 2 MiB
//!   mmap_min_addr ──▶ the lowest address of new areas
//!   compact_memory, drop_caches ──▶ done at once; nobody reads them
//!   compact_unevictable_allowed ──▶ 1: what is locked is moved as well
//!   max_map_count ──▶ how many areas a space may have, less one
//!   overcommit_memory, overcommit_ratio and others ──▶ what may be promised (overcommit)
//! ```
//!
//! **Invariants**
//! - Z1. What is read can be written back, where the file can be read, and changes nothing but the
//!   other one of the two words that say how much may be promised (overcommit::O1).
//!
//! **Not here**: who may write: Linux wants `CAP_SYS_RAWIO` for `mmap_min_addr`.

use crate::controls::{Control, Scope};
use crate::errno::Errno;
use crate::numbers::{int_of_proc, of_proc};
use crate::overcommit::{Overcommit, Word};
use crate::sys::refused;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use foliant::Manager;
use foliant::compact::CompactRequest;
use foliant::space::AreaLimit;
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Order, Va};
use linux_raw_sys::errno;

const FOLDER: &str = "vm/";

/// A file's name.
#[derive(Clone, Copy)]
enum File {
    CompactMemory,
    CompactUnevictable,
    DropCaches,
    LowestAddress,
    MapCount,
    Pool(Control, Scope),
    Overcommit(Word),
}

/// The pool that files without a size are about.
const USUAL: Scope = Scope::Pool(Order::SIZE_2M);

const FILES: [(File, &str); 13] = [
    (File::Overcommit(Word::OfRoot), "admin_reserve_kbytes"),
    (File::CompactMemory, "compact_memory"),
    (File::CompactUnevictable, "compact_unevictable_allowed"),
    (File::DropCaches, "drop_caches"),
    (File::Pool(Control::HugetlbOptimizeVmemmap, Scope::Machine), "hugetlb_optimize_vmemmap"),
    (File::MapCount, "max_map_count"),
    (File::LowestAddress, "mmap_min_addr"),
    (File::Pool(Control::NrHugepages, USUAL), "nr_hugepages"),
    (File::Pool(Control::NrOvercommitHugepages, USUAL), "nr_overcommit_hugepages"),
    (File::Overcommit(Word::Kilobytes), "overcommit_kbytes"),
    (File::Overcommit(Word::Mode), "overcommit_memory"),
    (File::Overcommit(Word::Ratio), "overcommit_ratio"),
    (File::Overcommit(Word::OfUser), "user_reserve_kbytes"),
];

impl File {
    fn named(path: &str) -> Result<File, Errno> {
        let name = path.strip_prefix(FOLDER);
        let found = name.and_then(|name| FILES.iter().find(|(_, known)| *known == name));
        found.map(|(file, _)| *file).ok_or(Errno(errno::ENOENT))
    }
}

/// The names of all files, from `/proc/sys` on.
pub fn names() -> Vec<String> {
    FILES.iter().map(|(_, name)| format!("{FOLDER}{name}")).collect()
}

/// What a file shows.
pub fn read<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    overcommit: &Overcommit,
    path: &str,
) -> Result<String, Errno> {
    let number = match File::named(path)? {
        File::CompactMemory | File::DropCaches => return Err(Errno(errno::EACCES)),
        File::LowestAddress => mm.lowest_address().get().to_string(),
        File::MapCount => mm.area_limit().0.saturating_sub(1).to_string(),
        File::Pool(control, scope) => {
            control.read(&mm.pools(), scope).map_err(refused)?.to_string()
        }
        File::CompactUnevictable => "1".into(),
        File::Overcommit(word) => overcommit.show(word),
    };
    Ok(number + "\n")
}

/// Writes a file.
pub fn write<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    overcommit: &Overcommit,
    path: &str,
    text: &str,
) -> Result<(), Errno> {
    match File::named(path)? {
        File::CompactMemory if int_of_proc(text)? == 1 => {
            mm.compact(&CompactRequest::ALL, &mut []);
        }
        // 4 has Linux say nothing of it.
        File::DropCaches if (1..=4).contains(&int_of_proc(text)?) => {}
        File::CompactUnevictable if int_of_proc(text)? == 1 => {}
        File::CompactMemory | File::CompactUnevictable | File::DropCaches => {
            return Err(Errno::INVAL);
        }
        File::Overcommit(word) => overcommit.take(word, text)?,
        File::LowestAddress => mm.set_lowest_address(Va::new(of_proc(text)?)),
        File::MapCount => {
            let count = u64::try_from(int_of_proc(text)?).map_err(|_| Errno::INVAL)?;
            mm.set_area_limit(AreaLimit(count + 1));
        }
        File::Pool(control, scope) => {
            let number = match scope {
                Scope::Machine => u64::from(int_of_proc(text)? != 0),
                _ => of_proc(text)?,
            };
            control.write(&mm.pools(), scope, &number.to_string()).map_err(refused)?;
        }
    }
    Ok(())
}
