//! The instructions that need ring 0, one function each, and the fences that go with them.
//!
//! Programs cannot run them. So the crate's own tests get a processor that writes down what it is
//! told ([`double`]): what is decided about these instructions, and in which order they come, is
//! tested there; that they do what the manuals say, the booted kernel tests.
//!
//! **Not here**: any decision.

#[cfg(test)]
pub(crate) mod double;
#[cfg_attr(test, allow(dead_code, reason = "tests read what some of them are made of"))]
mod real;

#[cfg(test)]
pub(crate) use double::*;
#[cfg(not(test))]
pub(crate) use real::*;

#[cfg(test)]
mod tests {
    #![allow(unsafe_code)]

    use super::real;
    use crate::broadcast::Operation;
    extern crate std;
    use std::vec::Vec;

    /// What a short function is made of, its return left out.
    fn code(start: *const u8) -> Vec<u8> {
        const RET: u8 = 0xc3;
        // SAFETY: instructions can be read, and each of the functions asked for ends with a return.
        let byte = |at: usize| unsafe { start.wrapping_add(at).read() };
        let end = (0..64).find(|at| byte(*at) == RET).expect("it is a short function");
        (0..end).map(byte).collect()
    }
    fn has(start: *const u8, code: &[u8]) {
        let bytes = self::code(start);
        assert!(bytes.windows(code.len()).any(|some| some == code), "{code:x?} in {bytes:x?}");
    }

    /// No machine that runs our tests has them, so their bytes are compared with the manual's.
    #[test]
    fn instructions_that_assemblers_may_not_know_are_the_manuals() {
        let invlpgb: unsafe fn(Operation) = real::invlpgb;
        let tlbsync: unsafe fn() = real::tlbsync;
        has(invlpgb as *const u8, &[0x0f, 0x01, 0xfe]);
        has(tlbsync as *const u8, &[0x0f, 0x01, 0xff]);
    }

    /// Whether a fence is there shows only where two CPUs run at the very same time, so the bytes
    /// are compared here too.
    #[test]
    fn fences_are_the_manuals() {
        const MFENCE: [u8; 3] = [0x0f, 0xae, 0xf0];
        const LFENCE: [u8; 3] = [0x0f, 0xae, 0xe8];
        let (fence, full): (fn(), fn()) = (real::fence, real::full_fence);
        has(fence as *const u8, &MFENCE);
        has(full as *const u8, &[MFENCE, LFENCE].concat());
    }
}
