//! The terminal of the first session: whoever started the program types there, and sees it.

use super::super::content::{Content, number};
use super::super::hold::Hold;
use super::super::names;
use super::super::opened::{Descriptor, Opened};
use super::super::process::Process;
use super::super::streams::{self, Hears};
use super::end::Named;
use super::tty::Tty;
use alloc::sync::Arc;
use foliant_files::Body;
use foliant_linux::Errno;
use linux_raw_sys::general::{O_NOCTTY, O_RDWR, S_IFCHR};

impl Hears for Tty {
    fn hear(&self, bytes: &[u8]) -> usize {
        self.type_in(bytes).unwrap_or(0)
    }
    fn resize(&self, [rows, columns]: [u16; 2]) {
        self.set_window([rows, columns, 0, 0]);
    }
    fn end(&self) {
        self.hang_up();
    }
}

/// What the command line says of the terminal: `terminal=24x80`, and `errors=apart` where what is
/// written to standard error is not for it.
pub(in super::super) fn asked(command: &str) -> Option<([u16; 2], bool)> {
    let mut words = command.split_whitespace();
    let size = words.find_map(|word| word.strip_prefix("terminal="))?;
    let (rows, columns) = size.split_once('x')?;
    let is_apart = command.split_whitespace().any(|word| word == "errors=apart");
    Some(([rows.parse().ok()?, columns.parse().ok()?], is_apart))
}

/// Makes the console, and gives it to the first process.
pub(in super::super) fn start(
    process: &Process,
    [rows, columns]: [u16; 2],
    errors_are_apart: bool,
) -> Result<(), Errno> {
    let tty = Tty::new(number(5, 1), true, [rows, columns, 0, 0])?;
    tty.enlist();
    tty.give_to(process.id, process.id);
    let content = Content::Channel(Arc::new(Named(tty.clone())));
    let node = names::make(b"dev/console", S_IFCHR | 0o620, Body::Leaf(content));
    let node = node.map_err(|why| Errno(why.errno()))?;
    let opened = Opened::of(Hold::of(node), O_RDWR | O_NOCTTY)?;
    for number in 0..if errors_are_apart { 2 } else { 3 } {
        let descriptor = Descriptor { opened: opened.clone(), closes: false };
        let before = process.descriptors.lock().set(number, Some(descriptor));
        drop(before);
    }
    streams::give_to(tty);
    Ok(())
}
