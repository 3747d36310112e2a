//! `foliant compare --published`: the experiments of the five documents as programs, on Linux and
//! on Foliant's kernel, beside what was published.
//!
//! ```text
//!   pool, touch, split, fragment ─▶ foliant-init published … ─▶ each kernel, several CPUs ─┐
//!   compile ─▶ the compiler that is installed here ──────────▶ each kernel, one CPU ───────┤
//!   numbers of the documents ──────────────────────────────────────────────────────────────┴─▶ rows
//! ```
//!
//! Each row has two settings, and the ratio of what the second takes to what the first does: that
//! can be set beside a published ratio, of another machine and in another unit.
//!
//! **Invariants**
//! - M3. What a kernel cannot do is told in its row, with the kernel's own reason. All else is
//!   measured on all kernels by the same calls.
//! - M4. Each experiment has a boot of its own: it finds a kernel on which nobody did anything, and
//!   one that ends in the middle takes no other row with it; then the exit code is 1.
//!
//! **Not here**: how an experiment works (`crates/init`), what was published (`rows`).

mod compiler;
mod experiment;
mod rows;
mod table;

pub(crate) use experiment::Experiment;
pub(crate) use table::Whole as Published;

use super::lines::{Counted, Measured};
use super::{Guests, Program, told};
use crate::args::Compare;
use crate::failure::{Done, print};
use experiment::Name;
use foliant_units::{Bytes, Order};
use std::collections::BTreeMap;
use std::ffi::OsString;
use table::{Kernel, Whole};

/// CPUs of guests where several threads are to run, and their memory.
const CPUS: usize = 4;
const MEMORY: Bytes = Bytes::new(2 << 30);
/// The sizes of folios for a compilation.
const SIZES: [Order; 2] = [Order::BASE, Order::new(4).expect("64 KiB are a size")];
/// How often it runs: the first reads the compiler's files.
const ROUNDS: u32 = 2;

/// What each kernel did, by its name in order.
#[derive(Default)]
struct Results {
    kernels: Vec<Kernel>,
    differences: Vec<String>,
}

impl Results {
    /// The kernel of this name, which may be new.
    fn of(&mut self, name: &str) -> &mut Kernel {
        let found = self.kernels.iter().position(|kernel| kernel.name == name);
        let at = found.unwrap_or_else(|| {
            self.kernels.push(Kernel::new(name));
            self.kernels.len() - 1
        });
        &mut self.kernels[at]
    }
    /// What a kernel measured in a boot for one experiment.
    fn take(&mut self, experiment: &Experiment, measured: Measured) {
        let (is_whole, mut cannot) = (measured.is_whole(), measured.cannot);
        if !is_whole {
            let (name, word) = (&measured.name, experiment.name.word());
            self.differences.push(format!("{name} ended in the middle of {word}"));
            cannot.insert(word.to_owned(), "the kernel ended; its last lines are above".to_owned());
        }
        self.add(&measured.name, measured.counted, cannot);
    }
    fn add(&mut self, name: &str, counted: Counts, cannot: BTreeMap<String, String>) {
        let kernel = self.of(name);
        kernel.counted.extend(counted);
        kernel.cannot.extend(cannot);
    }
}

type Counts = BTreeMap<(String, String), Counted>;

pub(super) fn run(args: &Compare, guests: &Guests, asked: &[Experiment]) -> Done {
    let mut results = Results::default();
    let cpus = args.cpus(CPUS);
    for one in asked.iter().filter(|one| one.name != Name::Compile) {
        let first = guests.init.path().as_os_str().to_owned();
        let command: [OsString; 3] = [first, "published".into(), one.words().into()];
        let packed = guests.packed(&command, &[])?;
        for kernel in guests.boot(&packed, cpus, (args.memory, MEMORY))? {
            results.take(one, kernel);
        }
    }
    if asked.iter().any(|one| one.name == Name::Compile) {
        compile(args, guests, &mut results)?;
    }
    let whole = Whole::of(asked, cpus, &results.kernels, results.differences);
    print(&if args.json { whole.json()? } else { whole.text() })?;
    told(whole.differences())
}

/// A compilation without large folios, and with some of 64 KiB.
fn compile(args: &Compare, guests: &Guests, results: &mut Results) -> Done {
    let work = match compiler::find()? {
        Ok(work) => work,
        Err(why) => {
            let names = guests.kernels.iter().map(|(_, name)| name.as_str());
            for name in names.chain([super::FOLIANT]) {
                let cannot = [(Name::Compile.word().to_owned(), why.clone())];
                results.add(name, Counts::new(), cannot.into());
            }
            return Ok(());
        }
    };
    let whole = guests.compared(&Program {
        command: &work.command,
        with: &work.with,
        sizes: &SIZES,
        rounds: ROUNDS,
        cpus: 1,
        memory: args.memory,
    })?;
    let names = guests.kernels.iter().map(|(_, name)| name.as_str());
    for name in names.chain([super::FOLIANT]) {
        let at = SIZES.iter().zip(["before", "after"]).filter_map(|(size, at)| {
            let counted = whole.counted(name, size.bytes())?;
            Some(((Name::Compile.word().to_owned(), at.to_owned()), counted))
        });
        results.add(name, at.collect(), BTreeMap::new());
    }
    results.differences.extend_from_slice(whole.differences());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::compare::lines::tests::measured;

    #[test]
    fn a_kernel_that_ends_in_the_middle_keeps_what_it_said() {
        let did = "did row=split at=before operations=8 instructions=9 ticks=9 faults=0 folios=0 \
                   shootdowns=1 calls=1 wakes=0 timer=0";
        let mut results = Results::default();
        let split = Experiment::parse("split").unwrap();
        results.take(&split, measured("Linux", &[did]));
        results.take(&split, measured("Foliant", &[did, "measured"]));
        assert_eq!(results.differences, ["Linux ended in the middle of split"]);
        let [linux, foliant] = &results.kernels[..] else { panic!() };
        assert!(linux.counted.len() == 1 && foliant.counted.len() == 1);
        assert!(linux.cannot["split"].contains("ended") && foliant.cannot.is_empty());
    }
}
