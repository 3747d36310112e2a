//! Plan files: a remedy as JSON, written by `foliant advise --plan-out` and read by those who apply
//! it.
//!
//! ```text
//!   { "schema": "foliant plan 1", "global": "madvise",
//!     "sizes":  [ { "size": "64k", "switch": "madvise" } ],
//!     "wishes": [ { "target": "heap", "wish": "hugepage" },
//!                 { "target": "made", "site": "libc.so.6+0x9f2e1", "least_bytes": 67108864,
//!                   "most_bytes": 134217728, "wish": "nohugepage" } ] }
//! ```
//!
//! **Invariants**
//! - N1. What was written is read as what it was.
//! - N2. A file that is no plan is refused with the field, its value and what may be there; nothing
//!   in it is passed over.
//!
//! **Not here**: what a remedy means (`foliant_trace::wish`).

use crate::document::{self, Document};
use crate::failure::{Done, Failure, why};
use crate::shown::{self, shown};
use foliant::fault::{Global, Orders, Size, parse_order};
use foliant_trace::{Remedy, Site, Target, Wish, Wished};
use foliant_units::{Bytes, Order};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A larger file is none that was written here.
const BYTES_MOST: u64 = 4 << 20;

/// What is done for a program: switches of folio sizes, and what is advised for its mappings.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Plan {
    /// The switch of all sizes: `always`, `madvise` or `never`.
    global: String,
    /// The switches of single sizes; one that is not named is `never`.
    sizes: Vec<Switch>,
    /// What mappings get; of those that fit one the first is its.
    wishes: Vec<Advised>,
}

impl Document for Plan {
    const NAME: &'static str = "plan";
    const COMMAND: &'static str = "foliant advise FILE... --plan-out PLAN";
}

/// A file as it is read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    schema: String,
    global: String,
    sizes: Vec<Switch>,
    wishes: Vec<Advised>,
}

/// The switch of one size.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Switch {
    /// The size: `16k` to `2m`.
    size: String,
    /// `always`, `madvise`, `inherit` or `never`.
    switch: String,
}

/// What some mappings get.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Advised {
    /// Which mappings: `heap`, `stack` (the first thread's), or `made` by mmap.
    target: String,
    /// Of those that were made: the code that asked for them, `OBJECT+0xOFFSET`; else whoever did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    site: Option<String>,
    /// Of those that were made: the least that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    least_bytes: Option<u64>,
    /// Of those that were made: the most that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    most_bytes: Option<u64>,
    /// `hugepage`, `nohugepage` or `collapse`.
    wish: String,
}

/// What the kernel calls a position of the switch of all sizes.
pub(crate) fn word(global: Global) -> &'static str {
    match global {
        Global::Always => "always",
        Global::Madvise => "madvise",
        Global::Never => "never",
    }
}

/// The text of a plan file.
pub(crate) fn text(remedy: &Remedy) -> Done<String> {
    document::text(&plan(remedy))
}

/// Reads a plan file.
pub(crate) fn read(path: &Path) -> Done<Remedy> {
    let name = shown::path(path);
    let unread = |e: std::io::Error| {
        Failure::new(format_args!(
            "the plan {name} cannot be read ({}); write one with `foliant advise FILE --plan-out {name}`",
            why(&e)
        ))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(unread)?;
    file.take(BYTES_MOST + 1).read_to_string(&mut text).map_err(unread)?;
    parse(&text).map_err(|fault| {
        Failure::new(format_args!(
            "{name} is no plan: {fault}; write one with `foliant advise FILE --plan-out {name}`"
        ))
    })
}

/// A remedy as a document.
pub(crate) fn plan(remedy: &Remedy) -> Plan {
    let switch = |(order, size): &(Order, Size)| Switch {
        size: order.bytes().to_string(),
        switch: size.label().to_owned(),
    };
    Plan {
        global: word(remedy.global).to_owned(),
        sizes: remedy.sizes.iter().map(switch).collect(),
        wishes: remedy.wishes.iter().map(advised).collect(),
    }
}

fn advised(wished: &Wished) -> Advised {
    let (target, made) = match &wished.target {
        Target::Heap => ("heap", None),
        Target::Stack => ("stack", None),
        Target::Made { site, least, most } => ("made", Some((site, least.get(), most.get()))),
    };
    Advised {
        target: target.to_owned(),
        site: made.and_then(|(site, ..)| site.as_ref().map(Site::to_string)),
        least_bytes: made.map(|(_, least, _)| least),
        most_bytes: made.map(|(_, _, most)| most),
        wish: wished.wish.word().to_owned(),
    }
}

fn parse(text: &str) -> Result<Remedy, String> {
    if text.len() as u64 > BYTES_MOST {
        return Err(format!("it is larger than {}", Bytes::new(BYTES_MOST)));
    }
    let written: Written = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let title = document::title(Plan::NAME, Plan::VERSION);
    if written.schema != title {
        return Err(wrong("schema", &written.schema, &title));
    }
    let global = Global::parse(&written.global)
        .map_err(|_| wrong("global", &written.global, "always, madvise or never"))?;
    let sizes = written.sizes.iter().enumerate().map(|(at, switch)| size(at, switch));
    let sizes: Vec<(Order, Size)> = sizes.collect::<Result<_, _>>()?;
    let is_twice = |at: usize| sizes[..at].iter().any(|(order, _)| *order == sizes[at].0);
    if let Some(at) = (0..sizes.len()).find(|at| is_twice(*at)) {
        let may_be = "a size that was not named before";
        return Err(wrong(format_args!("sizes[{at}].size"), &written.sizes[at].size, may_be));
    }
    let wishes = written.wishes.iter().enumerate().map(|(at, advised)| wished(at, advised));
    Ok(Remedy { global, sizes, wishes: wishes.collect::<Result<_, _>>()? })
}

/// What is wrong with a field, and what may be there.
fn wrong(field: impl fmt::Display, value: &str, may_be: &str) -> String {
    format!("{field} is '{}' and may be {may_be}", shown(value))
}

fn size(at: usize, written: &Switch) -> Result<(Order, Size), String> {
    let Switch { size, switch } = written;
    let order = parse_order(size).ok().filter(|order| Orders::ANON.contains(*order));
    let order = order.ok_or_else(|| wrong(format_args!("sizes[{at}].size"), size, "16k to 2m"))?;
    let may_be = "always, madvise, inherit or never";
    let size = Size::parse(switch);
    Ok((order, size.map_err(|_| wrong(format_args!("sizes[{at}].switch"), switch, may_be))?))
}

fn wished(at: usize, written: &Advised) -> Result<Wished, String> {
    let field = |name: &str| format!("wishes[{at}].{name}");
    let wish = Wish::parse(&written.wish)
        .ok_or_else(|| wrong(field("wish"), &written.wish, "hugepage, nohugepage or collapse"))?;
    let has_made =
        written.site.is_some() || written.least_bytes.is_some() || written.most_bytes.is_some();
    let target = match written.target.as_str() {
        "made" => made(written, field)?,
        "heap" | "stack" if has_made => {
            let name = field("target");
            return Err(format!(
                "{name} is '{}' and goes without site, least_bytes and most_bytes",
                written.target
            ));
        }
        "heap" => Target::Heap,
        "stack" => Target::Stack,
        other => return Err(wrong(field("target"), other, "heap, stack or made")),
    };
    Ok(Wished { target, wish })
}

fn made(written: &Advised, field: impl Fn(&str) -> String) -> Result<Target, String> {
    let site = written.site.as_deref().map(|text| {
        let may_be = "OBJECT+0xOFFSET, like libc.so.6+0x9f2e1";
        Site::parse(text).ok_or_else(|| wrong(field("site"), text, may_be))
    });
    let (least, most) = (written.least_bytes.unwrap_or(0), written.most_bytes.unwrap_or(u64::MAX));
    if least > most {
        let may_be = format!("as much as least_bytes, {least}, or more");
        return Err(wrong(field("most_bytes"), &most.to_string(), &may_be));
    }
    let (least, most) = (Bytes::new(least), Bytes::new(most));
    Ok(Target::Made { site: site.transpose()?, least, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy() -> Remedy {
        let order = |n| Order::new(n).unwrap();
        let site = Site { object: "libc.so.6".to_owned(), offset: 0x9f2e1 };
        let made = |site, least, most| Target::Made {
            site,
            least: Bytes::new(least),
            most: Bytes::new(most),
        };
        Remedy {
            global: Global::Madvise,
            sizes: vec![(order(4), Size::Madvise), (order(9), Size::Inherit)],
            wishes: vec![
                Wished { target: Target::Heap, wish: Wish::HugePage },
                Wished { target: Target::Stack, wish: Wish::NoHugePage },
                Wished { target: made(Some(site), 1 << 20, 2 << 20), wish: Wish::Collapse },
                Wished { target: made(None, 0, u64::MAX), wish: Wish::NoHugePage },
            ],
        }
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        for remedy in [remedy(), Remedy::NONE] {
            assert_eq!(parse(&text(&remedy).unwrap()), Ok(remedy.clone()));
            document::tests::holds(&plan(&remedy));
        }
    }

    #[test]
    fn what_is_no_plan_is_refused_by_field_value_and_way_out() {
        let whole = text(&remedy()).unwrap();
        let check = |from: &str, to: &str, parts: &[&str]| {
            assert!(whole.contains(from), "{from}");
            let said = parse(&whole.replacen(from, to, 1)).unwrap_err();
            for part in parts {
                assert!(said.contains(part), "{from} to {to}: {said}");
            }
        };
        check("plan 1", "plan 2", &["schema", "'foliant plan 2'", "foliant plan 1"]);
        check("\"madvise\"", "\"inherit\"", &["global", "'inherit'", "always, madvise or never"]);
        check("\"64k\"", "\"8k\"", &["sizes[0].size", "'8k'", "16k to 2m"]);
        check("\"64k\"", "\"1g\"", &["sizes[0].size", "'1g'", "16k to 2m"]);
        check("\"2m\"", "\"64k\"", &["sizes[1].size", "'64k'", "not named before"]);
        check("\"inherit\"", "\"on\\u001b\"", &["sizes[1].switch", "'on\\u{1b}'", "inherit"]);
        check("\"heap\"", "\"pile\"", &["wishes[0].target", "'pile'", "heap, stack or made"]);
        check("\"heap\"", "\"heap\",\"least_bytes\":1", &["wishes[0].target", "'heap'", "without"]);
        check("libc.so.6+0x9f2e1", "libc", &["wishes[2].site", "'libc'", "OBJECT+0xOFFSET"]);
        check("2097152", "5", &["wishes[2].most_bytes", "'5'", "1048576"]);
        check("2097152", "-5", &["-5", "u64"]);
        check("\"collapse\"", "\"grow\"", &["wishes[2].wish", "'grow'", "hugepage"]);
        check("\"wishes\"", "\"whishes\"", &["whishes", "wishes"]);
        check("\"global\": \"madvise\",", "", &["global"]);
        assert!(parse("").is_err());
        assert!(parse(&" ".repeat(BYTES_MOST as usize + 1)).unwrap_err().contains("4m"));
    }
}
