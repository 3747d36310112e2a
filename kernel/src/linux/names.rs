//! Names of files, as the kernel itself makes them.

use super::content::Content;
use super::streams::Stream;
use super::{clock, world};
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant_files::{Body, Facts, Last, NodeId, Refused};
use linux_raw_sys::general::S_IFIFO;

/// Makes a name, and the folders that lead to it; what is there stays.
pub(super) fn make(path: &[u8], mode: u32, body: Body<Content>) -> Result<NodeId, Refused> {
    let mut files = world().files.write();
    let asked = |_: &Content| None;
    let mut at = files.root();
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
    let mut body = Some(body);
    while let Some(name) = names.next() {
        let place = files.place(at, name, Last::Follow, &asked)?;
        at = match place.node() {
            Some(found) => found,
            None if names.peek().is_some() => {
                files.make(&place, 0o755, Body::Folder, clock::now())?
            }
            None => {
                let body = body.take().expect("the last name comes once");
                files.make(&place, mode, body, clock::now())?
            }
        };
    }
    Ok(at)
}

/// Makes the three streams that a program begins with.
pub(super) fn streams() -> Vec<NodeId> {
    let mut files = world().files.write();
    let mode = S_IFIFO | 0o600;
    let all = [Stream::Input, Stream::Output, Stream::Errors];
    let channel = |stream| Content::Channel(Arc::new(stream));
    let make = |stream| files.make_unnamed(mode, channel(stream), clock::now());
    all.map(make).into()
}

/// Notes that a file's bytes changed.
pub(super) fn note_written(node: NodeId) {
    let now = clock::now();
    let set = |facts: &mut Facts| {
        facts.modified = now;
        facts.changed = now;
    };
    let _ = world().files.write().change_facts(node, set); // one that is gone has no facts
}
