//! What a panic does in a static library.
#![allow(unsafe_code)]

use crate::error::Text;
use core::ffi::c_char;
use core::panic::PanicInfo;

unsafe extern "C" {
    /// Defined by the kernel: a record of Foliant's contradicts another one, which `text` says. It
    /// does not return; if it does, it is called again.
    fn foliant_panic(text: *const c_char);
}

/// A record contradicts another one: the kernel hears of it, and nothing goes on.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let text = Text::of(info);
    loop {
        // SAFETY: the C side defines it; the text lives through the call. It does not return; if it
        // does, it hears of it again.
        unsafe { foliant_panic(text.bytes().as_ptr()) };
    }
}
