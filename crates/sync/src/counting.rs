//! Atomics whose accesses are steps, and are told to the thread's watcher.

use super::steps::{Touch, told};
use core::sync::atomic::{self, Ordering};

macro_rules! counting {
    ($name:ident, $word:ty, $($call:ident),*) => {
        #[doc = concat!("As [`atomic::", stringify!($name), "`]; each access is a step.")]
        #[derive(Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        #[allow(dead_code, reason = "one set of calls for words of either size")]
        impl $name {
            /// A word.
            pub const fn new(word: $word) -> $name {
                $name(atomic::$name::new(word))
            }
            #[inline]
            fn told(&self, touch: Touch) {
                told(core::ptr::from_ref(self).addr(), touch);
            }
            #[inline]
            fn change<R>(&self, change: impl FnOnce(&atomic::$name) -> R) -> R {
                self.told(Touch::Write);
                let done = change(&self.0);
                self.told(Touch::Written);
                done
            }
            /// See there.
            #[inline]
            pub fn load(&self, order: Ordering) -> $word {
                self.told(Touch::Read);
                self.0.load(order)
            }
            /// See there.
            #[inline]
            pub fn store(&self, word: $word, order: Ordering) {
                self.change(|inner| inner.store(word, order));
            }
            /// See there.
            #[inline]
            pub fn compare_exchange(
                &self,
                old: $word,
                new: $word,
                done: Ordering,
                failed: Ordering,
            ) -> Result<$word, $word> {
                self.told(Touch::Write);
                let exchanged = self.0.compare_exchange(old, new, done, failed);
                if exchanged.is_ok() {
                    self.told(Touch::Written);
                }
                exchanged
            }
            /// See there.
            #[inline]
            pub fn fetch_update(
                &self,
                done: Ordering,
                failed: Ordering,
                mut change: impl FnMut($word) -> Option<$word>,
            ) -> Result<$word, $word> {
                let mut old = self.load(failed);
                while let Some(new) = change(old) {
                    match self.compare_exchange(old, new, done, failed) {
                        Ok(old) => return Ok(old),
                        Err(other) => old = other,
                    }
                }
                Err(old)
            }
            /// See there.
            pub fn get_mut(&mut self) -> &mut $word {
                self.0.get_mut()
            }
            $(
                /// See there.
                #[inline]
                pub fn $call(&self, word: $word, order: Ordering) -> $word {
                    self.change(|inner| inner.$call(word, order))
                }
            )*
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counting!(AtomicU32, u32, fetch_add);
counting!(AtomicU64, u64, swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_max);

impl AtomicU64 {
    /// See [`add_own`](super::add_own).
    pub(super) fn add_own(&self, cpus: &impl foliant_machine::Cpus, by: u64) {
        self.change(|inner| cpus.add_own(inner, by));
    }
}
