//! Names that come and go.

use crate::PATH_MAX;
use crate::facts::{Facts, Owner, Time};
use crate::files::Files;
use crate::folder::Folder;
use crate::id::NodeId;
use crate::node::{Body, Kind, Node, Unnamed};
use crate::place::{Final, Place, Slash};
use crate::refused::Refused;
use linux_raw_sys::general::{
    S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, S_IRWXG, S_IRWXO, S_IRWXU, S_ISGID, S_ISVTX,
};

const RIGHTS: u32 = S_IRWXU | S_IRWXG | S_IRWXO;

/// A leaf's mode: its kind, which is a regular file unless another one is given.
fn leaf_mode(mode: u32) -> u32 {
    if mode & S_IFMT == 0 { mode | S_IFREG } else { mode }
}

impl<C> Files<C> {
    /// Makes a node and gives it a name.
    ///
    /// Of `mode`, a folder takes the permission bits and the sticky bit, and a symbolic link
    /// nothing: it may be read by everybody, as in Linux. A leaf takes all, with its kind
    /// (`S_IFMT`); without one it is a regular file. The kind of a symbolic link is right for a
    /// leaf that is asked for its text ([`Files::walk`]). A new node belongs to whoever
    /// found the place, and in a folder with `S_ISGID` to the group of that, which a new folder
    /// hands on.
    ///
    /// # Errors
    ///
    /// [`Refused::Exists`], also of a place that ends in `.`, `..` or nothing;
    /// [`Refused::NotFound`] for a slash behind what is no folder, for a removed folder, and for a
    /// link without a text; [`Refused::NameTooLong`], also for a link's text;
    /// [`Refused::TooManyLinks`]; [`Refused::Denied`]; [`Refused::Invalid`] for a leaf with the
    /// kind of a folder.
    pub fn make(
        &mut self,
        place: &Place,
        mode: u32,
        body: Body<C>,
        now: Time,
    ) -> Result<NodeId, Refused> {
        match &body {
            Body::Link(text) if text.is_empty() => return Err(Refused::NotFound),
            Body::Link(text) if text.len() > PATH_MAX => return Err(Refused::NameTooLong),
            Body::Leaf(_) if mode & S_IFMT == S_IFDIR => return Err(Refused::Invalid),
            Body::Folder | Body::Link(_) | Body::Leaf(_) => {}
        }
        let is_folder = matches!(body, Body::Folder);
        let name = self.vacancy(place, if is_folder { Slash::Yes } else { Slash::No })?;
        if is_folder {
            self.may_add_subfolder(place.folder)?;
            self.known(place.folder).facts.links += 1;
        }
        let above = self.known(place.folder).facts;
        let (kind, mode) = match body {
            Body::Folder => {
                let mode = S_IFDIR | mode & (RIGHTS | S_ISVTX) | above.mode & S_ISGID;
                (Kind::Folder(Folder::new(place.folder)), mode)
            }
            Body::Link(text) => (Kind::Link(text.into_boxed_slice()), S_IFLNK | RIGHTS),
            Body::Leaf(content) => (Kind::Leaf(content), leaf_mode(mode)),
        };
        let mut facts = Facts::new(mode, if is_folder { 2 } else { 1 }, place.rights.owner, now);
        if above.mode & S_ISGID != 0 {
            facts.gid = above.gid;
        }
        let node = self.insert(Node::new(facts, kind));
        self.seat(place.folder, name, node, now);
        Ok(node)
    }

    /// Puts off what is to be in a folder until somebody looks for a name there. That is answered
    /// by [`Refused::Due`]; whoever looked has it filled by what is kept for that here
    /// ([`Files::due`]), and looks again. Until then it has no entries, and is not empty. What is
    /// no folder stays as it is.
    pub fn put_off(&mut self, folder: NodeId, fills: C) {
        if let Some(node) = self.node_mut(folder).filter(|node| node.folder().is_some()) {
            node.due = Some(fills);
        }
    }
    /// From now on a folder has the names that it has; gives back what was to fill it, if it was
    /// put off. All names are made before anybody else looks, under the lock.
    pub fn fill(&mut self, folder: NodeId) -> Option<C> {
        self.node_mut(folder)?.due.take()
    }

    /// Makes a leaf without a name, for `O_TMPFILE` and for a memfd. It may get its first name
    /// later ([`Files::link`]); where Linux refuses that, with `O_EXCL` or since a memfd is on
    /// another mount, the caller does. It is there until the last one that holds it lets go
    /// ([`Files::hold`], [`Files::let_go`]); at first nobody holds it.
    pub fn make_unnamed(&mut self, mode: u32, owner: Owner, content: C, now: Time) -> NodeId {
        // The kind of a folder has no meaning here.
        let mode = if mode & S_IFMT == S_IFDIR { mode & !S_IFMT } else { mode };
        let facts = Facts::new(leaf_mode(mode), 0, owner, now);
        let mut node = Node::new(facts, Kind::Leaf(content));
        node.unnamed = Unnamed::MayBeNamed;
        self.insert(node)
    }

    /// Gives a node one more name.
    ///
    /// # Errors
    ///
    /// [`Refused::NotPermitted`] for a folder; [`Refused::NotFound`] for a node that is gone or
    /// whose last name went, for a slash at the end, and for a removed folder; [`Refused::Exists`],
    /// [`Refused::NameTooLong`], [`Refused::TooManyLinks`], [`Refused::Denied`].
    pub fn link(&mut self, node: NodeId, place: &Place, now: Time) -> Result<(), Refused> {
        let Node { facts, .. } = self.node(node).ok_or(Refused::NotFound)?;
        let links = facts.links.checked_add(1);
        let name = self.vacancy(place, Slash::No)?;
        if self.is_folder(node) {
            return Err(Refused::NotPermitted);
        }
        if !self.may_be_named(node) {
            return Err(Refused::NotFound);
        }
        let links = links.ok_or(Refused::TooManyLinks)?;
        let named = self.known(node);
        named.unnamed = Unnamed::Stays;
        (named.facts.links, named.facts.changed) = (links, now);
        self.seat(place.folder, name, node, now);
        Ok(())
    }

    /// Takes the name of something that is no folder. If it was the last one and nobody holds the
    /// node, that is gone, and a leaf's content is handed back.
    ///
    /// # Errors
    ///
    /// [`Refused::IsFolder`] for a folder, `.` and `..`; [`Refused::NotFound`];
    /// [`Refused::NotFolder`] for a slash behind what is no folder; [`Refused::Denied`] and
    /// [`Refused::NotOwner`].
    pub fn unlink(&mut self, place: &Place, now: Time) -> Result<Option<C>, Refused> {
        let Final::Name(name) = &place.last else { return Err(Refused::IsFolder) };
        let node = self.look(place.folder, name)?.ok_or(Refused::NotFound)?;
        let is_folder = self.is_folder(node);
        if place.slash == Slash::Yes {
            return Err(if is_folder { Refused::IsFolder } else { Refused::NotFolder });
        }
        self.may_take(place, node)?;
        if is_folder {
            return Err(Refused::IsFolder);
        }
        self.unseat(place.folder, name, node, now);
        Ok(self.settle(node))
    }

    /// Removes an empty folder. One that somebody holds stays a folder, without entries and without
    /// a place for any, and `..` still leads out of it.
    ///
    /// # Errors
    ///
    /// [`Refused::NotFound`], [`Refused::NotFolder`], [`Refused::NotEmpty`], which is also the
    /// answer for `..`; [`Refused::Invalid`] for `.`, and [`Refused::Busy`] for the root;
    /// [`Refused::Denied`] and [`Refused::NotOwner`].
    pub fn remove_folder(&mut self, place: &Place, now: Time) -> Result<(), Refused> {
        let name = match &place.last {
            Final::Name(name) => name,
            Final::Dot => return Err(Refused::Invalid),
            Final::DotDot => return Err(Refused::NotEmpty),
            Final::Root => return Err(Refused::Busy),
        };
        let node = self.look(place.folder, name)?.ok_or(Refused::NotFound)?;
        self.may_take(place, node)?;
        if !self.is_folder(node) {
            return Err(Refused::NotFolder);
        }
        if self.known(node).has_names() {
            return Err(Refused::NotEmpty);
        }
        self.unseat(place.folder, name, node, now);
        self.settle(node);
        Ok(())
    }

    /// The name of a place where nothing is. `slash` says whether one may come behind it.
    fn vacancy<'p>(&self, place: &'p Place, slash: Slash) -> Result<&'p [u8], Refused> {
        let Final::Name(name) = &place.last else { return Err(Refused::Exists) };
        if self.look(place.folder, name)?.is_some() {
            return Err(Refused::Exists);
        }
        if place.slash == Slash::Yes && slash == Slash::No {
            return Err(Refused::NotFound);
        }
        place.may_change()?;
        Ok(name)
    }
    /// Whether a name of a place may be taken from a node, or be given to another one.
    pub(crate) fn may_take(&self, place: &Place, node: NodeId) -> Result<(), Refused> {
        place.may_change()?;
        let own = place.rights.owner.uid;
        let is_own = |id| self.facts(id).is_none_or(|facts| facts.uid == own);
        let is_sticky = self.facts(place.folder).is_some_and(|facts| facts.mode & S_ISVTX != 0);
        match is_sticky && own != Owner::ROOT.uid && !is_own(node) && !is_own(place.folder) {
            true => Err(Refused::NotOwner),
            false => Ok(()),
        }
    }

    /// Whether one more folder in a folder can be counted (N4).
    pub(crate) fn may_add_subfolder(&self, folder: NodeId) -> Result<(), Refused> {
        match self.facts(folder) {
            Some(Facts { links: u32::MAX, .. }) => Err(Refused::TooManyLinks),
            _ => Ok(()),
        }
    }

    /// Gives a new name to a node that counts it already (N3).
    fn seat(&mut self, folder: NodeId, name: &[u8], node: NodeId, now: Time) {
        let cookie = self.known_folder(folder).names.set(name, node, None);
        self.known(folder).facts.names_changed(now);
        self.known(node).seats.add((folder, cookie));
    }
    /// Takes a name from a node, which then has one link less, and a folder none.
    fn unseat(&mut self, folder: NodeId, name: &[u8], node: NodeId, now: Time) {
        if let Some(cookie) = self.known_folder(folder).names.remove(name) {
            self.known(folder).facts.names_changed(now);
            self.lose_seat(node, (folder, cookie), now);
        }
    }
    /// Notes that a node lost a name: the links of the node, and a folder's parent (N2, N4).
    pub(crate) fn lose_seat(&mut self, node: NodeId, seat: (NodeId, u64), now: Time) {
        let lost = self.known(node);
        lost.seats.remove(seat);
        lost.facts.changed = now;
        if lost.folder().is_none() {
            lost.facts.links -= 1;
            return;
        }
        lost.facts.links = 0;
        self.known(seat.0).facts.links -= 1;
        self.known_folder(seat.0).removed += 1;
    }
}
