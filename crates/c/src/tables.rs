//! Page tables alone, with their flush: no areas, no faults, no allocator.
//!
//! ```text
//!   spare ──frames──▶ map                        unmap ──▶ gather: runs, tables ── flush ──▶ the frames are free
//! ```
//!
//! **Invariants**
//! - G1. A gather that holds what is not flushed is not written over: `unmap` refuses it.
//! - G2. Where page tables were removed, a flush ends all translations of the half: cached pointers
//!   to a table that one call emptied may lie outside of the runs that the next one lists.
#![allow(unsafe_code)]

use crate::error::{Error, answer};
use crate::handle::{self, Handle, Opaque};
use crate::lent::{self, Layout};
use crate::machine::{CMachine, CpuSet, Machine};
use crate::refusal::Refusal;
use crate::status::Status;
use crate::values::{self, addresses};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use foliant::table::{
    self, Entry, Harvest, MapStop, Paging, Stop, Tables as HalfTables, What, X86_64,
};
use foliant_machine::{Caching, Invalidation, Item, PhysMem, Scope, Tlb};
use foliant_units::{Bytes, FRAME_BYTES, Frame, Pa, Va};

/// The format of the page tables: x86-64 with four levels.
pub(crate) type Format = X86_64<4>;
type Inner = HalfTables<'static, CMachine, Format>;

/// The page tables of one half, under one top table.
pub struct Tables {
    handle: Handle<CMachine, Inner>,
}

impl Opaque for Tables {
    const TAG: u64 = u64::from_le_bytes(*b"tables 1");
    const NAME: &'static str = "tables";
    type Base = CMachine;
    type Value = Inner;

    fn handle(&self) -> &Handle<CMachine, Inner> {
        &self.handle
    }
}

/// Frames that an operation may turn into page tables. All zeros is an empty one. What is left in
/// it is the caller's.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Spare {
    /// How many there are.
    pub count: u32,
    /// Their numbers; each is cleared, and nobody uses it.
    pub frames: [u64; 8],
}

/// Consecutive leaves of one level that were taken out, and that mapped consecutive blocks alike.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Run {
    /// The first address.
    pub va: u64,
    /// The physical address behind it; `FOLIANT_NOWHERE` where the word mapped nothing and was not
    /// 0.
    pub pa: u64,
    /// How many leaves.
    pub count: u32,
    /// Their level (`enum foliant_leaf`).
    pub level: u32,
    /// `FOLIANT_ATTR_*`; accessed and dirty where any of them was.
    pub attrs: u32,
}

/// Of a run: it mapped nothing.
pub const FOLIANT_NOWHERE: u64 = u64::MAX;

/// What stands in a gather.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GatherState {
    /// Nothing.
    Empty = 0,
    /// What was taken out and may still be cached.
    Pending = 1,
    /// What was taken out, and no CPU can reach any more.
    Flushed = 2,
}

/// What an unmap took out: the caller flushes it, and then the frames are free to be used again.
/// All zeros is an empty one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    /// `enum foliant_gather_state`; written by `foliant_tables_unmap` and `foliant_tables_flush`.
    pub state: u32,
    /// How many runs.
    pub run_count: u32,
    /// How many page tables.
    pub table_count: u32,
    /// The runs.
    pub runs: [Run; 32],
    /// The frames of page tables that became empty and were removed.
    pub tables: [u64; 32],
}
const _: () = assert!(Harvest::RUNS_MAX == 32 && Harvest::TABLES_MAX == 32);

impl Gather {
    /// All zeros.
    #[cfg(test)]
    pub(crate) const NOTHING: Gather = Gather {
        state: 0,
        run_count: 0,
        table_count: 0,
        runs: [Run { va: 0, pa: 0, count: 0, level: 0, attrs: 0 }; 32],
        tables: [0; 32],
    };
}

/// The word that translates an address.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Translation {
    /// The physical address that it is translated to.
    pub pa: u64,
    /// The first address that the leaf maps.
    pub leaf: u64,
    /// The leaf's level (`enum foliant_leaf`).
    pub level: u32,
    /// `FOLIANT_ATTR_*`.
    pub attrs: u32,
}

/// The root of new tables: not yet used, or used already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Top {
    New,
    Used,
}

/// Makes a handle.
///
/// # Safety
/// P1 to P3. `root` is a frame that is lent as a top table; one that is used already leads to
/// tables of the format, all of frames behind the direct map.
unsafe fn make(
    (memory, bytes): (*mut c_void, u64),
    machine: Option<&Machine>,
    (root, top): (u64, Top),
    half: u32,
    tables: Option<&mut MaybeUninit<*const Tables>>,
) -> Result<(), Refusal> {
    let place = lent::place(tables, "tables")?;
    let table = lent::given(machine, "machine")?;
    // SAFETY: the caller's promise (P3).
    let machine = unsafe { CMachine::checked(table) }?;
    let half = values::half(half)?;
    let root = Pa::new(root);
    if !root.is_aligned(Bytes::new(FRAME_BYTES)) || root.get() >> Format::PA_BITS != 0 {
        return Err(Refusal::Value("root", root.get()));
    }
    let adopt = |machine: &'static CMachine, _: NonNull<u8>| {
        if top == Top::New {
            // SAFETY: the frame is lent as a top table (P3).
            unsafe { machine.clear(root, Bytes::new(FRAME_BYTES), Caching::Cached) };
        }
        // SAFETY: a top table of this format: cleared just now, or as the caller says.
        Ok(unsafe { HalfTables::adopt(machine, root, half) })
    };
    let need = Layout::of::<Tables>();
    // SAFETY: the caller's promise (P2).
    place.write(unsafe { handle::make::<Tables>((memory, bytes), need, machine, adopt) }?);
    Ok(())
}

/// How much memory a handle of page tables needs.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_tables_layout() -> Layout {
    Layout::of::<Tables>()
}

/// Makes new page tables for a half (`enum foliant_half`). `root` is the physical address of a
/// frame that is lent as the top table, and cleared here.
///
/// # Safety
/// P1 to P3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foliant_tables_new(
    memory: *mut c_void,
    bytes: u64,
    machine: Option<&Machine>,
    root: u64,
    half: u32,
    tables: Option<&mut MaybeUninit<*const Tables>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    // SAFETY: the caller's promise.
    let made = unsafe { make((memory, bytes), machine, (root, Top::New), half, tables) };
    answer(error, made)
}

/// A handle of page tables that exist: those that the kernel booted with, or that another handle
/// made. Bit 9 of words that lead to tables must be 0: it is the lock.
///
/// # Safety
/// P1 to P3, and the tables are of the format, in frames behind the direct map.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foliant_tables_adopt(
    memory: *mut c_void,
    bytes: u64,
    machine: Option<&Machine>,
    root: u64,
    half: u32,
    tables: Option<&mut MaybeUninit<*const Tables>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    // SAFETY: the caller's promise.
    let made = unsafe { make((memory, bytes), machine, (root, Top::Used), half, tables) };
    answer(error, made)
}

/// Puts a frame into a spare: it is cleared here, and is a page table once an operation took it.
///
/// # Safety
/// P1, and the frame is memory behind the direct map that nobody else uses (P3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foliant_spare_lend(
    tables: Option<&Tables>,
    spare: Option<&mut Spare>,
    frame: u64,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (machine, spare) = (handle::base(tables)?, lent::given(spare, "spare")?);
        if frame >> (Format::PA_BITS - 12) != 0 {
            return Err(Refusal::Value("frame", frame));
        }
        let place = spare.frames.get_mut(spare.count as usize).ok_or(Refusal::SpareFull)?;
        let bytes = Bytes::new(FRAME_BYTES);
        // SAFETY: the caller lends the frame.
        unsafe { machine.clear(Frame::new(frame).pa(), bytes, Caching::Cached) };
        *place = frame;
        spare.count += 1;
        Ok(())
    };
    answer(error, work())
}

/// The spare as an operation takes it.
///
/// # Safety
/// P3: its frames were put in by `foliant_spare_lend`.
unsafe fn taken(spare: &mut Spare) -> Result<table::Spare, Refusal> {
    let count = spare.count as usize;
    let frames = spare.frames.get(..count).ok_or(Refusal::Value("count", count as u64))?;
    let mut taken = table::Spare::new();
    for frame in frames.iter().rev() {
        // SAFETY: the caller's promise: cleared, and nobody else's.
        unsafe { taken.lend(Frame::new(*frame)) }.expect("a spare of C is no larger");
    }
    spare.count = 0;
    Ok(taken)
}
/// Gives back what is left.
fn give_back(mut left: table::Spare, spare: &mut Spare) {
    while let Some(claim) = left.pop() {
        spare.frames[spare.count as usize] = claim.into_raw().0.get();
        spare.count += 1;
    }
}

/// Maps `bytes` from `va` on to the frames from number `frame` on, with leaves of level `largest`
/// (`enum foliant_leaf`) where they fit, smaller ones elsewhere, and with `attrs`
/// (`FOLIANT_ATTR_*`). A range in which something is mapped already is refused before any change.
///
/// Where the spare has no frame left for a table the call ends with `FOLIANT_STATUS_NEED_TABLE`:
/// everything below `*upto` is mapped. Lend a frame and map the rest from there on. Needs no flush.
///
/// # Safety
/// P1 and P3: the frames of the spare were put in by `foliant_spare_lend`, and what is mapped is
/// memory that the code run on these tables may reach.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foliant_tables_map(
    tables: Option<&Tables>,
    va: u64,
    bytes: u64,
    frame: u64,
    attrs: u32,
    largest: u32,
    spare: Option<&mut Spare>,
    upto: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, spare) = (handle::value(tables)?, lent::given(spare, "spare")?);
        let upto = lent::place(upto, "upto")?;
        let (attrs, largest) = (values::attrs(attrs)?, values::level(largest)?);
        let range = addresses(va, bytes)?;
        // SAFETY: the caller's promise.
        let mut taken = unsafe { taken(spare) }?;
        let done = inner.map(range, Frame::new(frame), attrs, largest, &mut taken);
        give_back(taken, spare);
        let done = done?;
        upto.write(done.upto.get());
        match done.why {
            MapStop::Done => Ok(()),
            MapStop::NeedTable(level) => Err(Refusal::NeedTable(level)),
            MapStop::Live(va) => Err(Refusal::Live(va)),
        }
    };
    answer(error, work())
}

/// Takes everything out of `bytes` from `va` on, and page tables that become empty as `prune`
/// (`enum foliant_prune`) says. What was there is in the gather afterwards: flush it, and then use
/// the frames again. Everything below `*upto` is done; with `FOLIANT_STATUS_FULL` flush and go on
/// from there.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_tables_unmap(
    tables: Option<&Tables>,
    va: u64,
    bytes: u64,
    prune: u32,
    gather: Option<&mut Gather>,
    upto: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, gather) = (handle::value(tables)?, lent::given(gather, "gather")?);
        let upto = lent::place(upto, "upto")?;
        match gather.state {
            n if n == GatherState::Pending as u32 => return Err(Refusal::NotFlushed), // G1
            n if n > GatherState::Flushed as u32 => {
                return Err(Refusal::Value("state", u64::from(n)));
            }
            _ => {}
        }
        let (range, prune) = (addresses(va, bytes)?, values::prune(prune)?);
        let mut harvest = Harvest::new();
        let swept = inner.unmap(range, prune, &mut harvest)?;
        reap(harvest, gather);
        upto.write(swept.upto.get());
        match swept.why {
            Stop::Done => Ok(()),
            why => Err(Refusal::Stop(why)),
        }
    };
    answer(error, work())
}

/// Moves what was taken out into the gather.
fn reap(mut harvest: Harvest, gather: &mut Gather) {
    gather.run_count = 0;
    for (run, place) in harvest.runs().zip(&mut gather.runs) {
        let (pa, attrs) = match run.what {
            What::Mapped { pa, attrs } => (pa.get(), values::attr_bits(attrs)),
            What::Soft(_) => (FOLIANT_NOWHERE, 0),
        };
        let (va, level) = (run.va.get(), u32::from(run.level.0));
        *place = Run { va, pa, count: run.count, level, attrs };
        gather.run_count += 1;
    }
    harvest.clear_runs();
    gather.table_count = 0;
    while let Some(table) = harvest.pop_table() {
        gather.tables[gather.table_count as usize] = table.into_raw().0.get();
        gather.table_count += 1;
    }
    let is_empty = gather.run_count == 0 && gather.table_count == 0;
    gather.state = match is_empty {
        true => GatherState::Empty as u32,
        false => GatherState::Pending as u32,
    };
}

/// Ends what the CPUs of `cpus`, and the calling one, may have cached of what the gather holds.
/// When it returns its frames are the caller's: those of `runs` that were its own, and those of
/// `tables` once no `foliant_tables_look_up` that began before is at work.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_tables_flush(
    tables: Option<&Tables>,
    cpus: Option<&CpuSet>,
    gather: Option<&mut Gather>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (machine, cpus) = (handle::base(tables)?, lent::given(cpus, "cpus")?);
        let gather = lent::given(gather, "gather")?;
        let count = foliant_machine::Cpus::count(machine);
        if let Some(cpu) = cpus.beyond(count) {
            return Err(Refusal::Cpu(cpu));
        }
        if gather.state != GatherState::Pending as u32 {
            return Err(Refusal::NotPending);
        }
        let what = invalidation(handle::value(tables)?, gather)?;
        let ticket = machine.ask(&cpus.below(count), &what);
        machine.invalidate(&what);
        machine.wait(ticket);
        gather.state = GatherState::Flushed as u32;
        Ok(())
    };
    answer(error, work())
}

/// What is to be ended for a gather.
fn invalidation(tables: &Inner, gather: &Gather) -> Result<Invalidation, Refusal> {
    let scope = match tables.half() {
        table::Half::User => Scope::Space(tables.root()),
        table::Half::Kernel => Scope::Kernel,
    };
    let mut what = Invalidation::none(scope);
    if gather.table_count > 0 {
        what.widen(); // G2
        return Ok(what);
    }
    let count = gather.run_count as usize;
    let runs = gather.runs.get(..count).ok_or(Refusal::Value("run_count", count as u64))?;
    for run in runs {
        let level = values::level(run.level)?;
        let bytes = level.span().get().checked_mul(u64::from(run.count));
        let bytes = bytes.ok_or(Refusal::Overflow { start: run.va, size: u64::MAX })?;
        let range = addresses(run.va, bytes)?;
        let tables = foliant_machine::Tables::Kept;
        if what.push(Item { range, level, tables }).is_err() {
            what.widen(); // too many ranges: everything of these tables
            break;
        }
    }
    Ok(what)
}

/// The leaf that translates `va`, or `FOLIANT_STATUS_NOT_MAPPED`. It takes no lock: the leaf may be
/// another one by the time that the call returns, and no frame of a removed page table is used
/// again while a call is at work that began before the removal.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_tables_look_up(
    tables: Option<&Tables>,
    va: u64,
    translation: Option<&mut MaybeUninit<Translation>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let place = lent::place(translation, "translation")?;
        let found = handle::value(tables)?.walk(Va::new(va));
        let Entry::Leaf { pa, attrs } = found.entry else {
            return Err(Refusal::NotMapped(Va::new(va)));
        };
        place.write(Translation {
            pa: pa.get() + Va::new(va).offset_from(found.va),
            leaf: found.va.get(),
            level: u32::from(found.level.0),
            attrs: values::attr_bits(attrs),
        });
        Ok(())
    };
    answer(error, work())
}
