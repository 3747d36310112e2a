//! The planted bugs: one value each, with its name, what is wrong, the checker that must see it,
//! and the misbehaviour.
//!
//! None is in the manager: the machine below it, or a holder of its memory, misbehaves in exactly
//! one way, as if the manager had forgotten to ask for what it asked for. What a bug does stands in
//! the fields of [`Bug`] that it gives; what it does not give is what the machine does.
//!
//! **Not here**: when they are asked (`saboteur`).

use crate::bits::{
    ACCESSED, ADDRESS, CONTIGUOUS, DBM, DIRTY, LARGE, PRESENT, SPECIAL, WAS_GROUPED, WRITE,
    is_leaf, is_migration,
};
use crate::kinds::{Format, Live, Sizes, Style};
use crate::saboteur::{ALONE, Bug, MOVES, SOUND, Saboteur};
use crate::tasks::{Copied, PutOff, Task};
use foliant_machine::{Invalidation, Item, Kept, Owner, Reach, Scope, Tables, Witness};
use foliant_units::{Bytes, CpuSet, FRAME_BYTES, FrameRange, Level, Pa, Pages, Va, VaRange};

/// All of them, in the order in which they are listed.
pub(crate) static ALL: &[Bug] = &[
    Bug {
        name: "skip-remote-flush",
        about: "other CPUs are not asked to invalidate",
        checker: "no_stale_translation",
        asked: |at, cpus, what| nobody_if(at.strikes(), cpus, what),
        ..SOUND
    },
    Bug {
        name: "one-cpu-too-few",
        about: "one of several CPUs is not asked",
        checker: "no_stale_translation",
        asked: |at, cpus, what| {
            if !cpus.is_empty() && at.strikes() {
                let nth = at.draw_below(cpus.len() as u64) as usize;
                let spared = cpus.iter().nth(nth);
                spared.into_iter().for_each(|cpu| cpus.remove(cpu));
            }
            *what
        },
        ..SOUND
    },
    Bug {
        name: "free-before-wait",
        about: "the wait returns before others carried the request out",
        checker: "no_stale_translation",
        puts_off_wait: |at, _| at.strikes(),
        ..SOUND
    },
    Bug {
        name: "skip-local-flush",
        about: "nothing is invalidated on the CPU itself",
        checker: "no_stale_translation",
        invalidated: |at, what| (!at.strikes()).then_some(*what),
        ..SOUND
    },
    Bug {
        name: "wrong-level",
        about: "only the first entry of each invalidated range is carried out",
        checker: "no_stale_translation",
        invalidated: |at, what| Some(at.narrowed(what, |what| of_first_entries(what, |_| true))),
        asked: |at, _, what| at.narrowed(what, |what| of_first_entries(what, |_| true)),
        ..SOUND
    },
    Bug {
        name: "tables-kept",
        about: "removed tables are flushed as if they were kept",
        checker: "no_stale_translation",
        invalidated: |at, what| Some(at.narrowed(what, with_tables_kept)),
        asked: |at, _, what| at.narrowed(what, with_tables_kept),
        ..SOUND
    },
    Bug {
        name: "forget-zero",
        about: "a large clear does nothing",
        checker: "zeroed_before_user",
        once_in: 3,
        cleared: |at, bytes| if is_large(bytes) && at.strikes() { NOTHING } else { bytes },
        ..SOUND
    },
    Bug {
        name: "half-zero",
        about: "a large clear stops half-way",
        checker: "zeroed_before_user",
        once_in: 3,
        cleared: |at, bytes| if is_large(bytes) && at.strikes() { half(bytes) } else { bytes },
        ..SOUND
    },
    Bug {
        name: "idle-zero",
        about: "clearing ahead of use does nothing",
        checker: "zeroed_before_user",
        cleared: |at, bytes| if at.strikes_in(&[Task::Idle]) { NOTHING } else { bytes },
        ..SOUND
    },
    Bug {
        name: "half-copy",
        about: "a copy stops half-way",
        checker: "contents",
        once_in: 3,
        style: Some(Style::Partitioned),
        copied: |at, copied| if at.strikes() { half(copied.bytes) } else { copied.bytes },
        ..SOUND
    },
    Bug {
        name: "lost-dirty",
        about: "a rewritten leaf loses its dirty bit",
        checker: "dirty_kept",
        once_in: 2,
        style: Some(Style::Partitioned),
        word: |at, old, new| {
            let stays = is_same(old, new) && old & DIRTY != 0 && new & DIRTY != 0;
            if stays && at.strikes() { new & !DIRTY } else { new }
        },
        ..SOUND
    },
    Bug {
        name: "double-map",
        about: "a new leaf names the frame of the page before",
        checker: "contents",
        once_in: 5,
        style: Some(Style::Partitioned),
        // A leaf written right behind the one before it, of the next frame, is of the same folio.
        loaded: |at, word| {
            at.state().leaf = (Pa::new(0), 0);
            word
        },
        stored: |at, pa, _, new| {
            let last = core::mem::replace(&mut at.state().leaf, (pa, new));
            let is_behind = pa.get() == last.0.get() + 8
                && new & ADDRESS == (last.1 & ADDRESS) + 4096
                && is_leaf(new)
                && new & LARGE == 0;
            if is_behind && at.strikes() { new - 4096 } else { new }
        },
        ..SOUND
    },
    Bug {
        name: "stays-writable",
        about: "a write-protected leaf stays writable",
        checker: "contents",
        once_in: 2,
        style: Some(Style::Partitioned),
        word: |at, old, new| {
            let is_protected = is_same(old, new) && old & WRITE != 0 && new & WRITE == 0;
            if is_protected && at.strikes() { new | WRITE } else { new }
        },
        ..SOUND
    },
    Bug {
        name: "skip-activate",
        about: "a root is not loaded",
        checker: "no_stale_translation",
        once_in: 3,
        activated: |at, kept| (!at.strikes()).then_some(kept),
        ..SOUND
    },
    Bug {
        name: "kept-unasked",
        about: "a root comes back with what a flush passed by",
        checker: "no_stale_translation",
        activated: |at, kept| {
            let is_stale = kept == Kept::Nothing && at.strikes();
            Some(if is_stale { Kept::Unchanged } else { kept })
        },
        ..SOUND
    },
    Bug {
        name: "leak",
        about: "a block given back is not stated to be free",
        checker: "quiescent",
        once_in: 30,
        owned: |at, frames, owner| (owner != Owner::Free || !at.strikes()).then_some(frames),
        ..SOUND
    },
    Bug {
        name: "lost-table",
        about: "a table given back is not stated to be free",
        checker: "quiescent",
        once_in: 3,
        owned: |at, frames, owner| {
            (!at.is_no_more(frames, owner, Owner::Table) || !at.strikes()).then_some(frames)
        },
        ..SOUND
    },
    Bug {
        name: "lost-record",
        about: "a record given back is not stated to be free",
        checker: "counters_recount",
        once_in: 3,
        owned: |at, frames, owner| {
            (!at.is_no_more(frames, owner, Owner::Records) || !at.strikes()).then_some(frames)
        },
        ..SOUND
    },
    Bug {
        name: "freed-twice",
        about: "a block is stated to be free twice",
        checker: "frames_conserved",
        once_in: 30,
        owned: |at, frames, owner| {
            if owner == Owner::Free && at.strikes() {
                at.sim.owned(frames, owner);
            }
            Some(frames)
        },
        ..SOUND
    },
    Bug {
        name: "unstated-claim",
        about: "a block is used without being claimed",
        checker: "frames_conserved",
        once_in: 30,
        owned: |at, frames, owner| (owner != Owner::Claimed || !at.strikes()).then_some(frames),
        ..SOUND
    },
    Bug {
        name: "wide-claim",
        about: "a claim covers the block behind as well",
        checker: "no_shared_owner",
        once_in: 30,
        owned: |at, frames, owner| {
            let is_wide = owner == Owner::Claimed && at.strikes();
            let twice = Pages::new(frames.pages().get() * 2);
            let wide = FrameRange::new(frames.start(), twice).filter(|_| is_wide);
            Some(wide.unwrap_or(frames))
        },
        ..SOUND
    },
    Bug {
        name: "stale-accessed",
        about: "a used leaf reads as never used",
        checker: "no_stale_translation",
        once_in: 2,
        loaded: |at, word| {
            if is_leaf(word) && at.strikes() { word & !ACCESSED } else { word }
        },
        // Who was lied to expects the bit to be off.
        is_expected: |at, old, found| at.is_armed() && found == old | ACCESSED,
        ..SOUND
    },
    Bug {
        name: "no-break",
        about: "no flush between break and make",
        checker: "bbm",
        live: Live::BreakBeforeMake,
        invalidated: |at, what| (!at.strikes()).then_some(*what),
        asked: |at, cpus, what| nobody_if(at.strikes(), cpus, what),
        ..SOUND
    },
    Bug {
        name: "skip-fold-flush",
        about: "descriptors are remapped and nobody is asked to invalidate",
        checker: "no_stale_translation",
        style: Some(Style::Folding),
        invalidated: |at, what| (!is_kernel(what) || !at.strikes()).then_some(*what),
        asked: |at, cpus, what| nobody_if(is_kernel(what) && at.strikes(), cpus, what),
        ..SOUND
    },
    Bug {
        name: "free-before-fold-flush",
        about: "the wait returns before others let go of remapped descriptors",
        checker: "no_stale_translation",
        style: Some(Style::Folding),
        puts_off_wait: |at, is_kernel| is_kernel && at.strikes(),
        ..SOUND
    },
    Bug {
        name: "write-in-window",
        about: "a holder writes descriptors while they are remapped",
        checker: "descriptors",
        style: Some(Style::Folding),
        asked: |at, _, what| {
            if is_kernel(what) && at.strikes() {
                at.write_in_window();
            }
            *what
        },
        ..SOUND
    },
    Bug {
        name: "forget-huge-zero",
        about: "a far part of a huge page is not cleared",
        checker: "zeroed_before_user",
        style: Some(Style::Pooled),
        // It is cleared in parts around the page that was touched; one is almost half of it.
        cleared: |at, bytes| {
            let is_far = bytes.get() > Level::SIZE_2M.span().get() / 4;
            if is_far && at.strikes() { NOTHING } else { bytes }
        },
        ..SOUND
    },
    Bug {
        name: "half-huge-copy",
        about: "the copy of a huge page stops half-way",
        checker: "contents",
        style: Some(Style::Pooled),
        // It is copied in parts, so that others run in between.
        copied: |at, Copied { bytes, .. }| {
            let is_huge = bytes.get() >= Level::SIZE_2M.span().get() / 8;
            if is_huge && at.strikes() { half(bytes) } else { bytes }
        },
        ..SOUND
    },
    Bug {
        name: "skip-purge-flush",
        about: "kernel ranges are purged and nobody is asked to invalidate",
        checker: "no_stale_translation",
        style: Some(Style::Ranges),
        invalidated: |at, what| (!is_kernel(what) || !at.strikes()).then_some(*what),
        asked: |at, cpus, what| nobody_if(is_kernel(what) && at.strikes(), cpus, what),
        ..SOUND
    },
    Bug {
        name: "use-after-free",
        about: "a holder reads kernel memory that it gave back",
        checker: "no_stale_translation",
        style: Some(Style::Ranges),
        reads_after_free: |at| at.strikes(),
        ..SOUND
    },
    Bug {
        name: "skip-split-flush",
        about: "a folio is split or moved and nobody invalidates its entries",
        checker: "no_stale_translation",
        invalidated: |at, what| (!at.is_taking() || !at.strikes()).then_some(*what),
        asked: |at, cpus, what| nobody_if(at.is_taking() && at.strikes(), cpus, what),
        ..SOUND
    },
    Bug {
        name: "false-zeros",
        about: "a page that holds something is given back as if a guess had not used it",
        checker: "contents",
        style: Some(Style::Racing),
        sizes: Sizes::Auto,
        looked: |at, _, bytes, is_zero| {
            is_zero || (is_page(bytes) && at.strikes_in(&[Task::Fault]))
        },
        ..SOUND
    },
    Bug {
        name: "skip-guess-flush",
        about: "pages of a guess are given back and nobody invalidates their entries",
        checker: "no_stale_translation",
        sizes: Sizes::Auto,
        invalidated: |at, what| (!is_of_guess(at)).then_some(*what),
        asked: |at, cpus, what| nobody_if(is_of_guess(at), cpus, what),
        ..SOUND
    },
    Bug {
        name: "lost-dirty-moved",
        about: "an entry of a split or moved folio is clean",
        checker: "dirty_kept",
        style: Some(Style::Partitioned),
        word: |at, old, new| {
            let is_back = is_migration(old) && is_leaf(new) && new & DIRTY != 0;
            if is_back && at.strikes() { new & !DIRTY } else { new }
        },
        ..SOUND
    },
    Bug {
        name: "forget-mapping",
        about: "one entry of a folio is never taken out of use",
        checker: "panic",
        once_in: 20,
        is_forgotten: |at| at.strikes(),
        ..SOUND
    },
    Bug {
        name: "late-copy",
        about: "a moved folio is copied when programs are at its new memory",
        checker: "contents",
        style: Some(Style::Racing),
        copied: |at, copied| {
            if !at.strikes_in(&MOVES) {
                return copied.bytes;
            }
            at.job(&MOVES, |job| job.late.push(copied));
            NOTHING
        },
        ..SOUND
    },
    Bug {
        name: "left-behind",
        about: "one entry of a moved folio names the memory that it left",
        checker: "no_stale_translation",
        once_in: 20,
        copied: |at, copied| {
            at.job(&ALONE, |job| job.copied = Some(copied));
            copied.bytes
        },
        stored: |at, pa, _, new| left_behind(at, pa, new),
        ..SOUND
    },
    Bug {
        name: "isolated-not-freed",
        about: "frames of a block that is not emptied are not stated to be free",
        checker: "no_shared_owner",
        owned: |at, frames, owner| {
            let is_lost = owner == Owner::Free && at.strikes_in(&[Task::Compact]);
            (!is_lost).then_some(frames)
        },
        ..SOUND
    },
    Bug {
        name: "late-collapse-flush",
        about: "a collapsed range is flushed when its leaf is there",
        checker: "bbm",
        style: Some(Style::Racing),
        live: Live::BreakBeforeMake,
        invalidated: |at, what| (!puts_off(at, what, &CpuSet::default())).then_some(*what),
        asked: |at, cpus, what| {
            let is_put_off = puts_off(at, what, cpus);
            nobody_if(is_put_off, cpus, what)
        },
        ..SOUND
    },
    Bug {
        name: "skip-fork-flush",
        about: "what a fork shares stays writable on other CPUs",
        checker: "contents",
        style: Some(Style::Racing),
        asked: |at, cpus, what| nobody_if(at.strikes_in(&[Task::Fork]), cpus, what),
        ..SOUND
    },
    Bug {
        name: "skip-copy-flush",
        about: "other CPUs keep the page that a fault replaces by its copy",
        checker: "contents",
        style: Some(Style::Racing),
        asked: |at, cpus, what| nobody_if(at.strikes_in(&[Task::Fault]), cpus, what),
        ..SOUND
    },
    Bug {
        name: "group-stays-writable",
        about: "one word of a group that is write-protected stays writable",
        checker: "groups",
        format: Format::Aarch64,
        stored: |at, pa, old, new| {
            let is_protected = is_grouped(new) && old >> 1 & 31 == 4 && new & DBM == 0;
            if is_one(pa, old, new) && is_protected && at.strikes() { new | DBM } else { new }
        },
        ..SOUND
    },
    Bug {
        name: "group-bit-stays",
        about: "one word of a group taken apart says that it is one of it",
        checker: "groups",
        format: Format::Aarch64,
        stored: |at, pa, old, new| {
            let is_apart = !is_grouped(new) && old >> 1 & 31 == 4 && old & WAS_GROUPED != 0;
            if is_one(pa, old, new) && is_apart && at.strikes() { new | CONTIGUOUS } else { new }
        },
        ..SOUND
    },
    Bug {
        name: "group-wrong-frame",
        about: "one word of a new group names its neighbour's frame",
        checker: "groups",
        format: Format::Aarch64,
        stored: |at, pa, old, new| {
            let is_new = is_grouped(new) && old == 0;
            if is_one(pa, old, new) && is_new && at.strikes() { new + 4096 } else { new }
        },
        ..SOUND
    },
    Bug {
        name: "group-one-page",
        about: "of an invalidated group only the first page is",
        checker: "no_stale_translation",
        format: Format::Aarch64,
        invalidated: |at, what| Some(at.narrowed(what, |what| of_first_entries(what, is_group))),
        asked: |at, _, what| at.narrowed(what, |what| of_first_entries(what, is_group)),
        ..SOUND
    },
    Bug {
        name: "private-writable",
        about: "a page of an object that is read privately is writable",
        checker: "contents",
        once_in: 2,
        style: Some(Style::Objects),
        word: |at, old, new| {
            let is_read = old == 0 && is_leaf(new) && new & (WRITE | SPECIAL) == 0;
            if is_read && at.strikes_in(&[Task::Fault]) { new | WRITE } else { new }
        },
        ..SOUND
    },
    Bug {
        name: "detached-mapped",
        about: "an area of an object goes while an entry of it is there",
        checker: "audit",
        once_in: 3,
        style: Some(Style::Objects),
        word: |at, old, new| {
            if is_gone(old, new) && at.strikes_in(&[Task::Unmap]) { old } else { new }
        },
        ..SOUND
    },
    Bug {
        name: "forget-attachment",
        about: "where an object is mapped an entry of a moved folio is never taken out of use",
        checker: "panic",
        once_in: 5,
        style: Some(Style::Objects),
        is_forgotten: |at| at.is_of_another_table(&[Task::Relocate]) && at.strikes(),
        ..SOUND
    },
    Bug {
        name: "uncut-index",
        about: "a page that is cut off its object is still in the object's own table",
        checker: "contents",
        once_in: 5,
        style: Some(Style::Objects),
        word: |at, old, new| {
            let is_cut = is_gone(old, new) && !at.is_of_another_table(&[Task::Cut]);
            if is_cut && at.strikes_in(&[Task::Cut]) { old } else { new }
        },
        ..SOUND
    },
];

/// Nothing of what was to be cleared or copied.
const NOTHING: Bytes = Bytes::new(0);
/// Bytes of a group.
const GROUP: u64 = 64 << 10;

/// The request, of nobody where `strikes`.
fn nobody_if(strikes: bool, cpus: &mut CpuSet, what: &Invalidation) -> Invalidation {
    if strikes {
        *cpus = CpuSet::default();
    }
    *what
}
fn half(bytes: Bytes) -> Bytes {
    Bytes::new(bytes.get() / 2)
}
/// Whether it is of a large folio, and not of a huge page.
fn is_large(bytes: Bytes) -> bool {
    bytes.get() > 4096 && bytes.get() < Level::SIZE_2M.span().get()
}
/// Whether both are leaves of the same memory, which is not the shared zeros'.
fn is_same(old: u64, new: u64) -> bool {
    let is_own = is_leaf(new) && new & SPECIAL == 0;
    is_own && is_leaf(old) && (old ^ new) & ADDRESS == 0
}
/// Whether a leaf goes.
fn is_gone(old: u64, new: u64) -> bool {
    is_leaf(old) && new == 0
}
/// Whether a whole page is looked at, to be given back.
fn is_page(bytes: Bytes) -> bool {
    bytes.get() == FRAME_BYTES
}
/// Whether the flush is one of guesses that are being split, and the bug strikes.
fn is_of_guess(at: &Saboteur<'_>) -> bool {
    at.is_taking() && at.strikes_in(&[Task::Fault])
}
fn is_kernel(what: &Invalidation) -> bool {
    what.scope() == Scope::Kernel
}
/// Whether a leaf comes where none was, to the word of its group that is written wrong.
fn is_one(pa: Pa, old: u64, new: u64) -> bool {
    pa.get() / 8 % 16 == 5 && old & PRESENT == 0 && new & PRESENT != 0
}
/// Whether the flush of a table that a collapse took out is put off; `cpus` would have to be asked.
fn puts_off(at: &Saboteur<'_>, what: &Invalidation, cpus: &CpuSet) -> bool {
    // A table goes with so many leaves that its flush may be one of everything. So may the flush of
    // the pages' moves, but those are under way then.
    let is_table = what.items().iter().any(|item| item.tables == Tables::Removed)
        || (what.reach() == Reach::All && !at.is_taking());
    let put_off = PutOff { what: *what, cpus: *cpus };
    is_table
        && at.strikes_in(&[Task::Collapse])
        && at.job(&[Task::Collapse], |job| job.put_off.push(put_off)).is_some()
}
/// The leaf that is written: where it maps memory that was copied just now and the bug strikes, it
/// maps the memory that this was copied from.
fn left_behind(at: &Saboteur<'_>, pa: Pa, leaf: u64) -> u64 {
    let copied = at.job(&ALONE, |job| job.copied).flatten();
    let before = copied.and_then(|copied| copied.before(Pa::new(leaf & ADDRESS)));
    let Some(before) = before.filter(|_| at.strikes()) else { return leaf };
    at.job(&ALONE, |job| job.wrong.push((pa, leaf)));
    leaf & !ADDRESS | before.get()
}
fn is_grouped(word: u64) -> bool {
    word & CONTIGUOUS != 0
}

/// The same, but for cached pointers to tables.
fn with_tables_kept(what: &Invalidation) -> Invalidation {
    let mut less = *what;
    if what.reach() == Reach::All {
        less = Invalidation::none(what.scope());
        for level in 0..3 {
            let range = VaRange::new(Va::new(0), Va::new(1 << 47)).unwrap_or_default();
            let _ = less.push(Item { range, level: Level(level), tables: Tables::Kept });
        }
    }
    less.items_mut().iter_mut().for_each(|item| item.tables = Tables::Kept);
    less
}

/// Whether it is for a group of pages and nothing else.
fn is_group(item: &Item) -> bool {
    let (start, bytes) = (item.range.start().get(), item.range.bytes().get());
    item.level == Level::BASE && bytes == GROUP && start.is_multiple_of(GROUP)
}

/// The same, but of each range that is `meant` only what its first entry maps.
fn of_first_entries(what: &Invalidation, meant: fn(&Item) -> bool) -> Invalidation {
    let mut less = *what;
    for item in less.items_mut().iter_mut().filter(|item| meant(item)) {
        let range = VaRange::sized(item.range.start(), item.level.span());
        item.range = range.unwrap_or(item.range);
    }
    less
}
