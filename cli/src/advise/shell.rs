//! Shell lines that set the kernel's switches as a remedy says, and lines that undo it.
//!
//! **Invariants**
//! - H1. A line is printed for a switch that stands otherwise now, and one that puts it back. Where
//!   this machine has no such switch, the kernel's own beginning is what is put back: 2m inherits,
//!   all others are off.
//!
//! **Not here**: advice for mappings, which `foliant run` gives.

use crate::plan;
use foliant::fault::{Orders, Size};
use foliant_trace::Remedy;
use foliant_units::Order;
use std::fs;

/// Where Linux has its switches.
const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";

/// A switch: its file, where it is to stand, and where it stands.
struct Switch {
    file: String,
    wanted: &'static str,
    now: String,
}

/// The word in brackets, as the kernel shows where a switch stands.
fn standing(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

/// What a file of the kernel's says; nothing where there is none.
fn read(file: &str) -> Option<String> {
    standing(&fs::read_to_string(file).ok()?).map(str::to_owned)
}

fn switches(remedy: &Remedy, read: impl Fn(&str) -> Option<String>) -> Vec<Switch> {
    let global = format!("{FOLDER}/enabled");
    let now = read(&global).unwrap_or_else(|| "madvise".to_owned());
    let mut all = vec![Switch { file: global, wanted: plan::word(remedy.global), now }];
    for order in Order::all().filter(|order| Orders::ANON.contains(*order)) {
        let kib = order.bytes().get() >> 10;
        let file = format!("{FOLDER}/hugepages-{kib}kB/enabled");
        let wanted = remedy.sizes.iter().find(|(its, _)| *its == order);
        let wanted = wanted.map_or(Size::Never, |(_, size)| *size).label();
        let usual = if order == Order::SIZE_2M { "inherit" } else { "never" };
        let now = read(&file).unwrap_or_else(|| usual.to_owned());
        all.push(Switch { file, wanted, now });
    }
    all.retain(|switch| switch.wanted != switch.now);
    all
}

/// The lines of a shell.
pub(super) fn lines(remedy: &Remedy) -> String {
    lines_with(remedy, read)
}

fn lines_with(remedy: &Remedy, read: impl Fn(&str) -> Option<String>) -> String {
    let switches = switches(remedy, read);
    if switches.is_empty() {
        return "# All switches stand as the advice says.\n".to_owned();
    }
    let line = |to: &str, file: &str| format!("echo {to} | sudo tee {file}\n");
    let mut text = "# The switches of folio sizes, which are for all programs:\n".to_owned();
    text.extend(switches.iter().map(|switch| line(switch.wanted, &switch.file)));
    text += "# To undo it:\n";
    text.extend(switches.iter().rev().map(|s| format!("# {}", line(&s.now, &s.file))));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant::fault::Global;

    #[test]
    fn what_stands_otherwise_is_set_and_put_back() {
        let order = |n| Order::new(n).unwrap();
        let sizes = vec![(order(4), Size::Madvise)];
        let remedy = Remedy { global: Global::Madvise, sizes, wishes: Vec::new() };
        let stands = |file: &str| {
            let text = match file {
                "/sys/kernel/mm/transparent_hugepage/enabled" => "[always] madvise never\n",
                file if file.contains("-2048kB") => "always [inherit] madvise never\n",
                file if file.contains("-64kB") => "always inherit madvise [never]\n",
                file if file.contains("-32kB") => "always inherit [madvise] never\n",
                _ => return None,
            };
            standing(text).map(str::to_owned)
        };
        let size = |kib| format!("{FOLDER}/hugepages-{kib}kB/enabled");
        let tee = |to: &str, file: &str| format!("echo {to} | sudo tee {file}");
        let expect = [
            tee("madvise", &format!("{FOLDER}/enabled")),
            tee("never", &size(32)),
            tee("madvise", &size(64)),
            tee("never", &size(2048)),
        ];
        let back = [
            tee("inherit", &size(2048)),
            tee("never", &size(64)),
            tee("madvise", &size(32)),
            tee("always", &format!("{FOLDER}/enabled")),
        ];
        let text = lines_with(&remedy, stands);
        let mut lines = text.lines();
        assert!(lines.next().unwrap().starts_with("# The switches"));
        assert!(lines.by_ref().take(4).eq(expect.iter()), "{text}");
        assert_eq!(lines.next(), Some("# To undo it:"));
        assert!(lines.eq(back.iter().map(|line| format!("# {line}"))), "{text}");
        assert!(lines_with(&Remedy::NONE, |_| Some("never".to_owned())).contains("All switches"));
    }
}
