//! The lines to whoever started the program: what it reads and writes without a file.
//!
//! ```text
//!   second serial line   ─▶ ff 01, standard input with `ff` before each byte that is `ff`, ff 00
//!                        ◀─ standard output
//!   debug port e9        ◀─ standard error
//! ```
//!
//! The line does not interrupt. While somebody waits for what comes in, an alarm looks; where a
//! terminal hears it, always.
//!
//! ```text
//!   ff 02, rows, columns, two bytes each: the terminal has another size
//! ```
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
/// Behind it: a size of the terminal, in four bytes.
const WINDOW: u8 = 2;
/// Bytes that wait here; the rest waits in the line.
const ROOM: usize = 64 << 10;
/// Bytes that are written in one piece.
const PIECE: usize = 4096;
/// Nanoseconds that the next byte of a row takes at most.
const ROW: u64 = 100_000;
/// Nanoseconds after which the alarm looks again.
const LOOK: u64 = 1_000_000;
/// The same where a terminal hears what comes in.
const LOOK_FOR_KEYS: u64 = 4_000_000;
/// Bytes that it hears at once.
const HEARD: usize = 256;

/// Who hears what comes in at once.
pub(super) trait Hears: Send + Sync {
    /// Takes bytes, as far as there is room; says how many.
    fn hear(&self, bytes: &[u8]) -> usize;
    /// Rows and columns are others.
    fn resize(&self, size: [u16; 2]);
    /// Nothing more comes.
    fn end(&self);
}

static HEARS: Once<Arc<dyn Hears>> = Once::new();

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
    /// Bytes of a size that came, and how many are to come.
    size: [u8; 4],
    size_left: usize,
    /// A size that nobody heard of.
    window: Option<[u16; 2]>,
}

static CAME: Mutex<Came> = Mutex::new(Came {
    bytes: Queue::of(ROOM),
    has_begun: false,
    is_over: false,
    is_marked: false,
    is_looked_at: false,
    size: [0; 4],
    size_left: 0,
    window: None,
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
                MARK if !self.is_marked && self.size_left == 0 => {
                    self.is_marked = true;
                    continue;
                }
                _ if self.size_left > 0 => self.take_size(byte),
                END if self.is_marked => self.is_over = true,
                WINDOW if self.is_marked => self.size_left = self.size.len(),
                BEGIN if self.is_marked => self.has_begun = true,
                _ if self.has_begun => _ = self.bytes.push(&[byte]),
                _ => {}
            }
            self.is_marked = false;
        }
    }
    fn take_size(&mut self, byte: u8) {
        self.size[self.size.len() - self.size_left] = byte;
        self.size_left -= 1;
        if self.size_left == 0 {
            let [rows, more_rows, columns, more_columns] = self.size;
            let word = u16::from_le_bytes;
            self.window = Some([word([rows, more_rows]), word([columns, more_columns])]);
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
        if let Some(hears) = HEARS.get() {
            return hand_on(&**hears);
        }
        let is_ready = {
            let mut came = CAME.lock();
            came.take_in();
            came.is_looked_at = !came.is_ready() && !WAITING.is_empty();
            if came.is_looked_at {
                look_in(LOOK);
            }
            came.is_ready()
        };
        if is_ready {
            WAITING.wake_for(Events::IN);
        }
    }
}

/// Has a terminal hear what comes in.
pub(super) fn give_to(hears: Arc<dyn Hears>) {
    HEARS.call_once(|| hears);
    look_in(LOOK_FOR_KEYS);
}
/// Hands on what came in, and looks again.
fn hand_on(hears: &dyn Hears) {
    let (window, is_over) = {
        let mut came = CAME.lock();
        let was_over = came.is_over;
        came.take_in();
        (came.window.take(), came.is_over && !was_over)
    };
    if let Some(size) = window {
        hears.resize(size);
    }
    loop {
        let mut piece = [0; HEARD];
        let count = CAME.lock().bytes.peek(HEARD, &mut Transfer::within(&mut piece)).unwrap_or(0);
        let heard = hears.hear(&piece[..count]);
        CAME.lock().bytes.skip(heard);
        if heard < HEARD {
            break;
        }
    }
    match is_over {
        true => hears.end(),
        false if CAME.lock().is_over => {}
        false => look_in(LOOK_FOR_KEYS),
    }
}

fn look_in(nanos: u64) {
    static ALARM: Once<Arc<Look>> = Once::new();
    let alarm: Weak<dyn Alarm> = Arc::downgrade(ALARM.call_once(|| Arc::new(Look))) as _;
    sched::ring_at(clock::uptime() + nanos, alarm);
}

/// What came in, brought up to date. Where there is nothing, the alarm looks from now on.
fn look() -> spin::MutexGuard<'static, Came> {
    let mut came = CAME.lock();
    if !came.is_ready() {
        came.take_in();
    }
    if !came.is_ready() && !came.is_looked_at {
        came.is_looked_at = true;
        look_in(LOOK);
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
        from.hand_on::<PIECE>(|piece| {
            match self {
                Stream::Input => return Err(Errno(EBADF)),
                Stream::Output => show(piece),
                Stream::Errors => {
                    let _writes = WRITES.lock();
                    piece.iter().for_each(|byte| out8(ERRORS, *byte));
                }
            }
            Ok(piece.len())
        })
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

/// Shows bytes to whoever sees standard output.
pub(super) fn show(bytes: &[u8]) {
    let _writes = WRITES.lock();
    bytes.iter().for_each(|byte| send(*byte));
}

fn send(byte: u8) {
    while in8(STATUS) & CAN_SEND == 0 {
        core::hint::spin_loop();
    }
    out8(LINE, byte);
}
