//! What is there for a caller without a manager: a range mapped in one call, and the flush.

use super::board::Board;
use crate::*;
use foliant_claim::Claim;
use foliant_machine::{
    Accessed, Invalidation, Item, Kept, MmuRules, Owner, PhysMem, Reach, Replace, Root, Scope,
    Ticket, Tlb, Witness,
};
use foliant_units::{Bytes, Cpu, CpuSet, Frame, FrameRange, Level, Order, Pa, Pages, Va, VaRange};
use std::cell::RefCell;
use std::vec::Vec;

type X86 = X86_64<4>;
const USER_RW: Attrs = Attrs::USER.with(Attrs::WRITE);

fn frames(start: u64, pages: u64) -> FrameRange {
    FrameRange::new(Frame::new(start), Pages::new(pages)).unwrap()
}
fn range(start: u64, end: u64) -> VaRange {
    VaRange::new(Va::new(start), Va::new(end)).unwrap()
}

impl Witness for Board {
    fn owned(&self, frames: FrameRange, owner: Owner) {
        assert_eq!((frames.pages(), owner), (Pages::new(1), Owner::Table));
    }
}

/// A frame full of ones.
#[allow(unsafe_code)]
fn dirty(board: &Board) -> Claim {
    let claim = board.claim();
    for word in 0..512 {
        // SAFETY: the frame is this test's.
        unsafe { board.store(claim.frame().pa().add(word * 8), !0) };
    }
    claim
}

#[allow(unsafe_code)]
fn created(board: &Board) -> Tables<'_, Board, X86> {
    // SAFETY: nobody runs them.
    unsafe { Tables::create(board, dirty(board), Half::User) }
}

#[test]
fn frames_are_mapped_in_one_call_with_tables_that_are_lent() {
    // 4 KiB before a boundary of 2 MiB, 2 MiB, 4 KiB, over a boundary of 1 GiB.
    let (at, block) = (Va::new((1 << 30) - 4096), frames(0x3ff, 514));
    let board = Board::new(64, Replace::InPlace);
    let tables = created(&board);
    let all = range(0, 1 << 40);
    assert_eq!(tables.leaves(all).count(), 0, "the top table was cleared");
    let (mut spare, mut lent) = (Spare::new(), 0);
    let lend = || {
        lent += 1;
        Some(dirty(&board))
    };
    let done = tables.map_frames(at, block, USER_RW, &mut spare, lend).unwrap();
    assert_eq!(done, Mapped { upto: at.add(514 * 4096), why: MapStop::Done });
    assert_eq!((lent, spare.len()), (5, 0));
    let leaf = |found: Found| match found.entry {
        Entry::Leaf { pa, attrs } => (found.va.get(), found.level.0, pa.frame().get(), attrs),
        other => panic!("{other:?}"),
    };
    let found: Vec<_> = tables.leaves(all).map(leaf).collect();
    let expect = [
        ((1 << 30) - 4096, 0, 0x3ff, USER_RW),
        (1 << 30, 1, 0x400, USER_RW),
        ((1 << 30) + (2 << 20), 0, 0x600, USER_RW),
    ];
    assert_eq!(found, expect);
    // Nothing is lent where all tables are there.
    let none = || -> Option<Claim> { panic!("no table is missing") };
    let again = tables.map_frames(at.add(514 * 4096), frames(7, 3), USER_RW, &mut spare, none);
    assert_eq!(again.map(|done| done.why), Ok(MapStop::Done));
}

#[test]
fn where_no_table_is_lent_the_rest_is_mapped_later() {
    let (at, block) = (Va::new((1 << 30) - 4096), frames(0x3ff, 514));
    for granted in 0..=5i64 {
        let board = Board::new(64, Replace::InPlace);
        let tables = created(&board);
        let (mut spare, mut left) = (Spare::new(), granted);
        let lend = || {
            left -= 1;
            (left >= 0).then(|| dirty(&board))
        };
        let done = tables.map_frames(at, block, USER_RW, &mut spare, lend).unwrap();
        assert_eq!(done.why == MapStop::Done, granted == 5, "{granted}: {done:?}");
        let mapped = done.upto.offset_from(at) / 4096;
        let behind = frames(0x3ff + mapped, 514 - mapped);
        if behind.pages() > Pages::new(0) {
            let more = || Some(dirty(&board));
            let rest = tables.map_frames(done.upto, behind, USER_RW, &mut spare, more).unwrap();
            assert_eq!(rest.why, MapStop::Done);
        }
        assert_eq!(tables.leaves(range(0, 1 << 40)).count(), 3, "{granted}");
        assert_eq!(board.used(), 6, "a top table and five more, whoever lent them");
    }
}

#[test]
fn frames_that_cannot_be_mapped_are_refused_before_anything_is_lent() {
    let board = Board::new(64, Replace::InPlace);
    let tables = created(&board);
    let mut spare = Spare::new();
    let mut refused = |at, block| {
        let none = || -> Option<Claim> { panic!("it is refused first") };
        tables.map_frames(Va::new(at), block, USER_RW, &mut spare, none).unwrap_err()
    };
    let page = Bytes::new(4096);
    assert_eq!(refused(4097, frames(1, 1)), Refused::Misaligned(Va::new(4097), page));
    assert_eq!(refused(4096, frames(1, 0)), Refused::Empty(Va::new(4096)));
    assert_eq!(refused(!4095, frames(1, 2)), Refused::Outside(Va::new(!4095)));
    let last = (1 << (X86::PA_BITS - 12)) - 1;
    assert_eq!(refused(4096, frames(last, 2)), Refused::Frames(Frame::new(last)));
    assert_eq!(board.used(), 1);
}

/// What a machine was asked to end, in order.
struct Told {
    accessed: Accessed,
    calls: RefCell<Vec<Call>>,
}

#[derive(Clone, PartialEq, Debug)]
enum Call {
    Ask(Vec<u16>, Scope, Reach, Vec<Item>),
    Here(Vec<Item>),
    Wait(u64),
}

impl Tlb for Told {
    fn activate(&self, _: Root, _: Kept) {}
    fn invalidate(&self, what: &Invalidation) {
        self.calls.borrow_mut().push(Call::Here(what.items().to_vec()));
    }
    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket {
        let cpus = cpus.iter().map(Cpu::get).collect();
        let call = Call::Ask(cpus, what.scope(), what.reach(), what.items().to_vec());
        self.calls.borrow_mut().push(call);
        Ticket::new(77)
    }
    fn wait(&self, ticket: Ticket) {
        self.calls.borrow_mut().push(Call::Wait(ticket.number()));
    }
    fn rules(&self) -> MmuRules {
        MmuRules { accessed: self.accessed, ..Board::new(0, Replace::InPlace).rules() }
    }
}

const SCOPE: Scope = Scope::Space(Pa::new(0x7000));

fn flushed(accessed: Accessed, harvest: &mut Harvest) -> (Vec<Run>, Vec<Call>) {
    let told = Told { accessed, calls: RefCell::default() };
    let mut cpus = CpuSet::EMPTY;
    [Cpu::new(1), Cpu::new(3)].into_iter().for_each(|cpu| cpus.insert(cpu));
    let runs = harvest.flush(&told, SCOPE, &cpus).collect();
    (runs, told.calls.into_inner())
}
fn asked(reach: Reach, items: &[Item]) -> Vec<Call> {
    let ask = Call::Ask([1, 3].to_vec(), SCOPE, reach, items.to_vec());
    [ask, Call::Here(items.to_vec()), Call::Wait(77)].to_vec()
}
/// `count` single pages, every second one, of which `accessed` say which were.
fn pages(board: &Board, count: u64, accessed: impl Fn(u64) -> bool) -> Tables<'_, Board, X86> {
    let (tables, mut spare) = (created(board), Spare::new());
    for nth in 0..count {
        let touched = if accessed(nth) { Attrs::ACCESSED } else { Attrs::NONE };
        let (at, attrs) = (Va::new((2 * nth + 1) << 12), USER_RW.with(touched));
        let lend = || Some(board.claim());
        let done = tables.map_frames(at, frames(9 + nth, 1), attrs, &mut spare, lend).unwrap();
        assert_eq!(done.why, MapStop::Done);
    }
    tables
}

#[test]
fn a_flush_asks_for_what_may_be_cached_and_gives_the_runs() {
    let rows = [(Accessed::SetBeforeCached, 1), (Accessed::Independent, 3)];
    for (rule, items) in rows {
        let board = Board::new(64, Replace::InPlace);
        let tables = pages(&board, 3, |nth| nth == 1);
        let mut harvest = Harvest::new();
        let _ = tables.unmap(range(0, 1 << 20), Prune::Keep, &mut harvest).unwrap();
        let (runs, calls) = flushed(rule, &mut harvest);
        assert!(runs.iter().map(|run| run.va.get() >> 12).eq([1, 3, 5]));
        let item = |nth: u64| {
            let (range, level) = (range((2 * nth + 1) << 12, (2 * nth + 2) << 12), Level::BASE);
            Item { range, level, tables: foliant_machine::Tables::Kept }
        };
        let expect: Vec<Item> = (0..3).filter(|nth| items == 3 || *nth == 1).map(item).collect();
        assert_eq!(calls, asked(Reach::Items, &expect), "{rule:?}");
        assert!(harvest.is_empty());
        assert_eq!(flushed(rule, &mut harvest), (Vec::new(), Vec::new()), "nothing is owed");
    }
}

#[test]
fn a_flush_of_more_than_a_request_lists_ends_all() {
    let most = Invalidation::ITEMS_MAX as u64;
    for count in [most, most + 1] {
        let board = Board::new(64, Replace::InPlace);
        let tables = pages(&board, count, |_| true);
        let mut harvest = Harvest::new();
        let _ = tables.unmap(range(0, 1 << 20), Prune::Keep, &mut harvest).unwrap();
        let (runs, calls) = flushed(Accessed::SetBeforeCached, &mut harvest);
        assert_eq!(runs.len() as u64, count);
        let Call::Ask(_, _, reach, items) = &calls[0] else { panic!("{calls:?}") };
        let expect = if count == most { (Reach::Items, 16) } else { (Reach::All, 0) };
        assert_eq!((*reach, items.len()), expect);
    }
}

#[test]
fn a_flush_of_tables_ends_all_though_no_leaf_went_with_them() {
    let board = Board::new(64, Replace::InPlace);
    let tables = pages(&board, 1, |_| true);
    let mut harvest = Harvest::new();
    let _ = tables.unmap(range(0, 1 << 20), Prune::Keep, &mut harvest).unwrap();
    let _ = flushed(Accessed::SetBeforeCached, &mut harvest);
    let _ = tables.unmap(range(0, 1 << 21), Prune::All, &mut harvest).unwrap();
    assert_eq!((harvest.runs().count(), harvest.tables()), (0, 3));
    let (runs, calls) = flushed(Accessed::SetBeforeCached, &mut harvest);
    assert_eq!((runs, calls), (Vec::new(), asked(Reach::All, &[])));
    assert_eq!(harvest.tables(), 3, "the tables are the caller's to take");
    assert_eq!(harvest.pop_table().map(|table| table.order()), Some(Order::BASE));
}
