//! The contract's [`Tlb`]: ask, serve, wait.
//!
//! | the CPU has | `ask` | `wait` |
//! |---|---|---|
//! | INVLPGB | broadcasts | TLBSYNC on the CPU that asked |
//! | not | posts a request, interrupts | serves others until no CPU is left |
//!
//! **Invariants**
//! - X1. A request is taken and carried out with interrupts off. Otherwise the code that serves
//!   could be moved to another CPU between taking a request for this one and ending translations
//!   here; and the CPU that waits would wait for everything that an interrupt's handler does.
//! - X2. A post and its interrupts are one stretch with interrupts off. Another CPU relies on an
//!   interrupt that this one owes (mailbox::B4); a handler that came between the two, asked the
//!   same target and waited would rely on the interrupt that its own CPU owes, which is not sent
//!   before the handler returns.
//!
//! **Not here**: what an invalidation means (`steps`, `broadcast`).
#![allow(unsafe_code)]

use crate::broadcast;
use crate::control;
use crate::mailbox::{self, Asked};
use crate::steps::{CEILING_ENTRIES, Steps, leaves, steps};
use crate::tags::{Tagging, Tags};
use crate::{Host, X86};
use foliant_machine::{
    Accessed, Cpus, Faults, Invalidation, Kept, MmuRules, Replace, Root, Scope, Ticket, Tlb,
};
use foliant_units::{Cpu, CpuSet, FRAME_BYTES, Pages};

impl<H: Host> X86<'_, H> {
    /// Carries out what other CPUs ask of this one. The handler of the settings' vector calls it,
    /// and then signals the end of the interrupt.
    pub fn serve(&self) {
        let work = || {
            mailbox::serve(self.lines(), self.host().me(), |what| {
                self.here(what);
                // Where there are broadcasts, a request asks the CPU to see that its own are
                // complete.
                if self.settings().features.invlpgb.is_some() {
                    // SAFETY: ring 0, by `online`, and the CPU has the instruction.
                    unsafe { control::sync_broadcast() };
                }
            });
        };
        // SAFETY: ring 0, by `online`.
        unsafe { control::quiet(work) };
    }

    /// Serves if there is something to do. It is cheap in a spin loop, because it leaves the
    /// interrupt flag alone where there is nothing.
    pub(crate) fn poll(&self) {
        if mailbox::has_mail(self.lines(), self.host().me()) {
            self.serve();
        }
    }

    /// Carries out `what` on this CPU. Interrupts are off.
    fn here(&self, what: &Invalidation) {
        let features = &self.settings().features;
        // SAFETY: ring 0, by `online`.
        let loaded = unsafe { control::loaded() };
        match steps(what, loaded, features.tagging()) {
            Steps::Nothing => (),
            Steps::Outdate(root) => self.tags().outdate(root),
            Steps::Pages => {
                for (first, count, span) in leaves(what) {
                    if span > FRAME_BYTES && features.invlpg_keeps_code {
                        return self.whole(what.scope());
                    }
                    // SAFETY: ring 0, by `online`.
                    (0..count).for_each(|n| unsafe { control::end_page(first.add(n * span)) });
                }
            }
            // SAFETY: ring 0, by `online`.
            Steps::Nonglobal => unsafe { control::end_nonglobal() },
            // SAFETY: ring 0, by `online`, and interrupts are off.
            Steps::Everything => unsafe { control::end_all(features) },
        }
    }

    /// Ends all of a scope that is loaded here. Interrupts are off.
    #[cold]
    fn whole(&self, scope: Scope) {
        match scope {
            // SAFETY: ring 0, by `online`.
            Scope::Space(_) => unsafe { control::end_nonglobal() },
            // SAFETY: ring 0, by `online`, and interrupts are off.
            Scope::Kernel => unsafe { control::end_all(&self.settings().features) },
        }
    }

    /// The tags of this CPU. Interrupts are off.
    fn tags(&self) -> &Tags {
        &self.lines()[self.host().me().index()].tags
    }

    /// Posts a request and interrupts the CPUs that must be interrupted (X2). Interrupts are off;
    /// `None` where no slot is free.
    fn post(&self, cpus: &CpuSet, what: &Invalidation) -> Option<Asked> {
        let posted = mailbox::post(self.lines(), self.host().me(), cpus, what)?;
        self.interrupt(&posted.interrupt, posted.interrupts);
        Some(posted.asked)
    }

    /// Interrupts `cpus`, so many: with one command where they are all the others.
    fn interrupt(&self, cpus: &CpuSet, count: usize) {
        let settings = self.settings();
        if count > 1 && count + 1 == settings.apic_ids.len() {
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
            // The CPUs that keep our slots from being free may be waiting for us.
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

    /// Returns when the broadcasts of `cpu` are complete. Only that CPU can tell: if we were moved
    /// away from it, it is asked to look. Which CPU we are on is found out and used in one stretch
    /// (X1).
    fn await_broadcast(&self, cpu: Cpu) {
        let mut one = CpuSet::EMPTY;
        one.insert(cpu);
        let asked = self.insist(|| {
            if self.host().me() == cpu {
                // SAFETY: ring 0, by `online`; there is a broadcast, so the CPU has the
                // instruction.
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
            // SAFETY: ring 0, by `online`; the contract's caller names a root whose kernel half is
            // the kernel's.
            unsafe { control::load(cr3) };
        };
        // SAFETY: ring 0, by `online`. No request is taken between the table of tags and the load
        // (`tags`).
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
            // Intel SDM 3A, 4.10.2.2: a processor caches a translation only if the accessed flags
            // of all entries on the way are set, and sets them first.
            accessed: Accessed::SetBeforeCached,
            // 4.10.4.1 there: a fault invalidates what is cached for the page under the tag in CR3.
            faults: Faults::EndTranslation,
            ceiling_entries: CEILING_ENTRIES as u32,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::privileged::Told::{self, *};
    use crate::privileged::{told, with};
    use crate::steps::tests::{item, list};
    use crate::{Apic, ApicId, Clear, ClearPlan, Features, Line, Settings, TscClock};
    use core::cell::Cell;
    use core::sync::atomic::{AtomicBool, Ordering};
    use core::time::Duration;
    use foliant_machine::{Clock, Tables};
    use foliant_units::{Level, Pa, Va};
    extern crate std;
    use std::{thread, vec::Vec};

    std::thread_local! {
        /// Which CPU the thread is.
        static ME: Cell<u16> = const { Cell::new(0) };
    }

    /// A kernel whose CPUs are threads, with their interrupts on.
    struct Threads;

    impl Host for Threads {
        fn me(&self) -> Cpu {
            Cpu(ME.get())
        }
        fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
            work(self.me())
        }
        fn yield_now(&self) {}
    }

    const VECTOR: u8 = 0xf0;
    const ROOT: Pa = Pa::new(0x5000);
    const SPACE: Scope = Scope::Space(ROOT);

    fn lines() -> Vec<Line> {
        (0..3).map(|_| Line::new()).collect()
    }
    /// Three CPUs; their controllers have other numbers than they have.
    fn machine(lines: &[Line], features: Features) -> X86<'_, Threads> {
        let settings = Settings {
            direct_map: Va::new(0),
            vector: VECTOR,
            apic: Apic::X2,
            apic_ids: &[ApicId(10), ApicId(11), ApicId(12)],
            clock: TscClock::new(1_000_000_000).unwrap(),
            clear: ClearPlan::only(Clear::StoreQ),
            features: Features { x2apic: true, ..features },
        };
        X86::new(Threads, settings, lines).unwrap()
    }
    /// Makes the thread this CPU from now on, which runs `ROOT` with its interrupts on.
    fn be(cpu: u16) {
        ME.set(cpu);
        with(|cpu| (cpu.cr3, cpu.interrupts) = (ROOT.get(), true));
        told();
    }
    fn set(cpus: &[u16]) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        cpus.iter().for_each(|cpu| set.insert(Cpu(*cpu)));
        set
    }
    fn page(va: u64) -> Invalidation {
        list(SPACE, &[item(va, 1, Level::BASE, Tables::Kept)])
    }
    /// What `work` does with interrupts off, as it is told.
    fn quietly(told: &[Told]) -> Vec<Told> {
        [&[InterruptsOff], told, &[InterruptsOn]].concat()
    }
    fn sent(apic_id: u64) -> Told {
        WriteMsr(0x830, apic_id << 32 | 0x4000 | u64::from(VECTOR))
    }

    #[test]
    fn only_those_who_are_asked_are_interrupted() {
        let lines = lines();
        let machine = machine(&lines, Features::BASELINE);
        be(0);
        let _ = machine.ask(&set(&[0, 2]), &page(0x7000));
        assert_eq!(told(), quietly(&[FullFence, sent(12)]));
        let _ = machine.ask(&set(&[0, 1]), &page(0x7000));
        assert_eq!(told(), quietly(&[FullFence, sent(11)]));
        be(1);
        let others = WriteMsr(0x830, 0xc_4000 | u64::from(VECTOR));
        let _ = machine.ask(&set(&[0, 1, 2]), &page(0x7000));
        assert_eq!(told(), quietly(&[FullFence, sent(10)]), "the interrupt of CPU 2 is under way");
        for cpu in [2, 0] {
            be(cpu);
            machine.serve();
        }
        be(1);
        let _ = machine.ask(&set(&[0, 2]), &page(0x7000));
        assert_eq!(told(), quietly(&[FullFence, others]), "one command for all others");
        for nobody in [set(&[]), set(&[1]), set(&[3, 63])] {
            machine.wait(machine.ask(&nobody, &page(0x7000)));
        }
        machine.wait(machine.ask(&set(&[0]), &Invalidation::none(SPACE)));
        assert_eq!(told(), []);
        let two = Settings { apic_ids: &[ApicId(10), ApicId(11)], ..*machine.settings() };
        let two_lines = self::lines();
        let two = X86::new(Threads, two, &two_lines).unwrap();
        be(0);
        let _ = two.ask(&set(&[1]), &page(0x7000));
        assert_eq!(told(), quietly(&[FullFence, sent(11)]), "one is named, whoever else listens");
    }

    #[test]
    fn a_wait_ends_when_it_is_carried_out() {
        let lines = lines();
        let machine = machine(&lines, Features::BASELINE);
        let served = AtomicBool::new(false);
        be(0);
        let ticket = machine.ask(&set(&[1]), &page(0x7000));
        thread::scope(|scope| {
            scope.spawn(|| {
                be(1);
                thread::sleep(Duration::from_millis(30));
                served.store(true, Ordering::Release);
                machine.relax(); // a CPU that spins serves
                assert_eq!(told(), quietly(&[Invlpg(Va::new(0x7000))]));
                machine.relax();
                assert_eq!(told(), [], "there is nothing more");
            });
            machine.wait(ticket);
            assert!(served.load(Ordering::Acquire));
        });
    }

    /// Long work and a wait for a slot answer what others ask, or two CPUs would wait for each
    /// other.
    #[test]
    fn who_yields_or_waits_for_a_slot_serves() {
        let lines = lines();
        let machine = machine(&lines, Features::BASELINE);
        let ask = || {
            be(1);
            let asked = machine.ask(&set(&[0]), &page(0x7000));
            be(0);
            asked
        };
        let carried_out = quietly(&[Invlpg(Va::new(0x7000))]);
        let asked = ask();
        machine.yield_now();
        assert_eq!(told(), carried_out);
        machine.wait(asked);
        let asked = ask();
        let tries = Cell::new(0);
        let third = || {
            tries.set(tries.get() + 1);
            (tries.get() == 3).then_some(Asked::Nobody)
        };
        machine.insist(third);
        let with_tries = [quietly(&[]), carried_out, quietly(&[]), quietly(&[])].concat();
        assert_eq!(told(), with_tries, "after the first try");
        machine.wait(asked);
    }

    #[test]
    fn what_is_asked_is_what_its_scope_means_here() {
        let lines = lines();
        let features = Features { pge: true, invpcid: true, ..Features::BASELINE };
        let plain = machine(&lines, features);
        be(0);
        let done = |what: &Invalidation| {
            plain.invalidate(what);
            told()
        };
        let two = list(SPACE, &[item(0x7000, 2, Level::BASE, Tables::Kept)]);
        assert_eq!(done(&two), quietly(&[Invlpg(Va::new(0x7000)), Invlpg(Va::new(0x8000))]));
        assert_eq!(done(&Invalidation::all(SPACE)), quietly(&[SetCr3(ROOT.get())]));
        assert_eq!(done(&Invalidation::all(Scope::Kernel)), quietly(&[InvpcidAll]));
        assert_eq!(done(&Invalidation::all(Scope::Space(Pa::new(0x9000)))), quietly(&[]));
    }

    #[test]
    fn code_of_a_large_page_goes_where_invlpg_keeps_it() {
        let lines = lines();
        let features = Features { pge: true, invpcid: true, ..Features::BASELINE };
        let emulated = Features { invlpg_keeps_code: true, ..features };
        be(0);
        let large = |scope| list(scope, &[item(0x20_0000, 1, Level::SIZE_2M, Tables::Kept)]);
        let done = |features: Features, what: &Invalidation| {
            machine(&lines, features).invalidate(what);
            told()
        };
        assert_eq!(done(features, &large(SPACE)), quietly(&[Invlpg(Va::new(0x20_0000))]));
        assert_eq!(done(emulated, &large(SPACE)), quietly(&[SetCr3(ROOT.get())]));
        assert_eq!(done(emulated, &large(Scope::Kernel)), quietly(&[InvpcidAll]));
        assert_eq!(done(emulated, &page(0x7000)), quietly(&[Invlpg(Va::new(0x7000))]));
    }

    #[test]
    fn a_root_is_loaded_under_its_tag() {
        let lines = lines();
        let root = |user: u64| Root { user: Pa::new(user), kernel: Pa::new(0x1000) };
        let plain = machine(&lines, Features::BASELINE);
        be(0);
        plain.activate(root(0x9000), Kept::Unchanged);
        assert_eq!(told(), quietly(&[SetCr3(0x9000)]));
        let tagged = machine(&lines, Features { pcid: true, pge: true, ..Features::BASELINE });
        let load = |user: u64| {
            tagged.activate(root(user), Kept::Unchanged);
            told()
        };
        assert_eq!(load(0x9000), quietly(&[SetCr3(0x9001)]));
        assert_eq!(load(0xa000), quietly(&[SetCr3(0xa002)]));
        assert_eq!(load(0x9000), quietly(&[SetCr3(1 << 63 | 0x9001)]));
        tagged.invalidate(&Invalidation::all(Scope::Space(Pa::new(0xa000))));
        assert_eq!(told(), quietly(&[]));
        assert_eq!(load(0xa000), quietly(&[SetCr3(0xa002)]), "it is stale");
        be(1);
        assert_eq!(load(0xa000), quietly(&[SetCr3(0xa001)]), "each CPU has tags of its own");
    }

    #[test]
    fn a_broadcast_is_complete_where_it_was_sent() {
        let lines = lines();
        let invlpgb = Some(Pages::new(8));
        let machine = machine(&lines, Features { invlpgb, ..Features::BASELINE });
        be(0);
        let ticket = machine.ask(&set(&[1]), &page(0x7000));
        let operation = broadcast::operations(&page(0x7000), Pages::new(8)).next().unwrap();
        assert_eq!(told(), quietly(&[Fence, Invlpgb(operation)]));
        machine.wait(ticket);
        assert_eq!(told(), quietly(&[Tlbsync]));

        // The waiter has moved to CPU 2, so CPU 0 is asked to look.
        let ticket = machine.ask(&set(&[1]), &page(0x7000));
        let looked = AtomicBool::new(false);
        be(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                be(0);
                while !mailbox::has_mail(&lines, Cpu(0)) {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(30));
                looked.store(true, Ordering::Release);
                machine.serve();
                assert_eq!(told(), quietly(&[Tlbsync]));
            });
            machine.wait(ticket);
            assert!(looked.load(Ordering::Acquire));
        });
        assert_eq!(told(), quietly(&[FullFence, sent(10)]));
    }

    #[test]
    fn a_machine_that_goes_online_makes_its_paging() {
        let lines = lines();
        let machine = machine(&lines, Features { pge: true, ..Features::BASELINE });
        be(0);
        with(|cpu| cpu.cr4 = 0x20);
        // SAFETY: the processor is the tests'.
        unsafe { machine.online() };
        assert_eq!(told(), [SetCr0(1 << 16), SetCr4(0xa0)]);
    }
}
