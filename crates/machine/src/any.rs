//! A machine whose type is not asked for, so that what is generic is compiled once for all that
//! there are.
//!
//! ```text
//!   manager ──▶ AnyMachine ──▶ a table of functions ──▶ the contract of a machine of any type
//! ```
//!
//! **Invariants**
//! - N1. Each call makes the same call of the machine behind it, once.
//!
//! **Not here**: any such machine.
#![allow(unsafe_code)]

use crate::calls::contract;
use crate::{
    Caching, Clock, Cpus, Invalidation, Kept, KernelFault, KernelVa, Machine, MmuRules, Owner,
    PhysMem, Refusal, Retired, Root, Ticket, Tlb, Witness,
};
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use foliant_units::{Bytes, Cpu, CpuSet, FrameRange, Nanos, Pa, Va, VaRange};

/// A reference to a machine of any type, which is a machine itself. A call costs a jump through a
/// table more.
#[derive(Clone, Copy)]
pub struct AnyMachine<'m>(&'m dyn Calls);

impl<'m> AnyMachine<'m> {
    /// `machine` without its type.
    pub fn new(machine: &'m impl Machine) -> AnyMachine<'m> {
        AnyMachine(machine)
    }
}

impl fmt::Debug for AnyMachine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyMachine")
    }
}

macro_rules! any {
    () => {};
    (pinned) => {
        fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
            let (mut work, mut done) = (Some(work), None);
            self.0.pinned(&mut |cpu| done = work.take().map(|work| work(cpu)));
            done.expect("a machine runs pinned work once")
        }
    };
    (unsafe {$(
        $memory:ident { $(unsafe fn $access:ident($($with:ident: $of:ty),*) -> $gives:ty;)* $(+ $bulk:ident)? }
    )*}
    safe {$(
        $part:ident { $(fn $call:ident($($arg:ident: $type:ty),*) -> $result:ty;)* $(+ $pinned:ident)? }
    )*}) => {
        /// The contract as one table of functions.
        trait Calls: Sync {
            $($(
                /// # Safety
                /// As in the contract.
                unsafe fn $access(&self, $($with: $of),*) -> $gives;
            )*)*
            $($(fn $call(&self, $($arg: $type),*) -> $result;)*)*
            fn pinned(&self, work: &mut dyn FnMut(Cpu));
        }

        impl<T: Machine> Calls for T {
            $($(
                unsafe fn $access(&self, $($with: $of),*) -> $gives {
                    // SAFETY: the caller's promise is passed on.
                    unsafe { $memory::$access(self, $($with),*) }
                }
            )*)*
            $($(
                fn $call(&self, $($arg: $type),*) -> $result {
                    $part::$call(self, $($arg),*)
                }
            )*)*
            fn pinned(&self, work: &mut dyn FnMut(Cpu)) {
                Cpus::pinned(self, work)
            }
        }

        $(
            // SAFETY: all promises are those of the machine behind it (N1).
            unsafe impl $memory for AnyMachine<'_> {$(
                unsafe fn $access(&self, $($with: $of),*) -> $gives {
                    // SAFETY: the caller's promise is passed on.
                    unsafe { self.0.$access($($with),*) }
                }
            )*}
        )*
        $(
            impl $part for AnyMachine<'_> {
                $(
                    fn $call(&self, $($arg: $type),*) -> $result {
                        self.0.$call($($arg),*)
                    }
                )*
                any!($($pinned)?);
            }
        )*
    };
}

contract!(any);
