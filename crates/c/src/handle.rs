//! Handles: values in lent memory, each with a tag in front by which another pointer is told from
//! it.
//!
//! **Invariants**
//! - H1. A tag is written when all behind it is, and a call looks at nothing but the tag before it
//!   has seen that it is right.
//! - H2. A handle stays where it was made, so its value may borrow what lies beside it.
#![allow(unsafe_code)]

use crate::lent::{self, Layout};
use crate::refusal::Refusal;
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr::NonNull;

/// A value, and what it borrows.
#[repr(C)]
pub(crate) struct Handle<B, T> {
    tag: u64,
    base: B,
    value: T,
}

/// A type that C has pointers to: a handle and nothing else.
pub(crate) trait Opaque: Sized {
    /// Tells it from others.
    const TAG: u64;
    /// What C calls a pointer to it.
    const NAME: &'static str;
    /// What its value borrows.
    type Base: 'static;
    /// Its value.
    type Value;

    /// The handle.
    fn handle(&self) -> &Handle<Self::Base, Self::Value>;
}

/// The value behind a pointer.
pub(crate) fn value<T: Opaque>(given: Option<&T>) -> Result<&T::Value, Refusal> {
    Ok(&known(given)?.value)
}
/// What the value behind a pointer borrows.
pub(crate) fn base<T: Opaque>(given: Option<&T>) -> Result<&T::Base, Refusal> {
    Ok(&known(given)?.base)
}
fn known<T: Opaque>(given: Option<&T>) -> Result<&Handle<T::Base, T::Value>, Refusal> {
    let handle = given.ok_or(Refusal::Null(T::NAME))?.handle();
    if handle.tag == T::TAG { Ok(handle) } else { Err(Refusal::Handle(T::NAME)) }
}

/// Makes a handle in lent memory of `need`, or leaves none there.
///
/// # Safety
/// P2: `bytes` from `memory` on are the handle's from here on.
pub(crate) unsafe fn make<T: Opaque>(
    (memory, bytes): (*mut c_void, u64),
    need: Layout,
    base: T::Base,
    value: impl FnOnce(&'static T::Base, NonNull<u8>) -> Result<T::Value, Refusal>,
) -> Result<*const T, Refusal> {
    const { assert!(size_of::<T>() == size_of::<Handle<T::Base, T::Value>>()) };
    let at = lent::memory(memory, bytes, need)?;
    let handle = at.cast::<Handle<T::Base, T::Value>>().as_ptr();
    // SAFETY: lent memory, large enough and aligned (P2).
    let tag = unsafe { &raw mut (*handle).tag };
    // SAFETY: the same. What was there before is no handle any more.
    unsafe { tag.write(0) };
    // SAFETY: the same.
    let own = unsafe { &raw mut (*handle).base };
    // SAFETY: the same.
    unsafe { own.write(base) };
    // SAFETY: written just now; it stays there, unchanged, as long as the handle is used (H2, P2).
    let made = value(unsafe { &*own }, at)?;
    // SAFETY: lent memory (P2).
    let place = unsafe { &raw mut (*handle).value };
    // SAFETY: the same.
    unsafe { place.write(made) };
    // SAFETY: the same; now all is there (H1).
    unsafe { tag.write(T::TAG) };
    Ok(at.as_ptr().cast())
}

const _: () = assert!(offset_of!(Handle<u8, u8>, tag) == 0);
