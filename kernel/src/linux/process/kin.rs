//! Who is whose child: processes come, end, and are waited for.
//!
//! **Locking**: children's lock under the list of all. Under it a child's parent, and what telling
//! of a signal takes.

use super::super::signal::{Became, Ended, IGNORE, Info, SIGNALS};
use super::{ALL, Held, Process, Stays, new_id, of_id, stops};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use linux_raw_sys::general::{SA_NOCLDWAIT, SIGCHLD, SIGKILL, WCONTINUED, WEXITED, WSTOPPED};

/// Whether a child that was found is taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Reap {
    Yes,
    No,
}

/// Whose child a new process is: its maker's, or a child of its maker's parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Kin {
    Child,
    Sibling,
}

impl Process {
    /// A process that this one makes, with this memory. A child tells of its end by a signal, a
    /// sibling by that of its maker.
    pub(in super::super) fn child(
        self: &Arc<Process>,
        memory: Arc<Held>,
        kin: Kin,
        tells_by: u32,
    ) -> Arc<Process> {
        let descriptors = self.descriptors.lock().clone();
        let child = Process::new(new_id(), descriptors, self.folder(), self.limits.clone());
        child.credentials.set(self.credentials.get());
        let copy = |from: &AtomicU32, to: &AtomicU32| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        copy(&self.mask, &child.mask);
        copy(&self.group, &child.group);
        copy(&self.session, &child.session);
        copy(&self.personality, &child.personality);
        copy(&self.barriers, &child.barriers);
        copy(&self.programs, &child.programs);
        if kin == Kin::Sibling {
            copy(&self.tells_by, &child.tells_by);
            copy(&self.made_at, &child.made_at);
        } else {
            child.tells_by.store(tells_by, Ordering::Relaxed);
            copy(&self.programs, &child.made_at);
        }
        child.is_apart.store(self.is_apart.load(Ordering::Relaxed), Ordering::Relaxed);
        child.badness.store(self.badness.load(Ordering::Relaxed), Ordering::Relaxed);
        child.is_kept_low.store(self.is_kept_low.load(Ordering::Relaxed), Ordering::Relaxed);
        child.is_dumpable.store(self.is_dumpable.load(Ordering::Relaxed), Ordering::Relaxed);
        *child.memory.write() = Some(memory);
        *child.image.lock() = self.image.lock().clone();
        *child.actions.lock() = *self.actions.lock();
        let child = Arc::new(child);
        self.list(&child, kin);
        ALL.write().insert(child.id, child.clone());
        // Whoever ends everybody has looked before, or finds it (P2).
        if of_id(1).is_none_or(|first| first.ended().is_some()) {
            child.note_end(Ended::Signal(SIGKILL));
        }
        child
    }
    /// Lists a new process with the children of its parent.
    fn list(self: &Arc<Process>, child: &Arc<Process>, kin: Kin) {
        loop {
            let above = self.parent.lock().upgrade().filter(|_| kin == Kin::Sibling);
            let parent = above.as_ref().unwrap_or(self);
            let mut children = parent.children.lock();
            if above.is_some() && self.parent_id() != parent.id {
                continue; // it ends, and has left its children to another one
            }
            *child.parent.lock() = Arc::downgrade(parent);
            children.push(child.clone());
            return;
        }
    }

    /// The number of its parent.
    pub(in super::super) fn parent_id(&self) -> u32 {
        self.parent.lock().upgrade().map_or(0, |parent| parent.id)
    }
    /// Has its parent learn something of it: `tell` makes it seen, and says whether it stays a
    /// child; it may send a signal. Whoever waits there finds all of it at once, or nothing: a
    /// signal that came later would be taken for another child's.
    pub(super) fn tell(&self, tell: impl FnOnce(Option<&Process>) -> Stays) -> Stays {
        loop {
            let parent = self.parent.lock().upgrade();
            let Some(parent) = parent else { return tell(None) };
            let mut children = parent.children.lock();
            if self.parent_id() != parent.id {
                continue; // it ends as well, and has left its children to another one
            }
            let stays = tell(Some(&parent));
            if stays == Stays::No {
                children.retain(|child| child.id != self.id);
            }
            drop(children);
            parent.waiting.wake(); // for nothing as well: there may be no child any more
            return stays;
        }
    }
    /// Tells its parent of its end.
    pub(in super::super) fn tell_end(&self) {
        let ended = self.ended().expect("it has ended");
        let stays = self.tell(|parent| {
            self.is_gone.store(true, Ordering::Release);
            let Some(parent) = parent else { return Stays::No };
            let number = self.ends_by(parent);
            let is_told = number != SIGCHLD || parent.action(SIGCHLD).handler != IGNORE;
            if is_told && (1..=SIGNALS).contains(&number) {
                let info = Info::of_child((self.id, self.user()), Became::Ended(ended));
                parent.send(info.by(number));
            }
            if number == SIGCHLD && parent.ignores_children() { Stays::No } else { Stays::Yes }
        });
        self.gone.wake();
        if stays == Stays::No {
            self.forget();
        }
    }
    /// The signal by which it tells its parent of its end.
    fn ends_by(&self, parent: &Process) -> u32 {
        let [number, made_at, programs] =
            [&self.tells_by, &self.made_at, &parent.programs].map(|it| it.load(Ordering::Relaxed));
        if made_at == programs { number } else { SIGCHLD }
    }
    /// Whether it is waited for as others are: it tells of its end by `SIGCHLD`.
    pub(in super::super) fn is_usual(&self) -> bool {
        self.tells_by.load(Ordering::Relaxed) == SIGCHLD
    }
    /// Whether ended children are not waited for.
    fn ignores_children(&self) -> bool {
        let action = self.action(SIGCHLD);
        action.handler == IGNORE || action.flags & u64::from(SA_NOCLDWAIT) != 0
    }
    /// Gives its children to the first process (P2).
    pub(super) fn leave_children(&self) {
        let Some(first) = of_id(1) else { return };
        let children = {
            let mut children = self.children.lock();
            for child in children.iter() {
                *child.parent.lock() = Arc::downgrade(&first);
                child.tells_by.store(SIGCHLD, Ordering::Relaxed);
            }
            core::mem::take(&mut *children)
        };
        let groups = self.kept_groups(&children);
        for child in children {
            first.children.lock().push(child.clone());
            let signal = child.dies_with.load(Ordering::Relaxed);
            if signal != 0 {
                child.send(Info::sent(signal, 0, self.id, self.user()));
            }
        }
        first.waiting.wake();
        stops::leave_groups(self, &groups);
    }
    /// Forgets a process: it was waited for, or nobody will.
    pub(in super::super) fn forget(&self) {
        ALL.write().remove(&self.id);
        if let Some(parent) = self.parent.lock().upgrade() {
            parent.children.lock().retain(|child| child.id != self.id);
        }
    }

    /// Looks for a child that is meant and of which something is to be told that is wanted; with
    /// `Reap::Yes` one caller alone gets it. `None` where there is no child that is meant.
    pub(in super::super) fn child_news(
        &self,
        is_meant: impl Fn(&Process) -> bool,
        wants: u32,
        reap: Reap,
    ) -> Option<Option<(Arc<Process>, Became)>> {
        let is_wanted = |news: Became| match news {
            Became::Ended(_) => wants & WEXITED != 0,
            Became::Stopped(_) => wants & WSTOPPED != 0,
            Became::Continued => wants & WCONTINUED != 0,
        };
        let found = {
            let mut children = self.children.lock();
            let mut meant = (0..children.len()).filter(|nth| is_meant(&children[*nth])).peekable();
            meant.peek()?;
            let news = |nth: usize| {
                let child = &children[nth];
                if child.is_gone() {
                    let ended = child.ended().map(Became::Ended).filter(|it| is_wanted(*it));
                    return ended.map(|ended| (nth, ended));
                }
                child.stop.take(is_wanted, reap == Reap::No).map(|news| (nth, news))
            };
            let found = meant.find_map(news);
            found.map(|(nth, news)| match (news, reap) {
                (Became::Ended(_), Reap::Yes) => (children.remove(nth), news),
                _ => (children[nth].clone(), news),
            })
        };
        if let (Some((child, Became::Ended(_))), Reap::Yes) = (&found, reap) {
            ALL.write().remove(&child.id);
            let mut used = self.children_used.lock();
            *used = used.and(child.usage()).and(child.children_usage());
        }
        Some(found)
    }
}
