//! `foliant lab deadlines`: the longest stay in locks and sections, in steps, of every operation.
//!
//! **Not here**: how it is measured (`foliant-stage`).

use crate::failure::{Done, Failure, print};
use foliant_stage::{Row, Scale, deadlines};
use std::fmt::Write;

pub(crate) fn run(words: &[String]) -> Done {
    let scale = match words {
        [] => Scale::SMALL,
        [word] if word == "full" => Scale::FULL,
        [word, ..] => {
            let text = format_args!("{word:?} is no scale of deadlines: say nothing, or `full`");
            return Err(Failure::new(text));
        }
    };
    print(&format!(
        "{} areas, {} of memory, {} CPUs, {} touched; steps\n{:48} {:>11} {:>11} {:>7} {:>7} {:>8} {:>7} {:>11}\n",
        scale.areas,
        scale.memory,
        scale.cpus,
        scale.touched,
        "operation",
        "writer",
        "long lock",
        "leaf",
        "table",
        "section",
        "moving",
        "unbroken"
    ))?;
    let mut done = Ok(());
    let show = |row: &Row| {
        let [patient, long, leaf, table, section, moving, unbroken] = row.longest;
        let mut line = String::new();
        let operation = &row.operation;
        let _ = writeln!(
            line,
            "{operation:48} {patient:>11} {long:>11} {leaf:>7} {table:>7} {section:>8} {moving:>7} {unbroken:>11}"
        );
        if done.is_ok() {
            done = print(&line);
        }
    };
    deadlines(scale, show).map_err(Failure::new)?;
    done
}
