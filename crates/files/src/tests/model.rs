//! The calls, carried out by the crate: what a kernel does with it.

use super::call::{Answer, At, Call, Follow, Side, Stat, Told};
use super::{at, audit, plain};
use crate::Owner;
use crate::{Body, Files, Last, NodeId, Place, Refused, Time, rename_flags};
use alloc::vec::Vec;
use linux_raw_sys::errno::{EEXIST, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR};
use linux_raw_sys::general::{O_EXCL, O_NOFOLLOW, S_IFMT};

/// The crate's side.
pub(super) struct Model {
    pub(super) files: Files<u64>,
    pub(super) handles: Vec<NodeId>,
    /// Whether links of folders are told.
    pub(super) folder_links: bool,
}

impl From<Follow> for Last {
    fn from(follow: Follow) -> Last {
        match follow {
            Follow::Yes => Last::Follow,
            Follow::No => Last::Keep,
        }
    }
}

const NOW: Time = Time { seconds: 5, nanos: 0 };

impl Model {
    /// A root, and folders in each other below it; handle 0 is the innermost.
    pub(super) fn new(depth: usize, folder_links: bool) -> Model {
        let mut files = Files::new(at(0));
        let mut base = files.root();
        for _ in 0..depth {
            let place = files.place(base, b"base", Last::Keep, &plain).unwrap();
            base = files.make(&place, 0o755, Body::Folder, NOW).unwrap();
        }
        files.hold(base);
        Model { files, handles: Vec::from([base]), folder_links }
    }

    fn walk(&self, at: &At, last: impl Into<Last>) -> Result<NodeId, Refused> {
        self.files.walk(self.handles[at.handle], &at.path, last.into(), &plain)
    }
    fn place(&self, at: &At) -> Result<Place, Refused> {
        self.files.place(self.handles[at.handle], &at.path, Last::Keep, &plain)
    }

    /// How far a node is from the root.
    pub(super) fn depth(&self, node: NodeId) -> usize {
        let up = |at: &NodeId| self.files.parent(*at).filter(|parent| parent != at);
        core::iter::successors(Some(node), up).count() - 1
    }

    pub(super) fn stat(&self, node: NodeId) -> Stat {
        let facts = self.files.facts(node).unwrap();
        let told = !self.files.is_folder(node) || self.folder_links;
        Stat {
            kind: facts.mode & S_IFMT,
            links: told.then_some(facts.links),
            token: self.files.leaf(node).copied(),
        }
    }

    fn create(&mut self, at: &At, flags: u32, token: u64) -> Result<Answer, u32> {
        let stays = flags & (O_EXCL | O_NOFOLLOW) != 0;
        let last = if stays { Last::Keep } else { Last::Follow };
        let from = self.handles[at.handle];
        let place =
            self.files.place_to_open(from, &at.path, last, &plain).map_err(Refused::errno)?;
        match place.node() {
            Some(_) if flags & O_EXCL != 0 => Err(EEXIST),
            Some(node) if self.files.is_folder(node) => Err(EISDIR),
            Some(node) if self.files.link_text(node).is_some() => Err(ELOOP),
            Some(_) => Ok(Answer::Done),
            None => self.make(&place, Body::Leaf(token)).map_err(Refused::errno),
        }
    }
    fn make(&mut self, place: &Place, body: Body<u64>) -> Result<Answer, Refused> {
        self.files.make(place, 0o700, body, NOW)?;
        Ok(Answer::Done)
    }

    fn names(&self, at: &At) -> Told {
        let node = self.walk(at, Last::Follow).map_err(Refused::errno)?;
        match self.files.facts(node) {
            _ if !self.files.is_folder(node) => Err(ENOTDIR),
            Some(facts) if facts.links == 0 => Err(ENOENT),
            _ => {
                let entries = self.files.entries(node, 0);
                let named = entries.map(|entry| (entry.name.to_vec(), entry.mode & S_IFMT));
                Ok(Answer::Names(named.collect()))
            }
        }
    }

    fn refusable(&mut self, call: &Call, token: u64) -> Result<Answer, Refused> {
        match call {
            Call::Mkdir(at) => {
                let place = self.place(at)?;
                self.make(&place, Body::Folder)
            }
            Call::Mknod(at) => {
                let place = self.place(at)?;
                self.make(&place, Body::Leaf(token))
            }
            Call::Symlink(text, at) => {
                let place = self.place(at)?;
                self.make(&place, Body::Link(text.clone()))
            }
            Call::Link(from, to, follow) => {
                let node = self.walk(from, *follow)?;
                let place = self.place(to)?;
                self.files.link(node, &place, NOW)?;
                Ok(Answer::Done)
            }
            Call::LinkHandle(handle, to) => {
                let place = self.place(to)?;
                self.files.link(self.handles[*handle], &place, NOW)?;
                Ok(Answer::Done)
            }
            Call::Unlink(at) => {
                let place = self.place(at)?;
                self.files.unlink(&place, NOW)?;
                Ok(Answer::Done)
            }
            Call::Rmdir(at) => {
                let place = self.place(at)?;
                self.files.remove_folder(&place, NOW)?;
                Ok(Answer::Done)
            }
            Call::Rename(from, to, flags) => {
                rename_flags(*flags)?;
                let (from, to) = (self.place(from)?, self.place(to)?);
                self.files.rename(&from, &to, *flags, NOW)?;
                Ok(Answer::Done)
            }
            Call::Stat(at, follow) => Ok(Answer::Stat(self.stat(self.walk(at, *follow)?))),
            Call::Hold(at, follow) => {
                let node = self.walk(at, *follow)?;
                self.files.hold(node);
                self.handles.push(node);
                Ok(Answer::Done)
            }
            Call::Drop => {
                if self.handles.len() > 1
                    && let Some(node) = self.handles.pop()
                {
                    self.files.let_go(node);
                }
                Ok(Answer::Done)
            }
            Call::Create(..) | Call::Readlink(_) | Call::List(_) | Call::Tmpfile(_) => {
                unreachable!("these have errors of their own")
            }
        }
    }
}

impl Side for Model {
    fn call(&mut self, call: &Call, token: u64) -> Told {
        let told = match call {
            Call::Create(at, flags) => self.create(at, *flags, token),
            Call::Readlink(at) => {
                let node = self.walk(at, Last::Keep).map_err(Refused::errno)?;
                let text = self.files.link_text(node).ok_or(EINVAL)?;
                Ok(Answer::Text(text.to_vec()))
            }
            Call::List(at) => self.names(at),
            Call::Tmpfile(at) => {
                let node = self.walk(at, Last::Follow).map_err(Refused::errno)?;
                match self.files.facts(node) {
                    _ if !self.files.is_folder(node) => Err(ENOTDIR),
                    _ => {
                        let made = self.files.make_unnamed(0o600, Owner::ROOT, token, NOW);
                        self.files.hold(made);
                        self.handles.push(made);
                        Ok(Answer::Done)
                    }
                }
            }
            _ => self.refusable(call, token).map_err(Refused::errno),
        };
        audit(&self.files);
        told
    }
    fn handles(&self) -> usize {
        self.handles.len()
    }
}
