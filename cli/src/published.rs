//! Numbers that were published for the reference systems, with their sources. Those of pools and of
//! splits stand beside the models that use them.

/// A rate of clearing before and after it was done in extents, in GB/s.
pub(crate) struct Clearing {
    pub(crate) host: &'static str,
    pub(crate) page: &'static str,
    pub(crate) before: f64,
    pub(crate) after: f64,
}

/// Faults that clear huge pages.
pub(crate) const CLEARING: [Clearing; 4] = [
    Clearing { host: "EPYC Milan", page: "2m", before: 12.24, after: 17.54 },
    Clearing { host: "EPYC Milan", page: "1g", before: 17.98, after: 37.24 },
    Clearing { host: "Xeon Ice Lake", page: "2m", before: 8.76, after: 11.82 },
    Clearing { host: "Xeon Ice Lake", page: "1g", before: 8.99, after: 12.18 },
];
pub(crate) const CLEARING_SOURCE: &str =
    "Arora: clearing huge pages in multi-page extents, v1, April 2023";

/// Seconds for 64 GiB of 2 MiB pages before and after, on an EPYC Genoa.
pub(crate) const CLEARED_SECONDS: [f64; 2] = [5.4567, 2.6774];
/// Instructions for the same there, of 2 MiB and of 1 GiB pages.
pub(crate) const CLEARED_INSTRUCTIONS: [[f64; 2]; 2] =
    [[1_038_327_182.0, 606_549_334.0], [454_521_647.0, 45_813_391.0]];
/// How many times 2 MiB that is.
pub(crate) const CLEARED_LARGE: f64 = 32_768.0;

/// A kernel's build with folios up to a size, relative to 4 KiB pages, in per cent.
pub(crate) struct Build {
    pub(crate) size: &'static str,
    pub(crate) kernel_percent: f64,
    pub(crate) peak_percent: f64,
}

/// On an Ampere Altra, the mean of 15 runs.
pub(crate) const BUILDS: [Build; 5] = [
    Build { size: "16k", kernel_percent: -26.5, peak_percent: -0.1 },
    Build { size: "32k", kernel_percent: -37.4, peak_percent: -0.1 },
    Build { size: "64k", kernel_percent: -42.0, peak_percent: -1.1 },
    Build { size: "128k", kernel_percent: -42.1, peak_percent: 1.4 },
    Build { size: "256k", kernel_percent: -41.9, peak_percent: 1.9 },
];
pub(crate) const BUILDS_SOURCE: &str =
    "Roberts: large folios for anonymous memory, v4, August 2023; kernel build on an Ampere Altra";

/// Misses of the data TLB by 4 KiB and by 2 MiB leaves, and megabytes of page tables for a
/// terabyte.
pub(crate) const TLB_MISSES: [f64; 2] = [59_800.0, 2_100.0];
pub(crate) const TABLE_MEGABYTES: [f64; 2] = [2_048.0, 4.0];
pub(crate) const TLB_SOURCE: &str =
    "Piggin: huge vmalloc mappings, v13, March 2021; git diff on a POWER9 with two nodes";

/// Of latencies of faults.
pub(crate) const SPLIT_SOURCE: &str = "Wang: batch TLB flushes when splitting a PTE-mapped huge page, October 2023; thpscale on a kernel 6.5";
