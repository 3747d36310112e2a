//! Guests of a host with eight huge pages.

use foliant::manager::Setup;
use foliant::pool::Budget;
use foliant::table::X86_64;
use foliant::units::{Bytes, Order};
use foliant::{Manager, Policy};
use foliant_sim::{Config, Sim};
use outside_guest::start;
use vm_memory::{Bytes as _, GuestAddress};

#[test]
fn a_guest_has_its_image_and_gives_its_pages_back() {
    let machine = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 1)).unwrap();
    let setup = Setup::of(&machine.config().memory, Policy::BASE_ONLY);
    let host: Manager<'_, Sim, X86_64<4>> = Manager::new(&machine, &setup).unwrap();
    host.resize_pool(Order::SIZE_2M, 8, Budget::ALL).unwrap();
    let free = || host.pool(Order::SIZE_2M).unwrap().free_hugepages;

    // The image lies across the edge of two huge pages.
    let (memory, entry) = (Bytes::new(12 << 20), GuestAddress((2 << 20) - 3));
    let guest = start(&host, memory, b"kernel", entry).unwrap();
    let mut read = [0; 6];
    guest.read_slice(&mut read, entry).unwrap();
    assert_eq!((&read, free()), (b"kernel", 2));

    assert!(start(&host, memory, b"", entry).is_err(), "two pages are left");
    assert!(start(&host, Bytes::SIZE_2M, b"kernel", entry).is_err(), "the image does not fit");
    assert_eq!(free(), 2);
    drop(guest);
    assert_eq!(free(), 8);
    assert_eq!(machine.finish(), []);
}
