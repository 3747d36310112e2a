//! Recounting from the bottom: every counter and reference against what tables and descriptors say.
#![cfg(feature = "verify")]

use super::Manager;
use crate::folio::Disagreement;
use crate::frame::{Flag, Kind, References};
use crate::pool::{PoolAudit, SIZES};
use crate::space::{self, Area, Flags, ObjectId, SpaceId, user_half};
use crate::split;
use crate::stock::{Event, SizeEvent};
use crate::sync::Ordering;
use crate::table::{Attrs, Entry, Found, Paging};
use crate::vmap::VmapAudit;
use core::fmt;
use foliant_machine::Machine;
use foliant_units::{Bytes, Frame, Level, Order, Pa, Pages, Va};

/// What a recount found, where everything agrees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Audit {
    /// Entries that name folios, in base pages, in all spaces.
    pub mapped: Pages,
    /// Pages in anonymous folios.
    pub anonymous: Pages,
    /// Pages of kernel memory in areas that are in use.
    pub kernel: Pages,
    /// Folios alive.
    pub folios: u64,
    /// Frames that are tables, the kernel's and those of all spaces.
    pub tables: Pages,
    /// Frames that are records, descriptors included.
    pub records: Pages,
}

impl Audit {
    fn count(&mut self, tables: u64, records: u64) {
        self.tables = Pages::new(self.tables.get() + tables);
        self.records = Pages::new(self.records.get() + records);
    }
}

/// The first disagreement that a recount found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuditError {
    /// The allocator's own counters.
    Allocator(Disagreement),
    /// A space counts other pages than its entries name.
    Pages {
        /// The space.
        space: SpaceId,
        /// What it counts.
        stated: Pages,
        /// What its entries name.
        counted: Pages,
    },
    /// A space is charged for other tables and records than it has.
    Records {
        /// The space.
        space: SpaceId,
        /// What it is charged for.
        stated: Pages,
        /// What it has.
        counted: Pages,
    },
    /// A space keeps another number of tables than it has large leaves that can be split.
    Deposits {
        /// The space.
        space: SpaceId,
        /// Tables that it keeps.
        kept: u64,
        /// Its large leaves, but for those of pools.
        leaves: u64,
    },
    /// The charge of a limited space is not its pages and records together.
    Charge {
        /// The space.
        space: SpaceId,
        /// What it is charged.
        stated: Pages,
        /// Its pages, but for those of pools, and its records.
        counted: Pages,
    },
    /// A space is charged more than its limit.
    OverLimit {
        /// The space.
        space: SpaceId,
        /// What it is charged.
        stated: Pages,
        /// Its limit.
        limit: Pages,
    },
    /// All folios together have other references than there are entries.
    References {
        /// What the descriptors say.
        stated: u64,
        /// What the entries name.
        counted: u64,
    },
    /// A counter of folios alive.
    Alive {
        /// The size.
        order: Order,
        /// Which counter.
        event: SizeEvent,
        /// What it says.
        stated: u64,
        /// What the descriptors say.
        counted: u64,
    },
    /// Kernel ranges.
    Vmap(VmapAudit),
    /// Pages of kernel memory.
    KernelPages {
        /// What the counter says.
        stated: u64,
        /// What the descriptors say.
        counted: u64,
    },
    /// The reverse map leads to other entries than the folio counts.
    Mapped {
        /// The folio.
        head: Frame,
        /// What it counts.
        stated: u64,
        /// What the walk finds.
        found: u64,
    },
    /// A folio is there that nobody keeps.
    Nobody(Frame),
    /// A folio is on a list of those that wait to be split and should not be, or the list is not
    /// what it says.
    Waiting(Frame),
    /// A folio has lost a page and does not wait to be split.
    Forgotten(Frame),
    /// Other folios say that they wait to be split than the lists have.
    Deferred {
        /// On the lists.
        listed: u64,
        /// By their descriptors.
        counted: u64,
    },
    /// A guess says that none of its pages is idle, or more than came unasked for; or it is on no
    /// list.
    Guess {
        /// The folio.
        head: Frame,
        /// What it says.
        idle: u64,
    },
    /// Other pages are counted as idle than guesses say that they have.
    Idle {
        /// What is counted.
        stated: u64,
        /// What guesses say.
        counted: u64,
    },
    /// An attachment has other pages than areas have of it, or an object other attachments than it
    /// counts.
    Attachments {
        /// The space, or that of the object.
        space: SpaceId,
        /// Attachments that are on the object's list.
        kept: u64,
        /// Those that it counts.
        counted: u64,
    },
    /// An entry names a frame that is in no folio.
    Stray(Frame),
    /// A group of entries is not whole, its entries differ, or they map more than one folio.
    Group {
        /// The space.
        space: SpaceId,
        /// The first address at which it is not as it should be.
        va: Va,
    },
    /// An entry is where no area is, has other rights than its area (but for one that is not to be
    /// written yet), or reaches over areas of different rights.
    Rights {
        /// The space.
        space: SpaceId,
        /// The entry's first address.
        va: Va,
    },
    /// A page on a list of a pool is not what it should be.
    Listed(Frame),
    /// A pool counts other pages than there are.
    Pool {
        /// The size.
        order: Order,
        /// What it says.
        pool: PoolAudit,
        /// Huge pages without references, broken ones included.
        idle: u64,
        /// Huge pages with references.
        used: u64,
    },
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuditError::Allocator(disagreement) => write!(f, "{disagreement:?}"),
            AuditError::Pages { space, stated, counted } => write!(
                f,
                "{space:?} counts {} pages, its entries name {}",
                stated.get(),
                counted.get()
            ),
            AuditError::Records { space, stated, counted } => write!(
                f,
                "{space:?} is charged for {} tables and records, it has {}",
                stated.get(),
                counted.get()
            ),
            AuditError::Deposits { space, kept, leaves } => {
                write!(f, "{space:?} keeps {kept} tables for the splits of {leaves} leaves")
            }
            AuditError::Charge { space, stated, counted } => write!(
                f,
                "{space:?} is charged {} pages, its pages and records are {}",
                stated.get(),
                counted.get()
            ),
            AuditError::OverLimit { space, stated, limit } => write!(
                f,
                "{space:?} is charged {} pages, its limit is {}",
                stated.get(),
                limit.get()
            ),
            AuditError::References { stated, counted } => {
                write!(f, "folios have {stated} references, entries name {counted}")
            }
            AuditError::Alive { order, event, stated, counted } => {
                write!(f, "{} of order {order} says {stated}, {counted} are there", event.label())
            }
            AuditError::Listed(head) => {
                write!(
                    f,
                    "the page at {head} is on a list of a pool and should not be, or the list is longer than it says"
                )
            }
            AuditError::Pool { order, pool, idle, used } => {
                write!(
                    f,
                    "the pool of {} says {pool:?}; {idle} pages are idle, {used} in use",
                    order.bytes()
                )
            }
            AuditError::Vmap(audit) => write!(f, "kernel ranges do not agree: {audit:?}"),
            AuditError::KernelPages { stated, counted } => {
                write!(f, "{stated} pages of kernel memory are counted, {counted} are there")
            }
            AuditError::Mapped { head, stated, found } => {
                write!(
                    f,
                    "the folio at {head} counts {stated} entries, the reverse map finds {found}"
                )
            }
            AuditError::Nobody(head) => {
                write!(f, "nobody keeps the folio at {head}, and it is there")
            }
            AuditError::Waiting(head) => {
                write!(f, "the folio at {head} is on a list of those to be split, wrongly linked")
            }
            AuditError::Forgotten(head) => {
                write!(
                    f,
                    "the folio at {head} has lost a page and is on no list of those to be split"
                )
            }
            AuditError::Deferred { listed, counted } => {
                write!(f, "{listed} folios are listed to be split, {counted} say that they are")
            }
            AuditError::Guess { head, idle } => {
                write!(f, "the guess at {head} says that {idle} of its pages are idle")
            }
            AuditError::Idle { stated, counted } => {
                write!(f, "{stated} pages are counted as idle, guesses have {counted}")
            }
            AuditError::Attachments { space, kept, counted } => {
                write!(
                    f,
                    "attachments of {space:?} disagree with areas, or with the object: {kept} are listed, {counted} counted"
                )
            }
            AuditError::Stray(frame) => write!(f, "an entry names {frame}, which is in no folio"),
            AuditError::Group { space, va } => {
                write!(f, "the group of entries at {va} of {space:?} is not whole")
            }
            AuditError::Rights { space, va } => {
                write!(f, "the entry at {va} of {space:?} does not have the rights of its area")
            }
        }
    }
}
impl core::error::Error for AuditError {}

/// What the entries of a space come to.
#[derive(Default)]
struct Counted {
    /// Pages of folios that they name.
    pages: u64,
    /// Of these, huge pages of a pool.
    pooled: u64,
    /// Large leaves of folios and of shared zeros, which can be split.
    leaves: u64,
}

impl<M: Machine, P: Paging> Manager<'_, M, P> {
    /// All spaces that live. Nobody is at work.
    pub fn spaces(&self) -> impl Iterator<Item = SpaceId> {
        self.found().filter(|id| !id.is_object())
    }
    /// All objects that have their names. Nobody is at work.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        let named = |id: SpaceId| ObjectId::from_parts(id.frame(), id.stamp());
        self.object_spaces().map(named).filter(|id| id.pin(&self.stock).is_some())
    }
    fn object_spaces(&self) -> impl Iterator<Item = SpaceId> {
        self.found().filter(|id| id.is_object())
    }
    /// All spaces, those of objects as well.
    fn found(&self) -> impl Iterator<Item = SpaceId> {
        let found = |frame| SpaceId::found(&self.stock, frame);
        self.stock.described().filter_map(found)
    }
    /// Recounts everything. `spaces` names all living spaces, and nobody is at work.
    pub fn audit(&self, spaces: &[SpaceId]) -> Result<Audit, AuditError> {
        self.vmap().collect(); // pages on their way back have a reference that no entry has
        self.stock.folios.validate().map_err(AuditError::Allocator)?;
        let mut audit = Audit::default();
        let mut entries = 0;
        for id in spaces.iter().copied().chain(self.object_spaces()) {
            let Counted { pages, pooled, leaves } = self.count_entries(id)?;
            let (stated, counted) = (self.pages(id).unwrap_or_default(), Pages::new(pages));
            if stated != counted {
                return Err(AuditError::Pages { space: id, stated, counted });
            }
            entries += pages;
            self.count_records(id, Pages::new(pages - pooled), leaves)?;
            self.count_attachments(id)?;
            if id.is_object() {
                self.count_own(id, &mut audit);
            }
        }
        self.count_kernel(&mut audit);
        self.count_spaces(spaces, &mut audit);
        audit.mapped = Pages::new(entries);
        let kernel = self.vmap().audit();
        if !kernel.agrees() {
            return Err(AuditError::Vmap(kernel));
        }
        audit.kernel = Pages::new(kernel.pages);
        audit.count(0, kernel.frames.unwrap_or_default());
        let entries = entries + kernel.entries;
        let references = self.count_folios(&mut audit)?;
        if references != entries {
            return Err(AuditError::References { stated: references, counted: entries });
        }
        Ok(audit)
    }

    /// Compares what a space is charged for with what it has; `pages` are those that it pays for,
    /// `leaves` the large ones that can be split.
    fn count_records(&self, id: SpaceId, pages: Pages, leaves: u64) -> Result<(), AuditError> {
        let Some(space) = id.pin(&self.stock) else { return Ok(()) };
        let own = space.recount_own(&self.stock);
        if own.deposits != leaves {
            return Err(AuditError::Deposits { space: id, kept: own.deposits, leaves });
        }
        // Its fork tree's record, which may be an ended space's, counts too.
        let keeps = u64::from(own.tree.is_some());
        let counted = Pages::new(own.tables.get() + own.records.get() + keeps);
        let stated = space.charge.records();
        if stated != counted {
            return Err(AuditError::Records { space: id, stated, counted });
        }
        let counted = Pages::new(pages.get() + counted.get());
        let Some(stated) = space.charge.used() else { return Ok(()) };
        if stated != counted {
            return Err(AuditError::Charge { space: id, stated, counted });
        }
        match space.charge.limit() {
            Some(limit) if stated > limit => {
                Err(AuditError::OverLimit { space: id, stated, limit })
            }
            _ => Ok(()),
        }
    }

    /// Compares the attachments of a space with its areas, and those of an object with how many say
    /// that they keep it.
    fn count_attachments(&self, id: SpaceId) -> Result<(), AuditError> {
        let Some(space) = id.pin(&self.stock) else { return Ok(()) };
        let attachments = || space.member.attachments.each(&self.stock);
        let all = || space.areas.overlapping(self.stock.machine, user_half::<P>());
        let has = |name| {
            all()
                .filter(move |area| area.attachment() == Some(name))
                .map(|area| area.range.pages().get())
        };
        let agrees = attachments().all(|attached| {
            attached.pages() > 0 && has(attached.name()).sum::<u64>() == attached.pages()
        });
        let known = |area: Area| {
            area.attachment()
                .is_none_or(|name| attachments().any(|attached| attached.name() == name))
        };
        let mut kept = 0;
        let mut at = space.member.first_attachment(&self.stock);
        while let Some(pin) = at {
            kept += 1;
            at = pin.behind(&self.stock);
        }
        if agrees && all().all(known) && kept == space.attachments_counted() {
            return Ok(());
        }
        Err(AuditError::Attachments { space: id, kept, counted: space.attachments_counted() })
    }

    /// Counts the kernel's tables and records, but for those of its ranges.
    fn count_kernel(&self, audit: &mut Audit) {
        let tables = self.own.map(|range| self.stock.kernel.count(range).get());
        let records = self.homes.load(Ordering::Relaxed) + self.stock.loan_pages();
        let described = self.memmap().census().frames.get();
        audit.count(1 + tables.iter().sum::<u64>(), records + described);
    }

    /// Counts the tables and records of a space, and says what its fork tree's record is.
    fn count_own(&self, id: SpaceId, audit: &mut Audit) -> Option<Frame> {
        let own = id.pin(&self.stock)?.recount_own(&self.stock);
        audit.count(own.tables.get(), own.records.get());
        own.tree
    }

    /// Counts tables and records of spaces that are no object's.
    fn count_spaces(&self, spaces: &[SpaceId], audit: &mut Audit) {
        let tree = |id: &SpaceId| id.pin(&self.stock)?.recount_own(&self.stock).tree;
        for (nth, id) in spaces.iter().enumerate() {
            let Some(home) = self.count_own(*id, audit) else { continue };
            // The record of a founder that ended belongs to the spaces that are left of its fork
            // tree. It is counted with the first of them.
            let is_counted = spaces.iter().any(|id| id.frame() == home)
                || spaces[..nth].iter().any(|id| tree(id) == Some(home));
            audit.count(0, u64::from(!is_counted));
        }
    }

    /// Counts what the entries of a space name.
    fn count_entries(&self, id: SpaceId) -> Result<Counted, AuditError> {
        let leaves = self.with_leaves(id, user_half::<P>(), |leaves| {
            let (mut counted, mut area, mut next) = (Counted::default(), None, None);
            for leaf in leaves {
                next =
                    self.in_group(&leaf, next).map_err(|va| AuditError::Group { space: id, va })?;
                let Entry::Leaf { pa, attrs } = leaf.entry else { continue };
                if !self.has_rights_of_areas(id, (leaf.va, leaf.level, attrs), &mut area) {
                    return Err(AuditError::Rights { space: id, va: leaf.va });
                }
                let is_large = u64::from(leaf.level > Level::BASE);
                if attrs.has(Attrs::SPECIAL) {
                    counted.leaves += is_large;
                    continue;
                }
                let kind = self.stock.identity(pa.frame()).kind();
                if matches!(kind, Kind::Plain | Kind::Space) {
                    return Err(AuditError::Stray(pa.frame()));
                }
                let covered = leaf.level.order().unwrap_or_default().pages().get();
                counted.pages += covered;
                match kind {
                    Kind::Huge => counted.pooled += covered,
                    _ => counted.leaves += is_large,
                }
            }
            match next {
                Some((va, ..)) => Err(AuditError::Group { space: id, va }),
                None => Ok(counted),
            }
        });
        leaves.unwrap_or(Ok(Default::default()))
    }

    /// What is to come behind `leaf` in its group, if there is more of it, where `next` is what is
    /// to come in the group of the one before (table::I11, space::S10). Gives the address where
    /// that is not so.
    fn in_group(
        &self,
        leaf: &Found,
        next: Option<(Va, Pa, Attrs)>,
    ) -> Result<Option<(Va, Pa, Attrs)>, Va> {
        let (level, span) = (leaf.level, leaf.level.span().get());
        let (pa, attrs) = match leaf.entry {
            Entry::Leaf { pa, attrs } => (pa, attrs.without(Attrs::TOUCHED)),
            _ => (Pa::new(0), Attrs::NONE),
        };
        let bytes = Bytes::new(span * P::unit(level, attrs) as u64);
        match next {
            Some((va, ..)) if next != Some((leaf.va, pa, attrs)) => return Err(va),
            Some(_) => {}
            None if bytes.get() == span => return Ok(None),
            None => {
                let identity = self.stock.identity(pa.frame());
                let is_whole = identity.order().bytes() >= bytes && pa.is_aligned(bytes);
                if !is_whole || !leaf.va.is_aligned(bytes) {
                    return Err(leaf.va);
                }
            }
        }
        let behind = leaf.va.add(span);
        Ok((!behind.is_aligned(bytes)).then_some((behind, pa.add(span), attrs)))
    }

    /// Whether a leaf lies in areas that all have the same rights, and has those, but that it may
    /// forbid writes which they allow (space::S9), as one does that is not soft dirty (space::S11)
    /// or is watched (space::S12). `area` is the one of the leaf before.
    fn has_rights_of_areas(
        &self,
        id: SpaceId,
        (va, level, attrs): (Va, Level, Attrs),
        area: &mut Option<Area>,
    ) -> bool {
        let shown = attrs.and(Attrs::USER | Attrs::EXEC);
        let (mut at, end) = (va, va.add(level.span().get()));
        let mut rights = None;
        if attrs.has(Attrs::WRITE) && !attrs.has(Attrs::SOFT_DIRTY.and(P::KEEPS)) {
            return false;
        }
        let watched = attrs.has(Attrs::UFFD_WP);
        if watched && attrs.has(Attrs::WRITE) {
            return false; // space::S12
        }
        while at < end {
            let known = area.filter(|area| area.range.contains(at));
            *area = known.or_else(|| self.area(id, at));
            let Some(here) = *area else { return false };
            let flags = here.flags.and(Flags::RIGHTS);
            let is_excess = attrs.has(Attrs::WRITE) && !flags.has(Flags::WRITE);
            let is_excess = is_excess || watched && !here.flags.has(Flags::USERFAULT_WRITE);
            if *rights.get_or_insert(flags) != flags || space::attrs(flags) != shown || is_excess {
                return false;
            }
            at = here.range.end();
        }
        true
    }

    /// Compares a pool with the heads of huge pages that are idle and in use.
    fn count_pool(&self, order: Order, idle: u64, used: u64) -> Result<(), AuditError> {
        let pool = self.pools().audit(order).map_err(AuditError::Listed)?;
        let stated = pool.stated;
        let free = (idle + pool.taken_apart).checked_sub(stated.broken);
        let nobody =
            pool.held == 0 && stated.resv_hugepages <= stated.free_hugepages + stated.broken;
        let agrees = free == Some(stated.free_hugepages)
            && pool.listed == stated.free_hugepages
            && stated.nr_hugepages == stated.free_hugepages + used
            && stated.surplus_hugepages <= stated.nr_hugepages;
        if agrees && nobody {
            return Ok(());
        }
        Err(AuditError::Pool { order, pool, idle, used })
    }

    /// Counts folios by their descriptors, compares the counters, and returns the sum of
    /// references.
    fn count_folios(&self, audit: &mut Audit) -> Result<u64, AuditError> {
        let mut alive = [[0u64; 2]; Order::COUNT];
        let mut references = 0;
        let mut huge = [[0u64; 2]; 2];
        let (mut kernel, mut deferred, mut idle) = (0, 0, 0);
        for frame in self.stock.described() {
            let identity = self.stock.identity(frame);
            if identity.kind() == Kind::Huge {
                let counts = self.stock.counts(frame); // of anchors too
                let row = &mut huge[usize::from(identity.order() == Order::SIZE_1G)];
                row[usize::from(counts != References::NONE)] += 1;
                references += counts.entries();
            }
            if identity.kind() == Kind::Kernel {
                kernel += 1;
                references += self.stock.references(frame);
            }
            let is_lost =
                identity.has(Flag::Poisoned) && self.stock.counts(frame) == References::NONE;
            if identity.kind() == Kind::Anon && !is_lost {
                alive[identity.order().index()][0] += 1;
                alive[identity.order().index()][1] += identity.has(Flag::PartlyMapped) as u64;
                let stated = self.stock.counts(frame).entries();
                let order = identity.order();
                let found = split::mappings(&self.stock, frame, order).entries(order);
                if stated != found {
                    return Err(AuditError::Mapped { head: frame, stated, found });
                }
                if self.stock.counts(frame) == References::NONE {
                    return Err(AuditError::Nobody(frame));
                }
                let is_partial = identity.has(Flag::PartlyMapped) && order.get() >= 2;
                if is_partial && !identity.has(Flag::Deferred) && !identity.has(Flag::Poisoned) {
                    return Err(AuditError::Forgotten(frame));
                }
                references += stated;
                idle += self
                    .stock
                    .recount_guess(frame)
                    .map_err(|guess| AuditError::Guess { head: frame, idle: guess.idle })?;
                deferred += identity.has(Flag::Deferred) as u64;
                audit.folios += 1;
                let pages = audit.anonymous.get() + identity.order().pages().get();
                audit.anonymous = Pages::new(pages);
            }
        }
        let stated = self.total(Event::VmallocPages);
        if stated != kernel {
            return Err(AuditError::KernelPages { stated, counted: kernel });
        }
        let listed = self.stock.recount_deferred().map_err(AuditError::Waiting)?;
        if (listed, listed) != (deferred, self.stock.deferred()) {
            return Err(AuditError::Deferred { listed, counted: deferred });
        }
        let stated = self.stock.idle_by_lists();
        if stated != idle {
            return Err(AuditError::Idle { stated, counted: idle });
        }
        for (order, [idle, used]) in SIZES.into_iter().zip(huge) {
            self.count_pool(order, idle, used)?;
        }
        for order in Order::all().take(Order::SIZE_2M.index() + 1) {
            for (n, event) in
                [SizeEvent::NrAnon, SizeEvent::NrAnonPartiallyMapped].into_iter().enumerate()
            {
                let (stated, counted) =
                    (self.size_stats(order).get(event), alive[order.index()][n]);
                if stated != counted {
                    return Err(AuditError::Alive { order, event, stated, counted });
                }
            }
        }
        Ok(references)
    }
}
