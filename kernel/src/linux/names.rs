//! Names of files, as the kernel itself makes them.

use super::content::{Content, Fills};
use super::credentials::guarded;
use super::sched;
use super::streams::Stream;
use super::{clock, world};
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant_files::{Body, Facts, Files, Last, NodeId, Owner, Refused};
use foliant_linux::Errno;
use foliant_linux::capabilities::Capability;
use linux_raw_sys::general::{S_IFIFO, S_IFMT, S_IFREG, S_ISGID, S_ISUID};

/// What `look` finds among the names. Where it comes to a folder that is to be filled first, that
/// is done, and it looks again.
pub(super) fn look<R>(look: impl Fn(&Files<Content>) -> Result<R, Refused>) -> Result<R, Errno> {
    loop {
        let found = look(&world().files.read());
        match found {
            Err(Refused::Due(folder)) => fill(folder),
            found => return found.map_err(|why| Errno(why.errno())),
        }
    }
}

/// Fills a folder that was put off.
pub(super) fn fill(folder: NodeId) {
    let fills = match world().files.read().due(folder) {
        Some(Content::Due(fills)) => fills.clone(),
        _ => return,
    };
    fills.fill(folder);
}

/// Makes a name, and the folders that lead to it; what is there stays.
pub(super) fn make(path: &[u8], mode: u32, body: Body<Content>) -> Result<NodeId, Refused> {
    let mut files = world().files.write();
    let root = files.root();
    make_in(&mut files, root, path, mode, body)
}
/// Makes a folder that is filled when somebody looks for a name in it.
pub(super) fn make_due(path: &[u8], mode: u32, fills: Arc<dyn Fills>) -> Result<(), Refused> {
    let mut files = world().files.write();
    let root = files.root();
    let folder = make_in(&mut files, root, path, mode, Body::Folder)?;
    files.put_off(folder, Content::Due(fills));
    Ok(())
}
/// Makes a name below a folder.
pub(super) fn make_in(
    files: &mut Files<Content>,
    folder: NodeId,
    path: &[u8],
    mode: u32,
    body: Body<Content>,
) -> Result<NodeId, Refused> {
    let asked = |_: &Content| None;
    let mut at = folder;
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
    let make = |stream| files.make_unnamed(mode, Owner::ROOT, channel(stream), clock::now());
    all.map(make).into()
}

/// Notes that the calling thread changed a file's bytes: nobody becomes another one by what
/// somebody wrote without the capability for that.
pub(super) fn note_written(node: NodeId) {
    let now = clock::now();
    let set = |facts: &mut Facts| {
        facts.modified = now;
        facts.changed = now;
        if facts.mode & (S_ISUID | S_ISGID) != 0 && facts.mode & S_IFMT == S_IFREG {
            let by = sched::current().credentials();
            if !by.has(Capability::Fsetid) {
                facts.mode = by.without_set_ids(&guarded(facts));
            }
        }
    };
    let _ = world().files.write().change_facts(node, set); // one that is gone has no facts
}

/// What has a path of the kernel's own.
pub(super) fn find(path: &[u8]) -> Option<NodeId> {
    let files = world().files.read();
    files.walk(files.root(), path, Last::Keep, &|_: &Content| None).ok()
}
/// Takes all away that is in a folder.
pub(super) fn clear(path: &[u8]) {
    let mut gone = Vec::new();
    clear_in(&mut world().files.write(), path, &mut gone);
    drop(gone);
}
fn clear_in(files: &mut Files<Content>, path: &[u8], gone: &mut Vec<Content>) {
    let Ok(node) = files.walk(files.root(), path, Last::Keep, &|_: &Content| None) else { return };
    let names: Vec<Vec<u8>> = files
        .entries(node, 0)
        .filter(|entry| !matches!(entry.name, b"." | b".."))
        .map(|entry| entry.name.to_vec())
        .collect();
    for name in names {
        remove_from(files, &[path, b"/", &name].concat(), gone);
    }
}
/// Takes a folder away with all that is in it. What a program put there stays where it is held.
pub(super) fn remove(path: &[u8]) {
    let mut gone = Vec::new();
    remove_from(&mut world().files.write(), path, &mut gone);
    drop(gone);
}
fn remove_from(files: &mut Files<Content>, path: &[u8], gone: &mut Vec<Content>) {
    let none = |_: &Content| None;
    let root = files.root();
    let Ok(node) = files.walk(root, path, Last::Keep, &none) else { return };
    if files.is_folder(node) {
        gone.extend(files.fill(node)); // with nothing
        clear_in(files, path, gone);
    }
    let Ok(place) = files.place(root, path, Last::Keep, &none) else { return };
    match files.is_folder(node) {
        true => drop(files.remove_folder(&place, clock::now())),
        false => gone.extend(files.unlink(&place, clock::now()).ok().flatten()),
    }
}
