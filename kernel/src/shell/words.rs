//! The words of a line, and what can be wrong with them.

use crate::lab;
use core::fmt;
use core::str::SplitAsciiWhitespace;
use foliant::fault::PolicyError;
use foliant::manager::SpaceError;
use foliant::space::{MapError, RangeError};
use foliant::split::SplitError;
use foliant_units::{Bytes, Pages, SizeError, Va};

/// Words that are left.
pub(super) struct Words<'w>(SplitAsciiWhitespace<'w>);

impl<'w> Words<'w> {
    pub(super) fn new(line: &'w str) -> Words<'w> {
        Words(line.split_ascii_whitespace())
    }
    /// The next word, which is called `what` in the command's usage.
    pub(super) fn need(&mut self, what: &'static str) -> Result<&'w str, Complaint<'w>> {
        self.next().ok_or(Complaint::Missing(what))
    }
    /// Sees to it that there is no more.
    pub(super) fn end(&mut self) -> Result<(), Complaint<'w>> {
        self.next().map_or(Ok(()), |word| Err(Complaint::Extra(word)))
    }
}

impl<'w> Iterator for Words<'w> {
    type Item = &'w str;
    fn next(&mut self) -> Option<&'w str> {
        self.0.next()
    }
}

/// Why a command was not carried out. Nothing changed, unless it was interrupted or the manager
/// says that a range was done in part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Complaint<'w> {
    /// A word is missing.
    Missing(&'static str),
    /// A word too many.
    Extra(&'w str),
    /// The word is none of these.
    Unknown(&'w str, &'static str),
    /// Not a size.
    Size(&'w str, SizeError),
    /// Not an address.
    Address(&'w str),
    /// Not a count.
    Count(&'w str),
    /// Not the number of a space.
    Space(&'w str),
    /// The one space that is left.
    LastSpace,
    /// More spaces than the shell keeps.
    Spaces(usize),
    /// Not a count of CPUs that run.
    Cpus(&'w str, usize),
    /// Not a size or a state of folios.
    Policy(&'w str, PolicyError),
    /// The address and the size together leave the address space.
    Beyond(Va, Bytes),
    /// A size of nothing.
    Empty(&'w str),
    /// `last` stands for nothing.
    NoLast,
    /// The address is in no area.
    NoArea(Va),
    /// Refused by the manager.
    Map(MapError),
    /// Refused by the manager.
    Range(RangeError),
    /// Refused by the manager.
    Fork(SpaceError),
    /// Refused by the manager.
    Split(SplitError),
    /// Ctrl-C was typed. What was done by then stays.
    Interrupted,
    /// Too little memory is free.
    Scarce(Pages),
}

impl Complaint<'_> {
    /// Whether the reader wants to see the form of the command.
    pub(super) fn is_about_form(&self) -> bool {
        matches!(self, Complaint::Missing(_) | Complaint::Extra(_) | Complaint::Unknown(..))
    }
}

impl From<MapError> for Complaint<'_> {
    fn from(error: MapError) -> Self {
        Complaint::Map(error)
    }
}
impl From<RangeError> for Complaint<'_> {
    fn from(error: RangeError) -> Self {
        Complaint::Range(error)
    }
}

impl From<SplitError> for Complaint<'_> {
    fn from(error: SplitError) -> Self {
        Complaint::Split(error)
    }
}

impl fmt::Display for Complaint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Complaint::Missing(what) => write!(f, "{what} is missing"),
            Complaint::Extra(word) => write!(f, "{word} is one word too many"),
            Complaint::Unknown(word, known) => {
                write!(f, "{word} is unknown here; there are {known}")
            }
            Complaint::Size(word, why) => write!(f, "{word}: {why}"),
            Complaint::Address(word) => {
                write!(f, "{word} is no address; one is written like 40000000, and maps lists them")
            }
            Complaint::Count(word) => {
                write!(f, "{word} is no count; one is a whole number, like 512")
            }
            Complaint::Space(word) => {
                write!(f, "{word} is the number of no space; spaces lists them")
            }
            Complaint::LastSpace => {
                f.write_str("it is the last space; fork makes another one, and exit ends it")
            }
            Complaint::Spaces(most) => {
                write!(f, "there are {most} spaces, which is all that this shell keeps; kill one")
            }
            Complaint::Cpus(word, most) => {
                write!(f, "{word}: a whole number from 1 to {most}, the CPUs that run")
            }
            // These two name the size themselves.
            Complaint::Policy(
                _,
                why @ (PolicyError::NotAPower(_) | PolicyError::Unsupported(_)),
            ) => why.fmt(f),
            Complaint::Policy(word, why) => write!(f, "{word}: {why}"),
            Complaint::Empty(word) => write!(f, "{word} is no page at all; 4k is one"),
            Complaint::Beyond(va, bytes) => {
                write!(f, "{bytes} from {va} on leave the address space; name fewer")
            }
            Complaint::NoLast => f.write_str("nothing was mapped yet; map 64m makes an area"),
            Complaint::NoArea(va) => write!(f, "no area contains {va}; maps lists them"),
            Complaint::Map(why) => why.fmt(f),
            Complaint::Range(why) => why.fmt(f),
            Complaint::Fork(why) => why.fmt(f),
            Complaint::Split(why) => why.fmt(f),
            Complaint::Interrupted => f.write_str("interrupted"),
            Complaint::Scarce(free) => {
                write!(f, "{}; unmap something first", lab::Scarce(*free))
            }
        }
    }
}

/// A size, like 64k; not 0.
pub(super) fn size(word: &str) -> Result<Bytes, Complaint<'_>> {
    match Bytes::parse(word) {
        Ok(bytes) if bytes.get() == 0 => Err(Complaint::Empty(word)),
        Ok(bytes) => Ok(bytes),
        Err(why) => Err(Complaint::Size(word, why)),
    }
}

/// An address, in hexadecimal digits, with or without `0x`.
pub(super) fn address(word: &str) -> Result<Va, Complaint<'_>> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let value = u64::from_str_radix(digits, 16).ok().filter(|_| plain);
    value.map(Va::new).ok_or(Complaint::Address(word))
}

/// A count.
pub(super) fn count(word: &str) -> Result<u64, Complaint<'_>> {
    word.parse().map_err(|_| Complaint::Count(word))
}
