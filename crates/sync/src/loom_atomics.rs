//! Loom's atomics, with `SeqCst` stores that are the last change of their word when they are made.
//!
//! Loom treats `SeqCst` as `AcqRel`. So it lets a compare-and-exchange find the value that a store
//! has already replaced, and then shows the storing thread the value that the compare-and-exchange
//! wrote: no order of the three accesses allows both. An exchange in place of the store has its
//! place in the order; on x86-64 a `SeqCst` store is that instruction.

use super::Ordering;
use core::ops::Deref;

macro_rules! word {
    ($name:ident, $word:ty) => {
        #[doc = concat!("As loom's ", stringify!($name), "; see the module's text.")]
        #[derive(Default, Debug)]
        pub struct $name(loom::sync::atomic::$name);

        impl $name {
            /// A word.
            pub fn new(word: $word) -> $name {
                $name(loom::sync::atomic::$name::new(word))
            }
            /// See there.
            pub fn store(&self, word: $word, order: Ordering) {
                match order {
                    Ordering::SeqCst => {
                        self.0.swap(word, order);
                    }
                    _ => self.0.store(word, order),
                }
            }
        }

        impl Deref for $name {
            type Target = loom::sync::atomic::$name;
            fn deref(&self) -> &loom::sync::atomic::$name {
                &self.0
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);
