//! What a fault tells the handler of a `userfaultfd`.

use linux_raw_sys::general::{
    UFFD_EVENT_PAGEFAULT, UFFD_FEATURE_EXACT_ADDRESS, UFFD_FEATURE_SIGBUS, UFFD_PAGEFAULT_FLAG_WP,
    UFFD_PAGEFAULT_FLAG_WRITE, uffd_msg, uffd_msg__bindgen_ty_1,
    uffd_msg__bindgen_ty_1__bindgen_ty_1, uffd_msg__bindgen_ty_1__bindgen_ty_1__bindgen_ty_1,
};

/// Which descriptor vmas of a process are armed by, and what was asked of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handler {
    pub(crate) id: u64,
    pub(crate) features: u32,
}

/// A fault that the program itself answers: the thread waits on the descriptor until a range with
/// the address is woken ([`Answer::wakes`](crate::Answer::wakes)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// Which descriptor: its [`id`](crate::Userfaultfd::id).
    pub descriptor: u64,
    /// The address, as the message has it.
    pub address: u64,
    /// `UFFD_PAGEFAULT_FLAG_WRITE`, `UFFD_PAGEFAULT_FLAG_WP`.
    pub flags: u64,
}

impl Told {
    /// What the program reads from the descriptor.
    pub fn message(&self) -> uffd_msg {
        let feat = uffd_msg__bindgen_ty_1__bindgen_ty_1__bindgen_ty_1 { ptid: 0 };
        let (flags, address) = (self.flags, self.address);
        let pagefault = uffd_msg__bindgen_ty_1__bindgen_ty_1 { flags, address, feat };
        uffd_msg {
            event: UFFD_EVENT_PAGEFAULT as u8,
            reserved1: 0,
            reserved2: 0,
            reserved3: 0,
            arg: uffd_msg__bindgen_ty_1 { pagefault },
        }
    }
}

impl Handler {
    /// The fault at an address, in pages of so many bytes, for the descriptor's handler; it may
    /// want none of it.
    pub(crate) fn told(self, addr: u64, page: u64, flags: u32) -> Option<Told> {
        let is_exact = self.features & UFFD_FEATURE_EXACT_ADDRESS != 0;
        let address = if is_exact { addr } else { addr & !(page - 1) };
        let told = Told { descriptor: self.id, address, flags: u64::from(flags) };
        (self.features & UFFD_FEATURE_SIGBUS == 0).then_some(told)
    }
}

/// The flags of a message about a missing page.
pub(crate) fn missing(is_write: bool) -> u32 {
    if is_write { UFFD_PAGEFAULT_FLAG_WRITE } else { 0 }
}
/// Those about a write to a watched page.
pub(crate) const WATCHED: u32 = UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP;
