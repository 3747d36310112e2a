//! `foliant run`: a program with a plan applied to it, and to all that it starts.
//!
//! ```text
//!   plan ── switches ── as the system's, or barred for this program ──▶ else: which, and the lines that set them
//!        └─ wishes ── injected as mappings are made (`foliant_trace::record::exec`)
//!
//!   foliant run              becomes the program
//!   foliant run --switches   sets the switches, starts the line above, waits, puts them back (root)
//! ```
//!
//! What the switches allow and the plan does not is barred for this program where the kernel knows
//! how (`PR_SET_THP_DISABLE`, which a child inherits); that takes no privilege. What they do not
//! allow only root can set, for all programs.
//!
//! **Invariants**
//! - U1. A program is started only where its memory may have the sizes that the plan has, no more
//!   and no fewer.
//!
//! **Not here**: how wishes are injected, and who follows whom (`foliant_trace`).

mod stats;
mod under;

pub(crate) use stats::{Told, unmet};

use crate::args::Run;
use crate::failure::{Done, Failure};
use crate::settings::{Present, ROOT, Switch};
use crate::{plan, record};
use foliant::Policy;
use foliant::fault::Size;
use foliant_trace::record::{Applied, Barred, Program, Rest, exec};
use foliant_trace::{RecordError, Remedy, Wish};
use std::path::Path;

pub(crate) fn run(args: &Run) -> Done {
    let remedy = plan::read(&args.plan)?;
    // Before anything is read: what is there may be what a run that was killed has left.
    let alone = args.switches.then(under::alone).transpose()?;
    let present = Present::read(Path::new(ROOT))?;
    let policy = remedy.policy().map_err(Failure::new)?;
    if let Some(order) = present.lacks(&policy) {
        return Err(Failure::new(format_args!(
            "the plan needs {}, which this kernel does not offer; make a plan without it",
            order.bytes()
        )));
    }
    let Some(barred) = barred(&remedy, &policy, &present, Barred::is_known) else {
        let differing = present.differing(&policy);
        return match alone {
            Some(alone) => under::run(args, alone, &differing),
            None => Err(needs(&differing)),
        };
    };
    drop(alone);
    let user = record::user()?;
    let command = &args.command;
    let program = Program { command, user: user.as_ref(), remedy: &remedy, barred };
    let Some(form) = args.stats else { return Err(failed(exec(&program, None))) };
    let mut told = |applied: &Applied, rest: Rest| stats::say(applied, rest, form);
    Err(failed(exec(&program, Some(&mut told))))
}

/// What a program is barred from so that the system's switches are the plan's for it (U1); nothing
/// where that is not enough.
fn barred(
    remedy: &Remedy,
    policy: &Policy,
    present: &Present,
    is_known: impl Fn(Barred) -> bool,
) -> Option<Barred> {
    // Who is barred from all is refused a collapse as well.
    let collapses = remedy.wishes.iter().any(|wished| wished.wish == Wish::Collapse);
    let all = [Barred::Nothing, Barred::Unadvised, Barred::All];
    let mut known = all.into_iter().filter(|barred| is_known(*barred));
    known.find(|barred| {
        let left = |position| match (barred, position) {
            (Barred::Nothing, position) => position,
            (Barred::Unadvised, Size::Always | Size::Madvise) => Size::Madvise,
            (Barred::Unadvised | Barred::All, _) => Size::Never,
        };
        let both = present.effective().into_iter().zip(present.wanted(policy));
        let is_it = both.into_iter().all(|(is, wanted)| left(is) == wanted);
        is_it && !(collapses && *barred == Barred::All)
    })
}

/// That the switches have to be others, and how they become so.
fn needs(differing: &[(&Switch, Size)]) -> Failure {
    let lines = differing
        .iter()
        .map(|(switch, position)| format!("echo {} >{}", position.label(), switch.path.display()));
    let lines: Vec<String> = lines.collect();
    let one = if lines.len() == 1 { "a switch" } else { "switches" };
    Failure::new(format_args!(
        "the plan needs {one} of folio sizes that this system has otherwise; set as root: {}; or run as root with --switches, for the time of the run",
        lines.join("; ")
    ))
}

/// Why the program was not started, in the words of who wanted to run it.
fn failed(error: RecordError) -> Failure {
    match error {
        RecordError::PtraceForbidden { why, .. } => Failure::new(format_args!(
            "the system forbids following the program ({}), by which advice is injected: something follows it \
             already, or /proc/sys/kernel/yama/ptrace_scope is 3; run it outside of the debugger or container, \
             or lower that to 1",
            crate::failure::why(&why)
        )),
        RecordError::FilterForbidden { why } => Failure::new(format_args!(
            "the system forbids system call filters ({}), by which advice is injected; run it outside of the \
             container that forbids them",
            crate::failure::why(&why)
        )),
        other => Failure::from(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant::fault::Global;
    use foliant_trace::{Target, Wished};
    use foliant_units::{Bytes, Order};

    fn order(n: u8) -> Order {
        Order::new(n).unwrap()
    }

    /// A system with sizes of 8 KiB, 64 KiB and 2 MiB.
    fn present(positions: [Size; 3]) -> Present {
        let switch = |(kb, position): (u64, Size)| Switch {
            bytes: Bytes::new(kb << 10),
            order: foliant::fault::parse_order(&format!("{kb}k")).ok(),
            path: format!("/sys/{kb}").into(),
            position,
        };
        let switches = [8, 64, 2048].into_iter().zip(positions).map(switch).collect();
        Present { global: Global::Madvise, switches }
    }

    fn remedy(small: Size, large: Size, wishes: &[Wish]) -> Remedy {
        let wished = |wish: &Wish| Wished { target: Target::Heap, wish: *wish };
        Remedy {
            global: Global::Never,
            sizes: vec![(order(4), small), (order(9), large)],
            wishes: wishes.iter().map(wished).collect(),
        }
    }

    #[test]
    fn what_a_system_allows_too_much_is_barred_and_what_it_allows_too_little_is_needed() {
        use Size::{Always, Inherit, Madvise, Never};
        let check = |system: [Size; 3], plan: &Remedy, expect: Option<Barred>| {
            let policy = plan.policy().unwrap();
            let found = barred(plan, &policy, &present(system), |_| true);
            assert_eq!(found, expect, "{system:?} {plan:?}");
        };
        let advised = remedy(Madvise, Never, &[Wish::HugePage]);
        check([Never, Madvise, Never], &advised, Some(Barred::Nothing));
        check([Never, Always, Never], &advised, Some(Barred::Unadvised));
        check([Never, Never, Never], &advised, None);
        check([Never, Madvise, Inherit], &advised, None); // advised areas would have 2 MiB too
        let none = remedy(Never, Never, &[]);
        check([Never, Never, Never], &none, Some(Barred::Nothing));
        check([Never, Always, Inherit], &none, Some(Barred::All));
        check([Madvise, Never, Never], &none, Some(Barred::All));
        check([Never, Always, Never], &remedy(Never, Never, &[Wish::Collapse]), None);
        check([Never, Always, Never], &remedy(Always, Never, &[]), Some(Barred::Nothing));
        check([Never, Madvise, Never], &remedy(Always, Never, &[]), None);
        check([Never, Never, Inherit], &remedy(Never, Madvise, &[]), Some(Barred::Nothing));
        // Of a kernel that cannot bar the unadvised alone.
        let old = |barred: Barred| barred != Barred::Unadvised;
        let policy = advised.policy().unwrap();
        assert_eq!(super::barred(&advised, &policy, &present([Never, Always, Never]), old), None);
    }

    #[test]
    fn the_lines_that_set_switches_are_told() {
        let present = present([Size::Never, Size::Never, Size::Always]);
        let policy = remedy(Size::Madvise, Size::Never, &[]).policy().unwrap();
        let Failure::Said(said) = needs(&present.differing(&policy)) else { panic!() };
        assert!(said.contains("root: echo madvise >/sys/64; echo never >/sys/2048; or"), "{said}");
    }
}
