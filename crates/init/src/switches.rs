//! The switches of Linux for sizes of folios.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";
const BASE: u64 = 4096;

/// The folder of each size of anonymous folios, with its bytes, least first.
fn sizes() -> Result<Vec<(u64, PathBuf)>, Box<dyn Error>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(FOLDER).map_err(|why| format!("{FOLDER}: {why}"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kilobytes = name.strip_prefix("hugepages-").and_then(|name| name.strip_suffix("kB"));
        // Linux has a folder for 8 KiB too, which files alone take.
        if let Some(kilobytes) = kilobytes.filter(|_| entry.path().join("enabled").exists()) {
            all.push((kilobytes.parse::<u64>()? << 10, entry.path()));
        }
    }
    all.sort();
    Ok(all)
}

/// Switches one size on, and all others off; 4 KiB is none of them.
pub(crate) fn only(size: u64) -> Result<(), Box<dyn Error>> {
    set(size, "always")
}
/// The same, for memory that is advised to have large folios.
pub(crate) fn advised(size: u64) -> Result<(), Box<dyn Error>> {
    set(size, "madvise")
}
fn set(size: u64, on: &str) -> Result<(), Box<dyn Error>> {
    let all = sizes()?;
    if size != BASE && all.iter().all(|(other, _)| *other != size) {
        return Err(format!("the kernel has no switch for folios of {size} bytes").into());
    }
    // No daemon collapses meanwhile.
    let sleeps = Path::new(FOLDER).join("khugepaged/scan_sleep_millisecs");
    if sleeps.exists() {
        put(&sleeps, "4000000000")?;
    }
    for (other, folder) in all {
        let word = if other == size { on } else { "never" };
        put(&folder.join("enabled"), word)?;
    }
    Ok(())
}
fn put(file: &Path, word: &str) -> Result<(), Box<dyn Error>> {
    fs::write(file, word).map_err(|why| format!("{} takes no {word}: {why}", file.display()).into())
}

/// How many folios of each size were made at faults since the start.
pub(crate) fn made() -> Result<Vec<(u64, u64)>, Box<dyn Error>> {
    let count = |(size, folder): (u64, PathBuf)| {
        let text = fs::read_to_string(folder.join("stats/anon_fault_alloc"))?;
        Ok((size, text.trim().parse()?))
    };
    sizes()?.into_iter().map(count).collect()
}
