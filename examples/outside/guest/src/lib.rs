//! A monitor's guests: huge pages out of a pool, behind the traits of `vm-memory`.

use foliant::Manager;
use foliant::machine::Machine;
use foliant::table::Paging;
use foliant::units::{Bytes, Order};
use foliant_guest::GuestRam;
use std::error::Error;
use vm_memory::{Bytes as _, GuestAddress};

/// A guest with so much memory from its address 0 on, and `image` at `entry`. Dropped, its pages
/// are in the pool again.
pub fn start<'a, 'm, M: Machine, P: Paging>(
    host: &'a Manager<'m, M, P>,
    memory: Bytes,
    image: &[u8],
    entry: GuestAddress,
) -> Result<GuestRam<'a, 'm, M, P>, Box<dyn Error>> {
    let ram = GuestRam::new(host, Order::SIZE_2M, &[(GuestAddress(0), memory)])?;
    ram.write_slice(image, entry)?;
    Ok(ram)
}
