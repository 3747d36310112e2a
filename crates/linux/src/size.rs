//! How large a process is and was, in pages.
//!
//! **Not here**: looking (`process`), and telling (`status`).

/// How large a process is and was.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Size {
    /// Pages of all vmas.
    pages: u64,
    /// The most of them.
    most: u64,
    /// The most that was resident, as far as somebody looked: in pages.
    resident: u64,
}

impl Size {
    /// Of a new process of so many pages.
    pub(crate) fn of(pages: u64, resident: u64) -> Size {
        Size { pages, most: pages, resident }
    }
    /// Pages of all vmas.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }
    /// The most of them that there ever were.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }
    /// The most that was resident when somebody looked.
    pub(crate) fn resident(&self) -> u64 {
        self.resident
    }
    /// So many pages came, where so many were.
    pub(crate) fn note(&mut self, came: u64, went: u64) {
        self.pages = self.pages + came - went;
        self.most = self.most.max(self.pages);
    }
    /// So many are resident, and perhaps fewer soon.
    pub(crate) fn note_resident(&mut self, pages: u64) {
        self.resident = self.resident.max(pages);
    }
    /// What was resident is forgotten: so many are.
    pub(crate) fn reset_resident(&mut self, pages: u64) {
        self.resident = pages;
    }
}
