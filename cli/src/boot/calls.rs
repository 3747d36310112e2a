//! `foliant boot --calls`: the system calls of Linux, and which of them the kernel has.
//!
//! **Not here**: what they do (`kernel/`).

use super::{Mode, Options, run};
use crate::failure::{Done, Failure, print, tell};
use crate::shown::shown;
use crate::table::{columns_left, count};

/// A line `call NUMBER NAME there`, or `missing` at its end.
#[derive(PartialEq, Eq, Debug)]
struct Call {
    number: u32,
    name: String,
    is_there: bool,
}

impl Call {
    fn of(line: &str) -> Option<Call> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["call", number, name, state] = words[..] else { return None };
        let is_there = match state {
            "there" => true,
            "missing" => false,
            _ => return None,
        };
        Some(Call { number: number.parse().ok()?, name: shown(name), is_there })
    }
}

/// `foliant boot --calls`.
pub(super) fn list(options: &Options) -> Done {
    debug_assert!(matches!(options.mode, Mode::Calls));
    let mut calls = Vec::new();
    let outcome = run(options, |line| {
        match Call::of(line) {
            Some(call) => calls.push(call),
            None => tell(line),
        }
        Ok(())
    })?;
    outcome.ended.verdict(options.timeout())?;
    if calls.is_empty() {
        return Err(Failure::new("the kernel ended well and listed no calls"));
    }
    print(&text(&calls))
}

fn text(calls: &[Call]) -> String {
    let row = |call: &Call| {
        let state = if call.is_there { "there" } else { "missing" };
        [call.number.to_string(), call.name.clone(), state.to_owned()]
    };
    let there = calls.iter().filter(|call| call.is_there).count();
    let (there, all) = (count(there as u64), count(calls.len() as u64));
    let table = columns_left(&["number", "call", "in the kernel"], calls.iter().map(row));
    format!("{table}{there} of {all} calls are there\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_listed_and_counted() {
        let lines = ["call 0 read there", "booting", "call 425 io_uring_setup missing"];
        let calls: Vec<Call> = lines.into_iter().filter_map(Call::of).collect();
        let text = text(&calls);
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["0", "read", "there"]);
        assert_eq!(rows[2], ["425", "io_uring_setup", "missing"]);
        assert_eq!(rows[3].join(" "), "1 of 2 calls are there");
        for other in ["call x read there", "call 0 read", "call 0 read here", "call 0 a b there"] {
            assert_eq!(Call::of(other), None, "{other}");
        }
    }
}
