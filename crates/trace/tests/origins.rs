//! Where a replay's figures come from: they come to the row's, and name who.

use foliant::fault::{Global, Size};
use foliant_trace::replay::{
    Choice, Explained, Plan, ReplayError, Settings, Shared, Trial, explain_all, explain_each,
    replay,
};
use foliant_trace::{
    Access, Area, AreaKind, Budget, Event, EventKind, Exec, Fault, Found, MapFlags, Mapping, Name,
    Origin, Prot, Remedy, Site, Source, SpaceId, Standing, Target, ThreadId, Wish, Wished,
};
use foliant_units::{Bytes, FRAME_BYTES, Order, Va, VaRange};
use std::fs::File;
use std::path::Path;

const BASE: u64 = 0x7f00_0000_0000;
const MB: u64 = 1 << 20;

fn range(at: u64, bytes: u64) -> VaRange {
    VaRange::sized(Va::new(BASE + at), Bytes::new(bytes)).unwrap()
}

/// One thread's story; each event is a microsecond after the one before.
struct Story(Vec<Event>);

impl Story {
    fn start() -> Story {
        let (program, brk) = ("/bin/by-hand".into(), Va::new(0x1000_0000));
        let exec = Exec { program, brk, areas: Vec::new(), present: Vec::new() };
        Story(Vec::new()).tell(EventKind::Exec(exec))
    }
    fn tell(mut self, kind: EventKind) -> Story {
        let (thread, space) = (ThreadId(0), SpaceId(0));
        self.0.push(Event { time_ns: self.0.len() as u64 * 1000, thread, space, kind });
        self
    }
    /// A mapping that this place in the program makes.
    fn map(self, at: u64, bytes: u64, offset: u64) -> Story {
        let (range, flags) = (range(at, bytes), MapFlags::NONE);
        let area = Area { range, prot: Prot::RW, kind: AreaKind::Anonymous, flags };
        let name = Name::Made { site: Some(site(offset)), through: None };
        self.tell(EventKind::Map(area)).tell(EventKind::Name { range, name })
    }
    fn write(mut self, at: u64, pages: u64, step: u64) -> Story {
        for page in 0..pages {
            self = self.tell(EventKind::Fault(Fault {
                va: Va::new(BASE + at + page * step),
                access: Access::Write,
                origin: Origin::User,
                source: Source::Hardware,
                found: Found::Absent,
                standing: Standing::Regular,
            }));
        }
        self
    }
    fn explain(&self, trial: Trial) -> Explained {
        let plan = Plan::new(&self.0, &Budget::default()).unwrap();
        let all = explain_all(&plan, &[trial], &Settings::default(), |_| ()).unwrap();
        all.into_iter().next().unwrap()
    }
}

fn site(offset: u64) -> Site {
    Site { object: "by-hand".into(), offset }
}

fn made(offset: u64, class: u64) -> Mapping {
    Mapping::Made { site: Some(site(offset)), class: Bytes::new(class) }
}

/// One mapping that is filled, and one of which every sixteenth page is touched.
fn story() -> Story {
    let story = Story::start().map(0, MB, 1).map(16 * MB, MB, 2);
    story.write(0, 256, FRAME_BYTES).write(16 * MB, 16, 16 * FRAME_BYTES)
}

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

fn remedy(wishes: &[(u64, Wish)], switch: Size) -> Remedy {
    let wished = |(offset, wish): &(u64, Wish)| {
        let (least, most) = (Bytes::new(MB / 2 + 1), Bytes::new(MB));
        Wished { target: Target::Made { site: Some(site(*offset)), least, most }, wish: *wish }
    };
    Remedy {
        global: Global::Never,
        sizes: vec![(order(4), switch)],
        wishes: wishes.iter().map(wished).collect(),
    }
}

#[test]
fn each_mapping_has_its_faults_folios_and_waste() {
    let only_64k = Choice::Only(order(4));
    let told = story().explain(only_64k.into());
    let names: Vec<&Mapping> = told.origins.mappings.iter().map(|(mapping, _)| mapping).collect();
    assert!(names.contains(&&made(1, MB)) && names.contains(&&made(2, MB)), "{names:?}");
    let of = |offset| {
        let mapping = made(offset, MB);
        told.origins.mappings.iter().find(|(m, _)| *m == mapping).unwrap().1.clone()
    };
    let (filled, sparse) = (of(1), of(2));
    assert_eq!((filled.faults, filled.folios[4], filled.untouched()), (16, 16, Bytes::new(0)));
    assert_eq!((sparse.faults, sparse.folios[4]), (16, 16));
    assert_eq!(sparse.untouched(), Bytes::new(MB - 16 * FRAME_BYTES));
    assert_eq!((filled.peak, sparse.peak), (Bytes::new(MB), Bytes::new(MB)));
    assert!(filled.kernel.0 > 0 && sparse.kernel.0 > 0);
}

#[test]
fn a_wish_is_its_mappings_alone() {
    let choice = Choice::Only(order(4));
    let with = |remedy| story().explain(Trial { choice, remedy: Some(remedy) }).row;
    let all = story().explain(choice.into()).row;
    assert_eq!(all.anonymous_faults, 32);
    let none = with(remedy(&[], Size::Madvise));
    assert_eq!((none.anonymous_faults, none.untouched_bytes), (272, 0));
    let first = with(remedy(&[(1, Wish::HugePage)], Size::Madvise));
    assert_eq!((first.anonymous_faults, first.untouched_bytes), (32, 0));
    assert_eq!(first.folios[&order(4)], 16);
    let spared = with(remedy(&[(2, Wish::NoHugePage)], Size::Always));
    assert_eq!((spared.anonymous_faults, spared.untouched_bytes), (32, 0));
    // A system call each: two for what is mapped and named.
    let call = spared.kernel.0 as i64 - first.kernel.0 as i64;
    assert!(call.abs() < 1000, "{call}");
    let collapsed = with(remedy(&[(1, Wish::Collapse)], Size::Madvise));
    assert_eq!(collapsed.anonymous_faults, 272);
}

/// What grows in place is advised as what it grows from, or the two would not be one to move.
#[test]
fn advised_memory_that_grew_in_place_can_move() {
    let grow =
        |from: VaRange, to: VaRange| EventKind::Remap { old: from, new: to, keep_old: false };
    let (small, large) = (range(0, MB), range(0, MB + 64 * 1024));
    let story = Story::start().map(0, MB, 1).write(0, 16, FRAME_BYTES).tell(grow(small, large));
    let story = story.tell(grow(large, range(64 * MB, 2 * MB))).write(66 * MB - 4096, 1, 1);
    for wish in [Wish::HugePage, Wish::NoHugePage] {
        let remedy = Some(remedy(&[(1, wish)], Size::Madvise));
        let row = story.explain(Trial { choice: Choice::Only(order(4)), remedy }).row;
        let faults = if wish == Wish::HugePage { 2 } else { 17 };
        assert_eq!(row.anonymous_faults, faults, "{wish:?}");
    }
}

#[test]
fn parts_of_the_time_have_what_happened_in_them() {
    let told = story().write(16 * MB + FRAME_BYTES, 1, 1).explain(Choice::BASE.into());
    let parts = &told.origins.parts;
    assert_eq!(parts.len(), foliant_trace::replay::PARTS);
    assert_eq!(parts.iter().map(|part| part.faults).sum::<u64>(), 273);
    assert!(parts.iter().all(|part| part.faults < 100), "{parts:?}");
    let peaks: Vec<u64> = parts.iter().map(|part| part.peak.get()).collect();
    assert!(peaks.is_sorted(), "it only grows: {peaks:?}");
    assert!(told.origins.start_up() > 10, "{peaks:?}");
}

#[test]
fn memory_that_is_given_back_is_held_no_longer() {
    let mut story = Story::start();
    for turn in 0..4 {
        story = story.map(turn * 4 * MB, MB, 1).write(turn * 4 * MB, 256, FRAME_BYTES);
        story = story.tell(EventKind::Unmap { range: range(turn * 4 * MB, MB) });
    }
    let told = story.explain(Choice::BASE.into());
    let share = &told.origins.mappings.iter().find(|(m, _)| *m == made(1, MB)).unwrap().1;
    assert_eq!((share.faults, share.peak), (1024, Bytes::new(MB)));
}

/// `ledger::L1`, and that a book changes nothing but that leaves are not counted.
#[test]
fn shares_come_to_the_row_on_shipped_recordings() {
    for name in ["git", "python"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
        let file = File::open(path.join(format!("{name}.trace"))).unwrap();
        let (_, plan) = Plan::read(file, Shared::Replayed, &Budget::default()).unwrap();
        for choice in [Choice::BASE, Choice::UpTo(order(4)), Choice::Only(Order::SIZE_2M)] {
            let settings = Settings::default();
            let told = explain_all(&plan, &[choice.into()], &settings, |_| ()).unwrap();
            let Explained { row, origins } = &told[0];
            let plain = replay(&plan, choice, &settings, |_| ()).unwrap();
            let mut without = plain.clone();
            without.leaves = 0;
            assert_eq!(*row, without, "{name}, {choice}");
            let mappings: Vec<_> = origins.mappings.iter().map(|(_, share)| share).collect();
            for shares in [mappings, origins.parts.iter().collect()] {
                let sum = |of: &dyn Fn(&foliant_trace::replay::Share) -> u64| {
                    shares.iter().map(|share| of(share)).sum::<u64>()
                };
                assert_eq!(sum(&|s| s.faults), row.anonymous_faults, "{name}, {choice}");
                assert_eq!(sum(&|s| s.kernel.0), row.kernel.0, "{name}, {choice}");
                for order in Order::all().take_while(|o| *o <= Order::SIZE_2M) {
                    let files = if order == Order::BASE { row.file_copies } else { 0 };
                    let row = row.folios.get(&order).copied().unwrap_or(0);
                    let folios = sum(&|s| s.folios[order.index()]);
                    assert!((row..=row + files).contains(&folios), "{name}, {choice}, {order:?}");
                }
            }
            let peak = origins.parts.iter().map(|part| part.peak).max();
            assert_eq!(peak, Some(row.peak), "{name}, {choice}");
        }
    }
}

/// Side by side each is what it is alone, and an error says whose it is.
#[test]
fn several_recordings_are_explained_in_their_order() {
    let wide = Story::start().map(0, 4 * MB, 1).write(0, 1024, FRAME_BYTES);
    let plans = [story(), wide].map(|story| Plan::new(&story.0, &Budget::default()).unwrap());
    let trials = [Choice::BASE, Choice::UpTo(order(4))].map(Trial::from);
    let settings = Settings::default();
    let both = [(&plans[0], settings), (&plans[1], settings)];
    let told = explain_each(&both, &trials, |_| ()).unwrap();
    let alone = |plan| explain_all(plan, &trials, &settings, |_| ()).unwrap();
    assert_eq!(told, plans.iter().map(alone).collect::<Vec<_>>());
    assert_ne!(told[0], told[1]);
    assert_ne!(told[0][0], told[0][1]);
    assert_eq!(explain_each(&both, &[], |_| ()).unwrap(), [vec![], vec![]]);
    let little = Settings { memory: Some(Bytes::new(1 << 20)), ..settings };
    let why = explain_each(&[both[0], (&plans[1], little)], &trials, |_| ()).unwrap_err();
    assert!(matches!(why, (1, ReplayError::OutOfMemory { .. })), "{why:?}");
}
