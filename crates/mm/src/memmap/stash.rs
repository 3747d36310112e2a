//! Frames for tails, taken before anything changes.
//!
//! A 2 MiB page needs 7 of them, which have their places here, and a 1 GiB page 4095, all or none.
//! Frames for which there is no place are on a chain: each is a copy of the shared tail frame but
//! for its last word, which is 0 in a tail, and a link on the chain.

use super::Memmap;
use crate::folio::Class;
use crate::frame::Claim;
use crate::stock::{Event, NoBlock, OwnFrames};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, Order};

const LINK: usize = 511;
/// Places, for the tails of a 2 MiB page.
const PLACES: usize = 8;

/// See the module's text.
#[derive(Default)]
pub(super) struct Stash {
    places: [Option<Claim>; PLACES],
    /// Those that have no place.
    more: OwnFrames<LINK>,
    len: u64,
}

impl Stash {
    /// Takes `count` more frames, each a copy of `tail`, or none.
    pub(super) fn fill<M: Machine, P: Paging>(
        &mut self,
        memmap: &Memmap<'_, '_, M, P>,
        tail: Frame,
        count: u64,
    ) -> Result<(), NoBlock> {
        let stock = memmap.stock;
        let before = self.len;
        while self.len < before + count {
            let claim = match stock.claim_undescribed(Order::BASE, Class::Unmovable) {
                Ok(claim) => claim,
                Err(none) => {
                    self.drain(memmap, before);
                    return Err(none);
                }
            };
            crate::zero::copy_page(stock.machine, tail.pa(), &claim);
            stock.machine.owned(claim.frames(), Owner::Records);
            stock.count(Event::MemmapPages);
            match self.places.get_mut(self.len as usize) {
                Some(place) => *place = Some(claim),
                None => {
                    self.more.push(stock.machine, claim);
                }
            }
            self.len += 1;
        }
        Ok(())
    }

    /// Takes a frame out; it is a frame of tails.
    pub(super) fn pop<M: Machine, P: Paging>(
        &mut self,
        memmap: &Memmap<'_, '_, M, P>,
    ) -> Option<Claim> {
        self.len = self.len.checked_sub(1)?;
        match self.places.get_mut(self.len as usize) {
            Some(place) => place.take(),
            None => self.more.pop(memmap.stock.machine),
        }
    }

    /// Gives frames back until `keep` are left.
    pub(super) fn drain<M: Machine, P: Paging>(
        &mut self,
        memmap: &Memmap<'_, '_, M, P>,
        keep: u64,
    ) {
        while self.len > keep
            && let Some(frame) = self.pop(memmap)
        {
            memmap.stock.uncount_by(Event::MemmapPages, 1);
            memmap.stock.release(frame);
        }
    }
}
