//! Whether an instruction that faulted was reading or writing, from its bytes.
//!
//! Most instructions touch memory once and their decoding answers for good. Those that touch it
//! twice (`movs`, `push [m]`, `call [m]`) do so through the stack pointer, `rsi` or `rdi` on at
//! least one side; samples carry these three, so the side whose address holds the fault is the one.
//!
//! **Limits**: the bytes are read when the sample is, a moment after the fault. Code that is
//! rewritten in between (a JIT compiler's) may be taken for another; `Summary` says how often
//! decoding and hardware agree where both are known.

use super::sys::{self, pid_t};
use crate::event::Access;
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, Register};
use std::collections::HashMap;

/// The longest instruction.
const LONGEST: usize = 15;

/// The registers that a sample carries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Regs {
    /// How wide the program's addresses are: 32 or 64.
    pub(crate) bits: u32,
    pub(crate) rsi: u64,
    pub(crate) rdi: u64,
    pub(crate) rsp: u64,
}

/// Decodes faulting instructions; remembers them by process and address.
#[derive(Default)]
pub(crate) struct Kinds {
    known: HashMap<(pid_t, u64), Option<Code>>,
    factory: Option<InstructionInfoFactory>,
}

#[derive(Clone, Copy)]
enum Code {
    /// One answer whatever the address.
    Plain(Access),
    /// Two sides.
    Both(Instruction),
}

impl Kinds {
    /// The kind of an access to `va` by the instruction at `ip`; `None` where the bytes do not
    /// tell.
    pub(crate) fn access(&mut self, pid: pid_t, ip: u64, va: u64, regs: Regs) -> Option<Access> {
        let behind = va.wrapping_sub(ip);
        if va == ip || (behind < LONGEST as u64 && va.is_multiple_of(4096)) {
            return Some(Access::Exec);
        }
        let factory = self.factory.get_or_insert_with(InstructionInfoFactory::new);
        let code = *self.known.entry((pid, ip)).or_insert_with(|| {
            let mut bytes = [0; LONGEST];
            // Not beyond the page: the next one may be absent, and reading would bring it.
            let there = LONGEST.min((4096 - ip % 4096) as usize);
            let mut n = sys::read_memory(pid, ip, &mut bytes[..there]);
            if n == there && there < LONGEST && decode(&bytes[..n], ip, regs.bits).is_none() {
                // The instruction goes on there, so it was fetched and the page is present.
                n += sys::read_memory(pid, ip.wrapping_add(n as u64), &mut bytes[n..]);
            }
            classify(factory, decode(&bytes[..n], ip, regs.bits)?)
        });
        match code? {
            Code::Plain(access) => Some(access),
            Code::Both(instruction) => side(factory, &instruction, va, regs),
        }
    }

    /// Forgets a process's code: it runs another program, or is gone.
    pub(crate) fn forget(&mut self, pid: pid_t) {
        self.known.retain(|&(p, _), _| p != pid);
    }
}

fn decode(bytes: &[u8], ip: u64, bits: u32) -> Option<Instruction> {
    let instruction = Decoder::with_ip(bits, bytes, ip, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

fn kind(access: OpAccess) -> Option<Access> {
    match access {
        OpAccess::Read | OpAccess::CondRead => Some(Access::Read),
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
            Some(Access::Write)
        }
        OpAccess::None | OpAccess::NoMemAccess => None,
    }
}

fn classify(factory: &mut InstructionInfoFactory, instruction: Instruction) -> Option<Code> {
    let mut kinds = factory.info(&instruction).used_memory().iter().map(|m| kind(m.access()));
    let first = kinds.find_map(|k| k)?;
    if kinds.flatten().all(|k| k == first) {
        Some(Code::Plain(first))
    } else {
        Some(Code::Both(instruction))
    }
}

/// Which side of a two-sided instruction touched `va`.
fn side(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
    va: u64,
    regs: Regs,
) -> Option<Access> {
    let mut rest = None;
    for memory in factory.info(instruction).used_memory() {
        let Some(access) = kind(memory.access()) else { continue };
        let at = memory.virtual_address(0, |register, _, _| match register {
            Register::RSI | Register::ESI => Some(regs.rsi),
            Register::RDI | Register::EDI => Some(regs.rdi),
            Register::RSP | Register::ESP => Some(regs.rsp),
            Register::ES | Register::DS | Register::SS | Register::CS => Some(0),
            _ => None,
        });
        match at {
            // An operand may cross into the page that faulted.
            Some(at) if va.wrapping_sub(at) < 64 => return Some(access),
            Some(_) => {}
            None => rest = Some(access),
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], va: u64, expect: Option<Access>) {
        check_of(64, bytes, va, expect);
    }

    fn check_of(bits: u32, bytes: &[u8], va: u64, expect: Option<Access>) {
        let mut factory = InstructionInfoFactory::new();
        let regs = Regs { bits, rsi: 0x1000, rdi: 0x2000, rsp: 0x3008 };
        let code = decode(bytes, 0x40_0000, bits).and_then(|i| classify(&mut factory, i));
        let found = match code {
            Some(Code::Plain(access)) => Some(access),
            Some(Code::Both(i)) => side(&mut factory, &i, va, regs),
            None => None,
        };
        assert_eq!(found, expect, "{bytes:02x?} at {va:#x}");
    }

    #[test]
    fn instructions_read_or_write() {
        check(&[0x48, 0x8b, 0x07], 0x2000, Some(Access::Read)); // mov rax, [rdi]
        check(&[0x48, 0x89, 0x07], 0x2000, Some(Access::Write)); // mov [rdi], rax
        check(&[0x48, 0x01, 0x07], 0x2000, Some(Access::Write)); // add [rdi], rax
        check(&[0x48, 0x39, 0x07], 0x2000, Some(Access::Read)); // cmp [rdi], rax
        check(&[0xf3, 0x48, 0xab], 0x2000, Some(Access::Write)); // rep stosq
        check(&[0xf0, 0x0f, 0xb1, 0x0f], 0x2000, Some(Access::Write)); // lock cmpxchg [rdi], ecx
        check(&[0xc5, 0xfe, 0x7f, 0x07], 0x2000, Some(Access::Write)); // vmovdqu [rdi], ymm0
        check(&[0x90], 0x2000, None); // nop
        check(&[0x06], 0x2000, None); // not an instruction
        check_of(32, &[0x06], 0x3004, Some(Access::Write)); // push es
        check_of(32, &[0x40], 0x2000, None); // inc eax, a prefix elsewhere
        check_of(32, &[0x89, 0x07], 0x2000, Some(Access::Write)); // mov [edi], eax
        check_of(32, &[0xf3, 0xa4], 0x1000, Some(Access::Read)); // rep movsb
        check_of(32, &[0xf3, 0xa4], 0x2000, Some(Access::Write));
    }

    #[test]
    fn two_sided_instructions_go_by_address() {
        check(&[0xf3, 0xa4], 0x1000, Some(Access::Read)); // rep movsb
        check(&[0xf3, 0xa4], 0x2000, Some(Access::Write));
        check(&[0xff, 0x30], 0x9000, Some(Access::Read)); // push [rax]
        check(&[0xff, 0x30], 0x3000, Some(Access::Write));
        check(&[0xff, 0x10], 0x3000, Some(Access::Write)); // call [rax]
        check(&[0xff, 0x10], 0x9000, Some(Access::Read));
    }
}
