//! `madvise` with `MADV_HWPOISON` and `MADV_SOFT_OFFLINE`: memory that is said to be broken, or to
//! be about to.
//!
//! What is lost is lost to all who have it; whoever accesses it next gets `SIGBUS` with
//! `BUS_MCEERR_AR` ([`fault`](Process::fault)), and the caller gets one for the first page that it
//! lost, as from Linux. What is about to break goes elsewhere, and nobody notices.
//!
//! **Not here**: who may ask for it.

use crate::access::Signal;
use crate::errno::Errno;
use crate::pages::{PAGE, is_aligned, page_align, range};
use crate::process::Process;
use foliant::manager::{Damage, Retired};
use foliant::space::Advice;
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::Va;
use linux_raw_sys::errno::EBUSY;
use linux_raw_sys::general::{BUS_MCEERR_AR, PROT_READ, SIGBUS};

/// `MADV_SOFT_OFFLINE`, which the generated numbers lack.
const MADV_SOFT_OFFLINE: u32 = 101;

/// What an advice says of memory, if it says that it breaks.
pub fn damage(advice: u32) -> Option<Damage> {
    match advice {
        linux_raw_sys::general::MADV_HWPOISON => Some(Damage::Done),
        MADV_SOFT_OFFLINE => Some(Damage::Foreseen),
        _ => None,
    }
}

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Retires memory of a range; of a large folio one page, as Linux does. Says how that ended,
    /// and which signal the caller gets. Why it `may` not be asked for is told where the range is
    /// one.
    pub fn retire(
        &mut self,
        addr: u64,
        len: u64,
        damage: Damage,
        may: Result<(), Errno>,
    ) -> (Result<u64, Errno>, Option<Signal>) {
        let bytes = page_align(len);
        let Some(end) = addr.checked_add(bytes).filter(|_| is_aligned(addr) && bytes >= len) else {
            return (Err(Errno::INVAL), None);
        };
        if bytes == 0 {
            return (Ok(0), None);
        }
        if let Err(why) = may {
            return (Err(why), None);
        }
        let (mut at, mut signal) = (addr, None);
        while at < end {
            match self.retire_page(at, damage) {
                Ok((next, lost)) => {
                    signal = signal.or(lost);
                    at = next;
                }
                Err(why) => return (Err(why), signal),
            }
        }
        (Ok(0), signal)
    }

    /// Retires one page, and says where the next folio is.
    fn retire_page(&mut self, at: u64, damage: Damage) -> Result<(u64, Option<Signal>), Errno> {
        let vma = self.vma(at).filter(|vma| vma.prot() & PROT_READ != 0).ok_or(Errno::FAULT)?;
        let come = self.populate(range(at, at + PAGE), Advice::PopulateRead);
        come.map_err(|why| if why == Errno::NOMEM { why } else { Errno::FAULT })?;
        let Some(frame) = self.mm.frame_at(self.space, Va::new(at)) else {
            // The shared zeros are the kernel's own.
            return match damage {
                Damage::Done => Err(Errno(EBUSY)),
                Damage::Foreseen => Ok((at + PAGE, None)),
            };
        };
        let next = at + self.mm.identity(frame).order().bytes().get();
        let lsb = vma.page_bytes().ilog2() as u16;
        let signal = Signal { number: SIGBUS, code: BUS_MCEERR_AR, addr: at, lsb };
        match self.mm.retire(frame, damage) {
            Ok(Retired::Lost) => Ok((next, Some(signal))),
            Ok(Retired::Free | Retired::Moved(_)) => Ok((next, None)),
            Err(_) => Err(Errno(EBUSY)),
        }
    }
}
