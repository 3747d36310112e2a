//! A folder: its names, in the order of their cookies.

use crate::id::NodeId;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;

/// The cookies of `.` and `..`, and the first one of a name.
pub(crate) const DOT: u64 = 0;
pub(crate) const DOT_DOT: u64 = 1;
const FIRST: u64 = 2;

/// A folder.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) names: Names,
    /// Its own, if it is the root (N5).
    pub(crate) parent: NodeId,
    /// Removed folders that are still there and have it as their parent (N2).
    pub(crate) removed: u32,
}

impl Folder {
    pub(crate) fn new(parent: NodeId) -> Folder {
        Folder { names: Names::new(), parent, removed: 0 }
    }
}

/// The names of a folder (N6).
#[derive(Debug)]
pub(crate) struct Names {
    by_name: BTreeMap<Arc<[u8]>, (u64, NodeId)>,
    by_cookie: BTreeMap<u64, (Arc<[u8]>, NodeId)>,
    /// The cookie of the next new name.
    next: u64,
}

impl Names {
    fn new() -> Names {
        Names { by_name: BTreeMap::new(), by_cookie: BTreeMap::new(), next: FIRST }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
    pub(crate) fn find(&self, name: &[u8]) -> Option<NodeId> {
        Some(self.by_name.get(name)?.1)
    }
    /// The name that has a cookie.
    pub(crate) fn name(&self, cookie: u64) -> Option<&[u8]> {
        Some(&self.by_cookie.get(&cookie)?.0)
    }

    /// The cookie of the next new name.
    pub(crate) fn end(&self) -> u64 {
        self.next
    }

    /// Gives a name to a node: one that is taken keeps its cookie, a new one gets `cookie`, or the
    /// next. The cookie is returned.
    pub(crate) fn set(&mut self, name: &[u8], node: NodeId, cookie: Option<u64>) -> u64 {
        if let Some((cookie, named)) = self.by_name.get_mut(name) {
            *named = node;
            if let Some((_, named)) = self.by_cookie.get_mut(cookie) {
                *named = node;
            }
            return *cookie;
        }
        let cookie = cookie.unwrap_or(self.next);
        self.next = self.next.max(cookie + 1);
        let name = Arc::<[u8]>::from(name);
        self.by_cookie.insert(cookie, (Arc::clone(&name), node));
        self.by_name.insert(name, (cookie, node));
        cookie
    }
    /// Takes a name out, and returns the cookie that it had.
    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<u64> {
        let (cookie, _) = self.by_name.remove(name)?;
        self.by_cookie.remove(&cookie);
        Some(cookie)
    }
    /// The cookies, names and nodes from a cookie on.
    pub(crate) fn from(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], NodeId)> {
        self.by_cookie.range(cookie..).map(|(cookie, (name, node))| (*cookie, &**name, *node))
    }
    #[cfg(test)]
    pub(crate) fn audit(&self) {
        assert_eq!(self.by_name.len(), self.by_cookie.len(), "N6");
        for (name, (cookie, node)) in &self.by_name {
            assert_eq!(self.by_cookie.get(cookie), Some(&(Arc::clone(name), *node)), "N6");
            assert!((FIRST..self.next).contains(cookie), "N6");
        }
    }
}
