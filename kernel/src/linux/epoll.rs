//! Descriptors that tell which of others are ready.
//!
//! ```text
//!   opened file ── wakes ─▶ Item: noted ─▶ listed as ready ─▶ wait: asked once more ─▶ told
//!                                              ▲── not an edge: listed again ──┘
//! ```
//!
//! **Invariants**
//! - E1. An item is listed once. It is taken off the list before its file is asked: what comes
//!   behind the question lists it again.
//! - E2. An item does not hold its file: where that is closed, the item is gone.
//! - E3. An epoll that has epolls as items is no item itself: asking goes two steps deep at most.
//!   Linux allows more.
//! - E4. Files are asked, and let go of, with no lock of an epoll held.
//!
//! **Locking**: items; the list of those that are ready. Neither under the other one.

use super::channel::Channel;
use super::events::Events;
use super::opened::Opened;
use super::waiters::{Cut, Waiters, Watcher};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use foliant_linux::Errno;
use linux_raw_sys::errno::{EEXIST, EINVAL, ELOOP, ENOENT, EPERM};
use linux_raw_sys::general::{EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT, EPOLLWAKEUP};
use spin::Mutex;

/// Bits of an interest that are no events.
const KINDS: u32 = EPOLLET | EPOLLEXCLUSIVE | EPOLLONESHOT | EPOLLWAKEUP;

/// What somebody wants to be told: events with the way they are told of, and a word that comes
/// along.
#[derive(Clone, Copy)]
pub(super) struct Interest {
    pub(super) events: u32,
    pub(super) data: u64,
}

impl Interest {
    fn asked(self) -> Events {
        match self.events & !KINDS {
            // One that was told once asks for nothing.
            0 if self.events & EPOLLONESHOT != 0 => Events::NONE,
            events => Events(events) | Events::ALWAYS,
        }
    }
}

/// A file among others, by a descriptor's number.
struct Item {
    file: Weak<Opened>,
    interest: Mutex<Interest>,
    is_listed: AtomicBool,
    epoll: Weak<Epoll>,
    own: Weak<Item>,
}

/// A number and where its opened file lies, which is nobody else's while the item is there (E2).
type Key = (u32, usize);

pub(super) struct Epoll {
    items: Mutex<Items>,
    ready: Mutex<VecDeque<Arc<Item>>>,
    waiting: Waiters,
    /// How many epolls have it as an item.
    holders: AtomicUsize,
    own: Weak<Epoll>,
}

#[derive(Default)]
struct Items {
    all: BTreeMap<Key, Arc<Item>>,
    /// How many there are when those that are gone are looked for.
    look_at: usize,
}

/// Held while an epoll becomes an item (E3).
static NESTING: Mutex<()> = Mutex::new(());

/// What is done to an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Add,
    Modify,
    Remove,
}

impl Item {
    /// Lists it where it is not (E1).
    fn list(&self) -> bool {
        let (Some(epoll), Some(own)) = (self.epoll.upgrade(), self.own.upgrade()) else {
            return false;
        };
        if self.is_listed.swap(true, Ordering::AcqRel) {
            return false;
        }
        epoll.ready.lock().push_back(own);
        true
    }
    /// What its file has of what is asked for.
    fn events(&self) -> Events {
        let Some(file) = self.file.upgrade() else { return Events::NONE };
        let asked = self.interest.lock().asked();
        file.events() & asked
    }
    /// Lists it where there is something to be told.
    fn look(&self) {
        if !self.events().is_empty() {
            self.note(Events::ALL);
        }
    }
}

impl Watcher for Item {
    fn note(&self, events: Events) {
        let is_asked = self.interest.lock().asked().has(events);
        if is_asked
            && self.list()
            && let Some(epoll) = self.epoll.upgrade()
        {
            epoll.waiting.wake_for(Events::IN);
        }
    }
}

fn epoll_of(file: &Opened) -> Option<&Epoll> {
    let channel: &dyn Any = &**file.channel()?;
    channel.downcast_ref::<Epoll>()
}

impl Epoll {
    pub(super) fn new() -> Arc<Epoll> {
        Arc::new_cyclic(|own| Epoll {
            items: Mutex::default(),
            ready: Mutex::default(),
            waiting: Waiters::new(),
            holders: AtomicUsize::new(0),
            own: own.clone(),
        })
    }
    /// Adds, changes or removes the item of a file.
    pub(super) fn change(
        &self,
        change: Change,
        (number, file): (u32, &Arc<Opened>),
        interest: Interest,
    ) -> Result<(), Errno> {
        let channel = file.channel().ok_or(Errno(EPERM))?;
        if epoll_of(file).is_some_and(|other| core::ptr::eq(other, self)) {
            return Err(Errno(EINVAL));
        }
        let key = (number, Arc::as_ptr(file) as usize);
        let found = self.items.lock().all.get(&key).cloned();
        match (change, found) {
            (Change::Add, Some(_)) => Err(Errno(EEXIST)),
            (Change::Add, None) => self.add(key, file, interest),
            (_, None) => Err(Errno(ENOENT)),
            (Change::Modify, Some(item)) => {
                *item.interest.lock() = interest;
                item.look();
                Ok(())
            }
            (Change::Remove, Some(item)) => {
                let taken = self.items.lock().all.remove(&key);
                if taken.is_some()
                    && let Some(inner) = epoll_of(file)
                {
                    inner.holders.fetch_sub(1, Ordering::AcqRel);
                }
                let watcher: Weak<dyn Watcher> = item.own.clone();
                channel.waiters().unwatch(&watcher);
                self.ready.lock().retain(|other| !Arc::ptr_eq(other, &item));
                Ok(())
            }
        }
    }
    fn add(&self, key: Key, file: &Arc<Opened>, interest: Interest) -> Result<(), Errno> {
        let nesting = epoll_of(file).map(|inner| (inner, NESTING.lock()));
        if let Some((inner, _)) = &nesting
            && (self.holders.load(Ordering::Acquire) > 0 || inner.has_epolls())
        {
            return Err(Errno(ELOOP)); // E3
        }
        let item = Arc::new_cyclic(|own| Item {
            file: Arc::downgrade(file),
            interest: Mutex::new(interest),
            is_listed: AtomicBool::new(false),
            epoll: self.own.clone(),
            own: own.clone(),
        });
        self.forget_closed();
        {
            let mut items = self.items.lock();
            if items.all.contains_key(&key) {
                return Err(Errno(EEXIST)); // another thread was faster
            }
            items.all.insert(key, item.clone());
            if let Some((inner, _)) = &nesting {
                inner.holders.fetch_add(1, Ordering::AcqRel);
            }
        }
        drop(nesting);
        if let Some(channel) = file.channel() {
            let watcher: Weak<dyn Watcher> = item.own.clone();
            channel.waiters().watch(watcher);
        }
        item.look();
        Ok(())
    }
    /// Whether an epoll is among its items.
    fn has_epolls(&self) -> bool {
        let items: Vec<Arc<Item>> = self.items.lock().all.values().cloned().collect();
        let mut files = items.iter().filter_map(|item| item.file.upgrade()); // E4
        files.any(|file| epoll_of(&file).is_some())
    }
    /// Forgets items whose files are closed (E2), each time that twice as many came.
    fn forget_closed(&self) {
        let mut items = self.items.lock();
        if items.all.len() < items.look_at {
            return;
        }
        items.all.retain(|_, item| item.file.strong_count() > 0);
        items.look_at = (2 * items.all.len()).max(64);
    }

    /// Waits until some of at most so many are ready; says what is told of each.
    pub(super) fn wait(&self, most: usize, until: Option<u64>) -> Result<Vec<Interest>, Cut> {
        let told = self.waiting.wait(until, || Some(self.take(most)).filter(|it| !it.is_empty()));
        match told {
            Err(Cut::Time) => Ok(Vec::new()),
            told => told,
        }
    }
    /// Takes what is ready now.
    fn take(&self, most: usize) -> Vec<Interest> {
        let mut listed = core::mem::take(&mut *self.ready.lock());
        let (mut told, mut again) = (Vec::new(), Vec::new());
        while told.len() < most
            && let Some(item) = listed.pop_front()
        {
            item.is_listed.store(false, Ordering::Release); // E1
            let events = item.events();
            if events.is_empty() {
                continue;
            }
            let mut interest = item.interest.lock();
            told.push(Interest { events: events.0, data: interest.data });
            match interest.events {
                once if once & EPOLLONESHOT != 0 => interest.events &= KINDS,
                edge if edge & EPOLLET != 0 => {}
                _ => again.push(item.clone()),
            }
        }
        // What was not reached comes first, what is told of as long as it is so comes last.
        let is_left = !listed.is_empty();
        {
            let mut ready = self.ready.lock();
            listed.into_iter().rev().for_each(|item| ready.push_front(item));
        }
        let is_more = again.iter().fold(is_left, |is_more, item| item.list() || is_more);
        if is_more {
            self.waiting.wake_for(Events::IN);
        }
        told
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        let items = core::mem::take(&mut self.items.get_mut().all);
        for item in items.into_values() {
            let Some(file) = item.file.upgrade() else { continue };
            if let Some(channel) = file.channel() {
                let watcher: Weak<dyn Watcher> = item.own.clone();
                channel.waiters().unwatch(&watcher);
            }
            if let Some(inner) = epoll_of(&file) {
                inner.holders.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

impl Channel for Epoll {
    fn events(&self) -> Events {
        let listed: Vec<Arc<Item>> = self.ready.lock().iter().cloned().collect();
        Events::IN.when(listed.iter().any(|item| !item.events().is_empty()))
    }
    fn waiters(&self) -> &Waiters {
        &self.waiting
    }
    fn label(&self, _: u64) -> String {
        String::from("anon_inode:[eventpoll]")
    }
}
