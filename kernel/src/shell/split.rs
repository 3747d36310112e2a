//! A folio that is taken apart.

use super::Shell;
use super::spent::Spent;
use super::words::{Complaint, Words, size};
use crate::memory::manager;
use crate::say;
use foliant::split::SplitInto;
use foliant_units::Order;

/// `split`.
pub(super) fn split<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let va = shell.place(words.need("ADDRESS")?)?;
    let order = match words.next() {
        None => Order::BASE,
        Some(word) => {
            let bytes = size(word)?;
            let order = Order::all().find(|order| order.bytes() == bytes);
            order.ok_or(Complaint::Unknown(word, "powers of two from 4k on"))?
        }
    };
    words.end()?;
    let spent = Spent::begin();
    let pieces = manager().split(shell.space(), va, SplitInto { order, ..SplitInto::BASE })?;
    let (whole, part) = (pieces.order.bytes(), order.bytes());
    say!("a folio of {whole} became {} of {part}{spent}", pieces.folios);
    if pieces.unmapped > 0 {
        say!("{} more of {part} were mapped by nobody, and are free", pieces.unmapped);
    }
    Ok(())
}
