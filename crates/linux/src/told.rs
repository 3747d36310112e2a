//! What the handler of a `userfaultfd` is told: faults, and changes of armed memory.

use crate::errno::Errno;
use foliant_units::VaRange;
use linux_raw_sys::general::{
    UFFD_EVENT_FORK, UFFD_EVENT_PAGEFAULT, UFFD_EVENT_REMAP, UFFD_EVENT_REMOVE, UFFD_EVENT_UNMAP,
    UFFD_FEATURE_EXACT_ADDRESS, UFFD_FEATURE_SIGBUS, UFFD_FEATURE_WP_ASYNC,
    UFFD_PAGEFAULT_FLAG_MINOR, UFFD_PAGEFAULT_FLAG_WP, UFFD_PAGEFAULT_FLAG_WRITE, uffd_msg,
    uffd_msg__bindgen_ty_1, uffd_msg__bindgen_ty_1__bindgen_ty_1,
    uffd_msg__bindgen_ty_1__bindgen_ty_1__bindgen_ty_1,
};

/// What a descriptor of `userfaultfd` is to a process's memory.
#[derive(Debug)]
pub struct Userfaultfd {
    pub(crate) id: u64,
    /// What `UFFDIO_API` asked for; before that no other request is answered.
    pub(crate) features: Option<u32>,
}

impl Userfaultfd {
    pub(crate) fn of(id: u64, features: u32) -> Userfaultfd {
        Userfaultfd { id, features: Some(features) }
    }
    /// The number by which faults name it.
    pub fn id(&self) -> u64 {
        self.id
    }
    pub(crate) fn has(&self, feature: u32) -> bool {
        self.features.is_some_and(|features| features & feature != 0)
    }
    pub(crate) fn ready(&self) -> Result<Handler, Errno> {
        let features = self.features.ok_or(Errno::INVAL)?;
        Ok(Handler { id: self.id, features })
    }
}

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
    /// `UFFD_PAGEFAULT_FLAG_WRITE`, `UFFD_PAGEFAULT_FLAG_WP`, `UFFD_PAGEFAULT_FLAG_MINOR`.
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
    /// Whether writes are noted, and told to nobody.
    pub(crate) fn lifts_by_itself(self) -> bool {
        self.features & UFFD_FEATURE_WP_ASYNC != 0
    }
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
/// Those about a page that its file has.
pub(crate) fn present(is_write: bool) -> u32 {
    missing(is_write) | UFFD_PAGEFAULT_FLAG_MINOR
}
/// Those about a write to a watched page.
pub(crate) const WATCHED: u32 = UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP;

/// A change of armed memory.
#[derive(Debug)]
pub enum Change {
    /// A child has it too; what the embedder keeps behind the child's descriptor, which whoever
    /// reads of this gets.
    Fork(Userfaultfd),
    /// So many bytes are elsewhere.
    Remap {
        /// Where they were.
        from: u64,
        /// Where they are.
        to: u64,
        /// How many.
        bytes: u64,
    },
    /// What was in a range is dropped.
    Remove(VaRange),
    /// A range is unmapped.
    Unmap(VaRange),
}

impl Change {
    /// The message about it, by words of 8 bytes. A child's descriptor has this number.
    pub fn message(&self, descriptor: u32) -> [u64; 4] {
        let ends = |range: &VaRange| [range.start().get(), range.end().get()];
        match self {
            Change::Fork(_) => [UFFD_EVENT_FORK.into(), descriptor.into(), 0, 0],
            Change::Remap { from, to, bytes } => [UFFD_EVENT_REMAP.into(), *from, *to, *bytes],
            Change::Remove(range) => {
                let [start, end] = ends(range);
                [UFFD_EVENT_REMOVE.into(), start, end, 0]
            }
            Change::Unmap(range) => {
                let [start, end] = ends(range);
                [UFFD_EVENT_UNMAP.into(), start, end, 0]
            }
        }
    }
}
