//! The loader's module: the kernel's own file, or an archive of the files that a program wants,
//! which has the kernel's among them.
//!
//! ```text
//!   module ─▶ .foliant/kernel        for the names in a trace
//!             .foliant/…             what to run, with which arguments
//!             everything else        the files that the program finds
//! ```
//!
//! Archives are those of `cpio`, in the format `newc`, as Linux takes them from its loader.

use crate::info::Info;
use cpio_reader::{Entry, iter_files};
use spin::Once;

/// The folder of what is meant for the kernel.
const OWN: &str = ".foliant/";
const MAGIC: &[u8] = b"070701";

static MODULE: Once<&'static [u8]> = Once::new();

/// Takes the module that the loader handed over, if it did. Its frames are reserved.
pub(crate) fn start(info: &Info) {
    if let Some((_, module)) = info.module() {
        MODULE.call_once(|| module);
    }
}

/// What the archive has; nothing where the module is none.
pub(crate) fn entries() -> impl Iterator<Item = Entry<'static>> {
    let module = MODULE.get().copied().unwrap_or_default();
    iter_files(if module.starts_with(MAGIC) { module } else { &[] })
}

/// Whether a name is of what is meant for the kernel.
pub(crate) fn is_own(name: &str) -> bool {
    name.starts_with(OWN) || OWN.strip_suffix('/') == Some(name)
}

/// What the archive tells the kernel under this name.
pub(crate) fn own(name: &str) -> Option<&'static [u8]> {
    let is_it = |entry: &Entry<'_>| entry.name().strip_prefix(OWN) == Some(name);
    entries().find(is_it).map(|entry| entry.file())
}

/// The kernel's own file.
pub(crate) fn kernel() -> Option<&'static [u8]> {
    own("kernel").or_else(|| MODULE.get().copied())
}
