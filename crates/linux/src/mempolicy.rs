//! Memory policies, as words of a program and of `numa_maps`: which nodes memory comes from.
//!
//! ```text
//!   set_mempolicy(mode, mask, bits) ─▶ Mode::of ─▶ Nodes::read ─▶ Mode::over ─▶ Mempolicy of a thread
//!   mbind(…, mode, mask, bits, …)  ─▶                                        ─▶ that of a range (`mbind`)
//! ```
//!
//! There is one node, so a policy changes nothing but what is told of it. Linux keeps one all the
//! same, and refuses what it refuses on any machine. No policy, `MPOL_DEFAULT`, is `None`.
//!
//! **Invariants**
//! - E1. Two policies are equal where Linux takes two vmas for one that have them.
//!
//! **Not here**: `/proc/PID/numa_maps` (`maps`), and whom a policy is of.

use crate::errno::Errno;
use crate::pages::PAGE;
use alloc::vec::Vec;
use core::fmt;

/// How many nodes Linux can have, as distributions build it: 2^`CONFIG_NODES_SHIFT`.
const NODES: u64 = 1024;
const WORD_BITS: u64 = u64::BITS as u64;
const WORD_BYTES: u64 = size_of::<u64>() as u64;
const WORDS: usize = (NODES / WORD_BITS) as usize;

/// What a thread or a range has that has no policy.
pub const MPOL_DEFAULT: u32 = 0;
/// From one node first.
pub const MPOL_PREFERRED: u32 = 1;
/// From these nodes alone.
pub const MPOL_BIND: u32 = 2;
/// From one after the other.
pub const MPOL_INTERLEAVE: u32 = 3;
/// From the node of the CPU.
pub const MPOL_LOCAL: u32 = 4;
/// From these nodes first.
pub const MPOL_PREFERRED_MANY: u32 = 5;
/// From one after the other, more from some.
pub const MPOL_WEIGHTED_INTERLEAVE: u32 = 6;
/// What `numa_maps` calls them.
const NAMES: [&str; 7] =
    ["default", "prefer", "bind", "interleave", "local", "prefer (many)", "weighted interleave"];

/// A flag of a mode: the nodes stay as they were asked for where others become allowed.
pub const MPOL_F_STATIC_NODES: u32 = 1 << 15;
/// A flag of a mode: the nodes are counted among the allowed ones.
pub const MPOL_F_RELATIVE_NODES: u32 = 1 << 14;
/// A flag of a mode: pages may move to where they are used.
pub const MPOL_F_NUMA_BALANCING: u32 = 1 << 13;
const FIXED: u32 = MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES;
const FLAGS: u32 = FIXED | MPOL_F_NUMA_BALANCING;

/// `mbind`: what is there already has to be where the policy says.
pub const MPOL_MF_STRICT: u32 = 1;
/// `mbind` and `move_pages`: pages that nobody else has are moved.
pub const MPOL_MF_MOVE: u32 = 1 << 1;
/// The same of all pages.
pub const MPOL_MF_MOVE_ALL: u32 = 1 << 2;

/// `get_mempolicy`: the number of a node, in place of the mode.
pub const MPOL_F_NODE: u32 = 1;
/// `get_mempolicy`: of an address.
pub const MPOL_F_ADDR: u32 = 1 << 1;
/// `get_mempolicy`: the nodes that are allowed.
pub const MPOL_F_MEMS_ALLOWED: u32 = 1 << 2;

/// A set of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nodes([u64; WORDS]);

impl Nodes {
    /// No node.
    pub const NONE: Nodes = Nodes([0; WORDS]);
    /// All nodes that there are: number 0.
    pub const ALL: Nodes = {
        let mut words = [0; WORDS];
        words[0] = 1;
        Nodes(words)
    };

    /// Reads a mask of which a program says how many bits it has, and one more, as Linux takes it.
    /// `word` is asked for words of the program's by their addresses. Bits beyond the last node are
    /// 0.
    pub fn read(
        at: u64,
        count: u64,
        word: impl Fn(u64) -> Result<u64, Errno>,
    ) -> Result<Nodes, Errno> {
        let bits = count.wrapping_sub(1);
        let mut nodes = Nodes::NONE;
        if bits == 0 || at == 0 {
            return Ok(nodes);
        }
        if bits > PAGE * u64::from(u8::BITS) {
            return Err(Errno::INVAL);
        }
        let word = |nth: u64| word(at.wrapping_add(nth * WORD_BYTES));
        for beyond in (WORDS as u64..bits.div_ceil(WORD_BITS)).rev() {
            if word(beyond)? != 0 {
                return Err(Errno::INVAL);
            }
        }
        let bits = bits.min(NODES);
        for (nth, into) in (0..bits.div_ceil(WORD_BITS)).zip(&mut nodes.0) {
            let beyond = WORD_BITS.saturating_sub(bits - nth * WORD_BITS);
            *into = word(nth)? << beyond >> beyond;
        }
        Ok(nodes)
    }
    /// Writes a mask for which a program has room for so many bits, less one, and nothing where it
    /// has none: the first word, and zeros.
    pub fn write(
        &self,
        at: u64,
        count: u64,
        mut put: impl FnMut(u64, u64) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let bits = count.wrapping_sub(1);
        let words = bits.wrapping_add(WORD_BITS - 1) / WORD_BITS; // 0 where that overflows
        if words * WORD_BYTES > PAGE {
            return Err(Errno::INVAL);
        }
        (0..words).try_for_each(|nth| {
            let word = if nth == 0 { self.0[0] } else { 0 };
            put(at.wrapping_add(nth * WORD_BYTES), word)
        })
    }
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        *self == Nodes::NONE
    }
    /// Whether the node that there is is one of them.
    pub fn has_memory(&self) -> bool {
        self.0[0] & 1 != 0
    }
}

/// In the form of `Mems_allowed` in `/proc/PID/status`.
impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let halves = self.0.iter().rev().flat_map(|word| [word >> 32, word & 0xffff_ffff]);
        halves.enumerate().try_for_each(|(nth, half)| {
            let comma = if nth == 0 { "" } else { "," };
            write!(f, "{comma}{half:08x}")
        })
    }
}

/// A mode with its flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    mode: u32,
    flags: u32,
}

impl Mode {
    /// From a program's word.
    pub fn of(word: u32) -> Result<Mode, Errno> {
        let (mode, flags) = (word & !FLAGS, word & FLAGS);
        let balances = flags & MPOL_F_NUMA_BALANCING != 0;
        let may_balance = [MPOL_BIND, MPOL_PREFERRED_MANY].contains(&mode);
        if mode > MPOL_WEIGHTED_INTERLEAVE || flags & FIXED == FIXED || balances && !may_balance {
            return Err(Errno::INVAL);
        }
        Ok(Mode { mode, flags })
    }
    /// Whether there is to be no policy.
    pub fn is_default(self) -> bool {
        self.mode == MPOL_DEFAULT
    }
    /// The policy of this mode over some nodes, which has to have one that there is.
    pub fn over(self, asked: &Nodes) -> Result<Option<Mempolicy>, Errno> {
        let Mode { mode, flags } = self;
        let is_fixed = flags & FIXED != 0;
        match mode {
            MPOL_DEFAULT if asked.is_empty() => return Ok(None),
            MPOL_PREFERRED | MPOL_LOCAL if asked.is_empty() && !is_fixed => {
                let mode = Mode { mode: MPOL_LOCAL, flags };
                return Ok(Some(Mempolicy { mode, nodes: Nodes::NONE, home: Home::None }));
            }
            MPOL_DEFAULT | MPOL_LOCAL => return Err(Errno::INVAL),
            _ => {}
        }
        let is_any = match flags & MPOL_F_RELATIVE_NODES {
            0 => asked.has_memory(),
            _ => !asked.is_empty(),
        };
        if !is_any {
            return Err(Errno::INVAL);
        }
        let nodes = if flags == 0 { Nodes::ALL } else { *asked };
        Ok(Some(Mempolicy { mode: self, nodes, home: Home::None }))
    }
}

/// Whether a node was named that memory comes from while it has some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Home {
    Named,
    None,
}

/// A policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mempolicy {
    mode: Mode,
    /// What is told of it: those that were asked for where it has flags, else those it comes to.
    nodes: Nodes,
    home: Home,
}

impl Mempolicy {
    /// What `get_mempolicy` tells of one, or of none: the mode with its flags, and the nodes.
    pub fn told(policy: Option<&Mempolicy>) -> (u32, Nodes) {
        let told = |policy: &Mempolicy| (policy.mode.mode | policy.mode.flags, policy.nodes);
        policy.map_or((MPOL_DEFAULT, Nodes::NONE), told)
    }
    /// Whether a thread that has it takes memory from one node after the other: then it can be told
    /// which is next.
    pub fn takes_turns(&self) -> bool {
        [MPOL_INTERLEAVE, MPOL_WEIGHTED_INTERLEAVE].contains(&self.mode.mode)
    }
    /// The same with the node that there is as its home.
    pub(crate) fn with_home(self) -> Result<Mempolicy, Errno> {
        match self.mode.mode {
            MPOL_BIND | MPOL_PREFERRED_MANY => Ok(Mempolicy { home: Home::Named, ..self }),
            _ => Err(Errno::OPNOTSUPP),
        }
    }
}

/// The policies of a process's ranges, by number; the first has number 1.
pub(crate) type Policies = Vec<Mempolicy>;

/// As in `/proc/PID/numa_maps`.
impl fmt::Display for Mempolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mode { mode, flags } = self.mode;
        f.write_str(NAMES[mode as usize])?;
        let fixed = match flags & FIXED {
            0 => "",
            MPOL_F_STATIC_NODES => "static",
            _ => "relative",
        };
        let balances = flags & MPOL_F_NUMA_BALANCING != 0;
        let equals = if flags == 0 { "" } else { "=" };
        let both = if balances && !fixed.is_empty() { "|" } else { "" };
        let balancing = if balances { "balancing" } else { "" };
        write!(f, "{equals}{fixed}{both}{balancing}")?;
        // All nodes that it can come to are number 0.
        f.write_str(if mode == MPOL_LOCAL { "" } else { ":0" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    fn nodes(first: u64) -> Nodes {
        let mut nodes = Nodes::NONE;
        nodes.0[0] = first;
        nodes
    }

    /// As Linux 6.18 answers where one node is: masks of none, of node 0, of node 1, of both.
    #[test]
    fn modes_take_flags_and_masks_as_linux_does() {
        const ALL: u8 = 0b1111;
        for (mode, flags, taken) in [
            (MPOL_DEFAULT, 0, 0b0001),
            (MPOL_DEFAULT, MPOL_F_STATIC_NODES, 0b0001),
            (MPOL_DEFAULT, MPOL_F_NUMA_BALANCING, 0),
            (MPOL_PREFERRED, 0, 0b1011),
            (MPOL_PREFERRED, MPOL_F_STATIC_NODES, 0b1010),
            (MPOL_PREFERRED, MPOL_F_RELATIVE_NODES, 0b1110),
            (MPOL_PREFERRED, MPOL_F_NUMA_BALANCING, 0),
            (MPOL_BIND, 0, 0b1010),
            (MPOL_BIND, MPOL_F_NUMA_BALANCING, 0b1010),
            (MPOL_BIND, MPOL_F_RELATIVE_NODES, 0b1110),
            (MPOL_BIND, MPOL_F_RELATIVE_NODES | MPOL_F_NUMA_BALANCING, 0b1110),
            (MPOL_BIND, FIXED, 0),
            (MPOL_INTERLEAVE, 0, 0b1010),
            (MPOL_INTERLEAVE, MPOL_F_NUMA_BALANCING, 0),
            (MPOL_LOCAL, 0, 0b0001),
            (MPOL_LOCAL, MPOL_F_STATIC_NODES, 0),
            (MPOL_LOCAL, MPOL_F_RELATIVE_NODES, 0),
            (MPOL_PREFERRED_MANY, 0, 0b1010),
            (MPOL_PREFERRED_MANY, MPOL_F_NUMA_BALANCING, 0b1010),
            (MPOL_WEIGHTED_INTERLEAVE, MPOL_F_STATIC_NODES, 0b1010),
            (MPOL_WEIGHTED_INTERLEAVE, MPOL_F_NUMA_BALANCING, 0),
            (MPOL_WEIGHTED_INTERLEAVE + 1, 0, 0),
            (1 << 16, 0, 0),
            (u32::MAX, 0, 0),
        ] {
            let takes = |mask: &u64| {
                let made = Mode::of(mode | flags).and_then(|mode| mode.over(&nodes(*mask)));
                assert!(matches!(made, Ok(_) | Err(Errno::INVAL)));
                made.is_ok()
            };
            let got = (0..4).filter(takes).fold(0u8, |all, mask| all | 1 << mask);
            assert_eq!(got, taken & ALL, "{mode} {flags:#x}");
        }
    }

    #[test]
    fn a_policy_is_told_as_it_was_asked_for_where_it_has_flags() {
        for (word, asked, told, shown) in [
            (MPOL_PREFERRED, 0, (MPOL_LOCAL, 0), "local"),
            (MPOL_PREFERRED, 3, (MPOL_PREFERRED, 1), "prefer:0"),
            (MPOL_LOCAL, 0, (MPOL_LOCAL, 0), "local"),
            (MPOL_BIND | 1 << 15, 5, (0x8002, 5), "bind=static:0"),
            (MPOL_BIND | 1 << 14, 2, (0x4002, 2), "bind=relative:0"),
            (MPOL_BIND | 0xa000, 1, (0xa002, 1), "bind=static|balancing:0"),
            (MPOL_PREFERRED_MANY | 1 << 13, 3, (0x2005, 3), "prefer (many)=balancing:0"),
            (MPOL_WEIGHTED_INTERLEAVE, 1, (6, 1), "weighted interleave:0"),
        ] {
            let policy = Mode::of(word).unwrap().over(&nodes(asked)).unwrap().unwrap();
            assert_eq!(Mempolicy::told(Some(&policy)), (told.0, nodes(told.1)), "{word:#x}");
            assert_eq!(policy.to_string(), shown);
        }
        assert_eq!(Mempolicy::told(None), (MPOL_DEFAULT, Nodes::NONE));
    }

    #[test]
    fn a_home_is_for_modes_of_several_nodes() {
        let of = |mode| Mode::of(mode).unwrap().over(&Nodes::ALL).unwrap().unwrap();
        for mode in [MPOL_BIND, MPOL_PREFERRED_MANY] {
            let with = of(mode).with_home().unwrap();
            assert_ne!(with, of(mode));
            assert_eq!(with.with_home(), Ok(with));
        }
        for mode in [MPOL_PREFERRED, MPOL_INTERLEAVE, MPOL_WEIGHTED_INTERLEAVE] {
            assert_eq!(of(mode).with_home(), Err(Errno::OPNOTSUPP));
            assert_eq!(of(mode).takes_turns(), mode != MPOL_PREFERRED);
        }
    }

    const AT: u64 = 0x1000;

    /// Reads from as many words as given, with nothing behind them.
    fn read(words: &[u64], count: u64) -> Result<Nodes, Errno> {
        Nodes::read(AT, count, |at| {
            words.get(((at - AT) / WORD_BYTES) as usize).copied().ok_or(Errno::FAULT)
        })
    }

    #[test]
    fn a_mask_is_read_up_to_the_bit_before_its_last() {
        for (words, count, answer) in [
            (&[][..], 1, Ok(Nodes::NONE)),
            (&[], 0, Err(Errno::INVAL)),
            (&[], 2, Err(Errno::FAULT)),
            (&[7], 2, Ok(nodes(1))),
            (&[7], 3, Ok(nodes(3))),
            (&[u64::MAX], 64, Ok(nodes(u64::MAX >> 1))),
            (&[u64::MAX], 65, Ok(nodes(u64::MAX))),
            (&[1], 66, Err(Errno::FAULT)),
            (&[1, 2], 66, Ok(nodes(1))),
            (&[1; 16], 1026, Err(Errno::FAULT)),
            (&[1; 17], 1026, Err(Errno::INVAL)),
            (&[0; 512], 32769, Ok(Nodes::NONE)),
            (&[0; 513], 32770, Err(Errno::INVAL)),
        ] {
            assert_eq!(read(words, count), answer, "{count} bits of {} words", words.len());
        }
        assert_eq!(read(&[1, 0, 4], 131), Ok(nodes(1)), "bit 130 is not read");
        assert_ne!(read(&[1, 0, 4], 132), Ok(nodes(1)), "and here it is");
        let words = &[&[1; 16][..], &[0, 1 << 40]].concat();
        assert_eq!(read(words, 1024 + 64 + 3), Err(Errno::INVAL), "words beyond are read whole");
        let none = Nodes::read(0, 65, |_| panic!("there is no mask"));
        assert_eq!(none, Ok(Nodes::NONE));
    }

    #[test]
    fn a_mask_is_written_in_whole_words() {
        for (count, words) in
            [(0, 0), (1, 0), (2, 1), (65, 1), (66, 2), (32769, 512), (u64::MAX, 0)]
        {
            let mut all = alloc::vec::Vec::new();
            let written = nodes(5).write(AT, count, |at, word| {
                assert_eq!(at, AT + all.len() as u64 * WORD_BYTES);
                all.push(word);
                Ok(())
            });
            assert_eq!((written, all.len()), (Ok(()), words), "{count} bits");
            assert!(all.iter().enumerate().all(|(nth, w)| *w == if nth == 0 { 5 } else { 0 }));
        }
        let fail = |count| Nodes::ALL.write(AT, count, |_, _| Err(Errno::FAULT));
        assert_eq!((fail(32770), fail(2)), (Err(Errno::INVAL), Err(Errno::FAULT)));
    }

    #[test]
    fn nodes_are_shown_as_the_status_of_a_process_shows_them() {
        let zeros = "00000000,".repeat(31);
        assert_eq!(format!("{}", Nodes::ALL), format!("{zeros}00000001"));
    }
}
