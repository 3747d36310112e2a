//! Looking addresses up, for code that takes a `Translate`.

use crate::manager::KernelTables;
use crate::table::{Entry, Found, Tables, X86_64};
use foliant_machine::{Machine, PhysMem};
use foliant_units::{Level, Va};
use x86_64::structures::paging::mapper::{MappedFrame, Translate, TranslateResult};
use x86_64::structures::paging::{PageTableFlags, PhysFrame};
use x86_64::{PhysAddr, VirtAddr};

/// Page tables of four levels as a `Translate`: the crate's addresses have 48 bits. A walk takes no
/// lock: what is read may have changed by the time it is used.
#[derive(Debug)]
pub struct Walk<'m, M>(pub Tables<'m, M, X86_64<4>>);

impl<M: PhysMem> Translate for Walk<'_, M> {
    /// An address of the other half, or one with a software word, is not mapped. The flags are the
    /// bits of the leaf, those that Foliant uses for itself among them.
    fn translate(&self, addr: VirtAddr) -> TranslateResult {
        let va = Va::new(addr.as_u64());
        translation(va, self.0.walk(va))
    }
}

impl<M: Machine> Translate for KernelTables<'_, '_, M, X86_64<4>> {
    /// As for [`Walk`].
    fn translate(&self, addr: VirtAddr) -> TranslateResult {
        let va = Va::new(addr.as_u64());
        translation(va, self.walk(va))
    }
}

/// What a walk for `va` found, in the crate's words.
fn translation(va: Va, found: Found) -> TranslateResult {
    let Entry::Leaf { pa, .. } = found.entry else { return TranslateResult::NotMapped };
    let pa = PhysAddr::new_truncate(pa.get());
    let frame = match found.level {
        Level::BASE => MappedFrame::Size4KiB(PhysFrame::containing_address(pa)),
        Level::SIZE_2M => MappedFrame::Size2MiB(PhysFrame::containing_address(pa)),
        _ => MappedFrame::Size1GiB(PhysFrame::containing_address(pa)),
    };
    let flags = PageTableFlags::from_bits_truncate(found.word);
    TranslateResult::Mapped { frame, offset: va.offset_from(found.va), flags }
}
