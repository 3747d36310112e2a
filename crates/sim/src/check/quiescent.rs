//! At the end of a history nothing is outstanding and every user frame was returned.

use super::spans::Spans;
use super::{Checker, Event, Report, Seen};
use foliant_machine::Owner;
use foliant_units::Frame;

#[derive(Debug)]
pub(super) struct Quiescent {
    owners: Spans<Owner>,
}

impl Quiescent {
    pub(super) fn new() -> Quiescent {
        Quiescent { owners: Spans::new(Owner::Reserved) }
    }
}

impl Checker for Quiescent {
    fn name(&self) -> &'static str {
        "quiescent"
    }

    fn event(&mut self, _: &Seen<'_>, event: &Event, report: &mut Report<'_>) {
        match *event {
            Event::Owned { frames, owner } => {
                self.owners.set(frames.start().get(), frames.end().get(), owner);
            }
            Event::Outstanding { requests, tickets } => {
                if requests > 0 {
                    report(format!("{requests} requests were never carried out"));
                }
                if tickets > 0 {
                    report(format!("{tickets} tickets were never waited for"));
                }
            }
            Event::Finished => {
                for owner in [Owner::User, Owner::Claimed] {
                    if let Some(first) = self.owners.first(owner) {
                        let (count, first) = (self.owners.count(owner), Frame::new(first));
                        report(format!(
                            "{count} frames are still {owner:?}, the first is {first:?}"
                        ));
                    }
                }
            }
            _ => {}
        }
    }
}
