//! What the manager counts equals what a recount from the bottom gives.

use super::{Checker, Event, Report, Seen};

#[derive(Debug)]
pub(super) struct CountersRecount;

impl Checker for CountersRecount {
    fn name(&self) -> &'static str {
        "counters_recount"
    }

    fn event(&mut self, _: &Seen<'_>, event: &Event<'_>, report: &mut Report<'_>) {
        if let Event::Recounted { name, stated, counted } = *event
            && stated != counted
        {
            report(format!("{name} is stated as {stated}, a recount gives {counted}"));
        }
    }
}
