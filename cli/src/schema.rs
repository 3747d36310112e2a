//! `foliant schema`: the documents that `--json` prints, and the schema of each.
//!
//! **Not here**: what a document is, and when its version is raised (`document`).

use crate::args::Schema as Args;
use crate::document::{Document, pretty, schema};
use crate::failure::{Done, Failure, print};
use crate::shown::shown;
use crate::table::columns_left;
use schemars::Schema;

/// A document as the list of all has it.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    name: &'static str,
    version: u32,
    command: &'static str,
    schema: fn() -> Schema,
}

impl Entry {
    const fn of<D: Document>() -> Entry {
        Entry { name: D::NAME, version: D::VERSION, command: D::COMMAND, schema: schema::<D> }
    }
}

/// All of them.
pub(crate) const ALL: &[Entry] = &[
    Entry::of::<crate::json::Replayed>(),
    Entry::of::<crate::record::Recorded<'_>>(),
    Entry::of::<crate::trace::Described<'_>>(),
    Entry::of::<crate::event::Line<'_>>(),
    Entry::of::<crate::check::Told<'_>>(),
    Entry::of::<crate::check::PlanTold<'_>>(),
    Entry::of::<crate::check::Pool>(),
    Entry::of::<crate::run::Told>(),
    Entry::of::<crate::boot::Counts>(),
    Entry::of::<crate::boot::compare::Whole>(),
    Entry::of::<crate::boot::compare::Published>(),
    Entry::of::<crate::calibrate::Shown<'_>>(),
    #[cfg(target_arch = "x86_64")]
    Entry::of::<crate::board::Whole<'_>>(),
    Entry::of::<crate::lab::document::Report<'_>>(),
    Entry::of::<crate::lab::compare::Whole<'_>>(),
    Entry::of::<crate::lab::hugetlb::Whole>(),
    Entry::of::<crate::lab::thpscale::Whole<'_>>(),
    #[cfg(target_arch = "x86_64")]
    Entry::of::<crate::lab::vmalloc::Whole<'_>>(),
    #[cfg(target_arch = "x86_64")]
    Entry::of::<crate::lab::zero::Cleared>(),
    Entry::of::<crate::lab::deadlines::Whole>(),
    Entry::of::<crate::lab::truth::Whole>(),
    Entry::of::<crate::sim::Whole<'_>>(),
    Entry::of::<crate::advise::Whole>(),
    Entry::of::<crate::plan::Plan>(),
];

/// `foliant schema`.
pub(crate) fn run(args: &Args) -> Done {
    let Some(name) = &args.document else { return print(&list()) };
    let Some(entry) = ALL.iter().find(|entry| entry.name == name) else {
        let names: Vec<&str> = ALL.iter().map(|entry| entry.name).collect();
        return Err(Failure::new(format_args!(
            "there is no document {}; there are {}",
            shown(name),
            names.join(", ")
        )));
    };
    print(&pretty(&(entry.schema)())?)
}

fn list() -> String {
    let row = |entry: &Entry| {
        [entry.name.to_owned(), entry.version.to_string(), entry.command.to_owned()]
    };
    columns_left(&["document", "version", "printed by"], ALL.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::title;
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn each_schema_is_one_and_says_what_every_field_is() {
        fn undescribed(at: &Value, of: &str, found: &mut Vec<String>) {
            if let Some(Value::Object(fields)) = at.get("properties") {
                let is_tag = |field: &Value| field.get("const").is_some();
                let is_told = |field: &Value| field["description"].as_str().is_some();
                let untold = fields.iter().filter(|(_, field)| !is_tag(field) && !is_told(field));
                found.extend(untold.map(|(name, _)| format!("{of}: {name}")));
            }
            let within: Vec<&Value> = match at {
                Value::Object(fields) => fields.values().collect(),
                Value::Array(all) => all.iter().collect(),
                _ => Vec::new(),
            };
            within.into_iter().for_each(|value| undescribed(value, of, found));
        }
        let (mut names, mut untold) = (BTreeSet::new(), Vec::new());
        for entry in ALL {
            let schema = (entry.schema)().to_value();
            assert!(names.insert(entry.name), "{} is there twice", entry.name);
            assert!(jsonschema::meta::is_valid(&schema), "{}", entry.name);
            assert!(schema["description"].is_string(), "{}", entry.name);
            assert_eq!(schema["required"][0], "schema", "{}", entry.name);
            let signature = &schema["properties"]["schema"]["const"];
            assert_eq!(*signature, title(entry.name, entry.version));
            assert!(entry.command.starts_with("foliant "), "{}", entry.name);
            undescribed(&schema, entry.name, &mut untold);
        }
        assert!(untold.is_empty(), "{untold:?}");
    }

    /// `document::S2`. Where it fails, `document::S3` says whether the version is raised as well.
    #[test]
    fn docs_schema_holds_all_of_them() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schema");
        for Entry { name, schema, .. } in ALL {
            let kept = std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap_or_default();
            assert!(
                kept == pretty(&schema()).unwrap(),
                "docs/schema/{name}.json is of another {name}: has its version to be raised? \
                 Then `foliant schema {name} > docs/schema/{name}.json`"
            );
        }
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), ALL.len(), "and nothing else");
    }
}
