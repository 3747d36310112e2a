//! The obvious way from what was told to the events of a trace: everything in vectors, sorted at
//! once, with all hindsight there. What `merge`, `log` and `settle` do as a stream gives the same.

use super::assemble::{Assembled, Assembler, Scope};
use super::merge::nothing;
use super::raw::Raw;
use super::settle::{Guesses, is_guess, is_present};
use super::told::{Doing, Told};
use crate::budget::Budget;
use crate::event::{Access, Event, EventKind};
use crate::naive::{Naive, Report, naive_replay};

/// Events, what else there is to say, and what a replay makes of them.
pub(crate) type All = (Vec<Event>, Assembled, Report);

/// Puts everything together.
pub(crate) fn assemble(mut raw: Vec<Raw>, mut told: Vec<Told>, scope: Scope) -> All {
    let budget = Budget::unlimited();
    raw.sort_by_key(|r| r.time);
    told.sort_by_key(|t| t.time);
    let mut a = Assembler::new(scope);
    for t in &mut told {
        if let Doing::Exec { former, exec } = &mut t.what {
            a.execs.expect(t.tid, t.time, *former, std::mem::replace(exec, nothing()));
        }
    }
    let mut told = told.into_iter().peekable();
    for r in raw {
        while let Some(t) = told.next_if(|t| t.time <= r.time) {
            a.told(t);
        }
        a.raw(r);
    }
    for t in told {
        a.told(t);
    }
    a.close();
    let mut events: Vec<Event> = std::iter::from_fn(|| a.release(u64::MAX)).collect();
    let (mut out, signalled, snapshots) = a.finish();
    if events.iter().any(is_guess) {
        let (mut guesses, mut reads) = (Guesses::new(&budget), Vec::new());
        for (place, event) in events.iter().enumerate() {
            guesses.add(place as u64, event, &mut reads).unwrap();
        }
        for place in reads {
            if let EventKind::Fault(fault) = &mut events[place as usize].kind {
                fault.access = Access::Read;
            }
        }
    }
    let mut naive = Naive::new(&budget);
    let mut settled = Vec::new();
    for (place, mut event) in events.into_iter().enumerate() {
        for (_, space, kernel) in snapshots.iter().filter(|s| s.0 == place as u64) {
            out.residue.compare(kernel.clone(), naive.present(*space));
        }
        if is_present(&event) {
            settled.extend(out.place(&mut naive, &event).unwrap());
            continue;
        }
        naive.settle(&mut event, signalled.has(place as u64)).unwrap();
        settled.push(event);
    }
    let report = naive_replay(&settled, &budget).unwrap();
    (settled, out, report)
}
