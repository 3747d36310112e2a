//! Where paths lead.
//!
//! ```text
//!   a/b/../l/name/        l is a link: its text is walked in l's folder, then the rest
//!   └──body──┘└end┘       the last part is not looked up by the body: what becomes of it, and
//!                         of the slash behind it, differs from call to call
//! ```
//!
//! **Invariants**
//! - W1. Nothing recurses: a link's text goes on a stack, and there are at most [`LINKS_MAX`].
//! - W2. Where the body ends is a folder, or the walk is refused.
//! - W3. No name is looked up in a folder that the caller may not search, be it the last one.

use crate::caller::Caller;
use crate::files::Files;
use crate::id::NodeId;
use crate::place::{Final, Place, Rights, Slash};
use crate::refused::Refused;
use crate::{LINKS_MAX, NAME_MAX, PATH_MAX};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::ops::Range;
use linux_raw_sys::general::{W_OK, X_OK};

/// What becomes of a symbolic link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    /// It is followed.
    Follow,
    /// It is what the path leads to, unless a slash comes behind it.
    Keep,
}

/// Who walks.
type By<'w, C> = &'w dyn Caller<C>;

/// A walk that is under way.
struct Walk<'w, C> {
    files: &'w Files<C>,
    by: By<'w, C>,
    at: NodeId,
    links: u32,
}

/// A text, and where in it the walk is.
struct Text<'w> {
    bytes: Cow<'w, [u8]>,
    next: usize,
}

/// The end of a text: the last part, which is empty if there is none, and what is behind it.
struct End<'w> {
    bytes: Cow<'w, [u8]>,
    part: Range<usize>,
    slash: Slash,
}

impl Text<'_> {
    /// The next part, if there is one; the text then goes on behind it and its slashes.
    fn part(&mut self) -> Option<Range<usize>> {
        let from = |start: usize| self.bytes.get(start..).unwrap_or_default();
        let slashes = |start| from(start).iter().take_while(|byte| **byte == b'/').count();
        let start = self.next + slashes(self.next);
        let end = start + from(start).iter().take_while(|byte| **byte != b'/').count();
        let next = end + slashes(end);
        self.next = next;
        (start < end).then_some(start..end)
    }
    fn is_at_end(&self) -> bool {
        self.next >= self.bytes.len()
    }
}

impl End<'_> {
    fn name(&self) -> &[u8] {
        &self.bytes[self.part.clone()]
    }
    fn last(&self) -> Final {
        match self.name() {
            b"" => Final::Root,
            b"." => Final::Dot,
            b".." => Final::DotDot,
            name => Final::Name(name.to_vec()),
        }
    }
}

impl<'w, C> Walk<'w, C> {
    /// Walks all parts of a text but the last one, and returns that.
    fn body(&mut self, bytes: Cow<'w, [u8]>) -> Result<End<'w>, Refused> {
        self.begin(&bytes)?;
        let mut texts = Vec::from([Text { bytes, next: 0 }]);
        loop {
            let is_outermost = texts.len() == 1;
            let text = texts.last_mut().expect("the outermost one is left only by return");
            let part = text.part();
            if part.is_some() && !self.files.may(self.at, X_OK, self.by) {
                return Err(Refused::Denied); // W3
            }
            if is_outermost && text.is_at_end() {
                let part = part.unwrap_or(0..0);
                let slash = if part.end < text.bytes.len() { Slash::Yes } else { Slash::No };
                let bytes = core::mem::take(&mut text.bytes);
                return Ok(End { bytes, part, slash });
            }
            let Some(part) = part else {
                texts.pop();
                continue;
            };
            match self.step(&text.bytes[part], Last::Follow)? {
                Some(bytes) => {
                    self.begin(&bytes)?;
                    texts.push(Text { bytes, next: 0 }); // W1
                }
                None if !self.files.is_folder(self.at) => return Err(Refused::NotFolder), // W2
                None => {}
            }
        }
    }

    /// Goes to where a text begins.
    fn begin(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        if bytes.first() == Some(&b'/') {
            self.at = self.files.root();
        }
        match self.files.node(self.at) {
            None => Err(Refused::NotFound),
            Some(node) if node.folder().is_none() => Err(Refused::NotFolder),
            Some(_) => Ok(()),
        }
    }

    /// Goes where one part leads. If that is a link and followed, the walk stays in the link's
    /// folder, and the text is returned.
    fn step(&mut self, part: &[u8], last: Last) -> Result<Option<Cow<'w, [u8]>>, Refused> {
        let to = match part {
            b"" | b"." => Some(self.at),
            b".." => self.files.parent(self.at),
            name => self.files.look(self.at, name)?,
        };
        let to = to.ok_or(Refused::NotFound)?;
        if last == Last::Follow
            && let Some(text) = self.text(to)
        {
            self.links += 1;
            return match text.len() {
                _ if self.links > LINKS_MAX => Err(Refused::Loop),
                0 => Err(Refused::NotFound),
                _ => Ok(Some(text)),
            };
        }
        self.at = to;
        Ok(None)
    }
    fn text(&self, node: NodeId) -> Option<Cow<'w, [u8]>> {
        let files = self.files;
        match files.leaf(node) {
            Some(content) => self.by.link(content).map(Cow::Owned),
            None => files.link_text(node).map(Cow::Borrowed),
        }
    }
}

impl<C> Files<C> {
    /// Where a path leads. A path that begins with a slash begins at the root, every other one at
    /// `from`. A slash at the end says that a link there is followed, and that a folder is meant.
    ///
    /// # Errors
    ///
    /// [`Refused::NotFound`] (of an empty path, too), [`Refused::NotFolder`], [`Refused::Loop`],
    /// [`Refused::NameTooLong`]; [`Refused::Denied`] where the caller may not search a folder.
    pub fn walk(
        &self,
        from: NodeId,
        path: &[u8],
        last: Last,
        by: &dyn Caller<C>,
    ) -> Result<NodeId, Refused> {
        let (mut walk, mut text) = self.start(from, path, by)?;
        let (mut last, mut wanted) = (last, Slash::No);
        loop {
            let end = walk.body(text)?;
            if end.slash == Slash::Yes {
                (last, wanted) = (Last::Follow, Slash::Yes);
            }
            match walk.step(end.name(), last)? {
                Some(link) => text = link,
                None if wanted == Slash::Yes && !self.is_folder(walk.at) => {
                    return Err(Refused::NotFolder);
                }
                None => return Ok(walk.at),
            }
        }
    }

    /// Where a path's last name is or would be. With [`Last::Keep`] nothing is said of the last
    /// part yet: whether it is missing, too long, `..`, or in a folder that was removed, is
    /// answered by what is done with the place, for each call of Linux answers otherwise. With
    /// [`Last::Follow`] this is [`Files::place_to_open`].
    ///
    /// # Errors
    ///
    /// Those of [`Files::walk`] for the path up to the last part.
    pub fn place(
        &self,
        from: NodeId,
        path: &[u8],
        last: Last,
        by: &dyn Caller<C>,
    ) -> Result<Place, Refused> {
        if last == Last::Follow {
            return self.place_to_open(from, path, last, by);
        }
        let (mut walk, text) = self.start(from, path, by)?;
        let end = walk.body(text)?;
        self.place_at(walk.at, &end, by)
    }

    /// Where `open` with `O_CREAT` finds or makes a file. A link at the end is followed even if it
    /// leads to nothing, and the place is where that would be. With [`Last::Keep`], which is meant
    /// by `O_NOFOLLOW` and by `O_EXCL`, the place is the link's own.
    ///
    /// # Errors
    ///
    /// Those of [`Files::walk`], but for a last name that is missing; and [`Refused::IsFolder`] if
    /// a slash comes behind a last name, whatever is there.
    pub fn place_to_open(
        &self,
        from: NodeId,
        path: &[u8],
        last: Last,
        by: &dyn Caller<C>,
    ) -> Result<Place, Refused> {
        let (mut walk, mut text) = self.start(from, path, by)?;
        loop {
            let end = walk.body(text)?;
            let place = self.place_at(walk.at, &end, by)?;
            if let Final::Name(name) = &place.last {
                if place.slash == Slash::Yes {
                    return Err(Refused::IsFolder);
                }
                if self.look(place.folder, name)?.is_some()
                    && let Some(link) = walk.step(name, last)?
                {
                    text = link;
                    continue;
                }
            }
            return Ok(place);
        }
    }

    fn start<'w>(
        &'w self,
        from: NodeId,
        path: &'w [u8],
        by: By<'w, C>,
    ) -> Result<(Walk<'w, C>, Cow<'w, [u8]>), Refused> {
        match path.len() {
            0 => Err(Refused::NotFound),
            len if len > PATH_MAX => Err(Refused::NameTooLong),
            _ => Ok((Walk { files: self, by, at: from, links: 0 }, Cow::Borrowed(path))),
        }
    }
    fn place_at(
        &self,
        folder: NodeId,
        end: &End<'_>,
        by: &dyn Caller<C>,
    ) -> Result<Place, Refused> {
        let last = end.last();
        let node = match &last {
            Final::Name(name) => match self.look(folder, name) {
                Err(Refused::Due(folder)) => return Err(Refused::Due(folder)),
                found => found.ok().flatten(),
            },
            Final::Dot => Some(folder),
            Final::DotDot => self.parent(folder),
            Final::Root => Some(self.root()),
        };
        let rights = Rights {
            owner: by.owner(),
            may_change: self.may(folder, W_OK | X_OK, by),
            may_move: node.is_some_and(|node| self.may(node, W_OK, by)),
        };
        Ok(Place { folder, last, slash: end.slash, node, rights })
    }
    /// Whether the caller may do something with a node. One that is gone refuses nothing: whoever
    /// looks is told that it is gone.
    fn may(&self, node: NodeId, wanted: u32, by: &dyn Caller<C>) -> bool {
        self.facts(node).is_none_or(|facts| by.may(&facts, wanted))
    }

    /// What has a name in a folder.
    pub(crate) fn look(&self, folder: NodeId, name: &[u8]) -> Result<Option<NodeId>, Refused> {
        let node = self.node(folder).ok_or(Refused::NotFound)?;
        let inner = node.folder().ok_or(Refused::NotFolder)?;
        if node.facts.links == 0 {
            return Err(Refused::NotFound); // it was removed
        }
        if name.len() > NAME_MAX {
            return Err(Refused::NameTooLong);
        }
        if node.due.is_some() {
            return Err(Refused::Due(folder)); // N7
        }
        Ok(inner.names.find(name))
    }
}
