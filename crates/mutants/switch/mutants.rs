//! The switch of the mutants, in the copy of the sources only. `FOLIANT_MUTANT=17` switches the
//! seventeenth on; `FOLIANT_MUTANTS_REACHED=FILE` notes in a byte for each which of them made, or
//! would have made, a difference. A kernel has no environment: its number is written into its
//! image, and its notes are read from the guest's memory. Words are written once, before `main`;
//! constant functions read them too, which no atomic allows.
#![allow(unsafe_code, missing_docs, static_mut_refs)]

/// All mutants are only noted.
const NOTE: u32 = u32::MAX;

#[cfg(not(foliant_kernel))]
mod switch {
    use core::ptr;
    use std::ffi::{c_int, c_void};
    use std::fs::File;
    use std::os::fd::AsRawFd;

    static mut ACTIVE: u32 = 0;
    static mut REACHED: *mut u8 = ptr::null_mut();

    unsafe extern "C" {
        fn mmap(at: *mut c_void, bytes: usize, rights: c_int, how: c_int, file: c_int, from: i64) -> *mut c_void;
    }

    #[used]
    #[unsafe(link_section = ".init_array")]
    static BEGIN: extern "C" fn() = begin;

    extern "C" fn begin() {
        if let Ok(number) = std::env::var("FOLIANT_MUTANT") {
            let number = number.parse().expect("the number of a mutant");
            unsafe { ACTIVE = number };
        }
        if let Some(path) = std::env::var_os("FOLIANT_MUTANTS_REACHED") {
            let file = File::options().read(true).write(true).open(path).expect("the file of those reached");
            let bytes = file.metadata().expect("its length").len() as usize;
            // The mapping is shared, so that forks, and processes that end without a word, are
            // heard as well.
            let at = unsafe { mmap(ptr::null_mut(), bytes, 3, 1, file.as_raw_fd(), 0) };
            assert!(at as isize != -1, "the file of those reached is not mapped");
            unsafe { REACHED = at.cast() };
            unsafe { ACTIVE = super::NOTE };
        }
    }

    #[inline(always)]
    pub(super) const fn active() -> u32 {
        unsafe { ACTIVE }
    }
    pub(super) const fn note(id: u32) {
        unsafe { REACHED.add(id as usize).write(1) };
    }
}

#[cfg(foliant_kernel)]
mod switch {
    /// How many numbers there are, with the one that is none.
    const COUNT: usize = 1;

    #[repr(C, align(16))]
    pub struct Switch {
        mark: [u8; 16],
        active: u32,
        reached: [u8; COUNT],
    }

    /// It is written from outside, unseen by the compiler.
    #[used]
    #[unsafe(no_mangle)]
    #[unsafe(link_section = ".data.foliant_mutants")]
    pub static mut FOLIANT_MUTANTS: Switch =
        Switch { mark: *b"foliant.mutants.", active: 0, reached: [0; COUNT] };

    #[inline(always)]
    pub(super) const fn active() -> u32 {
        unsafe { FOLIANT_MUTANTS.active }
    }
    pub(super) const fn note(id: u32) {
        unsafe { FOLIANT_MUTANTS.reached[id as usize] = 1 };
    }
}

/// Whether this one is switched on.
#[inline(always)]
pub const fn on(id: u32) -> bool {
    let active = switch::active();
    active != 0 && asked(active, id)
}

#[cold]
const fn asked(active: u32, id: u32) -> bool {
    if active == NOTE {
        switch::note(id);
    }
    active == id
}

/// `old`, or `new` where this one is switched on.
#[inline(always)]
pub const fn pick(id: u32, old: bool, new: bool) -> bool {
    if old != new && on(id) { new } else { old }
}

/// A condition that is always true where this one is switched on.
#[inline(always)]
pub const fn or(id: u32, old: bool) -> bool {
    pick(id, old, true)
}

/// A condition that is always false where this one is switched on.
#[inline(always)]
pub const fn and(id: u32, old: bool) -> bool {
    pick(id, old, false)
}
