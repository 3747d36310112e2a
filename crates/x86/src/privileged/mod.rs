//! The instructions that need ring 0, one function each, and the fences that go with them.
//!
//! Programs cannot run them. So the crate's own tests get a processor that writes down what it is
//! told ([`double`]): what is decided about these instructions, and in which order they come, is
//! tested there; that they do what the manuals say, the booted kernel tests.
//!
//! **Not here**: any decision.

#[cfg(test)]
pub(crate) mod double;
#[cfg_attr(test, allow(dead_code, reason = "tests read what two of them are made of"))]
mod real;

#[cfg(test)]
pub(crate) use double::*;
#[cfg(not(test))]
pub(crate) use real::*;

#[cfg(test)]
mod tests {
    #![allow(unsafe_code)]

    use crate::broadcast::Operation;
    extern crate std;
    use std::vec::Vec;

    /// No machine that runs our tests has them, so their bytes are compared with the manual's.
    #[test]
    fn instructions_that_assemblers_may_not_know_are_the_manuals() {
        let invlpgb: unsafe fn(Operation) = super::real::invlpgb;
        let tlbsync: unsafe fn() = super::real::tlbsync;
        for (code, start) in
            [([0x0f, 0x01, 0xfe], invlpgb as *const u8), ([0x0f, 0x01, 0xff], tlbsync as *const u8)]
        {
            const RET: u8 = 0xc3;
            // SAFETY: instructions can be read, and each of the two functions ends with a return.
            let byte = |at: usize| unsafe { start.wrapping_add(at).read() };
            let end = (0..64).find(|at| byte(*at) == RET).expect("it is a short function");
            let bytes: Vec<u8> = (0..end).map(byte).collect();
            assert!(bytes.windows(3).any(|some| some == code), "{code:x?} in {bytes:x?}");
        }
    }
}
