//! Names of the machine, as programs set and ask them.
//!
//! **Locking**: one lock for each, with nothing under it.

use alloc::vec::Vec;
use foliant_linux::Errno;
use spin::{Lazy, Mutex};

/// Bytes of a name, at most.
pub(super) const NAME_MAX: usize = 64;

/// What `sethostname` sets.
pub(super) static HOST: Lazy<Mutex<Vec<u8>>> = Lazy::new(|| Mutex::new(b"foliant".to_vec()));
/// What `setdomainname` sets.
pub(super) static DOMAIN: Lazy<Mutex<Vec<u8>>> = Lazy::new(|| Mutex::new(b"(none)".to_vec()));

/// Sets a name.
pub(super) fn set(name: &Mutex<Vec<u8>>, to: &[u8]) -> Result<(), Errno> {
    if to.len() > NAME_MAX {
        return Err(Errno::INVAL);
    }
    *name.lock() = to.to_vec();
    Ok(())
}
