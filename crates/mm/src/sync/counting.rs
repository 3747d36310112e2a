//! Atomics whose accesses are steps.

use super::steps::take;
use core::sync::atomic::{self, Ordering};

macro_rules! counting {
    ($name:ident, $word:ty, $($call:ident),*) => {
        #[doc = concat!("As [`atomic::", stringify!($name), "`]; each access is a step.")]
        #[derive(Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        impl $name {
            /// A word.
            pub const fn new(word: $word) -> $name {
                $name(atomic::$name::new(word))
            }
            /// See there.
            #[inline]
            pub fn load(&self, order: Ordering) -> $word {
                take(1);
                self.0.load(order)
            }
            /// See there.
            #[inline]
            pub fn store(&self, word: $word, order: Ordering) {
                take(1);
                self.0.store(word, order);
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
                take(1);
                self.0.compare_exchange(old, new, done, failed)
            }
            /// See there.
            #[inline]
            pub fn fetch_update(
                &self,
                done: Ordering,
                failed: Ordering,
                change: impl FnMut($word) -> Option<$word>,
            ) -> Result<$word, $word> {
                take(2);
                self.0.fetch_update(done, failed, change)
            }
            /// See there.
            pub fn get_mut(&mut self) -> &mut $word {
                self.0.get_mut()
            }
            $(
                /// See there.
                #[inline]
                pub fn $call(&self, word: $word, order: Ordering) -> $word {
                    take(1);
                    self.0.$call(word, order)
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

counting!(AtomicU64, u64, swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_max);
