//! What time it is for programs: since the start by the counter, and by the calendar's clock.

use crate::memory;
use crate::port::{in8, out8};
use foliant_files::Time;
use spin::Once;

const NANOS: u64 = 1_000_000_000;

/// Seconds between the calendar's epoch and the machine's start.
static EPOCH: Once<u64> = Once::new();

/// Asks the machine's clock once.
pub(super) fn start() {
    EPOCH.call_once(|| calendar().saturating_sub(uptime() / NANOS));
}

/// Nanoseconds since the start.
pub(super) fn uptime() -> u64 {
    memory::clock().at(foliant_x86::ticks()).get()
}
/// So many ticks in nanoseconds.
pub(super) fn nanos(ticks: u64) -> u64 {
    memory::clock().at(ticks).get()
}
/// Seconds from the epoch to the start.
pub(super) fn epoch() -> u64 {
    EPOCH.get().copied().unwrap_or(0)
}
/// Nanoseconds since the epoch.
pub(super) fn since_epoch() -> u64 {
    epoch() * NANOS + uptime()
}
/// The time of files.
pub(super) fn now() -> Time {
    let nanos = since_epoch();
    Time { seconds: (nanos / NANOS) as i64, nanos: (nanos % NANOS) as u32 }
}

/// A register of the clock that PCs keep running; 255 where there is none.
fn register(number: u8) -> u8 {
    out8(0x70, number);
    in8(0x71)
}

/// Seconds since the epoch by the PC's clock; 0 where there is none.
fn calendar() -> u64 {
    let read = || [0u8, 2, 4, 7, 8, 9].map(register);
    let mut now = read();
    for _ in 0..1000 {
        let again = read();
        if again == now {
            break;
        }
        now = again; // it moved meanwhile
    }
    let format = register(11);
    if format == 0xff {
        return 0;
    }
    let is_binary = format & 4 != 0;
    let of =
        |value: u8| u64::from(if is_binary { value } else { (value >> 4) * 10 + (value & 15) });
    let [second, minute, hour, day, month, year] = now.map(of);
    let days = days(2000 + year, month.clamp(1, 12), day.max(1));
    ((days * 24 + hour) * 60 + minute) * 60 + second
}

/// Days since the epoch of a day of the calendar.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let of_year = |year| if is_leap(year) { 366 } else { 365 };
    let of_month = |month| match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (1970..year).map(of_year).sum::<u64>() + (1..month).map(of_month).sum::<u64>() + day - 1
}
