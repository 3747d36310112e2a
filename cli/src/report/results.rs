//! What the commands came to.

use super::recordings::Recording;
use crate::failure::{Done, Failure};
use foliant_lab::Report;
use std::collections::BTreeMap;

/// What clearing this machine's own memory took.
#[cfg(target_arch = "x86_64")]
pub(crate) type Cleared = foliant_hosted::Measurement;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) enum Cleared {}

/// Reports by the command that makes them.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) reports: BTreeMap<String, Report>,
    pub(crate) cleared: Option<Cleared>,
    pub(crate) recordings: Vec<Recording>,
}

impl Results {
    /// The report of a command that was among those named before.
    pub(crate) fn of(&self, command: &str) -> Done<&Report> {
        let missing = || Failure::new(format_args!("{command} was not run"));
        self.reports.get(command).ok_or_else(missing)
    }
}
