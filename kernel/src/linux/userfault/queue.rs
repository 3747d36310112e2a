//! What waits at a descriptor of `userfaultfd`: faults until they are answered, and changes until
//! they are read of.

use alloc::vec::Vec;
use foliant_linux::Told;
use foliant_units::{Va, VaRange};

/// What waits; `C` is the descriptor of a child.
pub(super) struct Queue<C> {
    faults: Vec<Taken>,
    news: Vec<News<C>>,
    /// Numbers of faults and changes that were given.
    last: u64,
    is_closed: bool,
}

/// A fault that a thread waits for.
struct Taken {
    number: u64,
    told: Told,
    is_read: bool,
    is_woken: bool,
}

/// A change that a thread waits for, until it is read of.
pub(super) struct News<C> {
    number: u64,
    words: [u64; 4],
    /// Of a fork: whoever reads gets it.
    child: Option<C>,
    /// Whether somebody is about to.
    is_read: bool,
}

/// What a read finds.
pub(super) enum Message<C> {
    Fault(Told),
    /// A change: its number, its words, and a child. It stays until it is forgotten.
    News(u64, [u64; 4], Option<C>),
}

impl Taken {
    /// Whether a handler has yet to be told: not of one that goes on already.
    fn is_unread(&self) -> bool {
        !self.is_read && !self.is_woken
    }
}

impl<C: Clone> Queue<C> {
    pub(super) fn new() -> Queue<C> {
        Queue { faults: Vec::new(), news: Vec::new(), last: 0, is_closed: false }
    }
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Adds a fault; gives its number.
    pub(super) fn add_fault(&mut self, told: Told) -> u64 {
        let number = self.number();
        self.faults.push(Taken { number, told, is_read: false, is_woken: false });
        number
    }
    /// Adds a change; gives its number.
    pub(super) fn add_news(&mut self, words: [u64; 4], child: Option<C>) -> u64 {
        let number = self.number();
        self.news.push(News { number, words, child, is_read: false });
        number
    }
    /// What is read next: faults come first.
    pub(super) fn read(&mut self) -> Option<Message<C>> {
        if let Some(taken) = self.faults.iter_mut().find(|taken| taken.is_unread()) {
            taken.is_read = true;
            return Some(Message::Fault(taken.told));
        }
        let news = self.news.iter_mut().find(|news| !news.is_read)?;
        news.is_read = true;
        Some(Message::News(news.number, news.words, news.child.clone()))
    }
    /// Whoever read of this change could not be told of it after all.
    pub(super) fn put_back(&mut self, number: u64) {
        let read = self.news.iter_mut().find(|news| news.number == number);
        read.into_iter().for_each(|news| news.is_read = false);
    }
    /// Whether there is something to read.
    pub(super) fn is_unread(&self) -> bool {
        self.news.iter().any(|news| !news.is_read) || self.faults.iter().any(Taken::is_unread)
    }
    /// Whether there are changes that were not read of to the end.
    pub(super) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Has those go on that wait for a page of a range; says whether there are any.
    pub(super) fn wake(&mut self, range: VaRange) -> bool {
        let meant = |taken: &&mut Taken| range.contains(Va::new(taken.told.address));
        self.faults.iter_mut().filter(meant).map(|taken| taken.is_woken = true).count() > 0
    }
    /// Whether whoever waits for this goes on: it was answered, or read of, or nobody will.
    pub(super) fn is_over(&self, number: u64) -> bool {
        let waits = |taken: &Taken| taken.number == number && !taken.is_woken;
        let is_waited_for =
            self.faults.iter().any(waits) || self.news.iter().any(|news| news.number == number);
        self.is_closed || !is_waited_for
    }
    /// This is over, or nobody waits for it any more. What is left of a change is the caller's to
    /// drop.
    pub(super) fn forget(&mut self, number: u64) -> Option<News<C>> {
        self.faults.retain(|taken| taken.number != number);
        let at = self.news.iter().position(|news| news.number == number)?;
        Some(self.news.remove(at))
    }
    /// Nobody reads any more; changes that were not read of are the caller's to drop.
    pub(super) fn close(&mut self) -> Vec<News<C>> {
        self.is_closed = true;
        core::mem::take(&mut self.news)
    }
}
