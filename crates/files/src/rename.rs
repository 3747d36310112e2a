//! Names that move.

use crate::facts::Time;
use crate::files::Files;
use crate::id::NodeId;
use crate::place::{Final, Place, Slash};
use crate::refused::Refused;
use linux_raw_sys::general::{RENAME_EXCHANGE, RENAME_NOREPLACE};

/// What becomes of what has the new name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Replace,
    NoReplace,
    Exchange,
}

impl How {
    fn new(flags: u32) -> Result<How, Refused> {
        match flags {
            0 => Ok(How::Replace),
            RENAME_NOREPLACE => Ok(How::NoReplace),
            RENAME_EXCHANGE => Ok(How::Exchange),
            _ => Err(Refused::Invalid),
        }
    }
}

/// Whether `rename` knows these flags: 0, `RENAME_NOREPLACE` or `RENAME_EXCHANGE`. Linux asks
/// before it walks a path, so that these mistakes come first.
///
/// # Errors
///
/// [`Refused::Invalid`], also for `RENAME_WHITEOUT`.
pub fn rename_flags(flags: u32) -> Result<(), Refused> {
    How::new(flags).map(|_| ())
}

/// A name that is there.
#[derive(Clone, Copy)]
struct Named<'p> {
    folder: NodeId,
    name: &'p [u8],
    node: NodeId,
}

impl<C> Files<C> {
    /// Moves a name. What had the new name loses it, as by [`Files::unlink`] or
    /// [`Files::remove_folder`], and its content is handed back if it is gone with that. With
    /// `RENAME_EXCHANGE` the two names change places, and with `RENAME_NOREPLACE` the new name must
    /// be free. If both are names of the same node, nothing happens.
    ///
    /// # Errors
    ///
    /// In this order: [`Refused::Invalid`] for the flags; [`Refused::Busy`] for `.`, `..` and the
    /// root ([`Refused::Exists`] for a new name with `RENAME_NOREPLACE`); [`Refused::NotFound`];
    /// [`Refused::NotFolder`] for a slash behind what is no folder; [`Refused::IntoItself`] for a
    /// folder that would be in itself; [`Refused::NotEmpty`] for one that the old name is in;
    /// [`Refused::Denied`] and [`Refused::NotOwner`], also for a folder that the caller may not
    /// write and whose parent would be another one; [`Refused::NotFolder`] and
    /// [`Refused::IsFolder`] for one kind over the other; [`Refused::NotEmpty`];
    /// [`Refused::TooManyLinks`].
    pub fn rename(
        &mut self,
        from: &Place,
        to: &Place,
        flags: u32,
        now: Time,
    ) -> Result<Option<C>, Refused> {
        let how = How::new(flags)?;
        let Final::Name(old_name) = &from.last else { return Err(Refused::Busy) };
        let Final::Name(new_name) = &to.last else {
            return Err(if how == How::NoReplace { Refused::Exists } else { Refused::Busy });
        };
        let old = self.look(from.folder, old_name)?.ok_or(Refused::NotFound)?;
        let new = self.look(to.folder, new_name)?;
        match (how, new) {
            (How::NoReplace, Some(_)) => return Err(Refused::Exists),
            (How::Exchange, None) => return Err(Refused::NotFound),
            _ => {}
        }
        self.may_have_slash(from.slash, old)?;
        self.may_have_slash(to.slash, if how == How::Exchange { new.unwrap_or(old) } else { old })?;
        if self.is_within(to.folder, old) {
            return Err(Refused::IntoItself);
        }
        if new.is_some_and(|new| self.is_within(from.folder, new)) {
            let is_exchange = how == How::Exchange;
            return Err(if is_exchange { Refused::IntoItself } else { Refused::NotEmpty });
        }
        if new == Some(old) {
            return Ok(None);
        }
        self.may_take(from, old)?;
        match new {
            Some(new) => self.may_take(to, new)?,
            None => to.may_change()?,
        }
        if from.folder != to.folder {
            if self.is_folder(old) {
                from.may_move(old)?;
            }
            if let Some(new) = new.filter(|new| how == How::Exchange && self.is_folder(*new)) {
                to.may_move(new)?;
            }
        }
        let from = Named { folder: from.folder, name: old_name, node: old };
        match new {
            Some(new) if how == How::Exchange => {
                self.exchange(from, Named { folder: to.folder, name: new_name, node: new }, now)?;
                Ok(None)
            }
            _ => self.carry(from, to.folder, new_name, new, now),
        }
    }

    /// A slash comes behind nothing but a folder.
    fn may_have_slash(&self, slash: Slash, node: NodeId) -> Result<(), Refused> {
        let is_wrong = slash == Slash::Yes && !self.is_folder(node);
        if is_wrong { Err(Refused::NotFolder) } else { Ok(()) }
    }

    /// Whether a folder is `above`, or in it.
    fn is_within(&self, folder: NodeId, above: NodeId) -> bool {
        let mut at = folder;
        while at != above {
            match self.parent(at) {
                Some(parent) if parent != at => at = parent,
                _ => return false,
            }
        }
        true
    }

    /// Gives the node the new name, and takes that from what has it.
    fn carry(
        &mut self,
        from: Named<'_>,
        folder: NodeId,
        name: &[u8],
        replaced: Option<NodeId>,
        now: Time,
    ) -> Result<Option<C>, Refused> {
        let is_folder = self.is_folder(from.node);
        if let Some(replaced) = replaced {
            match self.node(replaced).filter(|node| node.folder().is_some()) {
                None if is_folder => return Err(Refused::NotFolder),
                Some(_) if !is_folder => return Err(Refused::IsFolder),
                Some(inner) if inner.has_names() => return Err(Refused::NotEmpty),
                _ => {}
            }
        }
        if is_folder && replaced.is_none() && from.folder != folder {
            self.may_add_subfolder(folder)?;
        }
        let Some(left) = self.known_folder(from.folder).names.remove(from.name) else {
            return Err(Refused::NotFound);
        };
        let kept = (from.folder == folder).then_some(left); // N6
        let cookie = self.known_folder(folder).names.set(name, from.node, kept);
        if let Some(replaced) = replaced {
            self.lose_seat(replaced, (folder, cookie), now);
        }
        self.reseat(from.node, (from.folder, left), (folder, cookie), now);
        Ok(replaced.and_then(|replaced| self.settle(replaced)))
    }

    /// Gives each of two nodes the other's name.
    fn exchange(&mut self, one: Named<'_>, two: Named<'_>, now: Time) -> Result<(), Refused> {
        if one.folder != two.folder {
            match (self.is_folder(one.node), self.is_folder(two.node)) {
                (true, false) => self.may_add_subfolder(two.folder)?,
                (false, true) => self.may_add_subfolder(one.folder)?,
                _ => {}
            }
        }
        let first = self.known_folder(one.folder).names.set(one.name, two.node, None);
        let second = self.known_folder(two.folder).names.set(two.name, one.node, None);
        let (first, second) = ((one.folder, first), (two.folder, second));
        self.reseat(one.node, first, second, now);
        self.reseat(two.node, second, first, now);
        Ok(())
    }

    /// Notes that a node's name is elsewhere now (N3, N4, N5), and when.
    fn reseat(&mut self, id: NodeId, from: (NodeId, u64), to: (NodeId, u64), now: Time) {
        let node = self.known(id);
        node.seats.remove(from);
        node.seats.add(to);
        node.facts.changed = now;
        if let Some(folder) = node.folder_mut() {
            folder.parent = to.0;
            // Two folders that change places may pass the largest count between one step and the
            // next; the sum is right.
            let less = &mut self.known(from.0).facts.links;
            *less = less.wrapping_sub(1);
            let more = &mut self.known(to.0).facts.links;
            *more = more.wrapping_add(1);
        }
        for folder in [from.0, to.0] {
            self.known(folder).facts.names_changed(now);
        }
    }
}
