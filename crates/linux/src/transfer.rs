//! `UFFDIO_MOVE`: pages go from one place of a process to another, where they are missing.
//!
//! Both places are private memory of the process's own, of one vma each, writable and locked alike,
//! and the descriptor has the second armed. The source may be any memory, also of the same vma.
//!
//! **Not here**: how a page goes (`foliant::space::transfer`), and what else a descriptor is asked
//! (`userfault`).

use crate::errno::Errno;
use crate::process::Process;
use crate::told::Userfaultfd;
use crate::userfault::{Answer, answered, is_armed};
use crate::vma::{Marks, Vma};
use foliant::space::{Flags, Holes, TransferError, Untransferred};
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, Va};
use linux_raw_sys::errno;
use linux_raw_sys::general::{uffdio_move, uffdio_range};

/// Bits of `uffdio_move::mode`, which `linux-raw-sys` lacks.
const MOVE_MODE_DONTWAKE: u64 = 1;
const MOVE_MODE_ALLOW_SRC_HOLES: u64 = 1 << 1;

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// `UFFDIO_MOVE`: pages that are there go to where pages are missing.
    pub fn uffdio_move(&mut self, fd: &Userfaultfd, asked: &mut uffdio_move) -> Answer {
        let (source, to) = (asked.src, uffdio_range { start: asked.dst, len: asked.len });
        let modes = MOVE_MODE_DONTWAKE | MOVE_MODE_ALLOW_SRC_HOLES;
        let ends = self.asked(fd, &to, (asked.mode, modes)).and_then(|ends| {
            let from = uffdio_range { start: source, len: asked.len };
            Ok((self.checked(&from)?, ends))
        });
        let (from, to_ends) = match ends {
            Ok(ends) => ends,
            Err(why) => return Answer::of(Err(why)),
        };
        let holes = match asked.mode & MOVE_MODE_ALLOW_SRC_HOLES {
            0 => Holes::Refused,
            _ => Holes::Skipped,
        };
        let done = self.transfer(fd, from, to_ends, holes);
        answered(done, &to, asked.mode & MOVE_MODE_DONTWAKE != 0, &mut asked.move_)
    }
    fn transfer(
        &mut self,
        fd: &Userfaultfd,
        from: (u64, u64),
        to: (u64, u64),
        holes: Holes,
    ) -> Result<u64, Errno> {
        let none = Errno(errno::ENOENT);
        let dest = self.vma(to.0).ok_or(none)?;
        self.adopt_filled(&dest)?;
        let (source, dest) = (self.vma(from.0).ok_or(none)?, self.vma(to.0).ok_or(none)?);
        let is_one_vma = from.1 <= source.end() && to.1 <= dest.end();
        let is_ours = self.handler.is_some_and(|handler| handler.id == fd.id());
        if !is_one_vma || !may_go(&source, &dest) || !is_ours {
            return Err(Errno::INVAL);
        }
        self.size.note_resident(self.resident());
        let range = crate::pages::range(from.0, from.1);
        match self.mm.transfer(self.space, range, Va::new(to.0), holes) {
            Ok(()) => Ok(range.bytes().get()),
            Err(Untransferred { done, .. }) if done > Bytes::new(0) => Ok(done.get()),
            Err(Untransferred { why, .. }) => Err(gone(why)),
        }
    }
}

/// Whether pages of one vma may go to another.
fn may_go(source: &Vma, dest: &Vma) -> bool {
    let is_own = |vma: &Vma| !vma.is_of_file() && !vma.is_huge();
    let is_locked = |vma: &Vma| vma.tag.marks.has(Marks::LOCKED);
    is_own(source)
        && is_own(dest)
        && source.prot() == dest.prot()
        && source.flags.has(Flags::WRITE)
        && is_locked(source) == is_locked(dest)
        && is_armed(dest)
}

/// Why a page did not go.
fn gone(why: TransferError) -> Errno {
    match why {
        TransferError::Range(why) => why.into(),
        TransferError::Unsuitable(..) => Errno::INVAL,
        TransferError::Present(_) => Errno::EXIST,
        TransferError::Absent(_) => Errno(errno::ENOENT),
        TransferError::Shared(_) => Errno::BUSY,
        TransferError::NoPage(_) => Errno(errno::EFAULT),
    }
}
