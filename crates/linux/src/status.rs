//! `/proc/PID/status`, as far as it is about memory, `/proc/PID/statm` and
//! `/proc/PID/smaps_rollup`.
//!
//! ```text
//!   VmSize:      1234 kB        all vmas                     VmPeak   the most that it ever was
//!   VmRSS:        567 kB        pages that are there         VmHWM    the most since clear_refs took 5
//!   VmPTE:         16 kB        page tables below the top one, with those that are kept for splits
//! ```
//!
//! The size is counted where areas come and go, and not added up, because it is noted with each
//! change (`size`). What is resident changes with each fault, and is looked at before pages go.
//!
//! **Not here**: lines about anything else, and which of the executable vmas are the program's own:
//! they count as libraries.

use crate::pages::PAGE;
use crate::process::{Process, is_data_of};
use crate::rows;
use crate::vma::{Marks, Vma};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use foliant::fault::ProcessSwitch;
use foliant::space::Flags;
use foliant::table::{Entry, Paging};
use foliant_machine::Machine;
use foliant_units::{Level, Pages, Va, VaRange};

/// What is resident, in pages.
#[derive(Clone, Copy, Default)]
struct Resident {
    anonymous: u64,
    of_files: u64,
    pooled: u64,
}

impl Resident {
    /// All that counts as resident: what pools lent does not.
    fn all(self) -> u64 {
        self.anonymous + self.of_files
    }
}

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Pages that entries of the process name.
    pub(crate) fn resident(&self) -> u64 {
        self.mm.pages(self.space).map_or(0, |pages| pages.get())
    }
    /// The most that was resident of it, as far as somebody looked: `ru_maxrss`.
    pub fn peak(&self) -> Pages {
        Pages::new(self.size.resident().max(self.resident()))
    }
    fn resident_by_kind(&self) -> Resident {
        let pools = self.vmas().filter(Vma::is_huge);
        let pooled = pools.map(|vma| self.present_in(vma.start(), vma.end())).sum();
        let of_files = self.vmas().map(|vma| self.present(&vma).of_file / (PAGE >> 10)).sum();
        let anonymous = self.resident().saturating_sub(pooled).saturating_sub(of_files);
        Resident { anonymous, of_files, pooled }
    }
    /// Pages of its vmas that are `counted`.
    fn pages_of(&self, counted: impl Fn(&Vma) -> bool) -> u64 {
        self.bytes_in(0, u64::MAX, counted) / PAGE
    }
    /// Its tables below the top one, with one for each leaf that may have to be split.
    fn tables(&self) -> u64 {
        let small = self.vmas().filter(|vma| !vma.is_huge());
        let kept: u64 = small.map(|vma| self.large_leaves(vma.range)).sum();
        self.mm.tables(self.space).map_or(0, |tables| tables.get()) + kept
    }
    fn large_leaves(&self, at: VaRange) -> u64 {
        let begins = |va: Va| at.contains(va);
        let counted = self.mm.with_leaves(self.space, at, |leaves| {
            let large = leaves.filter(|found| found.level > Level::BASE && begins(found.va));
            large.filter(|found| matches!(found.entry, Entry::Leaf { .. })).count()
        });
        counted.unwrap_or(0) as u64
    }

    /// Writes the lines of `/proc/PID/status` about memory, from `VmPeak` to `THP_enabled`.
    pub fn status(&self, out: &mut impl Write) -> fmt::Result {
        let resident = self.resident_by_kind();
        let rss = resident.all();
        let is_stack = |vma: &Vma| vma.tag.marks.has(Marks::GROWS_DOWN);
        let locked = self.locked_in(0, u64::MAX) / PAGE;
        for (name, pages) in [
            ("VmPeak:", self.size.most()),
            ("VmSize:", self.size.pages()),
            ("VmLck:", locked),
            ("VmPin:", 0),
            ("VmHWM:", self.size.resident().max(rss)),
            ("VmRSS:", rss),
            ("RssAnon:", resident.anonymous),
            ("RssFile:", 0),
            ("RssShmem:", resident.of_files),
            ("VmData:", self.pages_of(is_data_of)),
            ("VmStk:", self.pages_of(is_stack)),
            ("VmExe:", 0),
            ("VmLib:", self.pages_of(is_code)),
            ("VmPTE:", self.tables()),
            ("VmSwap:", 0),
            ("HugetlbPages:", resident.pooled),
        ] {
            writeln!(out, "{name}\t{:8} kB", pages * (PAGE >> 10))?;
        }
        // A process that is being dumped reads nothing.
        let is_on = u8::from(self.switches.folios == ProcessSwitch::On);
        writeln!(out, "CoreDumping:\t0\nTHP_enabled:\t{is_on}")
    }

    /// Writes `/proc/PID/statm`: size, resident, shared, code, 0, data with stacks, 0, in pages.
    pub fn statm(&self, out: &mut impl Write) -> fmt::Result {
        let resident = self.resident_by_kind();
        let (rss, shared) = (resident.all(), resident.of_files);
        let data = self.pages_of(|vma| is_data_of(vma) || vma.tag.marks.has(Marks::GROWS_DOWN));
        writeln!(out, "{} {rss} {shared} 0 0 {data} 0", self.size.pages())
    }

    /// Writes `/proc/PID/smaps_rollup`: the fields of `smaps`, added up.
    pub fn smaps_rollup(&self, out: &mut impl Write) -> fmt::Result {
        let first = self.vmas().next().map_or(0, |vma| vma.start());
        let end = self.vmas().last().map_or(0, |vma| vma.end());
        let mut sums = Sums::default();
        self.smaps(&mut sums)?;
        let of_files: u64 = self.vmas().map(|vma| self.present(&vma).of_file / 2).sum();
        let anonymous = sums.pss() - of_files;
        writeln!(out, "{:<73}[rollup]", format!("{first:08x}-{end:08x} ---p 00000000 00:00 0"))?;
        sums.fields.iter().try_for_each(|(name, kilobytes)| {
            rows::kilobytes(out, name, *kilobytes)?;
            if name != "Pss_Dirty:" {
                return Ok(());
            }
            for (name, kilobytes) in
                [("Pss_Anon:", anonymous), ("Pss_File:", 0), ("Pss_Shmem:", of_files)]
            {
                rows::kilobytes(out, name, kilobytes)?;
            }
            Ok(())
        })
    }
}

/// Whether a vma counts as code.
fn is_code(vma: &Vma) -> bool {
    let is_stack = vma.tag.marks.has(Marks::GROWS_DOWN);
    vma.flags.has(Flags::EXEC) && !vma.flags.has(Flags::WRITE) && !is_stack
}

/// The fields of a text like `smaps` by name, each added up over all vmas, from `Rss` to `Locked`.
#[derive(Default)]
struct Sums {
    line: String,
    fields: Vec<(String, u64)>,
}

/// What is of one vma alone.
const OF_ONE: [&str; 3] = ["Size:", "KernelPageSize:", "MMUPageSize:"];

impl Sums {
    fn pss(&self) -> u64 {
        self.fields.iter().find(|(name, _)| name == "Pss:").map_or(0, |(_, sum)| *sum)
    }
    fn add(&mut self) {
        let mut words = self.line.split_whitespace();
        let (name, value, unit) = (words.next(), words.next(), words.next());
        if let (Some(name), Some(value), Some("kB")) = (name, value, unit)
            && let Ok(kilobytes) = value.parse::<u64>()
            && !OF_ONE.contains(&name)
        {
            match self.fields.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += kilobytes,
                None => self.fields.push((name.into(), kilobytes)),
            }
        }
        self.line.clear();
    }
}

impl Write for Sums {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive('\n') {
            self.line.push_str(part);
            if part.ends_with('\n') {
                self.add();
            }
        }
        Ok(())
    }
}
