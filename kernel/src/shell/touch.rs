//! A program in ring 3 that accesses memory, and what its faults did.

use super::space::Much;
use super::words::{Complaint, Words, size};
use super::{Shell, go_on, keyboard};
use crate::memory::{counted, manager};
use crate::user::{self, Stop};
use crate::{say, smp};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant::fault::{Access, Outcome, Refusal};
use foliant::{Event, SizeEvent};
use foliant_units::{Bytes, FRAME_BYTES, Order, VaRange};
use foliant_x86::ticks;
use spin::Mutex;

const PAGE: Bytes = Bytes::new(FRAME_BYTES);
/// Folio sizes that a fault can map.
const SIZES: usize = Order::SIZE_2M.index() + 1;

/// What is asked for.
struct Request {
    range: VaRange,
    access: Access,
    cpus: usize,
}

fn request<'w>(shell: &Shell, words: &mut Words<'w>) -> Result<Request, Complaint<'w>> {
    let start = shell.place(words.need("ADDRESS")?)?;
    let (mut much, mut access, mut cpus) = (Much::Unsaid, Access::Write, 1);
    for word in words {
        match (word, word.strip_prefix("cpus=")) {
            (_, Some(number)) => {
                let all = smp::online();
                let count = number.parse().ok().filter(|count| (1..=all).contains(count));
                cpus = count.ok_or(Complaint::Cpus(word, all))?;
            }
            ("read", _) => access = Access::Read,
            ("write", _) => access = Access::Write,
            ("all", _) => much = Much::All,
            (word, _) if word.starts_with(|first: char| first.is_ascii_digit()) => {
                much = Much::Bytes(size(word)?);
            }
            (word, _) => {
                return Err(Complaint::Unknown(word, "a size, all, read, write, cpus=N"));
            }
        }
    }
    let range = shell.range(start, much)?;
    Ok(Request { range, access, cpus })
}

/// What was counted up to now.
struct Counts {
    faults: u64,
    folios: [u64; SIZES],
    zero_pages: u64,
    copied: u64,
    clearing: u64,
}

impl Counts {
    fn read() -> Counts {
        let mut folios = [0; SIZES];
        for (order, count) in Order::all().zip(&mut folios) {
            *count = manager().size_stats(order).get(SizeEvent::AnonFaultAlloc);
        }
        Counts {
            faults: manager().total(Event::Fault),
            folios,
            zero_pages: manager().total(Event::ZeroPage),
            copied: manager().total(Event::Copied),
            clearing: counted().counts().clear_ticks,
        }
    }
}

/// What the programs did.
struct Done {
    pages: u64,
    ticks: u64,
    stop: Option<Stop>,
}

/// The n-th of `parts` parts of a range, in whole pages; some are empty where there are few.
fn part(range: VaRange, n: usize, parts: usize) -> VaRange {
    let pages = u128::from(range.pages().get());
    let bound =
        |n: usize| range.start().add((pages * n as u128 / parts as u128) as u64 * FRAME_BYTES);
    VaRange::new(bound(n), bound(n + 1)).unwrap_or_default()
}

/// Pages of a part that were accessed before its program stopped.
fn before(stop: Stop, part: VaRange) -> u64 {
    match stop {
        Stop::Fault(va, _) | Stop::Outside(va) if part.contains(va) => {
            va.offset_from(part.start()) / FRAME_BYTES
        }
        _ => 0,
    }
}

/// The pieces of a part, at whose ends the keyboard is looked at: no folio that a fault makes lies
/// in two of them.
pub(super) fn pieces(part: VaRange) -> impl Iterator<Item = VaRange> {
    let size = Order::SIZE_2M.bytes();
    let mut at = part.start();
    core::iter::from_fn(move || {
        let end = at
            .align_down(size)
            .checked_add(size.get())
            .map_or(part.end(), |end| end.min(part.end()));
        let piece = VaRange::new(at, end).filter(|piece| !piece.is_empty())?;
        at = end;
        Some(piece)
    })
}

fn run(shell: &Shell, Request { range, access, cpus }: &Request) -> Done {
    let (pages, took, stopped) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(None));
    user::inside_together(shell.space(), *cpus, &|cpu| {
        for piece in pieces(part(*range, cpu.index(), *cpus)) {
            if keyboard::is_interrupted() {
                return;
            }
            let start = ticks();
            let result = user::touch(piece, PAGE, *access);
            took.fetch_add(ticks() - start, Ordering::Relaxed);
            let done = match result {
                Ok(()) => piece.pages().get(),
                Err(stop) => before(stop, piece),
            };
            pages.fetch_add(done, Ordering::Relaxed);
            if let Err(stop) = result {
                stopped.lock().get_or_insert(stop);
                return;
            }
        }
    });
    Done { pages: pages.into_inner(), ticks: took.into_inner(), stop: stopped.into_inner() }
}

/// Why a program stopped, for a person.
struct Reason(Stop);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Stop::Fault(_, Outcome::Refused(Refusal::NoArea(va))) => {
                write!(f, "no area contains {va}; maps lists them, map makes one")
            }
            Stop::Fault(_, Outcome::Refused(Refusal::NoRight(va, access))) => {
                write!(f, "the area at {va} does not grant {access:?}")
            }
            Stop::Fault(va, Outcome::OutOfMemory) => {
                write!(f, "no memory for {va}; unmap something, or keep fewer huge pages")
            }
            Stop::Outside(va) => write!(f, "{va} is not the program's to access"),
            Stop::Exception(13, _) => f.write_str("the processor knows no such address"),
            other => other.fmt(f),
        }
    }
}

/// `touch`. A tick is a cycle of the time-stamp counter, or an instruction where the emulator
/// counts those.
pub(super) fn touch<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let request = request(shell, words)?;
    let before = Counts::read();
    let done = run(shell, &request);
    let after = Counts::read();
    let (asked, faults) = (request.range.pages().get(), after.faults - before.faults);
    say!("{} of {asked} pages touched, {faults} faults", done.pages);
    for (order, (now, then)) in Order::all().zip(after.folios.iter().zip(&before.folios)) {
        if now > then {
            say!("{} folios of {}", now - then, order.bytes());
        }
    }
    for (count, what) in [
        (after.zero_pages - before.zero_pages, "zero pages"),
        (after.copied - before.copied, "pages copied"),
    ] {
        if count > 0 {
            say!("{count} {what}");
        }
    }
    let each = |ticks: u64| ticks.checked_div(done.pages);
    if let (Some(all), Some(clearing)) = (each(done.ticks), each(after.clearing - before.clearing))
    {
        say!("{all} ticks a page, {clearing} of them clearing");
    }
    if let Some(stop) = done.stop {
        say!("stopped: {}", Reason(stop));
    }
    go_on()
}
