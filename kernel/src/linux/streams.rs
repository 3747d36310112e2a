//! The lines to whoever started the program: what it reads and writes without a file.
//!
//! ```text
//!   second serial line   ─▶ ff 01, standard input with `ff` before each byte that is `ff`, ff 00
//!                        ◀─ standard output
//!   debug port e9        ◀─ standard error
//! ```
//!
//! The line does not interrupt. While somebody waits for what comes in, an alarm looks.
//!
//! What comes before the beginning means nothing: switching the line's queue on may lose some of
//! it.
//!
//! **Locking**: one lock for what came in, one for what goes out. An alarm is set under the first.

use super::channel::{Channel, Waits};
use super::events::Events;
use super::queue::Queue;
use super::sched::Alarm;
use super::transfer::Transfer;
use super::waiters::Waiters;
use super::{clock, sched};
use crate::port::{in8, out8};
use alloc::sync::{Arc, Weak};
use foliant_linux::Errno;
use linux_raw_sys::errno::EBADF;
use spin::{Mutex, Once};

const LINE: u16 = 0x2f8;
const STATUS: u16 = LINE + 5;
const HAS_BYTE: u8 = 1 << 0;
const CAN_SEND: u8 = 1 << 5;
const ERRORS: u16 = 0xe9;
/// What says that the next byte is meant otherwise.
const MARK: u8 = 0xff;
/// Behind it: nothing more comes.
const END: u8 = 0;
/// Behind it: input begins.
const BEGIN: u8 = 1;
/// Bytes that wait here; the rest waits in the line.
const ROOM: usize = 64 << 10;
/// Bytes that are written in one piece.
const PIECE: usize = 4096;
/// Nanoseconds that the next byte of a row takes at most.
const ROW: u64 = 100_000;
/// Nanoseconds after which the alarm looks again.
const LOOK: u64 = 1_000_000;

/// One of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stream {
    /// What comes in.
    Input,
    /// What goes out.
    Output,
    /// What goes out besides.
    Errors,
}

/// What came in.
struct Came {
    bytes: Queue,
    has_begun: bool,
    is_over: bool,
    /// The last byte was a mark.
    is_marked: bool,
    /// The alarm will look.
    is_looked_at: bool,
}

static CAME: Mutex<Came> = Mutex::new(Came {
    bytes: Queue::of(ROOM),
    has_begun: false,
    is_over: false,
    is_marked: false,
    is_looked_at: false,
});
/// Who waits for what comes in.
static WAITING: Waiters = Waiters::new();
/// What one call writes comes in one piece, up to a page.
static WRITES: Mutex<()> = Mutex::new(());

/// Sets the line up: eight bits, a queue, no interrupts.
pub(super) fn start() {
    out8(LINE + 1, 0);
    out8(LINE + 3, 3);
    out8(LINE + 2, 1);
}

impl Came {
    /// Takes what the line has, up to a pause.
    fn take_in(&mut self) {
        while self.bytes.room() > 0 && !self.is_over && follows() {
            let byte = in8(LINE);
            match byte {
                MARK if !self.is_marked => {
                    self.is_marked = true;
                    continue;
                }
                END if self.is_marked => self.is_over = true,
                BEGIN if self.is_marked => self.has_begun = true,
                _ if self.has_begun => _ = self.bytes.push(&[byte]),
                _ => {}
            }
            self.is_marked = false;
        }
    }
    fn is_ready(&self) -> bool {
        self.is_over || !self.bytes.is_empty()
    }
}

/// Whether a byte is there, or comes at once.
fn follows() -> bool {
    let has_byte = || in8(STATUS) & HAS_BYTE != 0;
    if has_byte() {
        return true;
    }
    let end = clock::uptime() + ROW;
    while clock::uptime() < end {
        if has_byte() {
            return true;
        }
        core::hint::spin_loop();
    }
    false
}

/// Looks at the line in place of those that wait.
struct Look;

impl Alarm for Look {
    fn ring(self: Arc<Look>) {
        let is_ready = {
            let mut came = CAME.lock();
            came.take_in();
            came.is_looked_at = !came.is_ready() && !WAITING.is_empty();
            if came.is_looked_at {
                look_soon();
            }
            came.is_ready()
        };
        if is_ready {
            WAITING.wake_for(Events::IN);
        }
    }
}

fn look_soon() {
    static ALARM: Once<Arc<Look>> = Once::new();
    let alarm: Weak<dyn Alarm> = Arc::downgrade(ALARM.call_once(|| Arc::new(Look))) as _;
    sched::ring_at(clock::uptime() + LOOK, alarm);
}

/// What came in, brought up to date. Where there is nothing, the alarm looks from now on.
fn look() -> spin::MutexGuard<'static, Came> {
    let mut came = CAME.lock();
    if !came.is_ready() {
        came.take_in();
    }
    if !came.is_ready() && !came.is_looked_at {
        came.is_looked_at = true;
        look_soon();
    }
    came
}

impl Channel for Stream {
    fn read(&self, into: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        if *self != Stream::Input {
            return Err(Errno(EBADF));
        }
        let take = || {
            let mut came = look();
            came.is_ready().then(|| came.bytes.take(into))
        };
        waits.get(&WAITING, take).flatten()
    }
    fn write(&self, from: &mut Transfer, _: Waits) -> Result<usize, Errno> {
        let whole = from.left();
        let mut piece = [0; PIECE];
        while from.left() > 0 {
            let count = match from.take_some(&mut piece) {
                Ok(count) => count,
                Err(why) if from.left() == whole => return Err(why),
                Err(_) => break,
            };
            let _writes = WRITES.lock();
            match self {
                Stream::Input => return Err(Errno(EBADF)),
                Stream::Output => piece[..count].iter().for_each(|byte| send(*byte)),
                Stream::Errors => piece[..count].iter().for_each(|byte| out8(ERRORS, *byte)),
            }
        }
        Ok(whole - from.left())
    }
    fn events(&self) -> Events {
        match self {
            Stream::Input => {
                let came = look();
                let is_over = came.is_over && came.bytes.is_empty();
                Events::IN.when(!came.bytes.is_empty()) | Events::HANGUP.when(is_over)
            }
            Stream::Output | Stream::Errors => Events::OUT,
        }
    }
    fn waiters(&self) -> &Waiters {
        &WAITING
    }
    fn open(self: Arc<Stream>, _: u32) -> Result<Arc<dyn Channel>, Errno> {
        Ok(self)
    }
}

fn send(byte: u8) {
    while in8(STATUS) & CAN_SEND == 0 {
        core::hint::spin_loop();
    }
    out8(LINE, byte);
}
