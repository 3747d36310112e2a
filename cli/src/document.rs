//! Documents: what `--json` prints, each with its JSON Schema.
//!
//! ```text
//!   a type ── Serialize ──▶ a document    "schema": "foliant replay 1" first, then the type's fields
//!      └───── JsonSchema ─▶ its schema    draft 2020-12; texts of fields are the type's doc comments
//! ```
//!
//! **Invariants**
//! - S1. A document is an object, is among those that `schema` lists, and says name and version in
//!   its first field.
//! - S2. A schema is derived from the type that is printed. `docs/schema` has a copy of each; a
//!   test compares them, so nobody changes a document unawares.
//! - S3. A field that is added leaves the version; one that goes, has another type or means
//!   something else raises it.
//!
//! **Not here**: the types, which stand beside the commands that fill them; the list (`schema`).

use crate::failure::{Done, Failure};
use crate::shown;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Value, json};

/// What a command prints for programs.
pub(crate) trait Document: Serialize + JsonSchema {
    /// Its name, by which `foliant schema` knows it.
    const NAME: &'static str;
    /// Raised as S3 says.
    const VERSION: u32 = 1;
    /// The command that prints it.
    const COMMAND: &'static str;
}

/// A document with its first field.
#[derive(Serialize)]
struct Signed<'d, D> {
    schema: String,
    #[serde(flatten)]
    document: &'d D,
}

pub(crate) fn title(name: &str, version: u32) -> String {
    format!("foliant {name} {version}")
}

fn signed<D: Document>(document: &D) -> Signed<'_, D> {
    Signed { schema: title(D::NAME, D::VERSION), document }
}

fn failed(e: serde_json::Error) -> Failure {
    Failure::new(format_args!("JSON cannot be made: {e}"))
}

/// The text of a document, with a line end.
pub(crate) fn text<D: Document>(document: &D) -> Done<String> {
    pretty(&signed(document))
}

/// The same in one line.
pub(crate) fn line<D: Document>(document: &D) -> Done<String> {
    let text = serde_json::to_string(&signed(document)).map_err(failed)?;
    Ok(shown::json(&text) + "\n")
}

/// Any value as JSON that a terminal may show.
pub(crate) fn pretty(value: &impl Serialize) -> Done<String> {
    let text = serde_json::to_string_pretty(value).map_err(failed)?;
    Ok(shown::json(&text) + "\n")
}

/// The schema of a document (S2).
pub(crate) fn schema<D: Document>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<D>();
    let title = title(D::NAME, D::VERSION);
    let signature = json!({ "const": title, "description": "The document's name and version." });
    schema.insert("title".to_owned(), title.into());
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.insert("schema".to_owned(), signature);
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.insert(0, "schema".into());
    }
    schema
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A document is what its schema says. Those that a test can have printed are looked at where
    /// the command is run.
    pub(crate) fn holds<D: Document>(document: &D) {
        let value: Value = serde_json::from_str(&text(document).unwrap()).unwrap();
        let validator = jsonschema::draft202012::new(schema::<D>().as_value()).unwrap();
        let faults: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
        assert_eq!(faults, [""; 0], "{value:#}");
    }
}
