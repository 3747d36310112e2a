//! The instructions that need ring 0, one function each, and the fences that go with them.
//!
//! Programs cannot run them. So the crate's own tests get a processor that writes down what it is
//! told ([`double`]): what is decided about these instructions, and in which order they come, is
//! tested there; that they do what the manuals say, the booted kernel tests.
//!
//! **Not here**: any decision.

#[cfg(test)]
pub(crate) mod double;
#[cfg(not(test))]
mod real;

#[cfg(test)]
pub(crate) use double::*;
#[cfg(not(test))]
pub(crate) use real::*;
