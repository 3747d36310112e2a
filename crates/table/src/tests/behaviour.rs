//! What each operation does and refuses.

use super::board::Board;
use crate::*;
use foliant_claim::Claim;
use foliant_machine::Replace;
use foliant_units::{Frame, Level, Order, Pa, Va, VaRange};
use std::cell::RefCell;
use std::vec::Vec;

type X86 = X86_64<4>;
const USER_RW: Attrs = Attrs::USER.with(Attrs::WRITE);

fn range(start: u64, end: u64) -> VaRange {
    VaRange::new(Va::new(start), Va::new(end)).unwrap()
}

#[test]
fn a_harvest_has_room_for_as_many_tables_as_it_says() {
    let harvest = Harvest::default();
    assert!(harvest.is_empty() && harvest.tables() == 0);
    assert!(harvest.has_room(Harvest::TABLES_MAX) && !harvest.has_room(Harvest::TABLES_MAX + 1));
}

#[test]
#[allow(unsafe_code)]
fn a_stock_of_tables_takes_single_frames_until_it_is_full() {
    let mut spare = Spare::new();
    // SAFETY: nothing is ever written to them.
    let claim = |n, order| unsafe { Claim::from_raw(Frame::new(n), order) };
    let large = Order::new(1).unwrap();
    assert_eq!(spare.push(claim(2, large)).unwrap_err().order(), large);
    (0..Spare::MAX as u64).for_each(|n| spare.push(claim(n, Order::BASE)).unwrap());
    assert_eq!(spare.push(claim(77, Order::BASE)).unwrap_err().frame(), Frame::new(77));
    // SAFETY: as above.
    assert_eq!(unsafe { spare.lend(Frame::new(78)) }, Err(Frame::new(78)));
    (0..Spare::MAX as u64).rev().for_each(|n| assert_eq!(spare.pop().unwrap().frame().get(), n));
    assert!(spare.pop().is_none());
}

fn map_all<P: Paging>(
    tables: &Tables<'_, Board, P>,
    board: &Board,
    span: VaRange,
    frame: u64,
    attrs: Attrs,
    largest: Level,
) {
    let mut spare = Spare::new();
    let (mut at, mut frame) = (span.start(), frame);
    loop {
        board.refill(&mut spare);
        let rest = VaRange::new(at, span.end()).unwrap();
        let done = tables.map(rest, Frame::new(frame), attrs, largest, &mut spare).unwrap();
        frame += done.upto.offset_from(at) / 4096;
        at = done.upto;
        match done.why {
            MapStop::Done => return,
            MapStop::NeedTable(_) => {}
            why => panic!("{why:?} at {at}"),
        }
    }
}

#[test]
fn a_range_takes_the_largest_leaves_that_fit() {
    let board = Board::new(64, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    // 4 KiB before a 2 MiB boundary, 1 GiB in the middle, 4 KiB behind.
    let span = range((1 << 30) - 4096 - (2 << 20), (2 << 30) + (2 << 20) + 4096);
    let frame = (1 << 18) - 1 - 512;
    map_all(&tables, &board, span, frame, USER_RW, Level::SIZE_1G);
    let levels: Vec<u8> = tables.leaves(span).map(|found| found.level.0).collect();
    assert_eq!(levels, [0, 1, 2, 1, 0]);
    for page in (span.start().get()..span.end().get()).step_by(4096 * 37) {
        let found = tables.walk(Va::new(page));
        let Entry::Leaf { pa, attrs } = found.entry else { panic!("{found:?}") };
        let expect = (frame << 12) + (page - span.start().get());
        assert_eq!(pa.get() + (page - found.va.get()), expect);
        assert_eq!(attrs, USER_RW);
    }
    let mut harvest = Harvest::new();
    let done = tables.unmap(span, Prune::All, &mut harvest).unwrap();
    assert_eq!(done, Swept { upto: span.end(), why: Stop::Done });
    assert!(tables.leaves(range(0, 1 << 40)).next().is_none());
    let counts: Vec<(u8, u32)> = harvest.runs().map(|run| (run.level.0, run.count)).collect();
    assert_eq!(counts, [(0, 1), (1, 1), (2, 1), (1, 1), (0, 1)]);
    assert_eq!(harvest.tables(), 5); // two of level 0, two of level 1, one of level 2
}

#[test]
fn what_is_wrong_is_refused_before_any_change() {
    let board = Board::new(64, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    let mut spare = Spare::new();
    board.refill(&mut spare);
    map_all(&tables, &board, range(0x40_0000, 0x40_1000), 5, USER_RW, Level::SIZE_1G);
    let mut map = |span: VaRange, frame| {
        tables.map(span, Frame::new(frame), USER_RW, Level::SIZE_1G, &mut spare).unwrap_err()
    };
    let page = foliant_units::Bytes::new(4096);
    assert_eq!(map(range(0x1000, 0x1000), 0), Refused::Empty(Va::new(0x1000)));
    assert_eq!(map(range(0x1001, 0x2000), 0), Refused::Misaligned(Va::new(0x1001), page));
    assert_eq!(map(range(0x1000, 0x2800), 0), Refused::Misaligned(Va::new(0x2800), page));
    let hole = 1 << 47;
    assert_eq!(map(range(hole - 4096, hole + 4096), 0), Refused::Outside(Va::new(hole)));
    assert_eq!(map(range(hole, hole + 4096), 0), Refused::Outside(Va::new(hole)));
    assert_eq!(map(range(!0 << 40, !0 << 12), 0), Refused::Outside(Va::new(!0 << 40)));
    let last = (1u64 << 40) - 1;
    assert_eq!(map(range(0, 0x2000), last), Refused::Frames(Frame::new(last)));
    assert_eq!(map(range(0x20_0000, 0x60_0000), 0), Refused::Live(Va::new(0x40_0000)));
    let mut harvest = Harvest::new();
    let uneven = range(0x1000, 0x2800);
    let why = Refused::Misaligned(Va::new(0x2800), page);
    let mut edit =
        |span, why| assert_eq!(tables.unmap(span, Prune::Emptied, &mut harvest), Err(why));
    edit(uneven, why);
    edit(range(hole - 4096, hole + 4096), Refused::Outside(Va::new(hole)));
    edit(range(0x1000, 0x1000), Refused::Empty(Va::new(0x1000)));
    assert_eq!(tables.mend(uneven), Err(why));
    assert_eq!(tables.leaves(range(0, 1 << 40)).count(), 1);
    assert_eq!(spare.len(), 8);
}

#[test]
fn split_and_collapse_keep_what_is_mapped() {
    let board = Board::new(64, Replace::InPlace);
    let tables = board.tables::<X86_64<5>>(Half::User);
    let va = Va::new(1 << 50);
    let span = VaRange::new(va, va.add(2 << 20)).unwrap();
    map_all(&tables, &board, span, 512, USER_RW, Level::SIZE_1G);
    board.walker_sets(tables.walk(va).at, 1 << 5 | 1 << 6);
    let mut spare = Spare::new();
    assert_eq!(tables.split(va, Level::SIZE_2M, &mut spare), Err(Stuck::NeedTable));
    board.refill(&mut spare);
    let run = tables.split(va.add(0x5000), Level::SIZE_2M, &mut spare).unwrap();
    let attrs = USER_RW | Attrs::TOUCHED;
    assert_eq!(run.what, What::Mapped { pa: Pa::new(2 << 20), attrs });
    assert_eq!((run.va, run.level, run.count), (va, Level::SIZE_2M, 1));
    assert_eq!(tables.leaves(span).count(), 512);
    let entry = tables.walk(va.add(0x5000)).entry;
    assert_eq!(entry, Entry::Leaf { pa: Pa::new(0x20_5000), attrs });

    let collapsed = tables.collapse(va.add(0x7000), Level::SIZE_2M).unwrap();
    assert_eq!(collapsed.run.count, 512);
    let found = tables.walk(va.add(0x7000));
    assert_eq!((found.level, found.va), (Level::SIZE_2M, va));
    assert_eq!(found.entry, Entry::Leaf { pa: Pa::new(2 << 20), attrs });
}

#[test]
fn what_is_begun_comes_in_stretches() {
    const LARGE: u64 = 2 << 20;
    const GB: u64 = 1 << 30;
    let board = Board::new(64, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    for (at, bytes) in [
        (GB + 3 * LARGE, 4096), // a table, and a leaf behind it
        (GB + 4 * LARGE, LARGE),
        (2 * GB - LARGE, LARGE + 4096), // over the end of a table
        (5 * GB, GB),
    ] {
        map_all(&tables, &board, range(at, at + bytes), 1 << 18, USER_RW, Level::SIZE_1G);
    }
    let begun = |whole: VaRange| {
        let (mut rest, mut looks, mut all) = (whole, 0, Vec::new());
        while !rest.is_empty() {
            let found = tables.first_begun(rest).unwrap();
            assert!(rest.covers(found) && found.end() > rest.start(), "it goes on: {found:?}");
            all.extend(Some(found).filter(|found| !found.is_empty()));
            rest = VaRange::new(found.end(), rest.end()).unwrap();
            looks += 1;
        }
        (all, looks)
    };
    let all = || begun(range(0, 1 << 46));
    let stretches = [
        range(GB + 3 * LARGE, GB + 5 * LARGE),
        range(2 * GB - LARGE, 2 * GB),
        range(2 * GB, 2 * GB + LARGE),
        range(5 * GB, 6 * GB),
    ];
    assert_eq!(all().0, stretches);
    assert!(all().1 < 10, "{} looks at 64 TiB", all().1);
    let cut = range(GB + 3 * LARGE + 0x1000, GB + 4 * LARGE + 0x2000);
    assert_eq!(begun(cut).0, [cut]);
    assert_eq!(begun(range(GB + 4096, GB + 8192)), (Vec::new(), 1));
    let mut harvest = Harvest::new();
    let page = range(2 * GB, 2 * GB + 4096);
    assert_eq!(tables.unmap(page, Prune::Keep, &mut harvest).unwrap().why, Stop::Done);
    assert_eq!(all().0, stretches, "a table is there, though it is empty");
    let outside = range(1 << 47, (1 << 47) + 4096);
    assert_eq!(tables.first_begun(outside), Err(Refused::Outside(outside.start())));
}

#[test]
fn a_leaf_over_the_end_stops_unmap_until_it_is_split() {
    let board = Board::new(64, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    map_all(&tables, &board, range(0, 4 << 20), 0, USER_RW, Level::SIZE_1G);
    let mut harvest = Harvest::new();
    let cut = range(0, (2 << 20) + 4096);
    let done = tables.unmap(cut, Prune::Emptied, &mut harvest).unwrap();
    let at = Va::new(2 << 20);
    assert_eq!(done, Swept { upto: at, why: Stop::Straddles { va: at, level: Level::SIZE_2M } });
    let mut spare = Spare::new();
    board.refill(&mut spare);
    tables.split(at, Level::SIZE_2M, &mut spare).unwrap();
    let rest = VaRange::new(at, cut.end()).unwrap();
    let done = tables.unmap(rest, Prune::Emptied, &mut harvest).unwrap();
    assert_eq!(done.why, Stop::Done);
    assert_eq!(tables.leaves(range(0, 4 << 20)).count(), 511);
}

#[test]
fn the_kth_missing_table_leaves_exactly_what_was_said() {
    // Over three tables of level 0 and the end of one of level 1: six tables in all.
    let span = range((1 << 30) - (3 << 20), (1 << 30) + (1 << 20));
    for given in 0..7 {
        let board = Board::new(64, Replace::InPlace);
        let tables = board.tables::<X86>(Half::User);
        let mut spare = Spare::new();
        for _ in 0..given {
            spare.push(board.claim()).unwrap();
        }
        let done = tables.map(span, Frame::new(7), USER_RW, Level::BASE, &mut spare).unwrap();
        let mapped = VaRange::new(span.start(), done.upto).unwrap();
        assert_eq!(tables.leaves(span).count() as u64, mapped.pages().get(), "{given} tables");
        assert!(tables.leaves(span).all(|found| found.va < done.upto));
        assert_eq!(spare.len(), 0, "{given} tables");
        if given == 6 {
            assert_eq!(done, Mapped { upto: span.end(), why: MapStop::Done });
            continue;
        }
        assert!(matches!(done.why, MapStop::NeedTable(_)));
        let rest = VaRange::new(done.upto, span.end()).unwrap();
        let frame = 7 + mapped.pages().get();
        map_all(&tables, &board, rest, frame, USER_RW, Level::BASE);
        let pages: Vec<u64> = tables
            .leaves(span)
            .map(|found| match found.entry {
                Entry::Leaf { pa, .. } => pa.frame().get(),
                entry => panic!("{entry:?}"),
            })
            .collect();
        assert!(pages.into_iter().eq(7..7 + 1024));
    }
}

#[test]
fn the_kth_missing_table_in_ensure_and_split_changes_nothing_visible() {
    let va = Va::new(5 << 39);
    for given in 0..4 {
        let board = Board::new(64, Replace::InPlace);
        let tables = board.tables::<X86_64<5>>(Half::User);
        let mut spare = Spare::new();
        for _ in 0..given {
            spare.push(board.claim()).unwrap();
        }
        let made = tables.ensure(va, Level::BASE, &mut spare);
        let level = 3 - given;
        assert_eq!(made, Err(Blocked::NeedTable(Level(level))), "{given} tables");
        assert_eq!(tables.walk(va).level, Level(level + 1));
        board.refill(&mut spare);
        assert_eq!(tables.ensure(va, Level::BASE, &mut spare), Ok(()));
        assert_eq!(tables.ensure(va, Level::BASE, &mut spare), Ok(()));
        assert_eq!(spare.len() as u8, 8 - (4 - given));
        assert_eq!(tables.walk(va).level, Level::BASE);
    }
}

#[test]
fn software_words_are_reported_and_keep_mappings_out() {
    let board = Board::new(64, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    let mut spare = Spare::new();
    board.refill(&mut spare);
    let va = Va::new(0x1000);
    tables.ensure(va, Level::BASE, &mut spare).unwrap();
    let soft = Soft { kind: SoftKind::Marker, payload: 77 };
    let lock = tables.lock(va, Level::BASE).unwrap();
    lock.set(lock.index_of(va), soft.word());
    assert_eq!(lock.entry(lock.index_of(va)), Entry::Soft(soft));
    drop(lock);
    let span = range(0, 0x4000);
    let refused = tables.map(span, Frame::new(1), USER_RW, Level::BASE, &mut spare);
    assert_eq!(refused, Err(Refused::Live(va)));
    let mut harvest = Harvest::new();
    let change = Change { set: Attrs::WRITE, clear: Attrs::NONE };
    assert_eq!(tables.protect(span, change, &mut harvest).unwrap().why, Stop::Done);
    assert!(harvest.is_empty());
    assert_eq!(tables.unmap(span, Prune::Emptied, &mut harvest).unwrap().why, Stop::Done);
    let run = Run { va, level: Level::BASE, count: 1, what: What::Soft(soft) };
    assert!(harvest.runs().eq([&run]));
    assert_eq!(harvest.tables(), 2);
}

#[test]
fn a_leaf_that_is_being_changed_makes_others_wait() {
    let board = Board::new(64, Replace::BreakBeforeMake);
    let tables = board.tables::<Aarch64>(Half::User);
    let span = range(2 << 20, 4 << 20);
    map_all(&tables, &board, span, 512, USER_RW, Level::SIZE_2M);
    let mut harvest = Harvest::new();
    let change = Change { set: Attrs::NONE, clear: Attrs::WRITE };
    let _ = tables.protect(span, change, &mut harvest).unwrap();
    assert!(tables.leaves(span).all(|found| matches!(found.entry, Entry::Soft(_))));
    let busy = tables.protect(span, change, &mut harvest).unwrap();
    assert_eq!(busy, Swept { upto: span.start(), why: Stop::Busy(span.start()) });
    let _ = tables.mend(span).unwrap();
    let Entry::Leaf { pa, attrs } = tables.walk(span.start()).entry else { panic!() };
    assert_eq!((pa, attrs), (Pa::new(2 << 20), Attrs::USER));
}

#[test]
fn contiguous_pages_are_grouped_where_the_format_can() {
    fn grouped<P: Paging>(largest: Level, group: u64, expect: usize) {
        let board = Board::new(64, Replace::InPlace);
        let tables = board.tables::<P>(Half::User);
        let span = range(group - largest.span().get(), 3 * group + largest.span().get());
        let frame = span.start().get() >> 12;
        map_all(&tables, &board, span, frame, USER_RW, largest);
        let in_group = |found: &Found| match found.entry {
            Entry::Leaf { pa, attrs } => {
                assert_eq!(pa.get(), found.va.get());
                attrs.has(Attrs::GROUPED)
            }
            _ => false,
        };
        assert_eq!(tables.leaves(span).filter(in_group).count(), expect, "{}", P::NAME);
        // A page inside a group cannot go alone.
        let page = range(group, group + largest.span().get());
        let mut harvest = Harvest::new();
        let stop = tables.unmap(page, Prune::Keep, &mut harvest).unwrap().why;
        if expect == 0 {
            return assert_eq!(stop, Stop::Done);
        }
        assert_eq!(stop, Stop::Straddles { va: page.start(), level: largest });
        let run = tables.split(page.start(), largest, &mut Spare::new()).unwrap();
        assert_eq!(run.count, 16);
        assert_eq!(tables.unmap(page, Prune::Keep, &mut harvest).unwrap().why, Stop::Done);
        assert_eq!(tables.leaves(span).count(), 33);
    }
    grouped::<Aarch64>(Level::BASE, 64 << 10, 32);
    grouped::<Aarch64>(Level::SIZE_2M, 32 << 20, 32);
    grouped::<Sv39>(Level::BASE, 64 << 10, 32);
    grouped::<Sv48>(Level::SIZE_2M, 32 << 20, 0);
    grouped::<X86>(Level::BASE, 64 << 10, 0);
}

/// Keeps what it is asked about.
struct Asked(RefCell<Vec<Attrs>>);

impl<P: Paging> Edit<P> for Asked {
    fn leaf(&self, _: At, _: u64, _: Pa, attrs: Attrs) -> Verdict {
        self.0.borrow_mut().push(attrs);
        Verdict::Keep
    }
    fn soft(&self, _: At, soft: Soft) -> Verdict {
        panic!("{soft:?}")
    }
}

/// Walkers note an access of a group in whichever of its words they please. The operation that ends
/// the group finds the notes in all of them, and so does an edit before its verdict.
#[test]
fn what_is_noted_in_any_words_of_a_group_is_noted_of_the_group() {
    const GROUP: u64 = 64 << 10;
    type Noted = [(u64, Attrs)];
    let at = |word: u64| Va::new(GROUP + word * 4096);
    let span = range(GROUP, 2 * GROUP);
    fn begin<'b, P: Paging>(board: &'b Board, noted: &Noted) -> Tables<'b, Board, P> {
        let tables = board.tables::<P>(Half::User);
        map_all(&tables, board, range(GROUP, 2 * GROUP), 64, USER_RW, Level::BASE);
        for (word, more) in noted {
            let found = tables.walk(Va::new(GROUP + word * 4096));
            let Entry::Leaf { pa, attrs } = found.entry else { panic!() };
            assert!(attrs.has(Attrs::GROUPED));
            board.walker_changes(found.at, found.word, P::leaf(pa, Level::BASE, attrs | *more));
        }
        tables
    }
    let ends = |noted: &Noted, expect: Attrs| {
        fn all<P: Paging>(noted: &Noted, expect: Attrs, at: Va, span: VaRange) {
            let board = || Board::new(64, Replace::InPlace);
            let what = |attrs| What::Mapped { pa: Pa::new(64 * 4096), attrs };
            let (group, level) = (USER_RW | Attrs::GROUPED | expect, Level::BASE);
            let whole = Run { va: span.start(), level, count: 16, what: what(group) };
            let are_single = |tables: &Tables<'_, Board, P>| {
                let leaf = |n: u64| Entry::Leaf { pa: Pa::new(n * 4096), attrs: USER_RW | expect };
                assert!(tables.leaves(span).map(|found| found.entry).eq((64..80).map(leaf)));
            };
            let first = board();
            let tables = begin::<P>(&first, noted);
            assert_eq!(tables.split(at, level, &mut Spare::new()), Ok(whole), "{}", P::NAME);
            are_single(&tables);

            let second = board();
            let tables = begin::<P>(&second, noted);
            assert_eq!(tables.split_begin(at, level), Ok(whole), "{}", P::NAME);
            assert!(tables.split_finish(at, level, &mut Spare::new()).is_ok());
            are_single(&tables);

            let third = board();
            let mut harvest = Harvest::new();
            let tables = begin::<P>(&third, noted);
            let _ = tables.unmap(span, Prune::Keep, &mut harvest).unwrap();
            let touched = harvest.runs().fold(Attrs::NONE, |all, run| match run.what {
                What::Mapped { attrs, .. } => all | attrs.and(Attrs::TOUCHED),
                What::Soft(soft) => panic!("{soft:?}"),
            });
            assert_eq!(touched, expect, "{}", P::NAME);

            let fourth = board();
            let tables = begin::<P>(&fourth, noted);
            let asked = Asked(RefCell::default());
            let _ = tables.edit(span, &asked, &mut Untold).unwrap();
            assert_eq!(asked.0.into_inner(), [group; 16], "{}", P::NAME);
        }
        all::<Aarch64>(noted, expect, at(7), span);
        all::<Sv39>(noted, expect, at(7), span);
    };
    let (accessed, dirty) = (Attrs::ACCESSED, Attrs::DIRTY);
    ends(&[], Attrs::NONE);
    ends(&[(9, accessed)], accessed);
    ends(&[(15, accessed), (3, Attrs::TOUCHED)], Attrs::TOUCHED);
    ends(&[(2, accessed), (15, dirty)], Attrs::TOUCHED);
}

/// Behind the last word of the last table there is no address.
#[test]
fn the_last_table_of_all_is_gone_over_to_its_end() {
    let board = Board::new(64, Replace::InPlace);
    let tables = board.tables::<X86>(Half::Kernel);
    let mut spare = Spare::new();
    board.refill(&mut spare);
    let last = Va::new(0_u64.wrapping_sub(2 << 20));
    tables.ensure(last, Level::SIZE_2M, &mut spare).unwrap();
    let span = VaRange::new(Va::new(last.get() - (2 << 20)), Va::new(!0 << 12)).unwrap();
    let mut harvest = Harvest::new();
    let swept = tables.unmap(span, Prune::Keep, &mut harvest).unwrap();
    assert_eq!(swept, Swept { upto: span.end(), why: Stop::Done });
}

#[test]
fn a_user_root_repeats_the_kernel_half_without_its_locks() {
    let board = Board::new(64, Replace::InPlace);
    let kernel = board.tables::<X86>(Half::Kernel);
    let user = board.tables::<X86>(Half::User);
    let va = Va::new(0xffff_8000_0000_0000);
    let span = VaRange::new(va, va.add(4096)).unwrap();
    map_all(&kernel, &board, span, 9, Attrs::GLOBAL, Level::BASE);
    let lock = kernel.lock(va, Level::SIZE_1G).unwrap();
    user.share_kernel(&kernel);
    let word = board.peek(user.root().add(256 * 8));
    assert_eq!(word, board.peek(kernel.root().add(256 * 8)) & !X86::LOCK);
    drop(lock);
    let view: Tables<'_, Board, X86> = Tables::at(&board, user.root(), Half::Kernel);
    assert_eq!(view.walk(va).entry, kernel.walk(va).entry);
    assert_eq!(user.walk(va).entry, Entry::None, "not this half");
}

#[test]
fn locks_refuse_what_has_none() {
    let board = Board::new(64, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    let what = |va: u64, level: u8| tables.lock(Va::new(va), Level(level)).map(drop).unwrap_err();
    assert_eq!(what(0, 3), Missing { level: Level(3), what: Gap::TopTable });
    assert_eq!(what(0, 0), Missing { level: Level(3), what: Gap::None });
    assert_eq!(what(1 << 47, 0), Missing { level: Level(3), what: Gap::Outside });
    map_all(&tables, &board, range(2 << 20, 4 << 20), 512, USER_RW, Level::SIZE_2M);
    assert_eq!(what(2 << 20, 0), Missing { level: Level(1), what: Gap::Leaf });
    let lock = tables.lock(Va::new(2 << 20), Level::SIZE_2M).unwrap();
    assert_eq!((lock.base(), lock.level()), (Va::new(0), Level::SIZE_2M));
    assert_eq!(lock.take(lock.index_of(Va::new(2 << 20))) & 1, 1);
    assert!(lock.is_empty());
    drop(lock);
    assert_eq!(tables.detach(Va::new(0), Level(2), Prune::Emptied), Err(Kept::Pinned));
    assert!(tables.detach(Va::new(0), Level(1), Prune::Emptied).is_ok());
    assert!(tables.detach(Va::new(0), Level(2), Prune::All).is_ok());
    assert_eq!(tables.walk(Va::new(0)).level, Level(3));
}

/// A fault locks the table that its walk came to. Where that was taken out meanwhile, and another
/// hung in its place, or where it is not the one that is wanted, the way is gone again.
#[test]
fn a_table_that_a_walk_came_to_is_locked_as_long_as_it_is_in_its_place() {
    let board = Board::new(64, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    let (page, first) = (range(0, 4096), Va::new(0));
    let lock = |reached, va| tables.lock_at(reached, va, Level::BASE);
    map_all(&tables, &board, page, 7, USER_RW, Level::BASE);
    let reached = tables.walk(first).reached();
    assert!(lock(reached, first).is_some_and(|lock| lock.get(Slot::FIRST) != 0));
    assert!(lock(reached, Va::new(2 << 20)).is_none(), "there is no table of the next 2 MiB");
    assert!(lock(None, first).is_some());
    assert!(tables.unmap(page, Prune::Keep, &mut Harvest::new()).is_ok());
    let old = tables.detach(first, Level::BASE, Prune::Emptied).unwrap();
    assert!(lock(reached, first).is_none(), "it was taken out");
    map_all(&tables, &board, page, 9, USER_RW, Level::BASE);
    let found = lock(reached, first).expect("another is there");
    let Entry::Leaf { pa, .. } = found.entry(Slot::FIRST) else { panic!("a page is mapped") };
    assert_eq!(pa.frame().get(), 9);
    drop((found, old));
}

#[test]
fn slots_are_those_of_one_table() {
    let slot = |n| Slot::new(n).map(Slot::index);
    assert_eq!([slot(0), slot(511), slot(512), slot(1024)], [Some(0), Some(511), None, None]);
    let slots = |first, count| Slots::new(Slot::new(first).unwrap(), count).map(Slots::len);
    assert_eq!([slots(0, 0), slots(511, 0)], [None, None]);
    assert_eq!([slots(0, 512), slots(0, 513)], [Some(512), None]);
    assert_eq!([slots(500, 12), slots(500, 13)], [Some(12), None]);
}

#[test]
fn levels_and_frames_that_a_format_lacks_are_refused() {
    let board = Board::new(64, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    let mut spare = Spare::new();
    board.refill(&mut spare);
    for level in [4, 5] {
        let refused = Err(Blocked::Refused(Refused::Level(Level(level))));
        assert_eq!(tables.ensure(Va::new(0), Level(level), &mut spare), refused);
    }
    assert_eq!(tables.ensure(Va::new(0), X86::TOP, &mut spare), Ok(()), "it is there");
    for level in [Level::BASE, Level(3)] {
        let why = tables.collapse_begin(Va::new(0), level).unwrap_err();
        assert_eq!(why, Stuck::Refused(Refused::Level(level)));
    }
    // Frames have 40 bits: the last ones, and one too many.
    let mut map = |first: u64, pages: u64| {
        let done =
            tables.map(range(0, pages * 4096), Frame::new(first), USER_RW, Level::BASE, &mut spare);
        done.map(|done| done.upto.get() / 4096)
    };
    let last = (1 << 40) - 3;
    assert_eq!(map(last, 4), Err(Refused::Frames(Frame::new(last))));
    assert_eq!(map(1 << 40, 1), Err(Refused::Frames(Frame::new(1 << 40))));
    assert_eq!(map(last, 3), Ok(3));
}

/// A word that was emptied and not flushed everywhere yet gets no table: the caller flushes, and
/// tries again.
#[test]
fn a_place_whose_flush_is_pending_gets_no_table() {
    let board = Board::new(64, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    let mut spare = Spare::new();
    board.refill(&mut spare);
    tables.ensure(Va::new(0), Level::SIZE_2M, &mut spare).unwrap();
    board.refill(&mut spare);
    let (before, asked) = (spare.len(), core::cell::Cell::new(0));
    let pending = || {
        asked.set(asked.get() + 1);
        assert!(asked.get() < 10, "it waits for a flush that nobody makes");
        false
    };
    let why = tables.ensure_settled(Va::new(0), Level::BASE, &mut spare, &pending);
    assert_eq!(why, Err(Blocked::Pending(Level::SIZE_2M)));
    assert_eq!(spare.len(), before, "the frame is kept");
    assert_eq!(tables.walk(Va::new(0)).level, Level::SIZE_2M);
    tables.ensure_settled(Va::new(0), Level::BASE, &mut spare, &|| true).unwrap();
    assert_eq!((tables.walk(Va::new(0)).level, spare.len()), (Level::BASE, before - 1));
}

/// table::I4: a word that points to a table comes and goes by calls of its own alone.
#[test]
fn words_of_tables_are_neither_written_nor_replaced_like_others() {
    let board = Board::new(64, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    let va = Va::new(2 << 20);
    map_all(&tables, &board, range(2 << 20, (2 << 20) + 4096), 512, USER_RW, Level::BASE);
    type Edit<'a> = dyn Fn(&Locked<'_, Board, X86>, Slot, Slot, u64) + 'a;
    let refuses = |edit: &Edit<'_>| {
        let lock = tables.lock(va, Level::SIZE_2M).unwrap();
        let (slot, free) = (lock.index_of(va), lock.index_of(Va::new(4 << 20)));
        let word = lock.get(slot);
        assert!(matches!(lock.entry(slot), Entry::Table(_)));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            edit(&lock, slot, free, word);
        }));
        assert_eq!((lock.get(slot), lock.get(free)), (word, 0), "nothing is written");
        done.is_err()
    };
    assert!(refuses(&|lock, slot, _, _| lock.set(slot, 0)));
    assert!(refuses(&|lock, _, free, word| lock.set(free, word)));
    assert!(refuses(&|lock, slot, _, _| _ = lock.take(slot)));
    assert!(refuses(&|lock, slot, _, _| _ = lock.update(slot, |_| 0)));
    assert!(refuses(&|lock, _, free, word| _ = lock.update(free, |_| word)));
    assert!(!refuses(&|lock, _, free, _| lock.set(free, 0)));
}

#[test]
fn a_full_harvest_stops_and_goes_on() {
    let board = Board::new(1024, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    for page in 0..100 {
        let span = range(page * 4096, page * 4096 + 4096);
        map_all(&tables, &board, span, 1000 - page * 3, USER_RW, Level::BASE);
    }
    let span = range(0, 100 * 4096);
    let mut harvest = Harvest::new();
    let done = tables.unmap(span, Prune::Emptied, &mut harvest).unwrap();
    assert_eq!(done, Swept { upto: Va::new(32 * 4096), why: Stop::Full });
    assert_eq!(harvest.runs().count(), 32);
    let again = tables.unmap(span, Prune::Emptied, &mut harvest).unwrap();
    assert_eq!(again, Swept { upto: Va::new(0), why: Stop::Full });
    harvest.clear_runs();
    let rest = VaRange::new(done.upto, span.end()).unwrap();
    assert_eq!(tables.unmap(rest, Prune::Emptied, &mut harvest).unwrap().why, Stop::Full);
}

#[test]
fn a_run_knows_of_every_access_and_of_nothing_else() {
    fn runs<P: Paging>(mapped: Attrs, touched: Option<u64>, expect: Attrs) {
        let board = Board::new(64, Replace::InPlace);
        let tables = board.tables::<P>(Half::User);
        let span = range(0, 5 * 4096);
        map_all(&tables, &board, span, 40, mapped, Level::BASE);
        if let Some(page) = touched {
            let found = tables.walk(Va::new(page * 4096));
            let Entry::Leaf { pa, attrs } = found.entry else { panic!() };
            let new = P::leaf(pa, Level::BASE, attrs | Attrs::TOUCHED);
            board.walker_changes(found.at, found.word, new);
        }
        let mut harvest = Harvest::new();
        let _ = tables.unmap(span, Prune::Keep, &mut harvest).unwrap();
        let what = What::Mapped { pa: Pa::new(40 * 4096), attrs: expect };
        let run = Run { va: Va::new(0), level: Level::BASE, count: 5, what };
        assert!(harvest.runs().eq([&run]), "{}: {harvest:?}", P::NAME);
    }
    fn all<P: Paging>() {
        let (clean, dirty) = (USER_RW, USER_RW | Attrs::TOUCHED);
        runs::<P>(clean, None, clean);
        runs::<P>(dirty, None, dirty);
        for page in 0..5 {
            runs::<P>(clean, Some(page), dirty);
            runs::<P>(clean | Attrs::ACCESSED, Some(page), dirty);
        }
        runs::<P>(Attrs::USER | Attrs::ACCESSED, None, Attrs::USER | Attrs::ACCESSED);
    }
    all::<X86>();
    all::<Aarch64>();
    all::<Sv57>();
}

#[test]
fn one_frame_mapped_twice_is_two_runs() {
    let board = Board::new(64, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    for (page, attrs) in [(0, USER_RW), (1, USER_RW), (2, USER_RW | Attrs::TOUCHED)] {
        let span = range(page * 4096, page * 4096 + 4096);
        map_all(&tables, &board, span, 7, attrs, Level::BASE);
    }
    let mut harvest = Harvest::new();
    let _ = tables.unmap(range(0, 0x3000), Prune::Keep, &mut harvest).unwrap();
    assert_eq!(harvest.runs().map(|run| run.count).collect::<Vec<_>>(), [1, 1, 1]);
}
