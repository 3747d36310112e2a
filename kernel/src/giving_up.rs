//! Which CPU has given up, if one has.

use crate::cpu;
use core::sync::atomic::{AtomicU32, Ordering};

/// The number of the CPU that gave up first, and 1; or 0.
static GIVING_UP: AtomicU32 = AtomicU32::new(0);

/// Says that this CPU gives up, and whether it is the first.
pub(crate) fn begin() -> bool {
    GIVING_UP.compare_exchange(0, own_mark(), Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

fn own_mark() -> u32 {
    u32::from(cpu::me().0) + 1
}

/// Whether another CPU is giving up: this one has nothing to say any more.
pub(crate) fn is_elsewhere() -> bool {
    let first = GIVING_UP.load(Ordering::SeqCst);
    first != 0 && first != own_mark()
}
