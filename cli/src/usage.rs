//! A command line that cannot be understood, in a sentence.
//!
//! **Not here**: values that their own parser refuses (`args`).

use crate::args::Args;
use crate::failure::Failure;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;

/// A command line that cannot be understood, with the value and the way out.
pub(crate) fn failure(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let (command, of) = (command_of(&text), |kind| context(error, kind));
    let (arg, value) = (of(ContextKind::InvalidArg), of(ContextKind::InvalidValue));
    let option = arg.split(' ').next().unwrap_or(&arg);
    let see = format!("see `{command} --help`");
    Failure::new(match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let (all, name) = (Args::command(), of(ContextKind::InvalidSubcommand));
            let names = all.get_subcommands().map(clap::Command::get_name);
            let names: Vec<&str> = names.filter(|name| *name != "help").collect();
            format!("there is no command {name}; there are {}", names.join(", "))
        }
        ErrorKind::UnknownArgument if arg.starts_with('-') => {
            format!("`{command}` has no option {arg}; {see}")
        }
        ErrorKind::UnknownArgument => {
            format!("{arg} is one word too many for `{command}`; {see}")
        }
        ErrorKind::MissingRequiredArgument => format!("`{command}` needs {arg}; {see}"),
        ErrorKind::ArgumentConflict => match of(ContextKind::PriorArg) {
            other if other.is_empty() => format!("{option} goes with nothing else: {see}"),
            other if other == arg => format!("{option} is given twice: leave one of them out"),
            other => format!("{option} does not go with {other}: leave one of them out"),
        },
        ErrorKind::InvalidValue => match of(ContextKind::ValidValue) {
            known if known.is_empty() => format!("{option} needs a value; {see}"),
            known => format!("{option} cannot be '{value}': use one of {known}"),
        },
        ErrorKind::ValueValidation => {
            let way = error.source().map_or(see, |why| why.to_string());
            format!("{option} cannot be '{value}': {way}")
        }
        ErrorKind::TooManyValues => format!("{option} takes no value: leave '{value}' out"),
        ErrorKind::InvalidUtf8 => format!(
            "an argument is not UTF-8, and only files and programs may be named in other bytes; {see}"
        ),
        _ => {
            let said = text.split("\n\n").next().unwrap_or(&text);
            let words: Vec<&str> = said.split_whitespace().collect();
            let said = words.join(" ");
            format!("{}; {see}", said.strip_prefix("error: ").unwrap_or(&said))
        }
    })
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

/// The command that a usage error is about: `foliant replay`.
fn command_of(text: &str) -> String {
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or("foliant");
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    usage.split(' ').take_while(is_name).take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_usage_error_names_the_command_whose_help_helps() {
        let check = |line: &str, expect: &str| {
            let Err(error) = Args::try_parse_from(line.split(' ')) else { panic!("{line}") };
            let said = failure(&error).sentence();
            assert!(said.contains(expect), "{said}");
        };
        check("foliant replay", "see `foliant replay --help`");
        check("foliant lab --frob", "see `foliant lab --help`");
        check("foliant --frob", "see `foliant --help`");
        check("foliant repaly", "repaly; there are replay, record, trace");
    }
}
