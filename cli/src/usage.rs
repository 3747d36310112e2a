//! A command line that cannot be understood.
//!
//! ```text
//!   foliant: `foliant replay` has no option --polcy; is '--policy' meant? see `foliant replay --help`
//!   Usage: foliant replay [OPTIONS] <FILE>...
//! ```
//!
//! The first line is a sentence like that of any other failure. The second one is of the command
//! that was named; where a value alone is wrong it is left out, for the line as such is right.
//!
//! **Not here**: values that their own parser refuses (`args`).

use crate::args::Args;
use crate::failure::Failure;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;
use std::ffi::OsString;

/// A command line that cannot be understood, with the value and the way out. The program's name is
/// among the words.
pub(crate) fn failure(error: &clap::Error, words: &[OsString]) -> Failure {
    let (command, usage) = asked(words);
    let see = format!("see `{command} --help`");
    let sentence = sentence(error, &command, &see);
    match error.kind() {
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => Failure::new(sentence),
        _ => Failure::new(format_args!("{sentence}\n{usage}")),
    }
}

fn sentence(error: &clap::Error, command: &str, see: &str) -> String {
    let of = |kind| context(error, kind);
    let (arg, value, meant) =
        (of(ContextKind::InvalidArg), of(ContextKind::InvalidValue), meant(error));
    let option = arg.split(' ').next().unwrap_or(&arg);
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let (all, name) = (Args::command(), of(ContextKind::InvalidSubcommand));
            let names = all.get_subcommands().map(clap::Command::get_name);
            let names: Vec<&str> = names.filter(|name| *name != "help").collect();
            format!("there is no command {name}; {meant}there are {}; {see}", names.join(", "))
        }
        ErrorKind::UnknownArgument if arg.starts_with('-') => {
            format!("`{command}` has no option {arg}; {meant}{see}")
        }
        ErrorKind::UnknownArgument => {
            format!("{arg} is one word too many for `{command}`; {see}")
        }
        ErrorKind::MissingRequiredArgument => format!("`{command}` needs {arg}; {see}"),
        ErrorKind::ArgumentConflict => match of(ContextKind::PriorArg) {
            other if other.is_empty() => format!("{option} goes with nothing else: {see}"),
            other if other == arg => {
                format!("{option} is given twice: leave one of them out; {see}")
            }
            other => format!("{option} does not go with {other}: leave one of them out; {see}"),
        },
        ErrorKind::InvalidValue => match of(ContextKind::ValidValue) {
            known if known.is_empty() => format!("{option} needs a value; {see}"),
            known => format!("{option} cannot be '{value}'; {meant}use one of {known}"),
        },
        ErrorKind::ValueValidation => {
            let way = error.source().map_or(see.to_owned(), |why| why.to_string());
            format!("{option} cannot be '{value}': {way}")
        }
        ErrorKind::TooManyValues => {
            format!("{option} takes no value: leave '{value}' out; {see}")
        }
        ErrorKind::InvalidUtf8 => format!(
            "an argument is not UTF-8, and only files and programs may be named in other bytes; {see}"
        ),
        _ => {
            let text = error.to_string();
            let said = text.split("\n\n").next().unwrap_or(&text);
            let words: Vec<&str> = said.split_whitespace().collect();
            let said = words.join(" ");
            format!("{}; {see}", said.strip_prefix("error: ").unwrap_or(&said))
        }
    }
}

/// A question after what is near to the word that is wrong, if anything is.
fn meant(error: &clap::Error) -> String {
    let near =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let near = near.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(name) => Some(name.clone()),
        ContextValue::Strings(names) => names.last().cloned(), // the nearest
        _ => None,
    });
    near.map_or(String::new(), |name| format!("is '{name}' meant? "))
}

/// What the parser knows of an error, in words; `--lab <NAME>` as `--lab NAME`.
fn context(error: &clap::Error, kind: ContextKind) -> String {
    let bare = |text: &str| text.replace(['<', '>', '[', ']'], "").replace("...", "");
    match error.get(kind) {
        Some(ContextValue::String(text)) if kind == ContextKind::InvalidValue => text.clone(),
        Some(ContextValue::String(text)) => bare(text),
        Some(ContextValue::Strings(texts)) => bare(&texts.join(", ")),
        _ => String::new(),
    }
}

/// The command that was named, or all of it, and the line that it takes.
fn asked(words: &[OsString]) -> (String, String) {
    let mut command = Args::command();
    command.build();
    let named = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let named = if named == "help" { "" } else { named };
    let command = match command.find_subcommand(named) {
        Some(_) => command.find_subcommand_mut(named).expect("it was found"),
        None => &mut command,
    };
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    (name, command.render_usage().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usage_error_names_the_command_whose_help_helps_and_what_was_meant() {
        let check = |line: &str, expect: &[&str]| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let Err(error) = Args::of(&words) else { panic!("{line}") };
            let said = failure(&error, &words).sentence();
            assert!(expect.iter().all(|part| said.contains(part)), "{said}");
        };
        check("foliant replay", &["see `foliant replay --help`\nUsage: foliant replay"]);
        check("foliant lab --frob", &["see `foliant lab --help`"]);
        check("foliant --frob", &["see `foliant --help`\nUsage: foliant [COMMAND]"]);
        check("foliant reply", &["is 'replay' meant?", "there are replay, record, advise"]);
        check("foliant lab --trust", &["no option --trust", "is '--truth' meant?"]);
        check("foliant boot --machine q3", &["cannot be 'q3'", "is 'q35' meant?", "microvm"]);
    }
}
