//! The hardware contract: what Foliant asks of a machine, and nothing of how a machine does it.
//!
//! Small traits by use. An embedder implements them once for its hardware (or takes `foliant-x86`);
//! `foliant-sim` implements them for a simulated machine that is meaner than any hardware. All
//! methods take `&self`, so that two machines can live in one test, and every method may be called
//! by any CPU at any time unless its text says otherwise.
//!
//! | trait | what it reaches |
//! |---|---|
//! | [`PhysMem`] | frames through the direct map: page-table words, bulk clear and copy |
//! | [`KernelVa`] | kernel virtual addresses, through the translation of the calling CPU |
//! | [`Tlb`] | cached translations: load a root, invalidate here, ask others, wait for them |
//! | [`Cpus`] | which CPU runs this code, how many there are |
//! | [`Clock`] | time, and the preemption point of long work |
//! | [`Witness`] | nothing: it is told which owner each frame has, for checkers that watch |
//!
//! [`Around`] is for machines that stand around another one to count, to watch, or to leave
//! something out; [`AnyMachine`] for a manager that is compiled once for machines of many types.
//!
//! **Invariants** (of every implementation; the law suite checks what can be checked)
//! - M1. A translation, once cached by a CPU, may be used by it whenever it runs the root through
//!   which it was cached (a global one: always), until an invalidation that covers it has been
//!   carried out *on that CPU*, or the root was activated there with [`Kept::Nothing`], or an
//!   access of that CPU faulted by it where [`MmuRules::faults`] says that this is enough. Nothing
//!   else may be assumed to end it; that the CPU runs another root meanwhile does not.
//! - M2. A page-table word that is not present is never cached, as far as the kernel half goes. Of
//!   the user half a CPU may remember that nothing was there (riscv64 without Svvptc), at whatever
//!   level, until an invalidation that covers the page was carried out on that CPU: a program's
//!   access then faults although the word is present by now, the manager ends what the CPU
//!   remembers and answers `Spurious`, and the access is made again. Where hardware remembers that
//!   of the kernel half too, the machine hides it: its fault handler ends it on the CPU and makes
//!   the access again, once, before it reports a fault. A word that is present may be cached by any
//!   CPU while it runs a root from which it is reachable, at any time, used or not, unless
//!   [`MmuRules::accessed`] promises more. Through a root that a CPU does not run it caches nothing
//!   new.
//! - M3. When [`Tlb::wait`] returns, each asked CPU has carried the invalidation out, and every
//!   access it made through an old translation is complete and visible.
//! - M4. Walkers set accessed and dirty bits with atomic updates of the word; a store through a
//!   stale writable translation may happen after the word was cleared, and its dirty bit may then
//!   be lost.
//!
//! **Not here**: page-table formats (`foliant::table`), any implementation, any allocation.
#![no_std]

mod any;
mod around;
mod calls;
mod clock;
mod cpus;
pub mod laws;
mod mem;
mod rules;
mod tlb;
mod witness;

pub use any::AnyMachine;
pub use around::Around;
pub use clock::Clock;
pub use cpus::Cpus;
pub use mem::{Caching, KernelFault, KernelVa, PhysMem};
pub use rules::{Accessed, Faults, MmuRules, Replace};
pub use tlb::{Invalidation, Item, Kept, Reach, Root, Scope, Tables, Ticket, Tlb};
pub use witness::{Owner, Refusal, Retired, Witness};

/// A whole machine: everything that Foliant asks for, in one bound.
pub trait Machine: PhysMem + KernelVa + Tlb + Cpus + Clock + Witness + Sync {}

impl<M: PhysMem + KernelVa + Tlb + Cpus + Clock + Witness + Sync> Machine for M {}
