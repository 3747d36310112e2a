//! The contract's [`Tlb`]: ask, serve, wait.
//!
//! | the CPU has | `ask` | `wait` |
//! |---|---|---|
//! | INVLPGB | broadcasts | TLBSYNC on the CPU that asked |
//! | not | posts a request, interrupts | serves others until nobody is left |
//!
//! **Invariants**
//! - X1. A request is taken and carried out with interrupts off. Otherwise the code that serves could be
//!   moved to another CPU between taking a request for this one and ending translations here; and whoever
//!   waits would wait for everything that an interrupt's handler does.
//! - X2. A post and its interrupts are one stretch with interrupts off. Another CPU relies on an interrupt
//!   that this one owes (`mailbox` B4); a handler that came between the two, asked the same target and
//!   waited would rely on its own, which is not sent before it returns.
//!
//! **Not here**: what an invalidation means (`steps`, `broadcast`).
#![allow(unsafe_code)]

use crate::broadcast;
use crate::control;
use crate::mailbox::{self, Asked};
use crate::steps::{CEILING_ENTRIES, Steps, pages, steps};
use crate::tags::{Tagging, Tags};
use crate::{Host, X86};
use foliant_machine::{
    Accessed, Cpus, Invalidation, Kept, MmuRules, Replace, Root, Scope, Ticket, Tlb,
};
use foliant_units::{Cpu, CpuSet, Pages};

impl<H: Host> X86<'_, H> {
    /// Carries out what other CPUs ask of this one. The handler of the settings' vector calls it, and then
    /// signals the end of the interrupt.
    pub fn serve(&self) {
        let work = || {
            mailbox::serve(self.lines(), self.host().me(), |what| {
                self.here(what);
                // Where there are broadcasts, a request says: see to it that yours are complete.
                if self.settings().features.invlpgb.is_some() {
                    // SAFETY: ring 0, by `online`, and the CPU has the instruction.
                    unsafe { control::sync_broadcast() };
                }
            });
        };
        // SAFETY: ring 0, by `online`.
        unsafe { control::quiet(work) };
    }

    /// Serves if there is something to do: cheap in a spin loop, for it leaves the interrupt flag alone.
    pub(crate) fn poll(&self) {
        if mailbox::has_mail(self.lines(), self.host().me()) {
            self.serve();
        }
    }

    /// Carries out `what` on this CPU. With interrupts off.
    fn here(&self, what: &Invalidation) {
        let features = &self.settings().features;
        // SAFETY: ring 0, by `online`.
        let loaded = unsafe { control::loaded() };
        match steps(what, loaded, features.tagging()) {
            Steps::Nothing => (),
            Steps::Outdate(root) => self.tags().outdate(root),
            // SAFETY: ring 0, by `online`.
            Steps::Pages => pages(what).for_each(|va| unsafe { control::end_page(va) }),
            // SAFETY: ring 0, by `online`.
            Steps::Nonglobal => unsafe { control::end_nonglobal() },
            // SAFETY: ring 0, by `online`, and interrupts are off.
            Steps::Everything => unsafe { control::end_all(features) },
        }
    }

    /// The tags of this CPU. With interrupts off.
    fn tags(&self) -> &Tags {
        &self.lines()[self.host().me().index()].tags
    }

    /// Posts a request and interrupts those who must be (X2). With interrupts off; `None` where no slot is
    /// free.
    fn post(&self, cpus: &CpuSet, what: &Invalidation) -> Option<Asked> {
        let posted = mailbox::post(self.lines(), self.host().me(), cpus, what)?;
        self.interrupt(&posted.interrupt);
        Some(posted.asked)
    }

    /// Interrupts `cpus`: one command where that is everybody else.
    fn interrupt(&self, cpus: &CpuSet) {
        let settings = self.settings();
        if cpus.len() > 1 && cpus.len() + 1 == settings.apic_ids.len() {
            // SAFETY: `online`'s caller lists every CPU that takes interrupts, with a handler each.
            return unsafe { settings.apic.send_others(settings.vector) };
        }
        for cpu in cpus.iter() {
            // SAFETY: as above.
            unsafe { settings.apic.send(settings.apic_ids[cpu.index()], settings.vector) };
        }
    }

    /// Tries `post`, which needs a slot, with interrupts off until it gets one.
    fn insist(&self, post: impl Fn() -> Option<Asked>) -> Asked {
        loop {
            // SAFETY: ring 0, by `online`.
            if let Some(asked) = unsafe { control::quiet(&post) } {
                return asked;
            }
            // Those who hold our slots may be waiting for us.
            self.relax();
        }
    }

    fn await_done(&self, asked: Asked) {
        while !mailbox::is_done(self.lines(), asked) {
            self.relax();
        }
    }

    fn broadcast(&self, what: &Invalidation, max: Pages) -> Asked {
        let send = || {
            // SAFETY: ring 0, by `online`, interrupts off, and the CPU has the instruction.
            unsafe { control::broadcast(broadcast::operations(what, max)) };
            Asked::Broadcast { cpu: self.host().me() }
        };
        // SAFETY: ring 0, by `online`.
        unsafe { control::quiet(send) }
    }

    /// Returns when the broadcasts of `cpu` are complete. Only that CPU can tell: if we were moved away
    /// from it, it is asked to look. Where we are is found out and used in one stretch (X1).
    fn await_broadcast(&self, cpu: Cpu) {
        let mut one = CpuSet::EMPTY;
        one.insert(cpu);
        let asked = self.insist(|| {
            if self.host().me() == cpu {
                // SAFETY: ring 0, by `online`; there is a broadcast, so the CPU has the instruction.
                unsafe { control::sync_broadcast() };
                return Some(Asked::Nobody);
            }
            self.post(&one, &Invalidation::none(Scope::Kernel))
        });
        self.await_done(asked);
    }
}

impl<H: Host> Tlb for X86<'_, H> {
    fn activate(&self, root: Root, kept: Kept) {
        let load = || {
            let cr3 = match self.settings().features.tagging() {
                Tagging::Off => root.user.get(),
                Tagging::On => self.tags().activate(root.user, kept),
            };
            // SAFETY: ring 0, by `online`; the contract's caller names a root whose kernel half is the kernel's.
            unsafe { control::load(cr3) };
        };
        // SAFETY: ring 0, by `online`. No request is taken between the table of tags and the load (`tags`).
        unsafe { control::quiet(load) };
    }

    fn invalidate(&self, what: &Invalidation) {
        // SAFETY: ring 0, by `online`.
        unsafe { control::quiet(|| self.here(what)) };
    }

    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket {
        let others = cpus.iter().any(|cpu| cpu.index() < self.count() && cpu != self.me());
        let asked = match self.settings().features.invlpgb {
            _ if !others || what.is_empty() => Asked::Nobody,
            Some(max) => self.broadcast(what, max),
            None => self.insist(|| self.post(cpus, what)),
        };
        asked.ticket()
    }

    fn wait(&self, ticket: Ticket) {
        match Asked::of(&ticket) {
            Asked::Broadcast { cpu } => self.await_broadcast(cpu),
            asked => self.await_done(asked),
        }
    }

    fn rules(&self) -> MmuRules {
        MmuRules {
            replace: Replace::InPlace,
            // Intel SDM 3A, 4.10.2.2: a processor caches a translation only if the accessed flags of all
            // entries on the way are set, and sets them first.
            accessed: Accessed::SetBeforeCached,
            ceiling_entries: CEILING_ENTRIES as u32,
        }
    }
}
