//! Calls of objects without memory, and the life of an object on every page-table format by both
//! rules of replacing entries.

use crate::common::*;
use foliant::fault::Orders;
use foliant::manager::{NoPage, Setup, SpaceError};
use foliant::object::ObjectRequest;
use foliant::space::{
    Flags, MapError, MapRequest, Move, ObjectId, Place, RangeError, RemapError, SpaceId,
};
use foliant::table::Paging;
use foliant::{Access, Outcome, Policy};
use foliant_machine::Replace;
use foliant_sim::{Config, Failing, Format, Sim};
use foliant_units::{Bytes, Pages, Va};

const SHARED: Flags = Flags::READ_WRITE.with(Flags::SHARED);
const PRIVATE: Flags = Flags::READ_WRITE;
/// Where the private area is, in pages behind `BASE`.
const OTHER: u64 = 4096;

fn map<P: Paging>(
    mm: &AnyMm<'_, P>,
    id: SpaceId,
    (at, count): (u64, u64),
    of: (ObjectId, u64),
    flags: Flags,
) -> Result<(), MapError> {
    let (place, bytes) = (Place::Fixed(Va::new(BASE + at * PAGE)), Bytes::new(count * PAGE));
    let request = MapRequest { place, bytes, flags, tag: 0 };
    mm.map_object(id, &request, (of.0, Pages::new(of.1))).map(|_| ())
}

/// What a call is tried on: an object of 40 pages, shared and private in one space, of which some
/// pages are there.
struct Scene<'s, 'm> {
    sim: &'s Sim,
    mm: &'s Mm<'m>,
    id: SpaceId,
    of: ObjectId,
}

impl Scene<'_, '_> {
    /// What the program and the kernel see; the pages are there, so that it takes no memory.
    fn seen(&self) -> (Vec<u64>, Option<Pages>, Option<Pages>) {
        let pages = [0, 9, 20, OTHER, OTHER + 9];
        let seen = pages.map(|page| load(self.sim, self.mm, self.id, BASE + page * PAGE));
        (seen.to_vec(), self.mm.object_room(self.of), self.mm.object_pages(self.of))
    }
}

/// Does `go` with the k-th allocation refused, for every k until none is: refused means unchanged,
/// and with memory it succeeds.
fn every_kth(go: impl Fn(&Scene<'_, '_>) -> bool) {
    for k in 1.. {
        let sim = sim(1, 32);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        let pages = Pages::new(40);
        let of = mm.create_object(&ObjectRequest { pages, ..Default::default() }).unwrap();
        map(&mm, id, (0, 40), (of, 0), SHARED).unwrap();
        map(&mm, id, (OTHER, 40), (of, 0), PRIVATE).unwrap();
        for page in [0, 9, 20, OTHER] {
            store(&sim, &mm, id, BASE + page * PAGE, 100 + page);
        }
        let scene = Scene { sim: &sim, mm: &mm, id, of };
        let before = scene.seen();
        sim.fault_plan().set(Failing::Kth(k));
        let done = go(&scene);
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        if !done {
            assert!(refused > 0, "k = {k}");
            assert_eq!(scene.seen(), before, "refused, and yet changed: k = {k}");
            recount(&sim, &mm, &mm.spaces().collect::<Vec<_>>());
            assert!(go(&scene), "there is memory again: k = {k}");
        }
        if refused == 0 {
            return;
        }
    }
}

/// Whether it was carried out, where lack of memory is the only other answer.
fn carried_out<E: std::fmt::Debug + PartialEq>(got: Result<(), E>, short: E) -> bool {
    assert!(got.is_ok() || got == Err(short), "{got:?}");
    got.is_ok()
}

#[test]
fn an_object_that_gets_no_memory_is_not_there() {
    every_kth(|scene| {
        let request = ObjectRequest { pages: Pages::new(9), ..Default::default() };
        let got = scene.mm.create_object(&request);
        carried_out(got.map(|_| ()), MapError::Range(RangeError::NoMemory))
    });
}

#[test]
fn a_mapping_that_gets_no_memory_is_not_there() {
    every_kth(|scene| {
        let got = map(scene.mm, scene.id, (100, 9), (scene.of, 3), SHARED);
        carried_out(got, MapError::Range(RangeError::NoMemory))
    });
}

#[test]
fn faults_that_get_no_memory_change_nothing() {
    for page in [30, 600, OTHER + 9, OTHER + 30] {
        every_kth(|scene| {
            if page == 600 {
                // Its tables are missing, too.
                let _ = map(scene.mm, scene.id, (600, 9), (scene.of, 0), PRIVATE);
                if scene.mm.area(scene.id, Va::new(BASE + 600 * PAGE)).is_none() {
                    return false;
                }
            }
            let got = scene.mm.fault(scene.id, Va::new(BASE + page * PAGE), Access::Write);
            assert!(matches!(got, Outcome::Mapped(_) | Outcome::Copied | Outcome::OutOfMemory));
            got != Outcome::OutOfMemory
        });
    }
}

#[test]
fn a_fork_that_gets_no_memory_leaves_no_attachment() {
    every_kth(|scene| {
        let got = scene.mm.fork(scene.id);
        carried_out(got.map(|_| ()), SpaceError::NoMemory)
    });
}

#[test]
fn a_move_that_gets_no_memory_leaves_the_object_where_it_was() {
    every_kth(|scene| {
        let to = Move::To(Va::new(BASE + (1 << 30)));
        let bytes = Bytes::new(8 * PAGE);
        let got = scene.mm.remap(scene.id, row(OTHER + 20, 8), bytes, to);
        carried_out(got.map(|_| ()), RemapError::Map(MapError::Range(RangeError::NoMemory)))
    });
}

#[test]
fn cutting_an_object_takes_no_memory_or_changes_nothing() {
    every_kth(|scene| {
        // Behind all that is looked at.
        let got = scene.mm.punch_object(scene.of, Pages::new(30), Pages::new(32));
        carried_out(got, RangeError::NoMemory)
    });
    for room in [35, 4000] {
        every_kth(|scene| {
            let got = scene.mm.resize_object(scene.of, Pages::new(room));
            carried_out(got, RangeError::NoMemory)
        });
    }
}

#[test]
fn the_kernel_gets_no_page_without_memory() {
    every_kth(|scene| match scene.mm.object_page(scene.of, Pages::new(30), Access::Write) {
        Ok(page) => page.is_some(),
        Err(why) => {
            assert_eq!(why, NoPage::NoMemory);
            false
        }
    });
}

#[test]
fn pages_that_are_brought_and_get_no_memory_leave_those_before_them() {
    every_kth(|scene| {
        let done = scene.mm.promise_object(scene.of, Pages::new(26), Pages::new(32));
        carried_out(done, RangeError::NoMemory)
    });
}

/// A short life: folios of each size are shared, copied, cut, split and moved.
fn life<P: Paging>(format: Format, replace: Option<Replace>) {
    for policy in [Policy::BASE_ONLY, only(4), Policy::always(Orders::ANON)] {
        let mut config = Config::seeded(2, Bytes::new(64 * MB), 3).with_format(format);
        config.rules.replace = replace.unwrap_or(config.rules.replace);
        let sim = Sim::new(config).unwrap();
        let mm: Audited<'_, P> = audited(&sim, &Setup::of(&sim.config().memory, policy));
        mm.set_object_policy(policy);
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        let pages = Pages::new(1024);
        let of = mm.create_object(&ObjectRequest { pages, ..Default::default() }).unwrap();
        map(&mm, id, (0, 1024), (of, 0), SHARED).unwrap();
        map(&mm, id, (OTHER, 1024), (of, 0), PRIVATE).unwrap();
        let at = |page: u64| BASE + page * PAGE;
        let see = |id, page| load(&sim, &mm, id, at(page));
        for page in [0, 17, 40, 511, 600, 1023] {
            store(&sim, &mm, id, at(page), 100 + page);
            assert_eq!(see(id, OTHER + page), 100 + page, "{format:?}");
        }
        store(&sim, &mm, id, at(OTHER + 17), 1);
        assert_eq!([17, 18].map(|page| see(id, page)), [117, 0]);
        let child = mm.fork(id).unwrap();
        store(&sim, &mm, id, at(OTHER + 17), 2);
        store(&sim, &mm, id, at(40), 3);
        mm.protect(id, row(0, 64), Flags::READ).unwrap();
        mm.switch(Some(child)).unwrap();
        assert_eq!([OTHER + 17, 40, OTHER + 40].map(|page| see(child, page)), [1, 3, 3]);
        mm.switch(Some(id)).unwrap();
        mm.punch_object(of, Pages::new(0), Pages::new(20)).unwrap();
        assert_eq!([0, 17, 40, OTHER + 17].map(|page| see(id, page)), [0, 0, 3, 2]);
        let frame = mm.frame_at(id, Va::new(at(600))).unwrap();
        mm.relocate(frame).unwrap();
        let _ = mm.split(id, Va::new(at(600)), foliant::split::SplitInto::BASE);
        let to = Move::To(Va::new(at(3 * OTHER)));
        mm.remap(id, row(512, 512), Bytes::new(512 * PAGE), to).unwrap();
        assert_eq!(see(id, 3 * OTHER + 88), 700);
        mm.resize_object(of, Pages::new(600)).unwrap();
        mm.resize_object(of, pages).unwrap();
        assert_eq!([3 * OTHER + 88, OTHER + 1023].map(|page| see(id, page)), [0, 0]);
        mm.switch(Some(child)).unwrap();
        assert_eq!([511, 600, OTHER + 17].map(|page| see(child, page)), [611, 0, 1]);
    }
}

#[test]
fn an_object_lives_on_every_format_by_both_rules() {
    on_every_format!(life);
}
