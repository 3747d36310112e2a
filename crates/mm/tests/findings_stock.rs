//! What outsiders proved of the stock, the pools, kernel memory and the face (docs/findings.md).
#![allow(unsafe_code)]

mod common;
use common::*;
use foliant::pool::{Budget, PoolCounters};
use foliant::space::{Flags, MapRequest, Place};
use foliant::table::{Half, Paging, X86_64};
use foliant::{Access, Outcome, Policy};
use foliant_machine::{Around, KernelFault, KernelVa, PhysMem, Warmth};
use foliant_sim::Sim;
use foliant_units::{Bytes, Frame, Order, Pa, Va};
use std::sync::Mutex;

/// A call of the contract at which a test acts.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// Descriptors are about to be filled: so many, with this word.
    Fill(u64, u64),
    /// This word of the descriptor of a frame is about to be read, or replaced.
    Word(Frame, u64),
    /// Memory from a frame on is about to be cleared.
    Clear(Frame),
    /// So many bytes were cleared.
    Cleared(Bytes),
}

type When = Box<dyn Fn(Call) -> bool + Send>;
type Hook = Box<dyn FnOnce() + Send>;

/// The simulator, with one thing that is done when a call comes.
struct Hooked {
    sim: Sim,
    due: Mutex<Option<(When, Hook)>>,
}

impl Hooked {
    fn new(sim: Sim) -> &'static Hooked {
        Box::leak(Box::new(Hooked { sim, due: Mutex::new(None) }))
    }
    fn when(
        &self,
        call: impl Fn(Call) -> bool + Send + 'static,
        act: impl FnOnce() + Send + 'static,
    ) {
        *self.due.lock().unwrap() = Some((Box::new(call), Box::new(act)));
    }
    fn at(&self, call: Call) {
        let due = self.due.lock().unwrap().take_if(|(when, _)| when(call));
        if let Some((_, act)) = due {
            act();
        }
    }
    fn word(&self, va: Va) {
        let array = X86_64::<4>::half(Half::Kernel).0;
        if let Some(offset) = va.get().checked_sub(array.get()) {
            self.at(Call::Word(Frame::new(offset / 64), offset % 64 / 8));
        }
    }
    /// Whether what was to be done was done.
    fn is_done(&self) -> bool {
        self.due.lock().unwrap().is_none()
    }
}

// SAFETY: everything is the simulator's.
unsafe impl Around for Hooked {
    type Inner = Sim;
    fn inner(&self) -> &Sim {
        &self.sim
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, warmth: Warmth) {
        self.at(Call::Clear(pa.frame()));
        // SAFETY: passed on.
        unsafe { self.sim.clear(pa, bytes, warmth) }
        self.at(Call::Cleared(bytes));
    }
    unsafe fn kernel_load(&self, va: Va) -> Result<u64, KernelFault> {
        self.word(va);
        // SAFETY: passed on.
        unsafe { self.sim.kernel_load(va) }
    }
    unsafe fn kernel_compare_exchange(
        &self,
        va: Va,
        old: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, KernelFault> {
        self.word(va);
        // SAFETY: passed on.
        unsafe { self.sim.kernel_compare_exchange(va, old, new) }
    }
    unsafe fn kernel_fill(
        &self,
        va: Va,
        stride: Bytes,
        count: u64,
        word: u64,
    ) -> Result<(), KernelFault> {
        self.at(Call::Fill(count, word));
        // SAFETY: passed on.
        unsafe { self.sim.kernel_fill(va, stride, count, word) }
    }
}

type Ours = &'static Mm<'static, Hooked>;

fn hooked(cpus: usize, megabytes: u64, policy: Policy) -> (&'static Hooked, Ours) {
    let machine = Hooked::new(sim(cpus, megabytes));
    let memory = machine.sim.config().memory.clone();
    let mm: Ours = Box::leak(Box::new(manager_on(machine, &memory, policy)));
    mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
    (machine, mm)
}

fn of_huge_pages(bytes: u64) -> MapRequest {
    let flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
    let place = Place::NoReplace(Va::new(BASE));
    MapRequest { place, bytes: Bytes::new(bytes), flags, tag: 0 }
}

// Q1

/// An area goes while a fault clears the page that it was promised.
#[test]
fn finding_q1_a_promise_ends_while_its_page_is_held() {
    let (machine, mm) = hooked(2, 64, Policy::BASE_ONLY);
    mm.resize_pool(Order::MEGA, 2, Budget::ALL).unwrap();
    let (id, other) = (mm.create(None).unwrap(), mm.create(None).unwrap());
    mm.switch(Some(id)).unwrap();
    let whole = mm.map(id, &of_huge_pages(2 * MB)).unwrap();
    let said: &'static Mutex<Option<PoolCounters>> = Box::leak(Box::default());
    let is_large = |call| matches!(call, Call::Cleared(bytes) if bytes > Order::BASE.bytes());
    machine.when(is_large, move || {
        machine.sim.on(cpu(1), || {
            mm.unmap(id, whole).unwrap();
            *said.lock().unwrap() = Some(mm.pool(Order::MEGA).unwrap());
            let two = mm.map(other, &of_huge_pages(4 * MB));
            assert!(two.is_err(), "a page that the fault has was promised");
            mm.map(other, &of_huge_pages(2 * MB)).expect("the other page is nobody's");
        });
    });
    let outcome = mm.fault(id, Va::new(BASE), Access::Write);
    assert!(machine.is_done());
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    let said = said.lock().unwrap().unwrap();
    assert_eq!((said.free_hugepages, said.resv_hugepages), (1, 0));
    machine.sim.on(cpu(1), || mm.switch(Some(other)).unwrap());
    assert_eq!(mm.fault(other, Va::new(BASE), Access::Write), Outcome::Mapped(Order::MEGA));
    mm.unmap(other, range(BASE, 2 * MB)).unwrap();
    let after = mm.pool(Order::MEGA).unwrap();
    assert_eq!((after.free_hugepages, after.resv_hugepages), (2, 0));
    mm.audit(&[id, other]).unwrap();
}
