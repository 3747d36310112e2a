//! A descriptor of a process: to wait for its end, and to name it by.

use super::channel::Channel;
use super::events::Events;
use super::process::Process;
use super::waiters::Waiters;
use alloc::string::String;
use alloc::sync::Arc;

/// A process, as a descriptor has it.
pub(super) struct Pidfd(Arc<Process>);

impl Pidfd {
    pub(super) fn of(process: Arc<Process>) -> Arc<Pidfd> {
        Arc::new(Pidfd(process))
    }
    pub(super) fn process(&self) -> &Arc<Process> {
        &self.0
    }
}

impl Channel for Pidfd {
    fn events(&self) -> Events {
        Events::IN.when(self.0.is_gone())
    }
    fn waiters(&self) -> &Waiters {
        &self.0.gone
    }
    fn label(&self, _: u64) -> String {
        String::from("anon_inode:[pidfd]")
    }
}
