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

use crate::calls::contract;
use crate::{
    Caching, Clock, Cpus, Invalidation, Kept, KernelFault, KernelVa, Machine, MmuRules, Owner,
    PhysMem, Refusal, Retired, Root, Ticket, Tlb, Witness,
};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use foliant_units::{Bytes, Cpu, CpuSet, FrameRange, Nanos, Pa, Va, VaRange};

macro_rules! around {
    () => {};
    (pinned) => {
        #[inline]
        fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
            Around::pinned(self, work)
        }
    };
    (unsafe {$(
        $memory:ident { $(unsafe fn $access:ident($($with:ident: $of:ty),*) -> $gives:ty;)* $(+ $bulk:ident)? }
    )*}
    safe {$(
        $part:ident { $(fn $call:ident($($arg:ident: $type:ty),*) -> $result:ty;)* $(+ $pinned:ident)? }
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

            /// See [`PhysMem::zeros`]. It is made of this machine's loads; one that lets them pass
            /// says so here.
            ///
            /// # Safety
            /// As there.
            #[inline]
            unsafe fn zeros(&self, pa: Pa, count: usize) -> usize {
                // SAFETY: the caller's promise for each word.
                let is_zero = |nth: &usize| unsafe { Around::load(self, pa.add(*nth as u64 * 8)) } == 0;
                (0..count).take_while(is_zero).count()
            }

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
            )*
                $(
                    #[inline]
                    unsafe fn $bulk(&self, pa: Pa, count: usize) -> usize {
                        // SAFETY: the caller's promise is passed on.
                        unsafe { Around::$bulk(self, pa, count) }
                    }
                )?
            }
        )*
        $(
            impl<T: Around> $part for T {
                $(
                    #[inline]
                    fn $call(&self, $($arg: $type),*) -> $result {
                        Around::$call(self, $($arg),*)
                    }
                )*
                around!($($pinned)?);
            }
        )*
    };
}

contract!(around);
