//! What programs may do in a range, and what is advised about it.

use super::space::{Much, line};
use super::spent::Spent;
use super::words::{Complaint, Words, size};
use super::{Shell, go_on};
use crate::memory::manager;
use crate::say;
use foliant::compact::CollapseError;
use foliant::manager::CollapseLimits;
use foliant::space::{Advice, Flags};
use foliant_units::{Order, VaRange};

/// What `madvise` takes: Linux's words. `collapse` is a call of its own.
pub(super) const ADVICE: [(&str, Option<Advice>); 9] = [
    ("hugepage", Some(Advice::HugePage)),
    ("nohugepage", Some(Advice::NoHugePage)),
    ("dontneed", Some(Advice::DontNeed)),
    ("free", Some(Advice::Free)),
    ("populate_read", Some(Advice::PopulateRead)),
    ("populate_write", Some(Advice::PopulateWrite)),
    ("guard_install", Some(Advice::GuardInstall)),
    ("guard_remove", Some(Advice::GuardRemove)),
    ("collapse", None),
];

/// The rest of a line: how much of the area.
fn much<'w>(words: &mut Words<'w>) -> Result<Much, Complaint<'w>> {
    let much = match words.next() {
        None => Much::Unsaid,
        Some("all") => Much::All,
        Some(word) => Much::Bytes(size(word)?),
    };
    words.end()?;
    Ok(much)
}

/// `mprotect`. What lies in the range is shown as it is then.
pub(super) fn mprotect<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let start = shell.place(words.need("ADDRESS")?)?;
    let rights = match words.need("RIGHTS")? {
        "none" => Flags::NONE,
        "r" => Flags::READ,
        "rw" => Flags::READ_WRITE,
        "rx" => Flags::READ.with(Flags::EXEC),
        "rwx" => Flags::RIGHTS,
        other => return Err(Complaint::Unknown(other, "none, r, rw, rx, rwx")),
    };
    let range = shell.range(start, much(words)?)?;
    let spent = Spent::begin();
    manager().protect(shell.space(), range, rights)?;
    say!("{} protected{spent}", range.bytes());
    shell.areas().filter(|area| area.range.overlaps(range)).for_each(|area| line(&area));
    Ok(())
}

/// `madvise`.
pub(super) fn madvise<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let start = shell.place(words.need("ADDRESS")?)?;
    let word = words.need("ADVICE")?;
    let known = "hugepage, nohugepage, dontneed, free, populate_read, populate_write, \
                 guard_install, guard_remove, collapse";
    let (_, advice) =
        ADVICE.iter().find(|(name, _)| *name == word).ok_or(Complaint::Unknown(word, known))?;
    let range = shell.range(start, much(words)?)?;
    let spent = Spent::begin();
    let Some(advice) = advice else { return collapse(shell, range, &spent) };
    match advice {
        Advice::PopulateRead | Advice::PopulateWrite => {
            for piece in super::touch::pieces(range) {
                go_on()?;
                manager().advise(shell.space(), piece, *advice)?;
            }
        }
        _ => manager().advise(shell.space(), range, *advice)?,
    }
    say!("{word}: {} advised{spent}", range.bytes());
    Ok(())
}

/// Makes folios of 2 MiB of what lies in the range, where that is possible.
fn collapse<'w>(shell: &Shell, range: VaRange, spent: &Spent) -> Result<(), Complaint<'w>> {
    let order = Order::SIZE_2M;
    let (mut made, mut there, mut why) = (0, 0, None);
    let mut wholes = 0;
    for piece in super::touch::pieces(range).filter(|piece| piece.bytes() == order.bytes()) {
        go_on()?;
        wholes += 1;
        match manager().collapse(shell.space(), piece.start(), order, CollapseLimits::NONE) {
            Ok(()) => made += 1,
            Err(CollapseError::Collapsed(_)) => there += 1,
            Err(other) => why = why.or(Some(other)),
        }
    }
    if wholes == 0 {
        say!("collapse: no aligned 2m lie in these {}", range.bytes());
        return Ok(());
    }
    say!("collapse: {made} folios of 2m made, {there} were there{spent}");
    if let Some(why) = why {
        say!("{} of 2m stay what they are: {why}", wholes - made - there);
    }
    Ok(())
}
