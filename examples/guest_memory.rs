//! Memory for guests, as a monitor on an operating system takes it: huge pages out of a pool,
//! behind the traits of the crate `vm-memory`, given back when the guest needs them no more.
//!
//! A guest's memory wants huge pages twice over: each miss of its translation cache walks two sets
//! of tables. So the host keeps a pool of 2 MiB pages from boot on, which nothing else can break
//! up, and a guest gets all of its pages when it is made: none of its faults can find the pool
//! empty. With folding the pages cost *less* memory than small ones would, as seven of eight
//! descriptor frames are given back.
//!
//! The machine's memory is a `memfd`, so each range of a guest is one region, whichever pages the
//! pool has: one slot of KVM, one slice. A balloon gives pages back to the pool, and the file's
//! memory to the operating system.
//!
//! Run it with `cargo run --example guest_memory`. No privilege is needed, and no hugetlb page.
#![allow(
    unsafe_code,
    reason = "the frames in a file, and nested tables, are vouched for by whoever lends them"
)]

use foliant::manager::{BootPages, Setup};
use foliant::pool::Folding;
use foliant::table::{Attrs, Entry, Half, Harvest, MapStop, Prune, Spare, Stop, Tables, X86_64};
use foliant::{Manager, Policy};
use foliant_guest::{FrameFile, GuestError, GuestRam};
use foliant_machine::{Caching, PhysMem};
use foliant_sim::{Backing, Config, Sim};
use foliant_units::{Bytes, Frame, Level, Order, Va, VaRange};
use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use vm_memory::bitmap::{AtomicBitmap, Bitmap};
use vm_memory::{
    Bytes as _, GuestAddress, GuestMemoryBackend, GuestMemoryRegion, MemoryRegionAddress,
};

type Host<'m> = Manager<'m, Sim, X86_64<4>>;

const PAGE: u64 = Bytes::SIZE_2M.get();
/// The guest's addresses: 24 MiB from 0 on, and 8 MiB above the hole for devices.
const LOW: (GuestAddress, Bytes) = (GuestAddress(0), Bytes::new(12 * PAGE));
const HIGH: (GuestAddress, Bytes) = (GuestAddress(4 << 30), Bytes::new(4 * PAGE));

/// A cleared frame for a nested table.
fn table(host: &Host<'_>) -> Result<Frame, Box<dyn Error>> {
    let frame = host.lend(Order::BASE).map_err(|none| format!("{none:?}"))?;
    // SAFETY: the block was lent just now; nobody else uses it.
    unsafe { host.machine().clear(frame.pa(), Order::BASE.bytes(), Caching::Cached) };
    Ok(frame)
}

fn main() -> Result<(), Box<dyn Error>> {
    let config = Config { backing: Backing::File, ..Config::seeded(2, Bytes::new(128 << 20), 1) };
    let machine = Sim::new(config)?;
    let (memfd, first) = machine.memory_file().ok_or("the memory is a file")?;
    // 24 pages of 2 MiB are set aside at boot, before anything can fragment the memory.
    let boot = BootPages { size_2m: 24, size_1g: 0, folding: Folding::On };
    let setup = Setup { boot, ..Setup::of(&machine.config().memory, Policy::BASE_ONLY) };
    let host: Host<'_> = Manager::new(&machine, &setup)?;
    let free = || host.pool(Order::SIZE_2M).map(|pool| pool.free_hugepages);
    assert_eq!(free()?, 24);

    // A guest takes 16 of them. A second one of the same size is refused now, and not in the middle
    // of its life.
    // SAFETY: the machine maps its memory from there, shared.
    let file = unsafe { FrameFile::new(memfd.clone(), first) };
    let guest = |ranges: &[_]| GuestRam::in_file(&host, &file, Order::SIZE_2M, ranges);
    let ram = guest(&[LOW, HIGH])?.tracked::<AtomicBitmap>();
    let refused = guest(&[LOW, HIGH]).map(drop);
    assert!(matches!(refused, Err(GuestError::Map(_))), "{refused:?}");
    assert_eq!((ram.num_regions(), free()?), (2, 8));
    println!("16 of 24 pages are a guest's, as {} regions", ram.num_regions());

    // Devices and loaders know nothing of huge pages: a slice goes over their edges, and so does an
    // image.
    let image: Vec<u8> = (0..3 * PAGE).map(|at| (at % 251) as u8).collect();
    ram.write_slice(&image, GuestAddress(PAGE / 2))?;
    let slice = GuestMemoryBackend::get_slice(&ram, GuestAddress(PAGE / 2), image.len())?;
    let mut read = vec![0; image.len()];
    slice.copy_to(&mut read);
    assert!(read == image);
    ram.store(0x1bad_b002_u64, GuestAddress(0), Ordering::Release)?;

    // What was written is dirty, and nothing else: pages of 4 KiB for a migration to send.
    let region = ram.find_region(LOW.0).ok_or("no region")?;
    let dirty = |at: &usize| region.bitmap().dirty_at(*at);
    let pages = || (0..LOW.1.get() as usize).step_by(4096).filter(dirty).count();
    assert_eq!(pages(), 1 + image.len() / 4096);

    // The balloon: the guest gives 6 MiB back. The pool has the pages and the operating system the
    // memory, as far as any was used; another guest fits in.
    let taken = || memfd.metadata().map(|file| file.blocks() * 512);
    let before = taken()?;
    assert_eq!(ram.give_back(GuestAddress(PAGE), Bytes::new(3 * PAGE))?, Bytes::new(3 * PAGE));
    assert_eq!((free()?, ram.given_back()), (11, Bytes::new(3 * PAGE)));
    assert!(taken()? <= before - 2 * PAGE, "{} of {before} are left", taken()?);
    println!(
        "given back: {} pages are free, {} MiB of the memfd",
        free()?,
        (before - taken()?) >> 20
    );
    let other = guest(&[(GuestAddress(0), Bytes::new(10 * PAGE))])?;
    other.write_slice(b"the other guest's", GuestAddress(0))?;

    // A page comes back when it is touched, or when the guest asks, and is zero; where the pool has
    // none left, both are refused and say so.
    assert_eq!(ram.read_obj::<u64>(GuestAddress(PAGE))?, 0);
    let empty = ram.bring_back(GuestAddress(PAGE), Bytes::new(3 * PAGE));
    assert_eq!(empty, Err(GuestError::NoPages(Order::SIZE_2M, 2, 0)));
    println!("asked back from an empty pool: {}", empty.unwrap_err());
    drop(other);
    assert_eq!(ram.bring_back(GuestAddress(PAGE), Bytes::new(3 * PAGE))?, Bytes::new(2 * PAGE));
    ram.read_slice(&mut read[..3 * PAGE as usize], GuestAddress(PAGE))?;
    assert!(read.iter().all(|byte| *byte == 0));

    // A hypervisor without an operating system's help maps the pages itself. Nested tables have the
    // format of ordinary ones (AMD64): guest-physical to host-physical, 2 MiB a leaf.
    let root = table(&host)?;
    // SAFETY: a cleared frame, the top table of this guest from here on.
    let nested: Tables<'_, Sim, X86_64<4>> =
        unsafe { Tables::adopt(&machine, root.pa(), Half::User) };
    let mut spare = Spare::new();
    for at in (0..region.len()).step_by(PAGE as usize) {
        let frame = region.frame(MemoryRegionAddress(at)).ok_or("given back")?;
        let range = VaRange::sized(Va::new(at), Bytes::SIZE_2M).ok_or("no range")?;
        let attrs = Attrs::USER | Attrs::WRITE | Attrs::EXEC;
        while nested.map(range, frame, attrs, Level::SIZE_2M, &mut spare)?.why != MapStop::Done {
            // SAFETY: the frame is cleared, and was lent just now.
            unsafe { spare.lend(table(&host)?) }.map_err(|frame| format!("{frame} is over"))?;
        }
    }
    // What the loader wrote at guest-physical 0 the guest finds there.
    let Entry::Leaf { pa, .. } = nested.walk(Va::new(0)).entry else {
        return Err("no leaf".into());
    };
    // SAFETY: the page is mapped, so it is the guest's.
    let word = unsafe { machine.reach(pa, Bytes::new(8)) }.cast::<u64>();
    // SAFETY: nobody writes it meanwhile.
    assert_eq!(unsafe { word.read() }, 0x1bad_b002);
    println!("guest-physical 0 is host frame {}", pa.frame());

    // Folded, the descriptors of a page take one frame instead of eight.
    let folded = host.memmap().census().folded;
    println!("{folded} pages are folded: {} KiB given back", folded * 7 * 4);
    assert_eq!(folded, 24);

    // The guest ends: its tables go first, then its memory, and the pages are in the pool again.
    let mut harvest = Harvest::new();
    let all = VaRange::sized(Va::new(0), LOW.1).ok_or("no range")?;
    let swept = nested.unmap(all, Prune::All, &mut harvest)?;
    assert_eq!((swept.upto, swept.why), (all.end(), Stop::Done));
    // No processor ran this guest, so none has to be asked to forget it; `tables.rs` shows how that
    // is done.
    while let Some(table) = harvest.pop_table() {
        host.take_back(table.frame(), Order::BASE)?;
    }
    host.take_back(root, Order::BASE)?;
    drop(ram);
    assert_eq!(free()?, 24);
    println!("the guest ended; all 24 pages are free again");
    assert_eq!(machine.finish(), []);
    Ok(())
}
