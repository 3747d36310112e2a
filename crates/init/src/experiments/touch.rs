//! Memory is written for the first time: by pages of 4 KiB, by folios and by pages of a pool.

use super::area::Area;
use super::{At, BASE, By, Done, LARGE, counted, resize, told};
use crate::switches;
use nix::sys::mman::MapFlags;

const GIB: usize = 1 << 30;

/// `pages` are of 2 MiB each.
pub(super) fn run(pages: usize) -> Done {
    let bytes = pages * LARGE;
    let anonymous = |row: &str, at, size: usize, bytes: usize| {
        switches::only(size as u64)?;
        of(row, at, &Area::new(bytes)?)
    };
    anonymous("touch-thp", At::Before, BASE, bytes)?;
    anonymous("touch-thp", At::After, LARGE, bytes)?;
    anonymous("touch-2m", At::Before, BASE, bytes)?;
    told("touch-2m", pooled("touch-2m", bytes, LARGE, MapFlags::MAP_HUGE_2MB));
    // One page of 1 GiB is more than was asked for, and all that there may be.
    let gigantic = pooled("touch-1g", GIB, GIB, MapFlags::MAP_HUGE_1GB);
    if gigantic.is_ok() {
        anonymous("touch-1g", At::Before, BASE, GIB)?;
    }
    told("touch-1g", gigantic);
    Ok(())
}

fn pooled(row: &str, bytes: usize, size: usize, flag: MapFlags) -> Done {
    let pages = (bytes / size) as u64;
    let pool = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", size >> 10);
    let done = resize(&pool, pages).and_then(|()| of(row, At::After, &Area::of_pool(bytes, flag)?));
    resize(&pool, 0).and(done)
}

/// An operation is 2 MiB, whatever they are made of.
fn of(row: &str, at: At, area: &Area) -> Done {
    counted(row, at, By::Caller, || {
        area.touch(BASE);
        Ok((area.range().len() / LARGE) as u64)
    })
}
