//! A process that does nothing but what it is told.
//!
//! It is a program of a few hundred bytes, made here as an ELF file in memory: a page of code, and
//! a few pages of data with its stack. It has no library, no thread and no allocator, so that its
//! address space is empty but for these. It reads 64 bytes from its descriptor, carries out what
//! they say, and writes 32 bytes back.
//!
//! ```text
//!   request   what │ six arguments │ a forked child's descriptor        what: a number of a system call, or 1000…
//!   answer    result │ signal │ its code │ its address                  a load or a store that faults ends with a signal
//! ```
//!
//! A forked child goes on with the next descriptor: 0, 1 and 2 are there.
//!
//! **Invariants**
//! - O1. The program maps nothing by itself once it runs.
//! - O2. It ends when the other end of its descriptor is closed, and when this process ends.
//! - O3. Segments of System V that it makes are in a namespace of its own, which ends with it.
//! - O4. What this process opens to see whether it can be opened is closed by it.
#![allow(unsafe_code)]

use crate::{likeness, userfault};
use foliant_linux::raw::general::CAP_SYS_ADMIN;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where its data lies, and where its code: far from what is mapped, the code above, so that the
/// heap begins beside no data.
pub(crate) const DATA: u64 = 0x20_0000_0000;
const CODE: u64 = 0x21_0000_0000;
/// Bytes of data: requests and answers, a buffer, the stack.
const DATA_BYTES: u64 = 0x8000;
/// Where the structure of a request lies.
pub(crate) const REQUEST: u64 = DATA + 0x300;
/// Where calls put bytes, and take them from.
pub(crate) const BUFFER: u64 = DATA + 0x1000;
/// How many of them there is room for.
pub(crate) const BUFFER_BYTES: u64 = 0x2000;

/// How long an answer may take: a child whose memory the host took away gives none.
const PATIENCE: Duration = Duration::from_secs(60);

/// A short text as the sixth argument of a request, and its address in the program.
pub(crate) fn text(text: &str) -> (u64, u64) {
    let mut word = [0; 8];
    word[..text.len()].copy_from_slice(text.as_bytes());
    (DATA + 48, u64::from_le_bytes(word))
}

/// What is no system call.
pub(crate) const LOAD: u64 = 1000;
pub(crate) const STORE: u64 = 1001;
pub(crate) const FORK: u64 = 1002;

core::arch::global_asm!(
    ".pushsection .rodata.foliant_oracle",
    ".globl foliant_oracle_begin",
    ".globl foliant_oracle_end",
    "foliant_oracle_begin:",
    "mov rbx, 0x2000000000",
    "lea rsp, [rbx + 0x7ff0]",
    // One handler for SIGSEGV and SIGBUS: SA_SIGINFO | SA_RESTORER | SA_NODEFER.
    "lea rax, [rip + 30f]",
    "mov [rbx + 0x200], rax",
    "mov qword ptr [rbx + 0x208], 0x44000004",
    "lea rax, [rip + 31f]",
    "mov [rbx + 0x210], rax",
    "mov qword ptr [rbx + 0x218], 0",
    "mov edi, 11",
    "call 40f",
    "mov edi, 7",
    "call 40f",
    // Children are not waited for.
    "mov qword ptr [rbx + 0x200], 1",
    "mov qword ptr [rbx + 0x208], 0x04000000",
    "mov edi, 17",
    "call 40f",
    "xor r12d, r12d",
    "20:",
    "xor eax, eax",
    "mov edi, r12d",
    "mov rsi, rbx",
    "mov edx, 64",
    "syscall",
    "cmp rax, 64",
    "jne 29f",
    "mov qword ptr [rbx + 0x108], 0",
    "mov rax, [rbx]",
    "cmp rax, 1000",
    "je 21f",
    "cmp rax, 1001",
    "je 22f",
    "cmp rax, 1002",
    "je 23f",
    "mov rdi, [rbx + 8]",
    "mov rsi, [rbx + 16]",
    "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]",
    "mov r8, [rbx + 40]",
    "mov r9, [rbx + 48]",
    "syscall",
    "24:",
    "mov [rbx + 0x100], rax",
    "mov eax, 1",
    "mov edi, r12d",
    "lea rsi, [rbx + 0x100]",
    "mov edx, 32",
    "syscall",
    "jmp 20b",
    "21:",
    "mov rsi, [rbx + 8]",
    "movzx eax, byte ptr [rsi]",
    "jmp 24b",
    "22:",
    "mov rsi, [rbx + 8]",
    "mov rax, [rbx + 16]",
    "mov [rsi], al",
    "xor eax, eax",
    "jmp 24b",
    "23:",
    "mov eax, 57",
    "syscall",
    "test rax, rax",
    "jnz 24b",
    "mov r12d, [rbx + 56]",
    "jmp 20b",
    "29:",
    "mov eax, 231",
    "xor edi, edi",
    "syscall",
    // The handler: the answer, and where to go on (`uc_mcontext.gregs[REG_RIP]`).
    "30:",
    "mov [rbx + 0x108], rdi",
    "movsxd rax, dword ptr [rsi + 8]",
    "mov [rbx + 0x110], rax",
    "mov rax, [rsi + 16]",
    "mov [rbx + 0x118], rax",
    "lea rax, [rip + 32f]",
    "mov [rdx + 168], rax",
    "ret",
    "31:",
    "mov eax, 15",
    "syscall",
    "32:",
    "xor eax, eax",
    "jmp 24b",
    "40:",
    "mov eax, 13",
    "lea rsi, [rbx + 0x200]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "ret",
    "foliant_oracle_end:",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "foliant_oracle_begin"]
    static BEGIN: u8;
    #[link_name = "foliant_oracle_end"]
    static END: u8;
}

/// The program's code.
fn code() -> &'static [u8] {
    let (begin, end) = (&raw const BEGIN, &raw const END);
    // SAFETY: child::O1: the two labels stand around the bytes that the block above emits, which
    // are constant and live as long as this program.
    unsafe { core::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

/// The program as an ELF file.
fn image() -> Vec<u8> {
    const HEADERS: u64 = 0x1000;
    let mut file = Vec::new();
    let mut put = |bytes: &[u8]| file.extend_from_slice(bytes);
    put(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    put(&2u16.to_le_bytes()); // an executable at fixed addresses
    put(&62u16.to_le_bytes()); // x86-64
    put(&1u32.to_le_bytes());
    [CODE, 64, 0].iter().for_each(|word| put(&word.to_le_bytes()));
    put(&0u32.to_le_bytes());
    [64u16, 56, 3, 64, 0, 0].iter().for_each(|half| put(&half.to_le_bytes()));
    let bytes = code().len() as u64;
    let mut segment = |kind: u32, flags: u32, words: [u64; 6]| {
        put(&kind.to_le_bytes());
        put(&flags.to_le_bytes());
        words.iter().for_each(|word| put(&word.to_le_bytes()));
    };
    segment(1, 6, [0, DATA, DATA, 0, DATA_BYTES, 0x1000]);
    segment(1, 5, [HEADERS, CODE, CODE, bytes, bytes, 0x1000]);
    segment(0x6474_e551, 6, [0, 0, 0, 0, 0, 16]); // the stack is not executable
    file.resize(HEADERS as usize, 0);
    file.extend_from_slice(code());
    file
}

/// The program, to be started many times.
#[derive(Debug)]
pub(crate) struct Program {
    file: OwnedFd,
    /// Whether it may have a namespace for segments of its own (O3). If not it makes none.
    pub(crate) has_segments: bool,
    /// Whether this host lets it answer faults.
    pub(crate) has_userfaults: bool,
}

impl Program {
    pub(crate) fn new() -> io::Result<Program> {
        let file = memfd_create("foliant-oracle", MemfdFlags::CLOEXEC)?;
        let mut file = File::from(file);
        file.write_all(&image())?;
        let has_segments = likeness::is_capable(CAP_SYS_ADMIN)?;
        let has_userfaults = may_have_userfaults();
        Ok(Program { file: file.into(), has_segments, has_userfaults })
    }
}

/// Whether this host gives a process a descriptor of `userfaultfd`.
fn may_have_userfaults() -> bool {
    // SAFETY: child::O4: it takes a number, and gives a new descriptor or an error.
    let made = unsafe { libc::syscall(libc::SYS_userfaultfd, userfault::FLAGS) };
    let Ok(made) = i32::try_from(made) else { return false };
    if made < 0 {
        return false;
    }
    // SAFETY: child::O4: the descriptor was made just now, for nobody else.
    drop(unsafe { OwnedFd::from_raw_fd(made) });
    true
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reply {
    pub(crate) result: u64,
    /// 0 where there was none.
    pub(crate) signal: u64,
    pub(crate) code: u64,
    pub(crate) addr: u64,
}

/// A process that runs the program, and how to look at it.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: u32,
    line: UnixStream,
    mem: File,
    pagemap: File,
}

impl Child {
    fn new(pid: u32, line: UnixStream) -> io::Result<Child> {
        line.set_read_timeout(Some(PATIENCE))?;
        let path = |name: &str| format!("/proc/{pid}/{name}");
        let mem = File::options().read(true).write(true).open(path("mem"))?;
        Ok(Child { pid, line, mem, pagemap: File::open(path("pagemap"))? })
    }
    /// Has a request carried out.
    pub(crate) fn ask(&mut self, what: u64, args: [u64; 6], descriptor: u64) -> io::Result<Reply> {
        let mut request = Vec::with_capacity(64);
        request.extend_from_slice(&what.to_le_bytes());
        args.iter().for_each(|arg| request.extend_from_slice(&arg.to_le_bytes()));
        request.extend_from_slice(&descriptor.to_le_bytes());
        self.line.write_all(&request)?;
        let mut answer = [0; 32];
        self.line.read_exact(&mut answer)?;
        let word = |nth: usize| {
            let bytes = answer[nth * 8..nth * 8 + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        Ok(Reply { result: word(0), signal: word(1), code: word(2), addr: word(3) })
    }
    /// Waits until it has ended, which it does once its line is closed.
    pub(crate) fn end(self) -> io::Result<()> {
        let Child { pid, line, .. } = self;
        drop(line);
        let path = format!("/proc/{pid}/stat");
        let begun = Instant::now();
        // A zombie has no memory any more, and nobody waits for one.
        while std::fs::read_to_string(&path).is_ok_and(|stat| !stat.contains(") Z ")) {
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("process {pid} does not end")));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
    /// Reads its memory.
    pub(crate) fn read(&self, addr: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.mem.read_exact_at(bytes, addr)
    }
    /// Writes its memory.
    pub(crate) fn put(&self, addr: u64, bytes: &[u8]) -> io::Result<()> {
        self.mem.write_all_at(bytes, addr)
    }
    /// What the kernel says of the pages from an address on, a word for each.
    pub(crate) fn pagemap(&self, addr: u64, words: &mut [u8]) -> io::Result<()> {
        self.pagemap.read_exact_at(words, addr / 4096 * 8)
    }
    /// One of its files in `/proc`.
    pub(crate) fn file(&self, name: &str) -> io::Result<String> {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.pid))
    }
    /// Writes one of them.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        std::fs::write(format!("/proc/{}/{name}", self.pid), text)
    }
}

/// A process, and those that it forks.
#[derive(Debug)]
pub(crate) struct Family {
    first: std::process::Child,
    /// The lines of children that are not there yet, the next one last.
    spare: Vec<(u64, UnixStream)>,
}

impl Family {
    /// Starts a process. Its addresses are not random.
    pub(crate) fn start(program: &Program) -> io::Result<(Family, Child)> {
        let (mine, its): (Vec<UnixStream>, Vec<UnixStream>) =
            (0..3).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
        let mut its = its.into_iter().map(|line| Stdio::from(OwnedFd::from(line)));
        let mut next = || its.next().expect("three");
        let mut command = Command::new(format!("/proc/self/fd/{}", program.file.as_raw_fd()));
        command.env_clear().stdin(next()).stdout(next()).stderr(next());
        let has_segments = program.has_segments;
        // SAFETY: child::O2: its calls are single system calls, which may be made between a fork
        // and an exec.
        unsafe { command.pre_exec(move || alone(has_segments)) };
        let first = command.spawn()?;
        let mut mine = mine.into_iter().enumerate().map(|(nth, line)| (nth as u64, line)).rev();
        let mut spare: Vec<_> = mine.by_ref().collect();
        let (_, line) = spare.pop().expect("three");
        let child = Child::new(first.id(), line)?;
        Ok((Family { first, spare }, child))
    }
    /// Whether another child may be forked.
    pub(crate) fn has_spare(&self) -> bool {
        !self.spare.is_empty()
    }
    /// Has `parent` fork. The answer is that of the call.
    pub(crate) fn fork(&mut self, parent: &mut Child) -> io::Result<(Reply, Option<Child>)> {
        let Some((descriptor, line)) = self.spare.pop() else {
            return Err(io::Error::other("no descriptor is left for another child"));
        };
        let reply = parent.ask(FORK, [0; 6], descriptor)?;
        let is_error = reply.result.wrapping_neg() < 4096;
        if is_error {
            return Ok((reply, None));
        }
        let mut child = Child::new(reply.result as u32, line)?;
        // Once it answers it runs, and has the pages that it runs in.
        child.ask(libc::SYS_getppid as u64, [0; 6], 0)?;
        Ok((reply, Some(child)))
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        // Its lines are closed with the children; the first is waited for.
        let _ = self.first.kill();
        let _ = self.first.wait();
    }
}

/// Makes this process, which is about to run the program, one with addresses that are not random,
/// and that ends with its parent; and where it has segments, with a namespace for them.
fn alone(has_segments: bool) -> io::Result<()> {
    // SAFETY: child::O2: it takes numbers, and changes this process alone.
    let old = unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
    // SAFETY: child::O2: as above.
    let tied = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: child::O3: as above.
    let apart = if has_segments { unsafe { libc::unshare(libc::CLONE_NEWIPC) } } else { 0 };
    if old < 0 || tied < 0 || apart < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_carries_out_loads_stores_calls_and_forks() {
        let program = Program::new().unwrap();
        let (mut family, mut child) = Family::start(&program).unwrap();
        let page = child.ask(libc::SYS_mmap as u64, [0, 4096, 3, 0x22, u64::MAX, 0], 0).unwrap();
        assert_eq!((page.signal, page.result % 4096), (0, 0), "{page:?}");
        let mut ask = |what, addr, value| child.ask(what, [addr, value, 0, 0, 0, 0], 0).unwrap();
        assert_eq!(ask(LOAD, page.result, 0).result, 0);
        ask(STORE, page.result + 7, 0x1234);
        assert_eq!(ask(LOAD, page.result + 7, 0).result, 0x34, "a byte");
        let fault = ask(LOAD, 0x1235, 0);
        assert_eq!((fault.signal, fault.code, fault.addr), (11, 1, 0x1235));
        let (reply, forked) = family.fork(&mut child).unwrap();
        let mut forked = forked.unwrap();
        assert_eq!(u64::from(forked.pid), reply.result);
        forked.ask(STORE, [page.result + 7, 9, 0, 0, 0, 0], 0).unwrap();
        let mut byte = [0];
        child.read(page.result + 7, &mut byte).unwrap();
        assert_eq!(byte, [0x34], "the child has a copy");
        forked.read(page.result + 7, &mut byte).unwrap();
        assert_eq!(byte, [9]);
    }
}
