#![allow(unsafe_code)]
//! The descriptor array: mapped section by section when a frame of the section is first handed out, and read and
//! written through kernel addresses.

use super::{NoBlock, Stock};
use crate::folio::Class;
use crate::frame::{Claim, DESCRIPTOR_BYTES, Identity, word_at};
use crate::sync::Ordering;
use crate::table::{Attrs, Entry, MapStop, Paging, Refused, Spare};
use foliant_machine::{KernelFault, Machine, Owner};
use foliant_units::{FRAME_BYTES, Frame, FrameRange, Level, Order, Va, VaRange};

/// log2 of the frames whose descriptors share one 2 MiB leaf: 128 MiB of memory.
pub(crate) const SECTION_SHIFT: u32 = 15;

/// Who mapped a stretch of descriptors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Described {
    /// The caller, just now.
    Now,
    /// Somebody had mapped all of it, or a part.
    Before,
}

impl<'m, M: Machine, P: Paging> Stock<'m, M, P> {
    /// Makes sure that the descriptors of `frames` are there.
    pub(crate) fn describe(&self, frames: FrameRange) -> Result<(), NoBlock> {
        let first = frames.start().get() >> SECTION_SHIFT;
        let last = (frames.end().get() - 1) >> SECTION_SHIFT;
        for section in first..=last {
            if !self.is_described(section) {
                self.map_section(section)?;
                self.described[(section / 64) as usize]
                    .fetch_or(1 << (section % 64), Ordering::Release);
            }
        }
        Ok(())
    }

    /// Maps the descriptors of one section: by one leaf where a 2 MiB block is free and nothing is there yet, else by base
    /// pages. Two CPUs may be at it together, and one that ran out of memory may have left the first pages: whoever finds a
    /// word taken gives its memory back and goes on.
    fn map_section(&self, section: u64) -> Result<(), NoBlock> {
        let bytes = DESCRIPTOR_BYTES.get() << SECTION_SHIFT;
        let base = self.array.add(section * bytes);
        if self.kernel.walk(base).level >= Level::MEGA
            && let Ok(claim) = self.claim_undescribed(Order::MEGA, Class::Unmovable)
            && self.map_descriptors(base, claim)? == Described::Now
        {
            return Ok(());
        }
        for page in 0..bytes / FRAME_BYTES {
            let va = base.add(page * FRAME_BYTES);
            if !matches!(self.kernel.walk(va).entry, Entry::Leaf { .. }) {
                let claim = self.claim_undescribed(Order::BASE, Class::Unmovable)?;
                self.map_descriptors(va, claim)?;
            }
        }
        Ok(())
    }

    /// Clears the block and maps it at `va`, unless something is there. What was absent becomes present: no flush.
    fn map_descriptors(&self, va: Va, claim: Claim) -> Result<Described, NoBlock> {
        crate::zero::clear(self, &claim);
        self.machine.owned(claim.frames(), Owner::Records);
        let range = VaRange::sized(va, claim.order().bytes()).expect("inside the kernel half");
        let attrs = Attrs::WRITE | Attrs::GLOBAL | Attrs::TOUCHED;
        let mut spare = Spare::new();
        let done = loop {
            match self.kernel.map(range, claim.frame(), attrs, Level::MEGA, &mut spare) {
                Ok(mapped) if mapped.why == MapStop::Done => {
                    claim.give();
                    break Ok(Described::Now);
                }
                Ok(_) => {
                    if let Err(none) = self.refill(&mut spare, 1) {
                        self.release(claim);
                        break Err(none);
                    }
                }
                Err(Refused::Live(_)) => {
                    self.release(claim);
                    break Ok(Described::Before);
                }
                Err(refused) => panic!("the descriptor array does not fit: {refused}"),
            }
        };
        self.drain(&mut spare);
        done
    }

    pub(crate) fn is_described(&self, section: u64) -> bool {
        let word = self.described.get((section / 64) as usize);
        word.is_some_and(|word| word.load(Ordering::Acquire) >> (section % 64) & 1 == 1)
    }

    /// What the frame is. Frames that were never handed out are plain.
    pub(crate) fn identity(&self, frame: Frame) -> Identity {
        if !self.is_described(frame.get() >> SECTION_SHIFT) {
            return Identity::PLAIN;
        }
        Identity::from_word(self.load(word_at(self.array, frame, 0)))
    }
    pub(crate) fn set_identity(&self, frame: Frame, identity: Identity) {
        self.store(word_at(self.array, frame, 0), identity.word());
    }
    /// The same identity for `count` frames from `first` on.
    pub(crate) fn set_identities(&self, first: Frame, count: u64, identity: Identity) {
        let va = word_at(self.array, first, 0);
        // SAFETY: as for `store`, for each frame of a folio that is the caller's.
        unsafe { self.machine.kernel_fill(va, DESCRIPTOR_BYTES, count, identity.word()) }
            .unwrap_or_else(|fault| unmapped(&fault));
    }
    /// Replaces the identity if it still is `old`.
    pub(crate) fn replace_identity(&self, frame: Frame, old: Identity, new: Identity) -> bool {
        self.swap(word_at(self.array, frame, 0), old.word(), new.word()).is_ok()
    }
    pub(crate) fn references(&self, head: Frame) -> u64 {
        self.load(word_at(self.array, head, 1))
    }
    pub(super) fn set_references(&self, head: Frame, n: u64) {
        self.store(word_at(self.array, head, 1), n);
    }
    /// Replaces the count if it still is `old`.
    pub(super) fn replace_references(&self, head: Frame, old: u64, new: u64) -> bool {
        self.swap(word_at(self.array, head, 1), old, new).is_ok()
    }

    fn load(&self, va: Va) -> u64 {
        // SAFETY: descriptors of handed-out frames are mapped and stay so (stock::K1).
        unsafe { self.machine.kernel_load(va) }.unwrap_or_else(|fault| unmapped(&fault))
    }
    fn store(&self, va: Va, word: u64) {
        // SAFETY: stock::K1; the caller owns the frame (frame::I1) or changes one word by its protocol.
        unsafe { self.machine.kernel_store(va, word) }.unwrap_or_else(|fault| unmapped(&fault));
    }
    fn swap(&self, va: Va, old: u64, new: u64) -> Result<u64, u64> {
        // SAFETY: as for `store`.
        unsafe { self.machine.kernel_compare_exchange(va, old, new) }
            .unwrap_or_else(|fault| unmapped(&fault))
    }
}

fn unmapped(fault: &KernelFault) -> ! {
    let va = fault.va;
    panic!("the descriptor at {va} is not mapped (stock::K1); has this CPU been brought online?")
}
