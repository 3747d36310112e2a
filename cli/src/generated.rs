//! `foliant completions` and `foliant man`: what clap's generators make of the command line.

use crate::args::{Args, Completions, Man};
use crate::failure::{Done, Failure, print};
use crate::shown;
use clap::CommandFactory;
use std::fs;

pub(crate) fn completions(args: &Completions) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "foliant", &mut script);
    print(&String::from_utf8_lossy(&script))
}

pub(crate) fn man(args: &Man) -> Done {
    let folder = &args.folder;
    let written =
        fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Args::command(), folder));
    let folder = shown::path(folder);
    written.map_err(|e| {
        Failure::new(format_args!("{folder} cannot have man pages ({e}); name another folder"))
    })?;
    crate::failure::tell(format_args!(
        "foliant: {folder} has the man pages; see `man -l {folder}/foliant.1`"
    ));
    Ok(())
}
