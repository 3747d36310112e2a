//! Records a program and prints what came of it: `record [-d] [-c] FILE CMD [ARG...]`.
//!
//! `-d` decodes instructions even where privilege would permit better; `-c` checks decoding and
//! pages.

use foliant_trace::record::{AccessWish, Options};
use foliant_trace::{Budget, Trace, describe, record_to_file};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1).peekable();
    let mut wish = AccessWish::Best;
    let mut check = false;
    while let Some(flag) = args.next_if(|a| a == "-d" || a == "-c") {
        if flag == "-d" {
            wish = AccessWish::Decoded;
        } else {
            check = true;
        }
    }
    let usage = "usage: record [-d] [-c] FILE CMD [ARG...]";
    let file = args.next().ok_or(usage)?;
    let command = args.next().ok_or(usage)?;
    let mut options = Options::new(command, args);
    options.access = wish;
    options.check_decoding = check;
    options.check_pages = check;
    options.forward_signals = true;
    let summary = record_to_file(options, Path::new(&file))?;
    eprintln!("{:?}\n{:?}", summary.header, summary.trailer);
    eprintln!("{:#?}", summary.replay);
    eprintln!("{:?} {:?}", summary.agreement, summary.residue);
    eprintln!("unhandled {} bytes {}", summary.unhandled, std::fs::metadata(&file)?.len());
    let budget = Budget::unlimited(); // a recording of one's own
    let trace = Trace::open(&file, &budget)?;
    eprintln!("{:?}", describe(&trace.events, &budget)?);
    Ok(())
}
