//! A machine around another one, which counts, watches, or leaves something out.
//!
//! ```text
//!   manager ──▶ contract ──▶ Around: the methods that differ ──▶ the inner machine's contract
//! ```
//!
//! **Invariants**
//! - A1. A method that a machine does not define makes the same call of the inner machine, once.
//!
//! **Not here**: any such machine.
#![allow(unsafe_code)]

use crate::{
    Caching, Clock, Cpus, Invalidation, Kept, KernelFault, KernelVa, Machine, MmuRules, Owner,
    PhysMem, Refusal, Retired, Root, Ticket, Tlb, Witness,
};
use core::ptr::NonNull;
use foliant_units::{Bytes, Cpu, CpuSet, FrameRange, Nanos, Pa, Va, VaRange};

macro_rules! around {
    (unsafe {$(
        $memory:ident { $(unsafe fn $access:ident($($with:ident: $of:ty),*) -> $gives:ty;)* }
    )*}
    safe {$(
        $part:ident { $(fn $call:ident($($arg:ident: $type:ty),*) -> $result:ty;)* $(+ $more:item)? }
    )*}) => {
        /// A machine that differs from its [`inner`](Around::inner) one in the methods that it
        /// defines, and is a [`Machine`] by this trait alone. The methods are the contract's.
        ///
        /// # Safety
        /// The methods that it defines keep the promises of [`PhysMem`] and [`KernelVa`].
        pub unsafe trait Around: Sync {
            /// The machine inside.
            type Inner: Machine;

            /// The machine inside.
            fn inner(&self) -> &Self::Inner;

            $($(
                #[doc = concat!("See [`", stringify!($memory), "::", stringify!($access), "`].")]
                ///
                /// # Safety
                /// As there.
                #[inline]
                unsafe fn $access(&self, $($with: $of),*) -> $gives {
                    // SAFETY: the caller's promise is passed on.
                    unsafe { self.inner().$access($($with),*) }
                }
            )*)*
            $($(
                #[doc = concat!("See [`", stringify!($part), "::", stringify!($call), "`].")]
                #[inline]
                fn $call(&self, $($arg: $type),*) -> $result {
                    self.inner().$call($($arg),*)
                }
            )*)*

            /// See [`Cpus::pinned`].
            #[inline]
            fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
                self.inner().pinned(work)
            }
        }

        $(
            // SAFETY: the promise of `Around`.
            unsafe impl<T: Around> $memory for T {$(
                #[inline]
                unsafe fn $access(&self, $($with: $of),*) -> $gives {
                    // SAFETY: the caller's promise is passed on.
                    unsafe { Around::$access(self, $($with),*) }
                }
            )*}
        )*
        $(
            impl<T: Around> $part for T {
                $(
                    #[inline]
                    fn $call(&self, $($arg: $type),*) -> $result {
                        Around::$call(self, $($arg),*)
                    }
                )*
                $($more)?
            }
        )*
    };
}

around! {
    unsafe {
        PhysMem {
            unsafe fn reach(pa: Pa, bytes: Bytes) -> NonNull<u8>;
            unsafe fn load(pa: Pa) -> u64;
            unsafe fn store(pa: Pa, word: u64) -> ();
            unsafe fn compare_exchange(pa: Pa, old: u64, new: u64) -> Result<u64, u64>;
            unsafe fn clear(pa: Pa, bytes: Bytes, caching: Caching) -> ();
            unsafe fn copy(from: Pa, to: Pa, bytes: Bytes) -> ();
        }
        KernelVa {
            unsafe fn kernel_load(va: Va) -> Result<u64, KernelFault>;
            unsafe fn kernel_store(va: Va, word: u64) -> Result<(), KernelFault>;
            unsafe fn kernel_compare_exchange(va: Va, old: u64, new: u64) -> Result<Result<u64, u64>, KernelFault>;
            unsafe fn kernel_fill(va: Va, stride: Bytes, count: u64, word: u64) -> Result<(), KernelFault>;
        }
    }
    safe {
        Tlb {
            fn activate(root: Root, kept: Kept) -> ();
            fn invalidate(what: &Invalidation) -> ();
            fn ask(cpus: &CpuSet, what: &Invalidation) -> Ticket;
            fn wait(ticket: Ticket) -> ();
            fn rules() -> MmuRules;
        }
        Cpus {
            fn me() -> Cpu;
            fn count() -> usize;
            fn relax() -> ();
            + #[inline]
            fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
                Around::pinned(self, work)
            }
        }
        Clock {
            fn now() -> Nanos;
            fn yield_now() -> ();
        }
        Witness {
            fn owned(frames: FrameRange, owner: Owner) -> ();
            fn refusal() -> Refusal;
            fn retired(range: VaRange, how: Retired) -> ();
        }
    }
}
