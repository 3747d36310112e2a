//! `mbind` and its kin: policies of ranges, and on which node a page is.
//!
//! ```text
//!   area ── tag: a number ─▶ policy                 mbind: another number for a part of a vma, which
//!                                                   is joined with its neighbours or cut from them
//! ```
//!
//! **Invariants**
//! - B1. A number stays with its policy as long as an area has it. Where there are as many as there
//!   can be, one that no area has gets another policy.
//!
//! **Not here**: which policies there are (`mempolicy`), and those of threads: the embedder's.

use crate::errno::Errno;
use crate::mempolicy::{MPOL_MF_MOVE, MPOL_MF_MOVE_ALL, MPOL_MF_STRICT, Mempolicy, Mode, Nodes};
use crate::pages::{PAGE, is_aligned, page_align, range};
use crate::process::Process;
use crate::vma::{Bound, Tag, Vma};
use foliant::table::{Attrs, Entry, Paging};
use foliant_machine::Machine;
use foliant_units::VaRange;
use linux_raw_sys::errno::{EIO, ENOENT};

/// Where a page is, as `move_pages` tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageStatus {
    /// On node 0.
    Present,
    /// There is none.
    Absent,
    /// No vma is there, or zeros are that nobody owns.
    Fault,
}

impl PageStatus {
    /// As a program gets it: the number of a node, or of an error.
    pub fn word(self) -> i32 {
        match self {
            PageStatus::Present => 0,
            PageStatus::Absent => -(ENOENT as i32),
            PageStatus::Fault => Errno::FAULT.word() as i32,
        }
    }
}

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// The policy of a vma.
    pub(crate) fn policy(&self, vma: &Vma) -> Option<&Mempolicy> {
        vma.tag.bound.0.checked_sub(1).and_then(|nth| self.policies.get(usize::from(nth)))
    }
    /// The policy at an address, where a vma is.
    pub fn policy_at(&self, addr: u64) -> Result<Option<&Mempolicy>, Errno> {
        Ok(self.policy(&self.part_of_vma(addr).ok_or(Errno::FAULT)?))
    }
    /// The number of a policy (B1).
    fn bound_by(&mut self, policy: Option<Mempolicy>) -> Result<Bound, Errno> {
        let Some(policy) = policy else { return Ok(Bound::default()) };
        let number = |nth: usize| Bound(nth as u8 + 1);
        if let Some(nth) = self.policies.iter().position(|known| *known == policy) {
            return Ok(number(nth));
        }
        if self.policies.len() < usize::from(Bound::MAX) {
            self.policies.push(policy);
            return Ok(number(self.policies.len() - 1));
        }
        let used = self.parts_from(0).fold(0u64, |used, part| used | 1 << part.tag.bound.0);
        let is_free = |nth: &usize| used & 1 << number(*nth).0 == 0;
        let nth = (0..self.policies.len()).find(is_free).ok_or(Errno::NOMEM)?;
        self.policies[nth] = policy;
        Ok(number(nth))
    }

    /// Gives a range a policy of a mode over some nodes. All is on the one node that there is, so
    /// nothing moves.
    pub fn mbind(
        &mut self,
        addr: u64,
        len: u64,
        mode: Mode,
        nodes: &Nodes,
        flags: u32,
    ) -> Result<u64, Errno> {
        let moves = MPOL_MF_MOVE | MPOL_MF_MOVE_ALL;
        if flags & !(MPOL_MF_STRICT | moves) != 0 {
            return Err(Errno::INVAL);
        }
        let Some(end) = end_of(addr, len)? else { return Ok(0) };
        let policy = mode.over(nodes)?;
        // Linux looks for pages that are not on the nodes as they were asked for, and finds those
        // that it put there itself.
        let is_strict = flags & (MPOL_MF_STRICT | moves) == MPOL_MF_STRICT;
        let is_elsewhere = is_strict && policy.is_some() && !nodes.has_memory();
        self.may_bind(addr, end, policy.is_none(), is_elsewhere)?;
        let bound = self.bound_by(policy)?;
        self.each_part(addr, end, |process, vma, part| process.bind(&vma, part, bound))?;
        Ok(0)
    }
    /// Whether vmas lie in a range, without a hole where that matters, and no page where that does.
    fn may_bind(
        &self,
        start: u64,
        end: u64,
        has_holes: bool,
        is_elsewhere: bool,
    ) -> Result<(), Errno> {
        let mut at = start;
        for vma in self.vmas_in(start, end) {
            if vma.start() > at && !has_holes {
                return Err(Errno::FAULT);
            }
            let to = vma.end().min(end);
            let ends_early = to < end && self.part_of_vma(to).is_none();
            if ends_early && !has_holes {
                return Err(Errno::FAULT);
            }
            if is_elsewhere && self.present_in(vma.start().max(start), to) > 0 {
                return Err(Errno(EIO));
            }
            at = to;
        }
        if at == start { Err(Errno::FAULT) } else { Ok(()) }
    }
    fn bind(&mut self, vma: &Vma, part: VaRange, bound: Bound) -> Result<(), Errno> {
        if bound == vma.tag.bound {
            return Ok(());
        }
        if vma.is_cut_by(part.start().get(), part.end().get()) {
            return Err(Errno::INVAL);
        }
        self.tag_part(vma, part, Tag { bound, ..vma.tag })
    }

    /// Names the node that memory of a range comes from while it has some:
    /// `set_mempolicy_home_node`. What has no policy is passed over.
    pub fn set_home_node(
        &mut self,
        addr: u64,
        len: u64,
        node: u64,
        flags: u64,
    ) -> Result<u64, Errno> {
        if !is_aligned(addr) || flags != 0 || node != 0 {
            return Err(Errno::INVAL);
        }
        let Some(end) = end_of(addr, len)? else { return Ok(0) };
        let mut answer = Err(Errno(ENOENT));
        self.each_part(addr, end, |process, vma, part| {
            let Some(policy) = process.policy(&vma) else { return Ok(()) };
            let bound = process.bound_by(Some(policy.with_home()?))?;
            answer = Ok(0);
            process.bind(&vma, part, bound)
        })?;
        answer
    }

    /// Where the page at an address is.
    pub fn page_status(&self, addr: u64) -> PageStatus {
        if self.part_of_vma(addr).is_none() {
            return PageStatus::Fault;
        }
        let page = addr & !(PAGE - 1);
        let status = |entry: Entry| match entry {
            Entry::Leaf { attrs, .. } if attrs.has(Attrs::SPECIAL) => Some(PageStatus::Fault),
            Entry::Leaf { .. } => Some(PageStatus::Present),
            _ => None,
        };
        let found = self.mm.with_leaves(self.space, range(page, page + PAGE), |mut leaves| {
            leaves.find_map(|found| status(found.entry))
        });
        found.flatten().unwrap_or(PageStatus::Absent)
    }
}

/// The end of a range of whole pages; none where it is empty.
fn end_of(addr: u64, len: u64) -> Result<Option<u64>, Errno> {
    let end = addr.wrapping_add(page_align(len));
    if !is_aligned(addr) || end < addr {
        return Err(Errno::INVAL);
    }
    Ok((end > addr).then_some(end))
}
