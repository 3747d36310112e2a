//! The walker's own decoder of page-table words.
//!
//! It is written from the manuals (Intel SDM volume 3 chapter 5, Arm ARM chapter D8.3, RISC-V
//! privileged chapter 12) and from nothing else, so that a mistake in the manager's encoder meets a
//! second opinion.
//!
//! ```text
//!   x86-64   63 NX | 51..12 address | 8 G | 7 PS | 6 D | 5 A | 2 U | 1 W | 0 P
//!   aarch64  54 UXN | 53 PXN | 52 contiguous | 51 DBM | 47..12 address | 11 nG | 10 AF | 7 RO | 6 EL0 | 1 table or page | 0 V
//!   riscv64  63 N | 53..10 frame | 7 D | 6 A | 5 G | 4 U | 3 X | 2 W | 1 R | 0 V
//! ```
//!
//! Instruction fetches by users and by the kernel are two rights. aarch64 has a bit for each, and
//! the users' bit holds whether or not users may load. The other formats have one bit: it is the
//! users' where they may do anything at all, else the kernel's (x86-64: with SMEP).
//!
//! Sixteen words with the contiguous bit of aarch64 (levels 0 and 1), or with N of riscv64 (level
//! 0), are a *group*: each of them says what all sixteen map.
//!
//! **Not here**: memory types, protection keys, shadow stacks.

use crate::config::Format;
use foliant_units::Pa;

/// What a leaf, or the path down to it, allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    /// Loads.
    pub read: bool,
    /// Stores.
    pub write: bool,
    /// Instruction fetches by users.
    pub exec: bool,
    /// Instruction fetches by the kernel.
    pub kernel_exec: bool,
    /// Loads and stores by users.
    pub user: bool,
    /// The translation survives a change of root.
    pub global: bool,
}

impl Rights {
    /// A bit for each.
    pub(crate) fn bits(self) -> u64 {
        let all = [self.read, self.write, self.exec, self.kernel_exec, self.user, self.global];
        all.into_iter().fold(0, |bits, right| bits << 1 | u64::from(right))
    }
    /// What a root allows: everything, but it makes nothing global.
    pub(crate) const ALL: Rights = Rights {
        read: true,
        write: true,
        exec: true,
        kernel_exec: true,
        user: true,
        global: false,
    };

    /// What both allow. Global is a matter of the leaf, or (riscv64) of any word on the path.
    pub(crate) fn and(self, below: Rights) -> Rights {
        Rights {
            read: self.read & below.read,
            write: self.write & below.write,
            exec: self.exec & below.exec,
            kernel_exec: self.kernel_exec & below.kernel_exec,
            user: self.user & below.user,
            global: self.global | below.global,
        }
    }
}

/// A word that maps memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leaf {
    pub(crate) base: Pa,
    pub(crate) rights: Rights,
    pub(crate) accessed: bool,
    pub(crate) dirty: bool,
    /// log2 of the bytes that it maps: those of its level, or of the group that it is one of.
    /// `base` is aligned to it.
    pub(crate) shift: u32,
}

/// What a word says at its level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decoded {
    /// Not present, or reserved bits that the walker refuses.
    Nothing,
    /// It points to a table.
    Table { table: Pa, rights: Rights, accessed: bool },
    /// It maps memory.
    Leaf(Leaf),
}

/// Which half of the address space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Half {
    User,
    Kernel,
}

const fn bit(word: u64, n: u32) -> bool {
    word >> n & 1 == 1
}

pub(crate) const fn level_shift(level: u8) -> u32 {
    12 + 9 * level as u32
}

impl Format {
    /// Whether it has groups at all.
    pub(crate) const fn has_groups(self) -> bool {
        !matches!(self, Format::X86_64(_))
    }

    /// Whether the block that the leaf `word` of a group names is the one for the `nth` word of the
    /// group. A word of riscv64 does not say.
    pub(crate) const fn is_in_place(self, level: u8, word: u64, nth: u64) -> bool {
        match self {
            Format::Aarch64 => self.names(word).get() >> level_shift(level) & 15 == nth,
            _ => true,
        }
    }

    /// Bits of a virtual address that are translated.
    const fn va_bits(self) -> u32 {
        12 + 9 * self.levels() as u32
    }

    /// The half that `va` lies in, or `None` where it is not canonical.
    pub(crate) const fn half(self, va: u64) -> Option<Half> {
        // aarch64 compares all bits above the translated ones, the others sign-extend the top one.
        let top = match self {
            Format::Aarch64 => self.va_bits(),
            _ => self.va_bits() - 1,
        };
        match va >> top {
            0 => Some(Half::User),
            high if high == u64::MAX >> top => Some(Half::Kernel),
            _ => None,
        }
    }

    /// Whether both halves hang on one root.
    pub(crate) const fn one_root(self) -> bool {
        !matches!(self, Format::Aarch64)
    }

    /// Whether the word is live at all, whatever its level.
    pub(crate) const fn live(self, word: u64) -> bool {
        bit(word, 0)
    }

    /// The address field of a live word, whatever its level.
    pub(crate) const fn names(self, word: u64) -> Pa {
        Pa::new(match self {
            Format::X86_64(_) => word & 0x000f_ffff_ffff_f000,
            Format::Aarch64 => word & 0x0000_ffff_ffff_f000,
            Format::Riscv64(_) => (word >> 10 & 0xfff_ffff_ffff) << 12,
        })
    }

    /// The first address that a live word names, whatever its level: a riscv64 word of 64 KiB has
    /// its size in the low bits of the address.
    pub(crate) const fn first_named(self, word: u64) -> Pa {
        match self {
            Format::Riscv64(_) if bit(word, 63) => Pa::new(self.names(word).get() & !0xffff),
            _ => self.names(word),
        }
    }

    /// Decodes `word` at `level`.
    pub(crate) fn decode(self, level: u8, word: u64) -> Decoded {
        if !bit(word, 0) {
            return Decoded::Nothing;
        }
        match self {
            Format::X86_64(_) => self.decode_x86(level, word),
            Format::Aarch64 => self.decode_aarch64(level, word),
            Format::Riscv64(_) => self.decode_riscv(level, word),
        }
    }

    fn decode_x86(self, level: u8, word: u64) -> Decoded {
        let exec = !bit(word, 63);
        let rights = Rights {
            read: true,
            write: bit(word, 1),
            exec,
            kernel_exec: exec,
            user: bit(word, 2),
            global: false,
        };
        if level == 0 || bit(word, 7) {
            if level > 2 {
                return Decoded::Nothing;
            }
            let shift = level_shift(level);
            // Bit 12 of a large leaf is PAT; the rest below the span is reserved as zero.
            let field = self.names(word).get() & if level == 0 { !0 } else { !(1 << 12) };
            if field & ((1 << shift) - 1) != 0 {
                return Decoded::Nothing;
            }
            return Decoded::Leaf(Leaf {
                base: Pa::new(field),
                rights: Rights { global: bit(word, 8), ..rights },
                accessed: bit(word, 5),
                dirty: bit(word, 6),
                shift,
            });
        }
        Decoded::Table { table: self.names(word), rights, accessed: bit(word, 5) }
    }

    fn decode_aarch64(self, level: u8, word: u64) -> Decoded {
        let table_or_page = bit(word, 1);
        if level > 0 && table_or_page {
            let rights = Rights {
                read: true,
                write: !bit(word, 62),
                exec: !bit(word, 60),
                kernel_exec: !bit(word, 59),
                user: !bit(word, 61),
                global: false,
            };
            return Decoded::Table { table: self.names(word), rights, accessed: true };
        }
        if level > 2 || (level == 0) != table_or_page {
            return Decoded::Nothing;
        }
        let shift = level_shift(level);
        let base = self.names(word).get();
        if base & ((1 << shift) - 1) != 0 {
            return Decoded::Nothing;
        }
        // The bits of the address that lie inside a group are those of the virtual address.
        let shift = if bit(word, 52) && level < 2 { shift + 4 } else { shift };
        let base = base & !((1 << shift) - 1);
        // With DBM the read-only bit means "writable, still clean".
        let (read_only, managed) = (bit(word, 7), bit(word, 51));
        Decoded::Leaf(Leaf {
            base: Pa::new(base),
            rights: Rights {
                read: true,
                write: !read_only || managed,
                exec: !bit(word, 54),
                kernel_exec: !bit(word, 53),
                user: bit(word, 6),
                global: !bit(word, 11),
            },
            accessed: bit(word, 10),
            dirty: !read_only,
            shift,
        })
    }

    fn decode_riscv(self, level: u8, word: u64) -> Decoded {
        let (read, write, exec) = (bit(word, 1), bit(word, 2), bit(word, 3));
        let base = self.names(word).get();
        if !read && !write && !exec {
            if level == 0 {
                return Decoded::Nothing;
            }
            let rights = Rights { global: bit(word, 5), ..Rights::ALL };
            return Decoded::Table { table: Pa::new(base), rights, accessed: true };
        }
        // Writable without readable is reserved. Sv48 and Sv57 would have leaves of 512 GiB too,
        // which Foliant does not use.
        if write && !read || level > 2 {
            return Decoded::Nothing;
        }
        // Svnapot: the low four bits 1000 of the frame number say 64 KiB.
        let (base, shift) = match (bit(word, 63), level) {
            (false, _) => (base, level_shift(level)),
            (true, 0) if base >> 12 & 0xf == 8 => (base & !0xffff, 16),
            (true, _) => return Decoded::Nothing,
        };
        if base & ((1 << shift) - 1) != 0 {
            return Decoded::Nothing;
        }
        Decoded::Leaf(Leaf {
            base: Pa::new(base),
            rights: Rights {
                read,
                write,
                exec,
                kernel_exec: exec,
                user: bit(word, 4),
                global: bit(word, 5),
            },
            accessed: bit(word, 6),
            dirty: bit(word, 7),
            shift,
        })
    }

    /// What a path of words allows, all in all: where one bit stands for instruction fetches of
    /// users and of the kernel, it is the users' if they reach the memory, else the kernel's.
    pub(crate) const fn settled(self, path: Rights) -> Rights {
        match self {
            Format::Aarch64 => path,
            _ => Rights {
                exec: path.exec && path.user,
                kernel_exec: path.kernel_exec && !path.user,
                ..path
            },
        }
    }

    /// The word with its accessed bit set.
    pub(crate) const fn with_accessed(self, word: u64) -> u64 {
        word | match self {
            Format::X86_64(_) => 1 << 5,
            Format::Aarch64 => 1 << 10,
            Format::Riscv64(_) => 1 << 6,
        }
    }

    /// The word with its dirty bit set; aarch64 takes the read-only bit of a managed word away.
    pub(crate) const fn with_dirty(self, word: u64) -> u64 {
        match self {
            Format::X86_64(_) => word | 1 << 6,
            Format::Aarch64 if bit(word, 51) => word & !(1 << 7),
            Format::Aarch64 => word,
            Format::Riscv64(_) => word | 1 << 7,
        }
    }
}
