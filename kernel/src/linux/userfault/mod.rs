//! Descriptors of `userfaultfd`: faults that a program answers itself.
//!
//! ```text
//!   access ─▶ fault: told ─▶ queue ──read──▶ the program's handler
//!      ▲                       │ waits            │ COPY, ZEROPAGE, WRITEPROTECT, WAKE
//!      └─────── made again ◀───┴───── woken ◀─────┘
//! ```
//!
//! What the requests do to memory is in `foliant-linux`; here are the queue and those that wait.
//!
//! **Invariants**
//! - W1. A descriptor does not keep the memory that it is of: what has ended answers ESRCH.
//! - W2. A thread that took a fault waits until a range with its address is woken, the descriptor
//!   is closed, or a signal comes, and makes the access again in any case. In the middle of a copy
//!   of the kernel's nothing but the process's end counts as a signal.
//! - W3. The source of a copy is looked at under the lock of memory only as far as it is there;
//!   what is not is touched without it, and the request goes on.
//! - W4. Whoever changes armed memory goes on when the handler has read of it, the descriptor is
//!   closed, or its process ends. Until it was read of, no page is filled or watched (EAGAIN). The
//!   child's descriptor of a fork that is never read of is closed, and its memory armed no more.
//!
//! **Locking**: the queue's lock for a few instructions. The memory's lock is never taken under it;
//! changes are noted with that held, so that no request comes between a change and its news.

mod queue;

use super::channel::{Channel, Waits};
use super::events::Events;
use super::opened::{Descriptor, NO_KIND, Opened};
use super::pieces::PIECE;
use super::process::{self, Handles, Held};
use super::signal::CUT;
use super::thread::Thread;
use super::transfer::Transfer;
use super::user::{self, Plain};
use super::waiters::{Cut, Waiters};
use super::{clock, sched};
use crate::reach;
use crate::running::Origin;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Deref;
use foliant_linux::{Answer, Change, Errno, Told, Userfaultfd};
use foliant_units::VaRange;
use linux_raw_sys::errno::{EAGAIN, EINVAL, ENOTTY, ESRCH};
use linux_raw_sys::general::{
    _UFFDIO_CONTINUE, _UFFDIO_COPY, _UFFDIO_MOVE, _UFFDIO_POISON, O_CLOEXEC, O_NONBLOCK, O_RDWR,
    UFFD_EVENT_PAGEFAULT, UFFD_USER_MODE_ONLY, uffdio_api, uffdio_continue, uffdio_copy,
    uffdio_move, uffdio_poison, uffdio_range, uffdio_register, uffdio_writeprotect,
    uffdio_zeropage,
};
use linux_raw_sys::ioctl::{
    UFFDIO_API, UFFDIO_CONTINUE, UFFDIO_COPY, UFFDIO_REGISTER, UFFDIO_UNREGISTER, UFFDIO_WAKE,
    UFFDIO_WRITEPROTECT, UFFDIO_ZEROPAGE,
};
use queue::{Message, Queue};
use spin::Mutex;

/// `linux-raw-sys` lacks them; their structures are as long as those of their neighbours.
const UFFDIO_POISON: u32 = UFFDIO_CONTINUE - _UFFDIO_CONTINUE + _UFFDIO_POISON;
const UFFDIO_MOVE: u32 = UFFDIO_COPY - _UFFDIO_COPY + _UFFDIO_MOVE;
/// Bytes of a message.
const MESSAGE: usize = 32;
/// Nanoseconds after which a copy looks again whether its process ends.
const LOOK: u64 = 1_000_000;

/// A descriptor. It is closed when it is dropped, whoever waits.
pub(super) struct Userfault(Arc<Shared>);

/// What a descriptor and those that wait for it have in common.
pub(super) struct Shared {
    /// The memory that it is of (W1).
    memory: Weak<Held>,
    id: u64,
    /// How it was opened.
    flags: u32,
    /// What the memory keeps of it; none when it is closed.
    fd: Mutex<Option<Userfaultfd>>,
    queue: Mutex<Queue<Arc<Userfault>>>,
    /// Who waits for messages.
    readers: Waiters,
    /// Who took a fault.
    takers: Waiters,
}

impl Deref for Userfault {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Userfault {
    /// A descriptor of this memory.
    pub(super) fn of(memory: &Arc<Held>, flags: u32) -> Result<Arc<Userfault>, Errno> {
        let fd = memory.with_alone(|memory| memory.userfaultfd(flags))?;
        Ok(Userfault::behind(memory, fd, flags))
    }
    /// The descriptor that memory keeps this of.
    fn behind(memory: &Arc<Held>, fd: Userfaultfd, flags: u32) -> Arc<Userfault> {
        let made = Arc::new(Shared {
            memory: Arc::downgrade(memory),
            id: fd.id(),
            flags,
            fd: Mutex::new(Some(fd)),
            queue: Mutex::new(Queue::new()),
            readers: Waiters::new(),
            takers: Waiters::new(),
        });
        let own: Weak<Shared> = Arc::downgrade(&made);
        memory.note_handler(made.id, own);
        Arc::new(Userfault(made))
    }
}

impl Shared {
    fn memory(&self) -> Result<Arc<Held>, Errno> {
        self.memory.upgrade().ok_or(Errno(ESRCH))
    }
    /// Carries out a request. No other one is under way on the descriptor meanwhile.
    fn asked<R>(
        &self,
        work: impl FnOnce(&mut super::Memory, &mut Userfaultfd) -> R,
    ) -> Result<R, Errno> {
        let memory = self.memory()?;
        memory.with_alone(|memory| {
            let mut fd = self.fd.lock();
            let fd = fd.as_mut().ok_or(Errno::BADF)?;
            Ok(work(memory, fd))
        })
    }
    /// Wakes whom an answer says, and gives its result.
    fn answered(&self, answer: Answer) -> Result<u64, Errno> {
        if let Some(range) = answer.wakes {
            self.wake(range);
        }
        answer.result
    }
    fn wake(&self, range: VaRange) {
        if self.queue.lock().wake(range) {
            self.takers.wake();
        }
    }

    /// Whether all changes were read of (W4). Others are noted under the memory's lock.
    fn is_settled(&self) -> bool {
        !self.queue.lock().has_news()
    }
    /// Does so where all were (W4).
    fn settled(&self, work: impl FnOnce() -> Answer) -> Answer {
        if self.is_settled() { work() } else { plain(Err(Errno(EAGAIN))) }
    }
    /// Waits until a fault or a change is over, whatever signal comes; not for a process that ends.
    fn wait_through(&self, number: u64) -> Result<(), Cut> {
        let is_over = || self.queue.lock().is_over(number).then_some(());
        loop {
            match self.takers.wait(None, is_over) {
                Err(Cut::Signal) if !sched::current().is_over() => {
                    sched::park(Some(clock::uptime() + LOOK)); // W2
                }
                ended => return ended,
            }
        }
    }
    /// The words of a message; the child's descriptor is the reader's from here on.
    fn words_of(&self, message: Message<Arc<Userfault>>) -> Result<[u64; 4], Errno> {
        let (number, mut words, child) = match message {
            Message::Fault(told) => {
                return Ok([u64::from(UFFD_EVENT_PAGEFAULT), told.flags, told.address, 0]);
            }
            Message::News(number, words, child) => (number, words, child),
        };
        if let Some(child) = child {
            let new = descriptor(child, self.flags);
            let process = process::of_id(sched::current().process_id()).ok_or(Errno(ESRCH));
            let added = process.and_then(|process| process.descriptors.lock().add(0, new));
            words[1] = added.inspect_err(|_| self.queue.lock().put_back(number))?;
        }
        let read = self.queue.lock().forget(number);
        drop(read);
        self.takers.wake();
        Ok(words)
    }

    /// `UFFDIO_COPY`, over pages of the source that may have to be brought (W3).
    fn copy(&self, at: u64) -> Result<u64, Errno> {
        let mut asked: uffdio_copy = user::get(at)?;
        let (mut done, mut first) = (0u64, true);
        // What the program is told where the copy ends early.
        let early = |done: u64, why: Errno| match done {
            0 => (why.word() as i64, Err(why)),
            done => (done as i64, Err(Errno(EAGAIN))),
        };
        let result = loop {
            let mut rest = asked;
            (rest.dst, rest.src) = (asked.dst.wrapping_add(done), asked.src.wrapping_add(done));
            rest.len = asked.len.wrapping_sub(done);
            let mut lacks = None;
            let read = |from: u64, page: &mut [u8]| match reach::get_present(page, from) {
                count if count == page.len() => Ok(()),
                _ => {
                    lacks = Some(from);
                    Err(Errno::FAULT)
                }
            };
            let answer = self.asked(|memory, fd| {
                self.is_settled().then(|| memory.uffdio_copy(fd, &mut rest, read))
            })?;
            let Some(answer) = answer else {
                if first {
                    return Err(Errno(EAGAIN));
                }
                let (copied, ended) = early(done, Errno(EAGAIN));
                asked.copy = copied;
                break ended;
            };
            let result = self.answered(answer);
            let came = u64::try_from(rest.copy).unwrap_or(0);
            if first && came == 0 && lacks.is_none() {
                asked.copy = rest.copy;
                break result;
            }
            done += came;
            match lacks {
                Some(_) if sched::current().is_over() => break Err(CUT),
                Some(from) => {
                    if let Err(why) = self.bring(from, from.wrapping_sub(asked.src), asked.dst) {
                        let (copied, ended) = early(done, why);
                        asked.copy = copied;
                        break ended;
                    }
                }
                None => {
                    asked.copy = done as i64;
                    break if done == asked.len { Ok(0) } else { Err(Errno(EAGAIN)) };
                }
            }
            first = false;
        };
        user::put(at, &asked)?;
        result
    }
    /// Brings the page of a copy's source at `from` by a fault, if it can be; of a huge page, which
    /// is copied as a whole, also what follows.
    fn bring(&self, from: u64, behind: u64, to: u64) -> Result<(), Errno> {
        let at = to.wrapping_add(behind);
        let left = self.memory()?.with(|memory| {
            let page = memory.vma(at).map_or(PIECE as u64, |vma| vma.page_bytes());
            page - at % page
        });
        user::get_bytes(from, PIECE)?;
        let rest = (PIECE as u64..left).step_by(PIECE);
        // What does not come is met again, if the copy gets so far.
        let is_there = |by: u64| {
            !sched::current().is_over() && user::get_bytes(from.wrapping_add(by), PIECE).is_ok()
        };
        rest.take_while(|by| is_there(*by)).for_each(drop);
        Ok(())
    }
    /// A request whose structure is told what became of it.
    fn told<T: Plain>(
        &self,
        at: u64,
        work: impl FnOnce(&mut super::Memory, &mut Userfaultfd, &mut T) -> Answer,
    ) -> Result<u64, Errno> {
        let mut asked: T = user::get(at)?;
        let answer = self.asked(|memory, fd| work(memory, fd, &mut asked))?;
        user::put(at, &asked)?;
        self.answered(answer)
    }
}

/// An answer that wakes nobody.
fn plain(result: Result<u64, Errno>) -> Answer {
    Answer { result, wakes: None }
}

impl Drop for Userfault {
    fn drop(&mut self) {
        let untold = self.queue.lock().close();
        drop(untold);
        let fd = self.fd.lock().take();
        if let (Some(memory), Some(fd)) = (self.memory.upgrade(), fd) {
            memory.forget_handler(self.id);
            // What cannot be disarmed for want of memory stays armed, and nobody is told.
            let _ = memory.with_alone(|memory| memory.close_userfaultfd(fd));
        }
        self.takers.wake();
    }
}

impl Handles for Shared {
    fn wait(&self, told: &Told, origin: Origin) -> Result<(), Cut> {
        if origin == Origin::Kernel && self.flags & UFFD_USER_MODE_ONLY != 0 {
            return Err(Cut::Signal);
        }
        let number = self.queue.lock().add_fault(*told);
        self.readers.wake_for(Events::IN);
        let is_over = || self.queue.lock().is_over(number).then_some(());
        let ended = match origin {
            Origin::Kernel => self.wait_through(number),
            _ => self.takers.wait(None, is_over),
        };
        self.queue.lock().forget(number);
        ended
    }
    fn note(&self, change: Change, child: Option<&Arc<Held>>) -> u64 {
        let words = change.message(0);
        let child = match (change, child) {
            (Change::Fork(fd), Some(child)) => Some(Userfault::behind(child, fd, self.flags)),
            _ => None,
        };
        self.queue.lock().add_news(words, child)
    }
    fn wait_read(&self, number: u64) {
        self.readers.wake_for(Events::IN);
        let _ = self.wait_through(number); // its process ends: nobody is told any more
        let untold = self.queue.lock().forget(number);
        drop(untold);
    }
}

impl Channel for Userfault {
    fn read(&self, into: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        if into.left() < MESSAGE {
            return Err(Errno(EINVAL));
        }
        let take = || self.queue.lock().read();
        let mut done = 0;
        while into.left() >= MESSAGE {
            // What has come by now is enough, behind the first.
            let waits = if done > 0 { Waits::No } else { waits };
            let message = match waits.get(&self.readers, take) {
                Err(_) if done > 0 => break,
                message => message?,
            };
            let words = match self.words_of(message) {
                Err(_) if done > 0 => break,
                words => words?,
            };
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            done += into.put_all(&bytes)?;
        }
        Ok(done)
    }
    fn events(&self) -> Events {
        Events::IN.when(self.queue.lock().is_unread())
    }
    fn waiters(&self) -> &Waiters {
        &self.readers
    }
    fn ioctl(&self, request: u32, at: u64) -> Result<u64, Errno> {
        match request {
            UFFDIO_API => self
                .told(at, |memory, fd, asked: &mut uffdio_api| plain(memory.uffdio_api(fd, asked))),
            UFFDIO_REGISTER => self.told(at, |memory, fd, asked: &mut uffdio_register| {
                plain(memory.uffdio_register(fd, asked))
            }),
            UFFDIO_UNREGISTER => self.told(at, |memory, fd, asked: &mut uffdio_range| {
                memory.uffdio_unregister(fd, asked)
            }),
            UFFDIO_WAKE => {
                self.told(at, |memory, fd, asked: &mut uffdio_range| memory.uffdio_wake(fd, asked))
            }
            UFFDIO_COPY => self.copy(at),
            UFFDIO_ZEROPAGE => self.told(at, |memory, fd, asked: &mut uffdio_zeropage| {
                self.settled(|| memory.uffdio_zeropage(fd, asked))
            }),
            UFFDIO_CONTINUE => self.told(at, |memory, fd, asked: &mut uffdio_continue| {
                self.settled(|| memory.uffdio_continue(fd, asked))
            }),
            UFFDIO_POISON => self.told(at, |memory, fd, asked: &mut uffdio_poison| {
                self.settled(|| memory.uffdio_poison(fd, asked))
            }),
            UFFDIO_MOVE => self.told(at, |memory, fd, asked: &mut uffdio_move| {
                self.settled(|| memory.uffdio_move(fd, asked))
            }),
            UFFDIO_WRITEPROTECT => self.told(at, |memory, fd, asked: &mut uffdio_writeprotect| {
                self.settled(|| memory.uffdio_writeprotect(fd, asked))
            }),
            _ => Err(Errno(ENOTTY)),
        }
    }
    fn label(&self, _: u64) -> String {
        String::from("anon_inode:[userfaultfd]")
    }
}

/// Opens a descriptor of a thread's memory.
pub(super) fn open(thread: &Thread, flags: u32) -> Result<Descriptor, Errno> {
    let channel = Userfault::of(&thread.process.memory().ok_or(Errno(ESRCH))?, flags)?;
    Ok(descriptor(channel, flags))
}
fn descriptor(channel: Arc<Userfault>, flags: u32) -> Descriptor {
    let opened = Opened::of_channel(channel, NO_KIND, O_RDWR | flags & O_NONBLOCK);
    Descriptor { opened, closes: flags & O_CLOEXEC != 0 }
}
