//! Invalidations: here, asked for elsewhere, carried out late, waited for.
//!
//! A request lies in its target's mailbox until the target takes it at a contract call that chance
//! picks, until the target spins, yields or waits, or until a wait for it carries it out in the
//! target's stead. Either CPU holds the target's core lock while it does so, so no access of the
//! target is half done then (machine::M3).
//!
//! **Not here**: interrupts off. A target can always be served between two contract calls.

use crate::Sim;
use crate::cache::Cached;
use crate::check::{CpuBits, Event, What};
use crate::config::{Format, Geometry, Tags};
use crate::cost::Work;
use crate::cpu::{Core, CpuState};
use core::sync::atomic::Ordering;
use foliant_machine::{Invalidation, Kept, MmuRules, Reach, Root, Ticket, Tlb};
use foliant_units::{CPUS_MAX, Cpu, CpuSet};
use std::sync::Arc;

/// How many entries an invalidation names.
fn entries(what: &Invalidation) -> u64 {
    what.items().iter().map(|item| item.entries()).sum()
}

impl Sim {
    /// Carries out all requests that wait in the mailbox of `cpu`.
    pub(crate) fn serve(&self, cpu: Cpu, state: &CpuState) {
        let mut core = state.core.lock();
        let requests = {
            let mut mailbox = state.mailbox.lock();
            state.waiting.store(0, Ordering::Release);
            core::mem::take(&mut mailbox.requests)
        };
        for what in requests {
            state.counters.requests_served.one();
            state.charge(self.prices.picos(Work::InterruptTaken, 1));
            self.carry_out((cpu, state), &mut core, &what);
        }
    }

    /// Serves a CPU that has nothing cached, where CPUs are threads and no checker watches. It
    /// makes no difference when that happens: the caches stay empty until the CPU walks, and the
    /// walk finds what is there then.
    fn serve_at_once(&self, state: &CpuState, what: &Invalidation) -> bool {
        if self.baton.is_some() || self.watch.is_some() || !state.core.lock().caches.is_empty() {
            return false;
        }
        state.counters.requests_served.one();
        let work = match what.reach() {
            Reach::All => {
                state.counters.full_flushes.one();
                self.prices.picos(Work::FullFlush, 1)
            }
            _ => self.prices.picos(Work::InvalidateEntry, entries(what)),
        };
        state.charge(self.prices.picos(Work::InterruptTaken, 1) + work);
        true
    }

    fn carry_out(&self, (cpu, state): (Cpu, &CpuState), core: &mut Core, what: &Invalidation) {
        if what.reach() == Reach::All {
            state.counters.full_flushes.one();
            state.charge(self.prices.picos(Work::FullFlush, 1));
        } else {
            state.charge(self.prices.picos(Work::InvalidateEntry, entries(what)));
        }
        // aarch64 may be told the level of the leaf and then looks for that level only.
        let exact_level =
            self.config.format == Format::Aarch64 && self.config.geometry == Geometry::Keep;
        core.caches.invalidate(what, exact_level, &mut |entry| {
            self.tell(cpu, || Event::Dropped { entry: *entry });
        });
        self.tell(cpu, || Event::Invalidated { what: What(what) });
    }
}

impl Tlb for Sim {
    fn activate(&self, root: Root, kept: Kept) {
        let (cpu, state) = self.enter();
        let counters = &state.counters;
        counters.activations.one();
        if kept == Kept::Unchanged {
            counters.activations_kept.one();
        }
        state.charge(self.prices.picos(Work::Activate, 1));
        // Requests arrive on the way from one root to the other, too; here the way is made long.
        if self.baton.is_some() && state.core.lock().rng.once_in(2) {
            self.let_others(cpu, state);
        }
        let mut core = state.core.lock();
        core.root = Some(root);
        let ended = |entry: &Cached| match self.config.tags {
            Tags::Absent => true,
            Tags::Present => kept == Kept::Nothing && entry.tag == root.user,
        };
        core.caches.activate(root.user, ended, &mut |entry| {
            self.tell(cpu, || Event::Dropped { entry: *entry });
        });
        self.tell(cpu, || Event::Activated { root });
    }

    fn invalidate(&self, what: &Invalidation) {
        let (cpu, state) = self.enter();
        state.counters.invalidations.one();
        self.carry_out((cpu, state), &mut state.core.lock(), what);
    }

    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket {
        let (cpu, state) = self.enter();
        let mut targets = *cpus;
        targets.remove(cpu);
        let mut targets_left = targets;
        let count = targets.iter().filter(|cpu| cpu.index() < self.cpus.len()).count() as u64;
        if count > 0 {
            state.counters.shootdowns.one();
            state.counters.interrupts.add(count);
            state.charge(self.prices.picos(Work::InterruptSend, 1));
            state.charge(self.prices.picos(Work::InterruptTarget, count));
            let what = Arc::new(*what);
            let mut left = 0;
            for target in targets.iter() {
                if let Some(there) = self.cpus.get(target.index())
                    && self.serve_at_once(there, &what)
                {
                    targets_left.remove(target);
                } else if let Some(target) = self.cpus.get(target.index()) {
                    left += 1;
                    let mut mailbox = target.mailbox.lock();
                    mailbox.requests.push_back(Arc::clone(&what));
                    target.waiting.store(mailbox.requests.len() as u64, Ordering::Release);
                }
            }
            if left == 0 {
                // The wait finds no target left, and would not charge it.
                state.charge(self.prices.picos(Work::InterruptWait, 1));
            }
        }
        let number = {
            let mut mailbox = state.mailbox.lock();
            let number = mailbox.next * CPUS_MAX as u64 + cpu.index() as u64;
            mailbox.next += 1;
            mailbox.tickets.push((number, targets_left));
            number
        };
        self.tell(cpu, || Event::Asked { targets: CpuBits(targets), what: What(what), number });
        Ticket::new(number)
    }

    fn wait(&self, ticket: Ticket) {
        let (cpu, state) = self.enter();
        let number = ticket.number();
        let issuer = &self.cpus[(number % CPUS_MAX as u64) as usize % self.cpus.len()];
        let found = {
            let mut mailbox = issuer.mailbox.lock();
            let at = mailbox.tickets.iter().position(|(n, _)| *n == number);
            at.map(|at| mailbox.tickets.swap_remove(at).1)
        };
        let Some(targets) = found else { return };
        for (nth, target) in targets.iter().enumerate() {
            let Some(there) = self.cpus.get(target.index()) else { continue };
            if nth == 0 {
                state.charge(self.prices.picos(Work::InterruptWait, 1));
            }
            // The wait is a place where this CPU is interrupted too, and others may go on
            // meanwhile.
            if self.baton.is_some() && state.core.lock().rng.once_in(2) {
                self.let_others(cpu, state);
            }
            self.serve(target, there);
        }
        if state.waiting.load(Ordering::Acquire) > 0 {
            self.serve(cpu, state);
        }
        self.tell(cpu, || Event::Waited { number });
    }

    fn rules(&self) -> MmuRules {
        self.config.rules
    }
}
