//! A call, as it is drawn, carried out twice and printed.

use core::fmt;
use foliant_linux::SegmentStat;
use foliant_linux::raw::general as linux;

/// What an address is counted from, so that a sequence means the same in every process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// Nothing: the number is the address.
    Zero,
    /// A stretch of addresses where nothing else lies, at a multiple of 2 MiB.
    Arena,
    /// The address below which areas are placed.
    Top,
    /// Where the heap begins.
    Heap,
}

/// An argument of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arg {
    /// A number.
    Word(u64),
    /// An address, in bytes from a base.
    Addr(Base, i64),
}

/// The addresses that bases stand for in one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bases {
    /// See [`Base::Arena`].
    pub arena: u64,
    /// See [`Base::Top`].
    pub top: u64,
    /// See [`Base::Heap`].
    pub heap: u64,
}

impl Arg {
    /// Its value where the bases are these.
    pub fn value(self, bases: &Bases) -> u64 {
        let (base, bytes) = match self {
            Arg::Word(word) => return word,
            Arg::Addr(Base::Zero, bytes) => (0, bytes),
            Arg::Addr(Base::Arena, bytes) => (bases.arena, bytes),
            Arg::Addr(Base::Top, bytes) => (bases.top, bytes),
            Arg::Addr(Base::Heap, bytes) => (bases.heap, bytes),
        };
        base.wrapping_add_signed(bytes)
    }
}

/// What is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "Linux's names")]
pub enum Name {
    Mmap,
    Munmap,
    Mprotect,
    Mremap,
    Madvise,
    Brk,
    Mlock,
    Mlock2,
    Munlock,
    Mlockall,
    Munlockall,
    Mincore,
    Msync,
    Mseal,
    Mbind,
    HomeNode,
    ClearRefs,
    Ftruncate,
    Fallocate,
    Fcntl,
    Pread,
    Pwrite,
    Shmget,
    Shmat,
    Shmdt,
    Shmctl,
    Userfault,
    Load,
    Store,
    Fork,
    Exit,
}

/// The files in memory that each sequence begins with: name, flags and length in bytes. All its
/// processes have them, as descriptors from [`FIRST_FILE`] on.
pub(crate) const FILES: [(&str, u32, u64); 3] = [
    ("a", 0, 24 << 12),
    ("b", linux::MFD_ALLOW_SEALING, 5000),
    ("c", linux::MFD_NOEXEC_SEAL, 6 << 12),
];
/// The descriptor of the first of them.
pub(crate) const FIRST_FILE: u64 = 3;
/// What `mbind` is told of its mask, which is a word.
pub(crate) const MASK_BITS: u64 = 65;
/// The first process's descriptor of `userfaultfd`.
pub(crate) const USERFAULT: u64 = FIRST_FILE + FILES.len() as u64;

impl Name {
    /// All of them.
    pub const ALL: [Name; 31] = [
        Name::Mmap,
        Name::Munmap,
        Name::Mprotect,
        Name::Mremap,
        Name::Madvise,
        Name::Brk,
        Name::Mlock,
        Name::Mlock2,
        Name::Munlock,
        Name::Mlockall,
        Name::Munlockall,
        Name::Mincore,
        Name::Msync,
        Name::Mseal,
        Name::Mbind,
        Name::HomeNode,
        Name::ClearRefs,
        Name::Ftruncate,
        Name::Fallocate,
        Name::Fcntl,
        Name::Pread,
        Name::Pwrite,
        Name::Shmget,
        Name::Shmat,
        Name::Shmdt,
        Name::Shmctl,
        Name::Userfault,
        Name::Load,
        Name::Store,
        Name::Fork,
        Name::Exit,
    ];
    /// Linux's number, where it is a system call. Those that move bytes take a buffer in the place
    /// of their second argument, `shmctl` one in the place of its third, and `mbind` one that its
    /// fourth is in.
    pub fn number(self) -> Option<u32> {
        Some(match self {
            Name::Mmap => linux::__NR_mmap,
            Name::Munmap => linux::__NR_munmap,
            Name::Mprotect => linux::__NR_mprotect,
            Name::Mremap => linux::__NR_mremap,
            Name::Madvise => linux::__NR_madvise,
            Name::Brk => linux::__NR_brk,
            Name::Mlock => linux::__NR_mlock,
            Name::Mlock2 => linux::__NR_mlock2,
            Name::Munlock => linux::__NR_munlock,
            Name::Mlockall => linux::__NR_mlockall,
            Name::Munlockall => linux::__NR_munlockall,
            Name::Mincore => linux::__NR_mincore,
            Name::Msync => linux::__NR_msync,
            Name::Mseal => linux::__NR_mseal,
            Name::Mbind => linux::__NR_mbind,
            Name::HomeNode => linux::__NR_set_mempolicy_home_node,
            Name::Ftruncate => linux::__NR_ftruncate,
            Name::Fallocate => linux::__NR_fallocate,
            Name::Fcntl => linux::__NR_fcntl,
            Name::Pread => linux::__NR_pread64,
            Name::Pwrite => linux::__NR_pwrite64,
            Name::Shmget => linux::__NR_shmget,
            Name::Shmat => linux::__NR_shmat,
            Name::Shmdt => linux::__NR_shmdt,
            Name::Shmctl => linux::__NR_shmctl,
            Name::ClearRefs
            | Name::Userfault
            | Name::Load
            | Name::Store
            | Name::Fork
            | Name::Exit => return None,
        })
    }
    /// Whether it is about segments of System V.
    pub fn is_of_segments(self) -> bool {
        matches!(self, Name::Shmget | Name::Shmat | Name::Shmdt | Name::Shmctl)
    }
    /// Whether it is about memory policies.
    pub fn is_of_policies(self) -> bool {
        matches!(self, Name::Mbind | Name::HomeNode)
    }
    /// How many arguments it takes.
    pub fn arity(self) -> usize {
        match self {
            Name::Fork | Name::Exit | Name::Munlockall => 0,
            Name::Brk | Name::Mlockall | Name::ClearRefs | Name::Load | Name::Shmdt => 1,
            Name::Munmap | Name::Mlock | Name::Munlock | Name::Store | Name::Ftruncate => 2,
            Name::Mprotect
            | Name::Madvise
            | Name::Mlock2
            | Name::Mincore
            | Name::Msync
            | Name::Mseal
            | Name::Fcntl
            | Name::Shmget
            | Name::Shmat
            | Name::Shmctl => 3,
            Name::Fallocate | Name::Pread | Name::Pwrite | Name::HomeNode => 4,
            Name::Mremap | Name::Mbind => 5,
            Name::Mmap | Name::Userfault => 6,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}").to_lowercase())
    }
}

/// A call by one of the processes of a sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Which process, counted in the order in which they came and modulo how many there are.
    pub who: usize,
    /// What.
    pub name: Name,
    /// With what; arguments that it does not take are zero.
    pub args: [Arg; 6],
}

impl Call {
    /// A call with these arguments.
    pub fn new(who: usize, name: Name, given: &[Arg]) -> Call {
        let mut args = [Arg::Word(0); 6];
        args[..given.len()].copy_from_slice(given);
        Call { who, name, args }
    }
    /// Its arguments as numbers.
    pub fn values(&self, bases: &Bases) -> [u64; 6] {
        self.args.map(|arg| arg.value(bases))
    }
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Arg::Word(word) => write!(f, "{word:#x}"),
            Arg::Addr(base, bytes) => {
                let name = match base {
                    Base::Zero => "0",
                    Base::Arena => "arena",
                    Base::Top => "top",
                    Base::Heap => "heap",
                };
                let sign = if bytes < 0 { '-' } else { '+' };
                write!(f, "{name} {sign} {:#x}", bytes.unsigned_abs())
            }
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args: Vec<String> = self.args[..self.name.arity()].iter().map(Arg::to_string).collect();
        write!(f, "process {}: {}({})", self.who, self.name, args.join(", "))
    }
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// With this word: a result, or an errno as Linux puts it there.
    Word(u64),
    /// A `mincore` went through: whether each page is there.
    Pages(Vec<u8>),
    /// A `pread` went through: what it read.
    Bytes(Vec<u8>),
    /// An `IPC_STAT` went through: what it told.
    Segment(SegmentStat),
    /// A request that fills pages went through or not: its result, and what it was told beside.
    Filled(u64, u64),
    /// With a signal: its number, code and address.
    Signal(u32, u32, u64),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.clone() {
            Answer::Pages(pages) => {
                let text: String =
                    pages.iter().map(|page| if page & 1 != 0 { '#' } else { '.' }).collect();
                write!(f, "pages {text}")
            }
            Answer::Filled(result, told) => {
                write!(f, "{}, told {}", Answer::Word(result), Answer::Word(told))
            }
            Answer::Segment(stat) => write!(f, "{stat:?}"),
            Answer::Bytes(bytes) => {
                let runs = bytes.chunk_by(|one, next| one == next);
                let runs: Vec<String> =
                    runs.map(|run| format!("{} of {:#04x}", run.len(), run[0])).collect();
                write!(f, "{} bytes: {}", bytes.len(), runs.join(", "))
            }
            Answer::Word(word) if word.wrapping_neg() < 4096 && word != 0 => {
                let text = std::io::Error::from_raw_os_error(word.wrapping_neg() as i32);
                write!(f, "-{} ({text})", word.wrapping_neg())
            }
            Answer::Word(word) => write!(f, "{word:#x}"),
            Answer::Signal(number, code, addr) => {
                write!(f, "signal {number}, code {code}, address {addr:#x}")
            }
        }
    }
}
