//! The switches of folio sizes.

use super::Shell;
use super::words::{Complaint, Words};
use crate::memory::manager;
use crate::{say, serial};
use core::fmt;
use foliant::fault::{Global, Orders, Policy, Size, parse_order};
use foliant_units::Order;

/// The size of a folio as Linux names it: `64kB`.
pub(super) struct Kilobytes(pub(super) Order);

impl fmt::Display for Kilobytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kilobytes = self.0.bytes().get() >> 10;
        write!(f, "{kilobytes}kB")?;
        let width = kilobytes.ilog10() as usize + 3;
        (width..f.width().unwrap_or(0)).try_for_each(|_| f.write_str(" "))
    }
}

/// The switch of all sizes, in words of the switch of one.
fn word(global: Global) -> Size {
    match global {
        Global::Always => Size::Always,
        Global::Madvise => Size::Madvise,
        Global::Never => Size::Never,
    }
}

/// All words of a switch, the one that holds in brackets.
fn states(all: &[Size], holds: Size) {
    for (n, state) in all.iter().enumerate() {
        let blank = if n == 0 { "" } else { " " };
        let (open, close) = if *state == holds { ("[", "]") } else { ("", "") };
        serial::print(format_args!("{blank}{open}{}{close}", state.label()));
    }
    say!("");
}

fn show() {
    let policy = manager().policy();
    serial::print(format_args!("{:<16} ", "enabled"));
    states(&[Size::Always, Size::Madvise, Size::Never], word(policy.global));
    for order in Order::all().filter(|order| Orders::ANON.contains(*order)) {
        serial::print(format_args!("hugepages-{:<6} ", Kilobytes(order)));
        let all = [Size::Always, Size::Auto, Size::Inherit, Size::Madvise, Size::Never];
        states(&all, policy.get(order));
    }
}

/// `thp`.
pub(super) fn thp<'w>(_: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let (first, second) = (words.next(), words.next());
    words.end()?;
    let mut policy = manager().policy();
    match (first, second) {
        (Some(size), Some(state)) => {
            let order = parse_order(size).map_err(|why| Complaint::Policy(size, why))?;
            let state = Size::parse(state).map_err(|why| Complaint::Policy(state, why))?;
            policy.set(order, state).map_err(|why| Complaint::Policy(size, why))?;
        }
        (Some("auto"), None) => policy = Policy::tuned(Orders::ANON),
        (Some(state), None) => {
            let known = "always, auto, madvise, never; or a size and one of these or inherit";
            policy.global = Global::parse(state).map_err(|_| Complaint::Unknown(state, known))?;
        }
        (None, _) => {}
    }
    manager().set_policy(policy);
    show();
    Ok(())
}
