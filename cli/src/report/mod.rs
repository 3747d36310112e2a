//! `foliant report`: the measured systems, a map of memory over time and the cost models, as one
//! HTML page that needs no network; with a recording, what folio sizes make of that (`recorded`).
//!
//! ```text
//!   gather: commands ─▶ lab, replay, this machine's memory ─▶ systems: figures ─┐
//!   story:  a manager on the simulator, looked at ten times ─▶ moments ─────────┼─▶ Content ─▶ page ─▶ one file
//!   published, cost models ─────────────────────────────────────────────────────┘      plot, map: inline SVG
//! ```
//!
//! **Invariants**
//! - P1. The page loads nothing: styles and pictures are in it, and it has no script.
//! - P2. A command under a figure is the one whose words were parsed to make it.
//! - P3. Every number of a picture stands in a table beside it.
//! - P4. The file appears when it is whole, and whether it can be written is known before anything
//!   is measured.
//!
//! **Not here**: how anything is measured (`foliant-lab`, `foliant-trace`, `foliant-hosted`).

mod asked;
mod axis;
mod content;
mod gather;
mod map;
mod number;
mod page;
mod plot;
mod recorded;
mod recordings;
mod results;
mod story;
mod systems;
#[cfg(test)]
mod tests;

use crate::args::Report;
use crate::failure::{Done, Failure, unwritable, why};
use crate::shown;
use asked::Extent;
use std::io::Write;
use std::path::Path;
use tempfile::{Builder, NamedTempFile};

pub(crate) fn run(args: &Report) -> Done {
    let path = &args.output;
    let mut file = place_for(path)?;
    let extent = if args.quick { Extent::Quick } else { Extent::Full };
    let page = match &args.file {
        Some(recording) => recorded::render(&recorded::content(recording, &args.budget())?)?,
        None => page::render(&gather::content(extent)?)?,
    };
    let written = file.write_all(page.as_bytes()).and_then(|()| readable(&file));
    written.map_err(|e| unwritable(path, &e))?;
    file.persist(path).map_err(|e| unwritable(path, &e.error))?;
    let shown = shown::path(path);
    let kib = page.len().div_ceil(1024);
    crate::failure::tell(format_args!("foliant: {shown} holds the report, {kib} KiB"));
    if args.open {
        open::that(path).map_err(|e| {
            Failure::new(format_args!(
                "{shown} is written but cannot be shown ({}); open it in a browser",
                why(&e)
            ))
        })?;
    }
    Ok(())
}

/// A file beside the one that is asked for, which it will replace.
fn place_for(path: &Path) -> Done<NamedTempFile> {
    if path.is_dir() {
        let path = shown::path(path);
        return Err(Failure::new(format_args!("{path} is a folder; name a file in it with -o")));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let file =
        Builder::new().prefix(".foliant-report").tempfile_in(parent.unwrap_or(Path::new(".")));
    file.map_err(|e| unwritable(path, &e))
}

/// A page is for everybody to read; a temporary file is for its owner alone.
#[cfg(unix)]
fn readable(file: &NamedTempFile) -> std::io::Result<()> {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    file.as_file().set_permissions(Permissions::from_mode(0o644))
}
#[cfg(not(unix))]
fn readable(_file: &NamedTempFile) -> std::io::Result<()> {
    Ok(())
}
