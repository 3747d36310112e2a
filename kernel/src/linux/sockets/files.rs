//! Descriptors on their way from one program to another (sockets::K3).

use super::super::opened::Opened;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use foliant_linux::Errno;
use linux_raw_sys::errno::ETOOMANYREFS;
use spin::Mutex;

/// So many are on their way at most.
const MOST: usize = 4096;

static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Those that nobody will receive.
static LEFT: Mutex<Vec<Files>> = Mutex::new(Vec::new());
/// Somebody lets go of them.
static IS_LETTING_GO: AtomicBool = AtomicBool::new(false);

/// Opened files that come with bytes.
#[derive(Default)]
pub(in super::super) struct Files(Vec<Arc<Opened>>);

impl Files {
    pub(in super::super) fn of(files: Vec<Arc<Opened>>) -> Result<Files, Errno> {
        let count = files.len();
        let before = COUNT.fetch_add(count, Ordering::AcqRel);
        let files = Files(files);
        if before + count > MOST { Err(Errno(ETOOMANYREFS)) } else { Ok(files) }
    }
    pub(in super::super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The same once more, for whoever only looks.
    pub(super) fn again(&self) -> Files {
        COUNT.fetch_add(self.0.len(), Ordering::AcqRel);
        Files(self.0.clone())
    }
    /// They have arrived.
    pub(in super::super) fn take(mut self) -> Vec<Arc<Opened>> {
        let files = core::mem::take(&mut self.0);
        COUNT.fetch_sub(files.len(), Ordering::AcqRel);
        files
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        COUNT.fetch_sub(self.0.len(), Ordering::AcqRel);
    }
}

/// Lets go of descriptors that nobody will receive. A socket among them may have others, which come
/// to the same list instead of the stack.
pub(super) fn let_go(files: Vec<Files>) {
    if files.iter().all(Files::is_empty) {
        return;
    }
    LEFT.lock().extend(files);
    while !LEFT.lock().is_empty() && !IS_LETTING_GO.swap(true, Ordering::AcqRel) {
        loop {
            let Some(next) = LEFT.lock().pop() else { break };
            drop(next);
        }
        IS_LETTING_GO.store(false, Ordering::Release); // and it looks again
    }
}
