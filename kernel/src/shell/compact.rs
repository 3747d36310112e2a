//! Memory that is moved together.

use super::spent::Spent;
use super::words::{Complaint, Words};
use super::{Shell, go_on};
use crate::memory::manager;
use crate::say;
use foliant::compact::{CompactRequest, Effort, End, Obstacle, Why};
use foliant_units::{Frame, Nanos};

/// Time between two looks at the keyboard.
const PIECE: Nanos = Nanos(100_000_000);
/// Blocks that stay in use of which the shell says why.
const SHOWN: usize = 4;

/// `compact`: until a request has gone through all of memory, or one has moved nothing.
pub(super) fn compact<'w>(_: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    words.end()?;
    let spent = Spent::begin();
    let none = Obstacle { block: Frame::new(0), frame: Frame::new(0), why: Why::Kept };
    let (mut blocks, mut moved, mut pages) = (0, 0, 0);
    let effort = Effort { time: PIECE, ..Effort::ALL };
    let (stuck, obstacles) = loop {
        let mut obstacles = [none; SHOWN];
        let request = CompactRequest { effort, ..CompactRequest::ALL };
        let done = manager().compact(&request, &mut obstacles);
        (blocks, moved, pages) = (blocks + done.blocks, moved + done.moved, pages + done.pages);
        if done.end == End::Through || done.moved == 0 {
            break (done.stuck, obstacles);
        }
        go_on()?;
    };
    say!(
        "{blocks} blocks of 2m are free that were not: {moved} folios moved, {pages} pages{spent}"
    );
    for obstacle in obstacles.iter().take(stuck as usize) {
        say!("{obstacle}");
    }
    if stuck > SHOWN as u64 {
        say!("and {} more", stuck - SHOWN as u64);
    }
    Ok(())
}
