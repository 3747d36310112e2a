//! Descriptors as links: `/proc/self/fd` and what leads there.
//!
//! ```text
//!   a path with a name `fd` ─▶ links of the process brought up to date ─▶ walked as any other
//! ```
//!
//! **Invariants**
//! - L1. The links are as the descriptors were when a path with such a name was last walked. What
//!   such a path leads to is asked of the descriptors themselves (`Process::walk`).
//!
//! **Locking**: descriptors, then names; neither under the other one.

use super::content::Content;
use super::process::{self, Process};
use super::{clock, names, world};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant_files::{Body, Last, NodeId, Refused};

/// Makes the names of devices that lead there.
pub(super) fn make_devices() -> Result<(), Refused> {
    let all = [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")];
    for (name, behind) in all {
        let text = format!("/proc/self/fd{behind}").into_bytes();
        names::make(format!("dev/{name}").as_bytes(), 0o777, Body::Link(text))?;
    }
    Ok(())
}

/// Whose descriptors a path may be about.
fn whose(asker: &Process, path: &[u8]) -> Option<Option<Arc<Process>>> {
    let mut names = path.split(|byte| *byte == b'/');
    if !names.clone().any(|name| name == b"fd") {
        return None;
    }
    let id = names.by_ref().skip_while(|name| *name != b"proc").nth(1)?;
    let id: Option<u32> = core::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
    Some(id.filter(|id| *id != asker.id).and_then(process::of_id))
}
/// Brings the links up to date that a path may lead over.
pub(super) fn refresh_for(asker: &Process, path: &[u8]) {
    match whose(asker, path) {
        Some(Some(other)) => refresh(&other),
        Some(None) => refresh(asker),
        None if path.starts_with(b"/dev/fd") => refresh(asker),
        None => {}
    }
}

/// What each descriptor's link says.
fn texts(process: &Process) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let opened: Vec<_> = {
        let descriptors = process.descriptors.lock();
        descriptors.all().map(|(number, it)| (number, it.opened.clone())).collect()
    };
    let text = |(number, opened): (u64, Arc<super::opened::Opened>)| {
        let path = world().files.read().path_of(opened.node);
        let label = || opened.channel().map(|it| it.label(opened.node.inode()).into_bytes());
        let text = path.or_else(label).unwrap_or_else(|| b"/ (deleted)".to_vec());
        (number.to_string().into_bytes(), text)
    };
    opened.into_iter().map(text).collect()
}
fn folder(id: u32) -> alloc::string::String {
    format!("/proc/{id}/fd")
}
fn refresh(process: &Process) {
    if process.ended().is_some() {
        return;
    }
    let Some(own) = names::find(format!("/proc/{}", process.id).as_bytes()) else { return };
    names::fill(own);
    let made = names::make_in(&mut world().files.write(), own, b"fd", 0o500, Body::Folder);
    let Ok(node) = made else { return };
    set(node, &folder(process.id), texts(process));
    super::texts::note_other_owner(process);
}
/// Has a folder have these links alone.
fn set(node: NodeId, folder: &str, mut texts: BTreeMap<Vec<u8>, Vec<u8>>) {
    let now = clock::now();
    let none = |_: &Content| None;
    let mut gone = Vec::new();
    let mut files = world().files.write();
    let mut old = Vec::new();
    for entry in files.entries(node, 0) {
        match texts.get(entry.name) {
            Some(text) if files.link_text(entry.node) == Some(text) => {
                texts.remove(entry.name);
            }
            _ if entry.name == b"." || entry.name == b".." => {}
            _ => old.push(entry.name.to_vec()),
        }
    }
    let root = files.root();
    let path = |name: &[u8]| [folder.as_bytes(), b"/", name].concat();
    for name in old {
        if let Ok(place) = files.place(root, &path(&name), Last::Keep, &none) {
            gone.extend(files.unlink(&place, now).ok().flatten());
        }
    }
    for (name, text) in texts {
        if let Ok(place) = files.place(root, &path(&name), Last::Keep, &none) {
            let _ = files.make(&place, 0o777, Body::Link(text), now); // a program was there first
        }
    }
    drop(files);
    drop(gone);
}
/// Takes the links of a process that has ended away.
pub(super) fn end_process(process: &Process) {
    let path = folder(process.id);
    let none = |_: &Content| None;
    let root = world().files.read().root();
    let found = world().files.read().place(root, path.as_bytes(), Last::Keep, &none);
    let Ok(place) = found else { return };
    let Some(node) = place.node() else { return };
    set(node, &path, BTreeMap::new());
    let _ = world().files.write().remove_folder(&place, clock::now()); // a program put something there
}
