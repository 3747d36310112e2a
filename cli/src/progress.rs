//! A progress bar on standard error, shown only where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A bar for a known amount of work.
pub(crate) fn bar(what: &str, steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps).with_message(what.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} % {eta}") {
        bar.set_style(style);
    }
    bar
}

/// A spinner for work of unknown length.
pub(crate) fn spinner(what: &str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}
