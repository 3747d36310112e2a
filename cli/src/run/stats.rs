//! What was injected, told on standard error when the program has ended.

use crate::args::Form;
use crate::document::{self, Document};
use crate::failure::tell;
use crate::shown::shown;
use crate::table::{columns, count, mib};
use crate::terminal::prose;
use foliant_trace::record::{Applied, Place, Rest};
use foliant_trace::{Target, Wish};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// What was injected into a program and all that it started.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Told {
    /// Calls by what they were for and what they said.
    advice: Vec<Row>,
    /// How often a call of the program's was stopped, to look whether advice was due.
    stops: u64,
    /// Mappings that a wish fits, in processes that filter their own calls: nothing is injected
    /// there.
    passed_over: u64,
    /// Whether something that the program started goes on, and is advised still.
    goes_on: bool,
    /// What the plan has wishes for and no mapping of the program was.
    unmet: Vec<String>,
    /// What else there is to know.
    remarks: Vec<String>,
}

impl Document for Told {
    const NAME: &'static str = "run";
    const COMMAND: &'static str = "foliant run --stats json --plan PLAN -- COMMAND";
}

/// The calls of one kind.
#[derive(Serialize, JsonSchema)]
struct Row {
    /// What memory: `heap`, `stack`, `made`.
    target: &'static str,
    /// What was wished for it: `hugepage`, `nohugepage`, `collapse`.
    wish: &'static str,
    /// Calls that the kernel carried out.
    calls: u64,
    /// What they were for.
    bytes: u64,
    /// Calls that it refused, by the name of the error.
    refused: BTreeMap<String, u64>,
}

/// What a plan file calls a kind of memory.
fn word(place: Place) -> &'static str {
    match place {
        Place::Heap => "heap",
        Place::Stack => "stack",
        Place::Mapping => "made",
    }
}

fn told(applied: &Applied, rest: Rest) -> Told {
    let name = |errno: &i32| format!("{:?}", nix::errno::Errno::from_raw(*errno));
    let row = |((place, wish), given): (&(Place, Wish), &foliant_trace::record::Given)| Row {
        target: word(*place),
        wish: wish.word(),
        calls: given.calls,
        bytes: given.bytes,
        refused: given.refused.iter().map(|(errno, n)| (name(errno), *n)).collect(),
    };
    Told {
        advice: applied.given.iter().map(row).collect(),
        stops: applied.stops,
        passed_over: applied.passed_over,
        goes_on: rest == Rest::Something,
        unmet: applied.unmet.iter().map(Target::to_string).collect(),
        remarks: applied.remarks.iter().cloned().collect(),
    }
}

/// That nothing was what wishes are for, if so.
pub(crate) fn unmet(targets: &[String]) -> Option<String> {
    (!targets.is_empty()).then(|| {
        format!(
            "No mapping was what the plan has wishes for: {}; a plan is of one program as it was built, \
             and foliant advise makes one anew",
            shown(&targets.join("; "))
        )
    })
}

/// Says it. The program has ended: nobody can be told of a failure, and nothing depends on it.
pub(super) fn say(applied: &Applied, rest: Rest, form: Form) {
    let told = told(applied, rest);
    match form {
        Form::Table => tell(text(&told).trim_end()),
        Form::Json => tell(document::text(&told).unwrap_or_default().trim_end()),
    }
}

fn text(told: &Told) -> String {
    let Told { advice, stops, passed_over, goes_on, unmet: targets, remarks } = told;
    let mut text = String::new();
    if advice.is_empty() {
        text += &prose("foliant: no advice was due");
    } else {
        let heads = ["advice", "for", "calls", "MiB", "refused"];
        text += &columns(
            &heads,
            advice.iter().map(|row| {
                let refused: Vec<String> =
                    row.refused.iter().map(|(name, n)| format!("{} {name}", count(*n))).collect();
                vec![
                    row.wish.to_owned(),
                    row.target.to_owned(),
                    count(row.calls),
                    mib(row.bytes),
                    refused.join(", "),
                ]
            }),
        );
    }
    text += &prose(&format!("{} calls of the program were stopped for it", count(*stops)));
    if *passed_over > 0 {
        text += &prose(&format!(
            "{} mappings got none: their processes filter their own calls",
            count(*passed_over)
        ));
    }
    if *goes_on {
        text += &prose("Something that the program started goes on; what it gets is not counted");
    }
    unmet(targets).iter().chain(remarks).for_each(|remark| text += &prose(remark));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant_trace::record::Given;

    #[test]
    fn all_that_was_done_is_said() {
        let mut applied = Applied { stops: 1234, passed_over: 5, ..Applied::default() };
        let given = Given { calls: 7, bytes: 3 << 20, refused: BTreeMap::from([(22, 2)]) };
        applied.given.insert((Place::Mapping, Wish::HugePage), given);
        applied.unmet = vec![Target::Heap, Target::Stack];
        applied.remarks.insert("a remark".to_owned());
        let told = told(&applied, Rest::Something);
        document::tests::holds(&told);
        let text = text(&told);
        for part in [
            "hugepage",
            "made",
            "7",
            "3.0",
            "2 EINVAL",
            "1,234",
            "5 mappings",
            "goes on",
            "wishes for: heap; stack;",
            "a remark",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let nothing = super::told(&Applied::default(), Rest::Nothing);
        assert!(super::text(&nothing).contains("no advice was due"));
        assert!(!super::text(&nothing).contains("goes on"));
        assert!(!super::text(&nothing).contains("wishes"));
    }
}
