//! Huge pages that are kept: blocks that the manager lent, for nobody else.

use super::Shell;
use super::words::{Complaint, Words, count};
use crate::memory::manager;
use crate::say;
use alloc::vec::Vec;
use foliant::NoBlock;
use foliant::folio::Misuse;
use foliant_units::{Bytes, Frame, Order, Pages};

/// The pages of one size.
struct Pool {
    order: Order,
    kept: Vec<Frame>,
}

/// One pool for each size of a leaf.
pub(super) struct Pools([Pool; 2]);

/// Why a pool has another size than was asked for.
enum Short {
    /// No block is left.
    NoBlock(NoBlock),
    /// The manager does not take a page back.
    Misuse(Misuse),
}

impl Pool {
    const fn new(order: Order) -> Pool {
        Pool { order, kept: Vec::new() }
    }
    fn len(&self) -> u64 {
        self.kept.len() as u64
    }

    /// Takes or gives back pages until there are `want`, as far as that goes.
    fn resize(&mut self, want: u64) -> Result<(), Short> {
        while self.len() > want
            && let Some(frame) = self.kept.pop()
        {
            manager().take_back(frame, self.order).map_err(Short::Misuse)?;
        }
        while self.len() < want {
            let no_list = |_| Short::NoBlock(NoBlock { order: Order::BASE });
            self.kept.try_reserve(1).map_err(no_list)?;
            self.kept.push(manager().lend(self.order).map_err(Short::NoBlock)?);
        }
        if self.kept.is_empty() {
            self.kept = Vec::new(); // the list's memory too
        }
        Ok(())
    }
}

impl Pools {
    pub(super) const fn new() -> Pools {
        Pools([Pool::new(Order::MEGA), Pool::new(Order::GIGA)])
    }

    /// The lines of `meminfo`, which are those of 2 MiB. Nobody maps or reserves kept pages yet.
    pub(super) fn meminfo(&self) {
        let kept = self.0[0].len();
        for (name, pages) in [
            ("HugePages_Total:", kept),
            ("HugePages_Free:", kept),
            ("HugePages_Rsvd:", 0),
            ("HugePages_Surp:", 0),
        ] {
            say!("{name:<19}{pages:>5}");
        }
    }

    /// Pages in all pools.
    pub(super) fn pages(&self) -> Pages {
        Pages::new(self.0.iter().map(|pool| pool.len() * pool.order.pages().get()).sum())
    }

    /// Gives all pages back.
    pub(super) fn release(&mut self) -> Result<(), Misuse> {
        for pool in &mut self.0 {
            match pool.resize(0) {
                Err(Short::Misuse(misuse)) => return Err(misuse),
                Ok(()) | Err(Short::NoBlock(_)) => {}
            }
        }
        Ok(())
    }

    fn show(&self) {
        for Pool { order, kept } in &self.0 {
            say!(
                "hugepages-{} nr_hugepages {} free_hugepages {} resv_hugepages 0 surplus_hugepages 0",
                super::thp::Kilobytes(*order),
                kept.len(),
                kept.len()
            );
        }
    }
}

/// `hugepages`.
pub(super) fn hugepages<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let Some(size) = words.next() else {
        shell.pools.show();
        return Ok(());
    };
    let bytes = super::words::size(size)?;
    let has = |pool: &&mut Pool| pool.order.bytes() == bytes;
    let pool = shell.pools.0.iter_mut().find(has).ok_or(Complaint::Unknown(size, "2m, 1g"))?;
    let want = count(words.need("COUNT")?)?;
    words.end()?;
    let done = pool.resize(want);
    let (kept, bytes) = (pool.len(), Bytes::new(pool.len() * bytes.get()));
    match done {
        Ok(()) => say!("{size}: {kept} pages are kept, {bytes}"),
        Err(Short::NoBlock(none)) => {
            say!("{size}: {kept} of {want} pages are kept, {bytes}: {none}")
        }
        Err(Short::Misuse(misuse)) => say!("{size}: {kept} pages are kept, {bytes}: {misuse}"),
    }
    Ok(())
}
