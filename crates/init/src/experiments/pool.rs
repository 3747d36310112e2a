//! Pages of 2 MiB come into the pool, and go, with descriptors as they are and folded.
//!
//! **Not here**: what is read of the pool while it changes.

use super::{At, By, Done, counted, put, resize};

const POOL: &str = "/proc/sys/vm/nr_hugepages";
/// Whether pages are folded when they come.
const FOLDING: &str = "/proc/sys/vm/hugetlb_optimize_vmemmap";

pub(super) fn run(pages: u64) -> Done {
    // What is made once is made before anything is counted.
    put(FOLDING, "0")?;
    resize(POOL, pages)?;
    resize(POOL, 0)?;
    for (at, folding) in [(At::Before, "0"), (At::After, "1")] {
        put(FOLDING, folding)?;
        counted("pool-grow", at, By::Caller, || resize(POOL, pages).map(|()| pages))?;
        counted("pool-shrink", at, By::Caller, || resize(POOL, 0).map(|()| pages))?;
    }
    put(FOLDING, "0")
}
