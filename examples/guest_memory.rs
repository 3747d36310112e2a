//! Memory for a guest, as a hypervisor takes it: huge pages out of a pool, in nested page tables.
//!
//! A guest's memory wants huge pages twice over: each miss of its translation cache walks two sets
//! of tables. So the host keeps a pool of 2 MiB pages from boot on, which nothing else can break
//! up, and the pool reserves the guest's pages when the guest is made: no fault of the guest can
//! find it empty. With folding the pages cost *less* memory than small ones would, as seven of
//! eight descriptor frames are given back.
//!
//! Run it with `cargo run --example guest_memory`.
#![allow(unsafe_code, reason = "the nested tables' frames are vouched for by whoever lends them")]

use foliant::manager::{BootPages, Setup};
use foliant::pool::Folding;
use foliant::space::{Advice, Flags, MapError, MapRequest, Place, SpaceId};
use foliant::table::{Attrs, Entry, Half, Harvest, MapStop, Prune, Spare, Stop, Tables, X86_64};
use foliant::{Manager, Policy};
use foliant_machine::{Caching, PhysMem};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Frame, Level, Order, Va, VaRange};
use std::error::Error;

type Host<'m> = Manager<'m, Sim, X86_64<4>>;

const GUEST: Bytes = Bytes::new(32 << 20);

/// A cleared frame for a nested table.
fn table(host: &Host<'_>) -> Result<Frame, Box<dyn Error>> {
    let frame = host.lend(Order::BASE).map_err(|none| format!("{none:?}"))?;
    // SAFETY: the block was lent just now; nobody else uses it.
    unsafe { host.machine().clear(frame.pa(), Order::BASE.bytes(), Caching::Cached) };
    Ok(frame)
}

/// The pages behind the hypervisor's own mapping of the guest's memory. They stay where they are,
/// whole, for as long as they are mapped there: huge pages of a pool are neither split nor moved.
fn pages(host: &Host<'_>, vmm: SpaceId, memory: VaRange) -> Option<Vec<Frame>> {
    host.with_leaves(vmm, memory, |leaves| {
        let frames = leaves.filter_map(|leaf| match leaf.entry {
            Entry::Leaf { pa, .. } => Some(pa.frame()),
            _ => None,
        });
        frames.collect()
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let machine = Sim::new(Config::seeded(2, Bytes::new(128 << 20), 1))?;
    // 24 pages of 2 MiB are set aside at boot, before anything can fragment the memory.
    let boot = BootPages { size_2m: 24, size_1g: 0, folding: Folding::On };
    let setup = Setup { boot, ..Setup::of(&machine.config().memory, Policy::BASE_ONLY) };
    let host: Host<'_> = Manager::new(&machine, &setup)?;
    let pool = host.pool(Order::SIZE_2M)?;
    assert_eq!((pool.nr_hugepages, pool.free_hugepages), (24, 24));

    // A hypervisor maps the guest's memory into itself. From here on the pool has 16 pages
    // reserved, so a second guest of the same size is refused now, and not in the middle of its
    // life.
    let vmm = host.create(None)?;
    host.switch(Some(vmm))?;
    let flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
    let request = MapRequest { place: Place::Anywhere, bytes: GUEST, flags, tag: 0 };
    let memory = host.map(vmm, &request)?;
    assert_eq!(host.pool(Order::SIZE_2M)?.resv_hugepages, 16);
    let refused = host.map(vmm, &request);
    assert!(matches!(refused, Err(MapError::NoHugePages(_))), "{refused:?}");
    println!("16 of 24 pages are reserved; a second guest: {}", refused.unwrap_err());

    // It loads a boot image, and has the rest made present, so that the guest never waits for a
    // fault.
    host.advise(vmm, memory, Advice::PopulateWrite)?;
    machine.user_store(memory.start(), 8, 0x1bad_b002)?;
    let pages = pages(&host, vmm, memory).ok_or("no such space")?;
    assert_eq!(pages.len(), 16);

    // The nested tables have the format of ordinary ones (AMD64): guest-physical to host-physical,
    // 2 MiB a leaf.
    let root = table(&host)?;
    // SAFETY: a cleared frame, the top table of this guest from here on.
    let nested: Tables<'_, Sim, X86_64<4>> =
        unsafe { Tables::adopt(&machine, root.pa(), Half::User) };
    let mut spare = Spare::new();
    for (guest, page) in (0..).map(|n| Va::new(n * Bytes::SIZE_2M.get())).zip(&pages) {
        let range = VaRange::sized(guest, Bytes::SIZE_2M).ok_or("no range")?;
        let attrs = Attrs::USER | Attrs::WRITE | Attrs::EXEC;
        while nested.map(range, *page, attrs, Level::SIZE_2M, &mut spare)?.why != MapStop::Done {
            // SAFETY: the frame is cleared, and was lent just now.
            unsafe { spare.lend(table(&host)?) }.map_err(|frame| format!("{frame} is over"))?;
        }
    }

    // What the hypervisor wrote at its address the guest finds at guest-physical 0.
    let Entry::Leaf { pa, .. } = nested.walk(Va::new(0)).entry else {
        return Err("no leaf".into());
    };
    // SAFETY: the page is mapped, so it is the hypervisor's.
    let word = unsafe { machine.reach(pa, Bytes::new(8)) }.cast::<u64>();
    // SAFETY: nobody writes it meanwhile.
    let word = unsafe { word.read() };
    assert_eq!(word, 0x1bad_b002);
    println!("guest-physical 0 is host frame {}, {} leaves of 2 MiB", pa.frame(), pages.len());

    // Folded, the descriptors of a page take one frame instead of eight.
    let folded = host.memmap().census().folded;
    println!("{folded} pages are folded: {} KiB given back", folded * 7 * 4);
    assert_eq!(folded, 24);

    // The guest ends: its tables go first, then the hypervisor's mapping, and the pages are in the
    // pool again.
    let mut harvest = Harvest::new();
    let guest = VaRange::sized(Va::new(0), GUEST).ok_or("no range")?;
    let swept = nested.unmap(guest, Prune::All, &mut harvest)?;
    assert_eq!((swept.upto, swept.why), (guest.end(), Stop::Done));
    // No processor ran this guest, so none has to be asked to forget it; `tables.rs` shows how that
    // is done.
    while let Some(table) = harvest.pop_table() {
        host.take_back(table.frame(), Order::BASE)?;
    }
    host.take_back(root, Order::BASE)?;
    host.unmap(vmm, memory)?;
    let pool = host.pool(Order::SIZE_2M)?;
    assert_eq!((pool.free_hugepages, pool.resv_hugepages), (24, 0));
    println!("the guest ended; all 24 pages are free again");

    host.switch(None)?;
    host.end(vmm)?;
    assert_eq!(machine.finish(), []);
    Ok(())
}
