//! The address spaces: one to begin with, and those that forks make.
//!
//! **Invariants**
//! - S1. The space that commands work on is one of those that are kept, and there is always one.

use super::spent::Spent;
use super::words::{Complaint, Words};
use super::{Shell, go_on};
use crate::memory::manager;
use crate::say;
use foliant::space::SpaceId;

/// So many are kept at most: the shell has no heap memory of its own.
const MOST: usize = 16;

/// The spaces. Each is known by its place, counted from 1.
pub(super) struct Spaces {
    all: [Option<SpaceId>; MOST],
    current: usize,
}

impl Spaces {
    pub(super) fn of(space: SpaceId) -> Spaces {
        let mut all = [None; MOST];
        all[0] = Some(space);
        Spaces { all, current: 0 }
    }
    /// The one that commands work on.
    pub(super) fn current(&self) -> SpaceId {
        self.all[self.current].expect("S1")
    }
    /// Ends all of them. Whether that was possible.
    pub(super) fn end_all(&self) -> bool {
        self.all.iter().copied().flatten().fold(true, |all, space| {
            let done = manager().end(space).map_err(|why| say!("a space: {why}"));
            all && done.is_ok()
        })
    }

    /// The place and the name of the one with this number.
    fn named<'w>(&self, word: &'w str) -> Result<(usize, SpaceId), Complaint<'w>> {
        let number = word.parse().ok().and_then(|number: usize| number.checked_sub(1));
        let found = number.and_then(|place| Some((place, (*self.all.get(place)?)?)));
        found.ok_or(Complaint::Space(word))
    }
}

/// `fork`.
pub(super) fn fork<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    words.end()?;
    let spaces = &mut shell.spaces;
    let place = spaces.all.iter().position(Option::is_none).ok_or(Complaint::Spaces(MOST))?;
    let spent = Spent::begin();
    let child = manager().fork(spaces.current()).map_err(Complaint::Fork)?;
    spaces.all[place] = Some(child);
    let pages = manager().pages(child).map_or(0, |pages| pages.get());
    let (number, parent) = (place + 1, spaces.current + 1);
    say!("space {number} is a fork of space {parent}, with {pages} pages of its{spent}");
    Ok(())
}

/// `spaces`.
pub(super) fn spaces<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let word = words.next();
    words.end()?;
    if let Some(word) = word {
        shell.spaces.current = shell.spaces.named(word)?.0;
    }
    for (place, space) in shell.spaces.all.iter().enumerate() {
        let Some(space) = space else { continue };
        go_on()?;
        let pages = manager().pages(*space).map_or(0, |pages| pages.get());
        let mark = if place == shell.spaces.current { '*' } else { ' ' };
        say!("{mark} {:>2} {pages:>8} pages", place + 1);
    }
    Ok(())
}

/// `kill`. Where it was the one that commands work on, they work on the first one from now on.
pub(super) fn kill<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    let word = words.need("NUMBER")?;
    words.end()?;
    let (place, space) = shell.spaces.named(word)?;
    let others = (0..MOST).filter(|other| *other != place);
    let next = others.into_iter().find(|other| shell.spaces.all[*other].is_some());
    let next = next.ok_or(Complaint::LastSpace)?;
    let spent = Spent::begin();
    manager().end(space).map_err(Complaint::Fork)?;
    shell.spaces.all[place] = None;
    if shell.spaces.current == place {
        shell.spaces.current = next;
    }
    say!(
        "space {} is ended{spent}; commands work on space {}",
        place + 1,
        shell.spaces.current + 1
    );
    Ok(())
}
