//! Sequences of calls, drawn from a seed.
//!
//! Addresses are drawn from a few stretches that most calls hit: the arena, what lies below the
//! top, the heap. Lengths are a few pages, or a few times 2 MiB, and now and then such as no call
//! takes.

use crate::call::{Arg, Base, Call, FILES, FIRST_FILE, Name};
use crate::side::WORDS;
use foliant_linux::mempolicy::{
    MPOL_BIND, MPOL_DEFAULT, MPOL_F_RELATIVE_NODES, MPOL_INTERLEAVE, MPOL_LOCAL, MPOL_MF_MOVE,
    MPOL_MF_STRICT, MPOL_PREFERRED, MPOL_PREFERRED_MANY, MPOL_WEIGHTED_INTERLEAVE,
};
use foliant_linux::raw::general::*;
use foliant_linux::sysv::{
    IPC_CREAT, IPC_EXCL, IPC_RMID, IPC_SET, IPC_STAT, SHM_EXEC, SHM_LOCK, SHM_RDONLY, SHM_REMAP,
    SHM_RND, SHM_UNLOCK,
};
use foliant_sim::Rng;

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
/// Where many segments go, in bytes from the arena's beginning: behind what else is put there.
const SEGMENTS_AT: u64 = 6 * HUGE;

/// How often each call is drawn, in about two hundred.
const WEIGHTS: [(u64, Name); 31] = [
    (30, Name::Mmap),
    (14, Name::Munmap),
    (20, Name::Mprotect),
    (16, Name::Mremap),
    (30, Name::Madvise),
    (8, Name::Brk),
    (2, Name::Mlock),
    (2, Name::Mlock2),
    (3, Name::Munlock),
    (1, Name::Mlockall),
    (2, Name::Munlockall),
    (6, Name::Mincore),
    (4, Name::Msync),
    (1, Name::Mseal),
    (8, Name::Mbind),
    (1, Name::HomeNode),
    (1, Name::ClearRefs),
    (6, Name::Ftruncate),
    (6, Name::Fallocate),
    (2, Name::Fcntl),
    (4, Name::Pread),
    (5, Name::Pwrite),
    (4, Name::Shmget),
    (7, Name::Shmat),
    (6, Name::Shmdt),
    (6, Name::Shmctl),
    (14, Name::Userfault),
    (20, Name::Load),
    (36, Name::Store),
    (3, Name::Fork),
    (1, Name::Exit),
];

/// Rights, some of them more often.
const PROTS: [u32; 12] = [3, 3, 3, 3, 3, 1, 1, 0, 0, 5, 7, 2];

/// Advice that is drawn, with what is none.
const ADVICE: [u32; 29] = [
    MADV_NORMAL,
    MADV_RANDOM,
    MADV_SEQUENTIAL,
    MADV_WILLNEED,
    MADV_DONTNEED,
    MADV_DONTNEED,
    MADV_DONTNEED,
    MADV_DONTNEED_LOCKED,
    MADV_FREE,
    MADV_REMOVE,
    MADV_DONTFORK,
    MADV_DOFORK,
    MADV_WIPEONFORK,
    MADV_KEEPONFORK,
    MADV_HUGEPAGE,
    MADV_HUGEPAGE,
    MADV_NOHUGEPAGE,
    MADV_DONTDUMP,
    MADV_DODUMP,
    MADV_COLD,
    MADV_PAGEOUT,
    MADV_COLLAPSE,
    MADV_COLLAPSE,
    MADV_POPULATE_READ,
    MADV_POPULATE_WRITE,
    MADV_POPULATE_WRITE,
    MADV_GUARD_INSTALL,
    MADV_GUARD_REMOVE,
    77,
];

/// How many calls of a sequence make segments before any other: most calls about segments name one
/// by a number that depends on how many there are.
const SEGMENTS: usize = 3;

/// A sequence of `length` calls.
pub fn sequence(seed: u64, length: usize) -> Vec<Call> {
    let mut draw = Draw(Rng::new(seed, 0x11));
    let one = |nth| match nth < SEGMENTS {
        true => Call::new(0, Name::Shmget, &draw.args(Name::Shmget)),
        false => draw.call(),
    };
    (0..length).map(one).collect()
}

struct Draw(Rng);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }
    fn once_in(&mut self, every: u32) -> bool {
        self.0.once_in(every)
    }
    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// A page's address; now and then one that is none.
    fn addr(&mut self) -> Arg {
        let small = (self.below(40) * PAGE) as i64;
        let large = ((1 + self.below(3)) * HUGE) as i64 + small - (20 * PAGE) as i64;
        match self.below(200) {
            0 => Arg::Word(self.pick(&[0, PAGE, 1 << 47, u64::MAX - 4095, (1 << 47) - PAGE])),
            1..=3 => Arg::Addr(Base::Arena, small + 8),
            4..=40 => Arg::Addr(Base::Arena, large),
            41..=75 => Arg::Addr(Base::Top, -small - PAGE as i64),
            76..=84 => Arg::Addr(Base::Top, -large),
            85..=92 => Arg::Addr(Base::Heap, small),
            93..=104 => Arg::Addr(Base::Arena, SEGMENTS_AT as i64 + small),
            _ => Arg::Addr(Base::Arena, small),
        }
    }
    /// An address that something may be put at. Who may map the lowest ones is another question.
    fn target(&mut self) -> Arg {
        match self.addr() {
            Arg::Word(word) if word < 1 << 16 => Arg::Addr(Base::Arena, 0),
            addr => addr,
        }
    }
    /// A length in bytes.
    fn len(&mut self) -> Arg {
        let pages = 1 + self.below(10);
        Arg::Word(match self.below(100) {
            0 => 0,
            1 => pages * PAGE - 7,
            2 => self.pick(&[u64::MAX, u64::MAX - 4095, u64::MAX - 8191, 1]),
            3..=8 => HUGE * (1 + self.below(3)),
            9..=10 => HUGE + pages * PAGE,
            11..=20 => (10 + self.below(30)) * PAGE,
            _ => pages * PAGE,
        })
    }

    fn call(&mut self) -> Call {
        let who = if self.once_in(3) { self.below(3) as usize } else { 0 };
        let mut at = self.below(WEIGHTS.iter().map(|(weight, _)| weight).sum());
        let name = WEIGHTS.iter().find(|(weight, _)| match at.checked_sub(*weight) {
            Some(left) => {
                at = left;
                false
            }
            None => true,
        });
        let (_, name) = *name.expect("within the sum");
        let args = self.args(name);
        Call::new(who, name, &args)
    }

    fn args(&mut self, name: Name) -> Vec<Arg> {
        let word = |word: u32| Arg::Word(u64::from(word));
        match name {
            Name::Mmap => self.map(),
            Name::Munmap | Name::Mlock | Name::Munlock => vec![self.addr(), self.len()],
            Name::Mprotect => {
                let more = match self.below(60) {
                    0 => PROT_GROWSDOWN,
                    1 => PROT_GROWSUP,
                    2 => PROT_SEM,
                    3 => 0x40,
                    4 => PROT_GROWSDOWN | PROT_GROWSUP,
                    _ => 0,
                };
                vec![self.addr(), self.len(), word(self.pick(&PROTS) | more)]
            }
            Name::Mremap => self.remap(),
            Name::Madvise => vec![self.addr(), self.len(), word(self.pick(&ADVICE))],
            Name::Brk => match self.below(12) {
                0 => vec![Arg::Word(0)],
                1 => vec![Arg::Addr(Base::Heap, -(PAGE as i64))],
                2 => vec![Arg::Addr(Base::Heap, self.below(3 * HUGE) as i64)],
                _ => vec![Arg::Addr(Base::Heap, self.below(40 * PAGE) as i64)],
            },
            Name::Mlock2 => vec![self.addr(), self.len(), word(self.pick(&[0, 0, 1, 1, 2]))],
            Name::Mlockall => vec![word(self.pick(&[1, 1, 2, 3, 5, 6, 7, 4, 0, 8]))],
            Name::Mincore => vec![self.addr(), self.len(), Arg::Word(0)],
            Name::Msync => vec![self.addr(), self.len(), word(self.pick(&[0, 1, 4, 4, 2, 5, 8]))],
            Name::Mseal => vec![self.addr(), self.len(), word(u32::from(self.once_in(20)))],
            Name::Mbind => {
                let modes = [
                    MPOL_DEFAULT,
                    MPOL_DEFAULT,
                    MPOL_BIND,
                    MPOL_BIND,
                    MPOL_BIND | MPOL_F_RELATIVE_NODES,
                    MPOL_PREFERRED,
                    MPOL_LOCAL,
                    MPOL_INTERLEAVE,
                    MPOL_PREFERRED_MANY,
                    MPOL_WEIGHTED_INTERLEAVE + 1,
                ];
                let mode = self.pick(&modes);
                let mask = match mode {
                    MPOL_DEFAULT | MPOL_LOCAL if !self.once_in(20) => 0,
                    _ => self.pick(&[1, 1, 1, 1, 1, 1, 1, 1, 3, 2, 0]),
                };
                let (strict, moves) = (MPOL_MF_STRICT, MPOL_MF_MOVE);
                let flags = self.pick(&[0, 0, 0, 0, 0, 0, strict, strict, strict | moves, 8]);
                vec![self.addr(), self.len(), word(mode), Arg::Word(mask), word(flags)]
            }
            Name::HomeNode => {
                let (node, flags) = (self.pick(&[0, 0, 0, 1]), u32::from(self.once_in(20)));
                vec![self.addr(), self.len(), word(node), word(flags)]
            }
            Name::ClearRefs => vec![word(self.pick(&[1, 2, 3, 4, 4, 4, 5, 0, 6]))],
            Name::Ftruncate => {
                let descriptor = FIRST_FILE + self.below(FILES.len() as u64);
                vec![Arg::Word(descriptor), Arg::Word(self.file_bytes())]
            }
            Name::Fallocate => self.allocate(),
            Name::Fcntl => {
                let command = self.pick(&[F_ADD_SEALS, F_ADD_SEALS, F_GET_SEALS]);
                let seals = self.pick(&[1, 2, 4, 8, 8, 16, 16, 32, 6, 12, 24, 63, 64, 0]);
                vec![self.descriptor(), word(command), word(seals)]
            }
            Name::Pread => self.moved(0),
            Name::Pwrite => {
                let byte = 1 + self.below(255);
                self.moved(byte)
            }
            Name::Shmget => {
                let pages = (1 + self.below(12)) * PAGE;
                let bytes = match self.below(30) {
                    0 => self.pick(&[0, 1, u64::MAX, 1 << 46, 1 << 63]),
                    1..=5 => pages + 100,
                    _ => pages,
                };
                let flags = self.pick(&[0, IPC_CREAT, IPC_CREAT, IPC_CREAT, IPC_CREAT | IPC_EXCL]);
                let flags = flags | self.pick(&[0o600, 0o600, 0o640, 0o777, 0]);
                vec![Arg::Word(self.below(4)), Arg::Word(bytes), word(flags)]
            }
            Name::Shmat => {
                let flags = self.pick(&[0, 0, 0, 0, SHM_RDONLY, SHM_RND, SHM_REMAP, SHM_EXEC]);
                let flags = flags | self.pick(&[0, 0, SHM_REMAP, SHM_RND, SHM_REMAP, SHM_RDONLY]);
                let at = match self.below(8) {
                    0..=2 => Arg::Word(0),
                    3..=6 => self.attached_at(),
                    _ => self.target(),
                };
                vec![self.segment(), at, word(flags)]
            }
            Name::Userfault => self.request(),
            Name::Shmdt if self.once_in(4) => vec![self.addr()],
            Name::Shmdt => vec![self.attached_at()],
            Name::Shmctl => {
                let commands =
                    [IPC_STAT, IPC_STAT, IPC_STAT, IPC_RMID, IPC_SET, SHM_LOCK, SHM_UNLOCK, 99];
                let mode = self.pick(&[0, 0o600, 0o755, 0o7777]);
                vec![self.segment(), word(self.pick(&commands)), word(mode)]
            }
            Name::Load => vec![self.byte()],
            Name::Store => vec![self.byte(), Arg::Word(1 + self.below(255))],
            Name::Munlockall | Name::Fork | Name::Exit => Vec::new(),
        }
    }
    /// What, from where on, how many bytes, how, what is copied, and from where pages are moved.
    fn request(&mut self) -> Vec<Arg> {
        let what = match self.below(26) {
            0..=3 => _UFFDIO_REGISTER,
            4 => _UFFDIO_UNREGISTER,
            5..=8 => _UFFDIO_COPY,
            9..=10 => _UFFDIO_ZEROPAGE,
            11..=14 => _UFFDIO_WRITEPROTECT,
            15..=17 => _UFFDIO_POISON,
            18..=20 => _UFFDIO_CONTINUE,
            21..=24 => _UFFDIO_MOVE,
            _ => _UFFDIO_WAKE,
        };
        let len = match what {
            // What is copied has room for two pages.
            _UFFDIO_COPY => Arg::Word(match self.below(20) {
                0 => self.pick(&[0, 7, PAGE - 7, u64::MAX]),
                1..=6 => 2 * PAGE,
                _ => PAGE,
            }),
            _ => self.len(),
        };
        let mode = match what {
            _UFFDIO_REGISTER => self.pick(&[1, 1, 1, 2, 2, 3, 3, 3, 4, 5, 6, 7, 0, 8]),
            _UFFDIO_WRITEPROTECT => self.pick(&[1, 1, 1, 0, 0, 2, 3, 4]),
            _ => self.pick(&[0, 0, 0, 0, 1, 2, 2, 3, 4]),
        };
        vec![
            Arg::Word(what.into()),
            self.target(),
            len,
            Arg::Word(mode),
            Arg::Word(1 + self.below(255)),
            self.target(),
        ]
    }
    /// The number of a segment, which may be there: the first ones are counted from 0.
    fn segment(&mut self) -> Arg {
        Arg::Word(match self.below(30) {
            0 => self.pick(&[u32::MAX.into(), 1 << 15, 1 << 31, 63]),
            _ => self.below(4),
        })
    }
    /// One of few places for segments, so that many are taken out where they were put.
    fn attached_at(&mut self) -> Arg {
        let far = self.pick(&[0, SEGMENTS_AT, SEGMENTS_AT]);
        Arg::Addr(Base::Arena, (far + self.below(4) * 8 * PAGE) as i64)
    }
    /// A byte's address, in one of the words of its page that are looked at.
    fn byte(&mut self) -> Arg {
        let more = self.pick(&[0, 0, 0, WORDS[1], WORDS[2]]) + self.below(8);
        match self.addr() {
            Arg::Addr(base, bytes) => Arg::Addr(base, bytes + more as i64),
            Arg::Word(word) => Arg::Word(word.wrapping_add(more) & ((1 << 47) - 1)),
        }
    }

    /// A file's descriptor; now and then one that is none.
    fn descriptor(&mut self) -> Arg {
        if self.once_in(60) {
            return Arg::Word(u64::from(u32::MAX));
        }
        Arg::Word(FIRST_FILE + self.below(FILES.len() as u64))
    }
    /// A length of a file. Many end in the middle of a word that is looked at.
    fn file_bytes(&mut self) -> u64 {
        let pages = self.below(32) * PAGE;
        match self.below(40) {
            0 => self.pick(&[u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 46]),
            1..=12 => pages + 100,
            13..=15 => pages + PAGE - 4,
            _ => pages,
        }
    }
    /// What `pread` and `pwrite` take: the second argument stands for a buffer, and says what is in
    /// it.
    fn moved(&mut self, byte: u64) -> Vec<Arg> {
        let page = self.below(30) * PAGE;
        let offset = match self.below(60) {
            // None that ends within Linux's largest length, and beyond an object's.
            0 => self.pick(&[u64::MAX, 1 << 63, (1 << 63) - 1]),
            1..=20 => page + self.pick(&[4, 96, 99, 100, 101, PAGE - 4]),
            _ => page,
        };
        let bytes = match self.below(20) {
            0 => 0,
            1..=8 => PAGE * (1 + self.below(2)),
            9..=14 => self.pick(&[4, 100, PAGE - 96, PAGE + 100, 2 * PAGE - 4]),
            _ => 1 + self.below(2 * PAGE),
        };
        vec![self.descriptor(), Arg::Word(byte), Arg::Word(bytes), Arg::Word(offset)]
    }
    fn allocate(&mut self) -> Vec<Arg> {
        let mode = self.pick(&[0, 0, 1, 3, 3, 3, 3, 3, 3, 2, 7, 8, 0x10, 0x40, 0x100]);
        let page = self.below(30) * PAGE;
        let offset = match self.below(30) {
            0 => self.pick(&[u64::MAX, 1 << 63, (1 << 63) - 1]),
            1..=3 => page + 100,
            _ => page,
        };
        let end = page + (1 + self.below(10)) * PAGE + self.pick(&[0, 0, 0, 100]);
        let bytes = match self.below(30) {
            0 => 0,
            1 => u64::MAX,
            _ => end.checked_sub(offset).unwrap_or(PAGE),
        };
        vec![self.descriptor(), Arg::Word(mode), Arg::Word(offset), Arg::Word(bytes)]
    }

    fn map(&mut self) -> Vec<Arg> {
        let prot = self.pick(&PROTS);
        let has_file = self.once_in(4);
        let mut flags = match self.below(120) {
            0 => MAP_SHARED_VALIDATE,
            1 => 0,
            2 if has_file => MAP_DROPPABLE,
            3..=9 if has_file => MAP_SHARED_VALIDATE,
            10..=80 if has_file => MAP_SHARED,
            10..=25 => MAP_SHARED,
            _ => MAP_PRIVATE,
        };
        if !has_file && !self.once_in(100) {
            flags |= MAP_ANONYMOUS;
        }
        flags |= match self.below(20) {
            0..=8 => MAP_FIXED,
            9..=10 => MAP_FIXED_NOREPLACE,
            11 if self.once_in(4) => MAP_32BIT,
            11 if self.once_in(3) => MAP_ABOVE4G,
            _ => 0,
        };
        for (every, flag) in [
            (8, MAP_POPULATE),
            (16, MAP_NORESERVE),
            (12, MAP_GROWSDOWN),
            (16, MAP_STACK),
            (80, MAP_LOCKED),
            (60, MAP_NONBLOCK),
            (60, MAP_HUGETLB),
        ] {
            if self.once_in(every) {
                flags |= flag;
            }
        }
        if flags & MAP_HUGETLB != 0 {
            flags |= self.pick(&[0, 21, 30, 22, 12]) << MAP_HUGE_SHIFT;
        }
        let addr = match self.below(3) {
            0 if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) == 0 => Arg::Word(0),
            _ => self.target(),
        };
        let offset = match self.below(60) {
            0 => self.pick(&[8, PAGE, PAGE * 3]),
            1 if has_file => self.pick(&[(1 << 63) - PAGE, 1u64.wrapping_neg() << 12, 1 << 63]),
            _ if has_file => self.below(24) * PAGE,
            _ => 0,
        };
        // To a file nothing is promised, and the host would run out of memory. For what is shared
        // Linux has unmapped what lies at the place, and that may be the program.
        let is_promised = prot & PROT_WRITE != 0 && flags & MAP_NORESERVE == 0 && !has_file;
        let is_safe = flags & MAP_TYPE == MAP_PRIVATE || flags & MAP_FIXED == 0;
        let len = match self.below(80) {
            // More than can be promised.
            0 if is_promised && is_safe => Arg::Word(1 << 46),
            _ => self.len(),
        };
        let none = Arg::Word(u64::from(u32::MAX));
        let fd = if has_file { self.descriptor() } else { none };
        vec![addr, len, Arg::Word(prot.into()), Arg::Word(flags.into()), fd, Arg::Word(offset)]
    }

    fn remap(&mut self) -> Vec<Arg> {
        let flags: u64 = self.pick(&[0, 1, 1, 1, 1, 3, 3, 3, 3, 5, 5, 7, 2, 4, 8]);
        let old = self.len();
        let new = if self.once_in(3) { old } else { self.len() };
        let old = if self.once_in(20) { Arg::Word(0) } else { old };
        let to = if self.once_in(6) && flags & u64::from(MREMAP_FIXED) == 0 {
            Arg::Word(0)
        } else {
            self.target()
        };
        vec![self.addr(), old, new, Arg::Word(flags), to]
    }
}
