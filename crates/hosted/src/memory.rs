//! A large mapping of this process, in huge pages where the system gives them, and blocks of it.
#![allow(unsafe_code)]

use crate::machine::Process;
use foliant::zero::{Clearing, Pace, Tally, clear_block};
use foliant_units::{Bytes, FRAME_BYTES, Frame, FrameRange, Order, Pages, Va};
use foliant_x86::X86;
use memmap2::{Advice, MmapMut};
use std::io;

/// See the module's text.
pub(crate) struct Memory {
    map: MmapMut,
    /// Bytes before the first block.
    skip: usize,
    blocks: u64,
    order: Order,
}

impl Memory {
    /// As many blocks of `order` as `total` holds, one at least, all written once.
    pub(crate) fn new(order: Order, total: Bytes) -> io::Result<Memory> {
        let size = order.bytes().get() as usize;
        let blocks = (total.get() / size as u64).max(1);
        let bytes = size * blocks as usize;
        let mut map = MmapMut::map_anon(bytes + size)?;
        // Without huge pages it is slower for all rows alike.
        let _ = map.advise(Advice::HugePage);
        let skip = map.as_ptr().align_offset(size);
        map[skip..skip + bytes].fill(1);
        Ok(Memory { map, skip, blocks, order })
    }
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }
    /// Its bytes, to be measured on.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let end = self.skip + (self.order.bytes().get() * self.blocks) as usize;
        &mut self.map[self.skip..end]
    }
    /// Its frames: frame 0 is the first.
    pub(crate) fn frames(&self) -> FrameRange {
        let pages = Pages::new(self.order.pages().get() * self.blocks);
        FrameRange::new(Frame::new(0), pages).unwrap_or_default()
    }
    /// Where physical address 0 is.
    pub(crate) fn base(&mut self) -> Va {
        Va::new(self.bytes().as_mut_ptr() as u64)
    }

    /// Clears block `nth` as a fault at its page `touched` does.
    pub(crate) fn clear(
        &mut self,
        machine: &X86<'_, Process>,
        (pace, clearing): (&Pace, &Clearing),
        (nth, touched): (u64, u64),
        unknown: impl Fn(FrameRange) -> Option<FrameRange>,
    ) -> Tally {
        let pages = self.order.pages().get();
        let head = Frame::new(nth % self.blocks * pages);
        let touched = head.add(Pages::new(touched % pages));
        let block = ((head, self.order), Some(touched));
        // SAFETY: the block lies in this mapping, which is borrowed exclusively and which the
        // machine's direct map begins at.
        unsafe { clear_block(machine, pace, clearing, block, unknown) }
            .expect("blocks are aligned and the page lies inside")
    }
    /// Reads the first word of each line that `lines` names in block `nth`; gives their sum, which
    /// is 0 if all is zero.
    pub(crate) fn walk(&self, nth: u64, lines: impl Iterator<Item = u64>) -> u64 {
        let size = self.order.bytes().get();
        let start = self.skip + (nth % self.blocks * size) as usize;
        let block = &self.map[start..start + size as usize];
        lines.fold(0, |sum, line| {
            let at = (line * 64 % size) as usize;
            let word: &[u8; 8] = block[at..at + 8].first_chunk().expect("eight bytes of a line");
            sum.wrapping_add(u64::from_ne_bytes(*std::hint::black_box(word)))
        })
    }
}

const _: () = assert!(FRAME_BYTES.is_multiple_of(64));
