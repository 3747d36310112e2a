//! The pools of huge pages. A page is had by an area with `FOLIANT_HUGE_2M` or `FOLIANT_HUGE_1G`.
#![allow(unsafe_code)]

use crate::error::{Error, answer};
use crate::lent;
use crate::manager::{Manager, inner};
use crate::status::Status;
use crate::values;
use core::mem::MaybeUninit;
use foliant::pool::{Budget, ResizeEnd};

/// The counts of a pool.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pool {
    /// Pages, free and in use, surplus included.
    pub pages: u64,
    /// Pages that nobody uses.
    pub free: u64,
    /// Pages reserved and not yet taken.
    pub reserved: u64,
    /// Pages beyond the size that was asked for.
    pub surplus: u64,
}

/// Why a resize stopped.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolEnd {
    /// The pool has the size asked for.
    Reached = 0,
    /// There is no memory for more.
    NoMemory = 1,
    /// Another caller asked for another size meanwhile.
    Superseded = 2,
}

/// How far a resize came.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resized {
    /// Pages that there are now; surplus ones are not counted.
    pub reached: u64,
    /// Why it stopped.
    pub end: PoolEnd,
}

/// Makes the pool of `order` (9 or 18) have `want` pages, as far as memory goes. Pages in use
/// cannot be given up: they become surplus, and go when they come back.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_pool_resize(
    manager: Option<&Manager>,
    order: u32,
    want: u64,
    resized: Option<&mut MaybeUninit<Resized>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, place) = (inner(manager)?, lent::place(resized, "resized")?);
        let done = inner.resize_pool(values::order(order)?, want, Budget::ALL)?;
        let end = match done.end {
            ResizeEnd::Reached | ResizeEnd::Budget => PoolEnd::Reached,
            ResizeEnd::NoMemory => PoolEnd::NoMemory,
            ResizeEnd::Superseded => PoolEnd::Superseded,
        };
        place.write(Resized { reached: done.reached, end });
        Ok(())
    };
    answer(error, work())
}

/// The counts of the pool of `order` (9 or 18).
#[unsafe(no_mangle)]
pub extern "C" fn foliant_pool_counters(
    manager: Option<&Manager>,
    order: u32,
    pool: Option<&mut MaybeUninit<Pool>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, place) = (inner(manager)?, lent::place(pool, "pool")?);
        let counts = inner.pool(values::order(order)?)?;
        place.write(Pool {
            pages: counts.nr_hugepages,
            free: counts.free_hugepages,
            reserved: counts.resv_hugepages,
            surplus: counts.surplus_hugepages,
        });
        Ok(())
    };
    answer(error, work())
}
