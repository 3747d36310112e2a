//! A program's file becomes memory and registers.
//!
//! ```text
//!   path ─▶ `#!`? its interpreter, with the path as an argument ─▶ ELF: program, and the loader that it names
//!        ─▶ segments mapped ─▶ the old memory ends ─▶ stack: arguments, environment, auxiliary vector ─▶ entry
//! ```
//!
//! **Invariants**
//! - L1. Up to the moment at which the old memory ends, a failure leaves the process as it was;
//!   from then on it ends it.
//! - L2. Where things go follows from the file alone, as on a Linux that does not choose addresses
//!   at random: a program runs the same way twice.
//! - L3. The file of a program is held to be run by the memory that has its parts, and so is each
//!   file that is looked at here, for as long as that takes. Loaders and scripts are let go of.
//!   (Linux holds a file to be written by its mappings, too, where the descriptor was for writing;
//!   here only descriptors do.)

use super::content::Bytes;
use super::credentials::guarded;
use super::hold::Hold;
use super::opened::Descriptor;
use super::process::{Held, Image};
use super::sched;
use super::signal::{Action, CUT, Ended, NO_STACK};
use super::thread::Thread;
use super::{Memory, handlers, promises, random, sequence, texts, user, world};
use crate::memory::manager;
use crate::reach;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use elf::abi::{EM_X86_64, ET_DYN, ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD};
use elf::endian::LittleEndian;
use elf::segment::ProgramHeader;
use foliant_files::{Last, Purpose};
use foliant_linux::capabilities::Capability;
use foliant_linux::credentials::{Guarded, SetIds};
use foliant_linux::overcommit::Promise;
use foliant_linux::{Errno, Layout};
use foliant_units::Va;
use linux_raw_sys::auxvec::{
    AT_BASE, AT_CLKTCK, AT_EGID, AT_ENTRY, AT_EUID, AT_EXECFN, AT_FLAGS, AT_GID, AT_HWCAP,
    AT_MINSIGSTKSZ, AT_NULL, AT_PAGESZ, AT_PHDR, AT_PHENT, AT_PHNUM, AT_PLATFORM, AT_RANDOM,
    AT_RSEQ_ALIGN, AT_RSEQ_FEATURE_SIZE, AT_SECURE, AT_UID,
};
use linux_raw_sys::errno::{E2BIG, EACCES, EINVAL, ELOOP, ENOEXEC};
use linux_raw_sys::general::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_GROWSDOWN, MAP_PRIVATE, PROT_EXEC, PROT_NONE, PROT_READ,
    PROT_WRITE, R_OK, S_IFMT, S_IFREG, SIGCHLD, SIGSEGV, X_OK,
};

const PAGE: u64 = 4096;
/// Behind the last address of a program.
const END: u64 = (1 << 47) - PAGE;
/// What is mapped of a stack when a program begins.
const STACK: u64 = 33 * PAGE;
/// What stays free above memory that is placed from the top on: the stack's limit, its gap, and
/// what Linux would move the stack by at random.
const TOP_GAP: u64 = (8 << 20) + (1 << 20) + (16 << 30);
/// Where a program goes that can be anywhere.
const ANYWHERE: u64 = (END / 3 * 2) & !(PAGE - 1);
/// Bytes of the file in which `#!` and what follows is looked for.
const LINE: usize = 256;
/// Bytes of a file's header.
const HEADER: usize = 64;
/// Interpreters of interpreters.
const DEPTH: usize = 5;
/// All arguments and the environment together.
pub(super) const TEXTS_MAX: usize = 2 << 20;

/// What a text takes of that: its bytes, a zero, and the word that points to it.
pub(super) fn taken_by(text: &[u8]) -> usize {
    text.len() + 9
}

fn align(at: u64) -> u64 {
    (at + PAGE - 1) & !(PAGE - 1)
}
fn down(at: u64) -> u64 {
    at & !(PAGE - 1)
}

/// A file that can be mapped and looked at.
struct Executable {
    hold: Hold, // L3
    bytes: Arc<Bytes>,
    head: Vec<u8>,
    guarded: Guarded,
}

impl Executable {
    fn open(thread: &Thread, path: &[u8]) -> Result<Executable, Errno> {
        let process = &thread.process;
        let by = thread.credentials();
        let node = process.walk(&by, process.folder(), path, Last::Follow)?;
        let facts = world().files.read().facts(node).ok_or(Errno(EACCES))?;
        let guarded = guarded(&facts);
        if facts.mode & S_IFMT != S_IFREG || !by.may(&guarded, X_OK) {
            return Err(Errno(EACCES));
        }
        let hold = Hold::to(Purpose::Run, node)?;
        let bytes = world().in_memory(node)?.ok_or(Errno(EACCES))?;
        let mut head = alloc::vec![0; PAGE as usize];
        let count = bytes.file.pread(&mut head, 0)? as usize;
        head.truncate(count);
        Ok(Executable { hold, bytes, head, guarded })
    }
    /// The interpreter behind `#!`, and the one word behind that.
    fn interpreter(&self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let line = self.head.strip_prefix(b"#!")?;
        let line = &line[..line.len().min(LINE - 2)];
        let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
        let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
        let rest = line[end..].trim_ascii();
        let argument = (!rest.is_empty()).then(|| rest.to_vec());
        (end > 0).then(|| (line[..end].to_vec(), argument))
    }
    fn image(&self) -> Result<Elf, Errno> {
        let broken = || Errno(ENOEXEC);
        let head = header_of(&self.head).ok_or_else(broken)?;
        let is_kind = matches!(head.e_type, ET_EXEC | ET_DYN) && head.e_machine == EM_X86_64;
        let size = size_of_header() * usize::from(head.e_phnum);
        if !is_kind || usize::from(head.e_phentsize) != size_of_header() || size > 1 << 16 {
            return Err(broken());
        }
        let mut table = alloc::vec![0; size];
        if self.bytes.file.pread(&mut table, head.e_phoff as i64)? < size as u64 {
            return Err(broken());
        }
        let parts = elf::parse::ParsingTable::<LittleEndian, ProgramHeader>::new(
            LittleEndian,
            elf::file::Class::ELF64,
            &table,
        );
        let parts: Vec<ProgramHeader> = parts.iter().collect();
        let elf = Elf {
            is_anywhere: head.e_type == ET_DYN,
            entry: head.e_entry,
            table: head.e_phoff,
            parts,
        };
        let loads = || elf.loads();
        let is_sound = |part: &ProgramHeader| {
            let ends = part.p_vaddr.checked_add(part.p_memsz).is_some_and(|end| end <= END);
            let fits = part.p_filesz <= part.p_memsz && part.p_offset < 1 << 62;
            ends && fits && part.p_vaddr % PAGE == part.p_offset % PAGE
        };
        let in_order =
            loads().zip(loads().skip(1)).all(|(a, b)| a.p_vaddr + a.p_memsz <= b.p_vaddr);
        if loads().next().is_none() || !loads().all(is_sound) || !in_order {
            return Err(broken());
        }
        Ok(elf)
    }
    /// The text of a part.
    fn text(&self, part: &ProgramHeader) -> Result<Vec<u8>, Errno> {
        let size = part.p_filesz as usize;
        if size > PAGE as usize || size < 2 {
            return Err(Errno(ENOEXEC));
        }
        let mut text = alloc::vec![0; size];
        let count = self.bytes.file.pread(&mut text, part.p_offset as i64)? as usize;
        match text.iter().position(|byte| *byte == 0) {
            Some(end) if count == size => {
                text.truncate(end);
                Ok(text)
            }
            _ => Err(Errno(ENOEXEC)),
        }
    }
}

fn size_of_header() -> usize {
    use elf::parse::ParseAt;
    ProgramHeader::size_for(elf::file::Class::ELF64)
}
/// The header of a file of which no more than the beginning is there.
fn header_of(head: &[u8]) -> Option<elf::file::FileHeader<LittleEndian>> {
    if head.len() < HEADER {
        return None; // the parser takes it for granted
    }
    let ident = elf::file::parse_ident::<LittleEndian>(head).ok()?;
    let tail = head.get(elf::abi::EI_NIDENT..)?;
    elf::file::FileHeader::parse_tail(ident, tail).ok()
}

/// What a program's file says of where its parts go.
struct Elf {
    is_anywhere: bool,
    entry: u64,
    /// Where its table of parts is in the file.
    table: u64,
    parts: Vec<ProgramHeader>,
}

impl Elf {
    fn loads(&self) -> impl Iterator<Item = &ProgramHeader> {
        self.parts.iter().filter(|part| part.p_type == PT_LOAD)
    }
    fn start(&self) -> u64 {
        down(self.loads().next().map_or(0, |part| part.p_vaddr))
    }
    fn end(&self) -> u64 {
        self.loads().map(|part| align(part.p_vaddr + part.p_memsz)).max().unwrap_or(0)
    }
    /// Where its table of parts is in memory.
    fn table_at(&self) -> u64 {
        let has = |part: &&ProgramHeader| {
            let offset = self.table.wrapping_sub(part.p_offset);
            offset < part.p_filesz
        };
        self.loads().find(has).map_or(0, |part| self.table - part.p_offset + part.p_vaddr)
    }
}

fn rights(part: &ProgramHeader) -> u32 {
    let of = |flag, right| if part.p_flags & flag != 0 { right } else { PROT_NONE };
    of(PF_R, PROT_READ) | of(PF_W, PROT_WRITE) | of(PF_X, PROT_EXEC)
}

/// Maps the parts of a program, moved by `by`.
fn map(memory: &mut Memory, file: &Executable, elf: &Elf, by: u64) -> Result<(), Errno> {
    const PLACED: u32 = MAP_PRIVATE | MAP_FIXED;
    for part in elf.loads() {
        let (start, end) = (by + part.p_vaddr, by + part.p_vaddr + part.p_filesz);
        if part.p_filesz > 0 {
            let offset = down(part.p_offset);
            let bytes = align(end) - down(start);
            memory.mmap(
                down(start),
                bytes,
                rights(part),
                PLACED,
                Some(&file.bytes.file),
                offset,
            )?;
        }
        let zeros = if part.p_filesz > 0 { align(end) } else { down(start) };
        let bytes = align(start + part.p_memsz).saturating_sub(zeros);
        if bytes > 0 {
            memory.mmap(zeros, bytes, rights(part), PLACED | MAP_ANONYMOUS, None, 0)?;
        }
    }
    Ok(())
}

/// Clears what lies behind the file's bytes in the last page of each part that may be written.
fn clear_ends(elf: &Elf, by: u64) -> Result<(), Errno> {
    let longer =
        elf.loads().filter(|part| part.p_filesz < part.p_memsz && part.p_flags & PF_W != 0);
    for part in longer.filter(|part| part.p_filesz > 0) {
        let end = by + part.p_vaddr + part.p_filesz;
        user::put_bytes(end, &[0; PAGE as usize][..(align(end) - end) as usize])?;
    }
    Ok(())
}

/// Makes the calling thread run another program.
pub(super) fn exec(
    thread: &Thread,
    path: &[u8],
    mut arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
) -> Result<(), Errno> {
    let (mut path, named) = (path.to_vec(), path.to_vec());
    let mut file = Executable::open(thread, &path)?;
    for depth in 0.. {
        let Some((interpreter, argument)) = file.interpreter() else { break };
        if depth == DEPTH {
            return Err(Errno(ELOOP));
        }
        let rest = arguments.into_iter().skip(1);
        let first = [Some(interpreter.clone()), argument, Some(path)];
        arguments = first.into_iter().flatten().chain(rest).collect();
        path = interpreter;
        file = Executable::open(thread, &path)?;
    }
    let texts = arguments.iter().chain(&environment).map(|text| taken_by(text)).sum::<usize>();
    if texts > TEXTS_MAX {
        return Err(Errno(E2BIG));
    }
    let elf = file.image()?;
    let loader = match elf.parts.iter().find(|part| part.p_type == PT_INTERP) {
        Some(part) => {
            let file = Executable::open(thread, &file.text(part)?)?;
            let elf = file.image()?;
            Some((file, elf))
        }
        None => None,
    };
    let anywhere = || ANYWHERE.checked_sub(elf.start()).ok_or(Errno(ENOEXEC));
    let by = if elf.is_anywhere { anywhere()? } else { 0 };
    if by + elf.end() >= END - STACK {
        return Err(Errno(EINVAL));
    }
    let (heap, top) = (Va::new(by + elf.end()), Va::new(END - TOP_GAP));
    let layout = Layout { heap, top, stack: Va::new(END - PAGE) };
    let limits = thread.process.limits.of_memory(Promise::Always); // the first call says which
    let hold = file.hold.again()?;
    let memory = Held::of(Memory::new(manager(), layout, limits)?, hold);
    if let Some(before) = thread.process.memory() {
        memory.with_alone(|memory| before.with(|before| memory.take_switches(before)))?;
    }
    let is_admin = || thread.has(Capability::SysAdmin);
    let map = |memory: &mut Memory| map_all(memory, (&file, &elf, by), loader.as_ref());
    let loader_by = promises::promising(&memory, is_admin, map)?;
    be_alone(thread)?;
    replace(thread, memory); // L1
    let is_secure = become_what(thread, &file.guarded);
    thread.process.barriers.store(0, Ordering::Relaxed);
    thread.process.tells_by.store(SIGCHLD, Ordering::Relaxed);
    thread.process.programs.fetch_add(1, Ordering::Relaxed);
    let place = Placed { elf: &elf, by, loader: loader.as_ref().map(|(_, elf)| (elf, loader_by)) };
    let absolute = world().files.read().path_of(file.hold.node()).unwrap_or_default();
    let name = named.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let name = name[..name.len().min(15)].to_vec();
    let image = Image { path: absolute, name, arguments, environment, ..Image::default() };
    if begin(thread, &place, image, (&named, is_secure)).is_err() {
        thread.process.note_end(Ended::Signal(SIGSEGV));
    }
    Ok(())
}

/// Maps a program, its loader and a stack; gives what the loader was moved by.
fn map_all(
    memory: &mut Memory,
    (file, elf, by): (&Executable, &Elf, u64),
    loader: Option<&(Executable, Elf)>,
) -> Result<u64, Errno> {
    const OWN: u32 = MAP_PRIVATE | MAP_ANONYMOUS;
    let flags = OWN | MAP_FIXED | MAP_GROWSDOWN;
    memory.mmap(END - STACK, STACK, PROT_READ | PROT_WRITE, flags, None, 0)?;
    map(memory, file, elf, by)?;
    let Some((file, elf)) = loader else { return Ok(0) };
    let bytes = elf.end() - elf.start();
    let at = memory.mmap(0, bytes, PROT_NONE, OWN, None, 0)?;
    memory.munmap(at, bytes)?;
    map(memory, file, elf, at - elf.start())?;
    Ok(at - elf.start())
}

/// Ends all other threads of the process.
fn be_alone(thread: &Thread) -> Result<(), Errno> {
    let process = &thread.process;
    let others = process.threads.lock().clone();
    let count = others.len();
    for other in others.into_iter().filter(|other| other.id() != thread.id) {
        other.end();
        sched::wake(other);
    }
    if count > 1 {
        sched::wake_cpus();
        let is_alone = || (process.threads.lock().len() == 1).then_some(());
        process.alone.wait(None, is_alone).map_err(|_| CUT)?;
    }
    Ok(())
}
/// Gives the process other memory, and makes the calling CPU, which runs the thread, run that.
fn replace(thread: &Thread, memory: Arc<Held>) {
    let process = &thread.process;
    let space = memory.with(|memory| memory.space());
    manager().switch(Some(space)).expect("the space was made just now");
    let before = process.replace_memory(memory);
    drop(before);
    process.let_parent_go_on();
    process.has_begun.store(true, Ordering::Relaxed);
    thread.signals.stack.set(NO_STACK);
    for action in process.actions.lock().iter_mut().filter(|action| action.handler > 1) {
        *action = Action::default();
    }
    process.timers.clear_made();
    let closed: Vec<Descriptor> = process.descriptors.lock().take_closing();
    closed.into_iter().for_each(|closed| process.closed(closed));
}

/// Has the thread, which is all that is left of its process, be who the file makes of it, and says
/// whether the program must not trust who began it.
fn become_what(thread: &Thread, file: &Guarded) -> bool {
    let (process, before) = (&thread.process, thread.credentials());
    let bits = match process.is_kept_low.load(Ordering::Relaxed) {
        true => SetIds::Ignored,
        false => SetIds::Count,
    };
    let new = before.running(file, bits);
    let is_secure = new.is_secure(&before);
    // Whoever runs what it may not read is not looked at either.
    let is_shown = !is_secure && !new.hides_from(&before) && before.may(file, R_OK);
    let new = Arc::new(new);
    process.credentials.set(new.clone()); // credentials::R1
    thread.credentials.set(new);
    process.is_dumpable.store(is_shown, Ordering::Relaxed);
    if is_secure {
        process.dies_with.store(0, Ordering::Relaxed);
    }
    texts::note_owner(process);
    is_secure
}

/// Where a program and its loader are.
struct Placed<'e> {
    elf: &'e Elf,
    by: u64,
    loader: Option<(&'e Elf, u64)>,
}

/// Fills the stack, from its end down, and lets the thread begin.
fn begin(
    thread: &Thread,
    place: &Placed<'_>,
    mut image: Image,
    (named, is_secure): (&[u8], bool),
) -> Result<(), Errno> {
    let own = thread.credentials();
    clear_ends(place.elf, place.by)?;
    if let Some((elf, by)) = place.loader {
        clear_ends(elf, by)?;
    }
    let mut stack = Stack { at: END - 8 };
    let name = stack.text(named)?;
    let environment = stack.texts(&image.environment)?;
    let arguments = stack.texts(&image.arguments)?;
    let platform = stack.text(b"x86_64")?;
    let mut bytes = [0; 16];
    random::fill(&mut bytes);
    let random = stack.bytes(&bytes)?;
    let entry = place.by + place.elf.entry;
    image.auxiliary = [
        (AT_HWCAP, hardware()),
        (AT_PAGESZ, PAGE),
        (AT_CLKTCK, 100),
        (AT_PHDR, place.by + place.elf.table_at()),
        (AT_PHENT, size_of_header() as u64),
        (AT_PHNUM, place.elf.parts.len() as u64),
        (AT_BASE, place.loader.map_or(0, |(elf, by)| by + elf.start())),
        (AT_FLAGS, 0),
        (AT_ENTRY, entry),
        (AT_UID, own.user.real.into()),
        (AT_EUID, own.user.effective.into()),
        (AT_GID, own.group.real.into()),
        (AT_EGID, own.group.effective.into()),
        (AT_SECURE, is_secure.into()),
        (AT_MINSIGSTKSZ, handlers::stack_min()),
        (AT_RANDOM, random),
        (AT_RSEQ_FEATURE_SIZE, sequence::FEATURES),
        (AT_RSEQ_ALIGN, sequence::AREA),
        (AT_EXECFN, name),
        (AT_PLATFORM, platform),
        (AT_NULL, 0),
    ]
    .map(|(kind, value)| [kind.into(), value])
    .into();
    let count = arguments.len() as u64;
    let ended = |list: Vec<u64>| list.into_iter().chain([0]);
    let auxiliary = image.auxiliary.iter().flatten().copied();
    let words = [count].into_iter().chain(ended(arguments)).chain(ended(environment));
    let words: Vec<u8> = words.chain(auxiliary).flat_map(|word: u64| word.to_le_bytes()).collect();
    stack.at = (stack.at - words.len() as u64) & !15;
    user::put_bytes(stack.at, &words)?;
    let at = place.loader.map_or(entry, |(elf, by)| by + elf.entry);
    thread.begin(at, stack.at);
    *thread.process.image.lock() = image;
    Ok(())
}

/// What the processor says it has, in the word that programs look at first.
fn hardware() -> u64 {
    core::arch::x86_64::__cpuid(1).edx.into()
}

/// A stack that is filled downwards.
struct Stack {
    at: u64,
}

impl Stack {
    fn bytes(&mut self, bytes: &[u8]) -> Result<u64, Errno> {
        self.at -= bytes.len() as u64;
        // It grows by what is touched, and far steps are no stack's.
        let mut done = bytes.len();
        while done > 0 {
            let from = done.saturating_sub(PAGE as usize);
            if reach::put(self.at + from as u64, &bytes[from..done]) < done - from {
                return Err(Errno::FAULT);
            }
            done = from;
        }
        Ok(self.at)
    }
    fn text(&mut self, text: &[u8]) -> Result<u64, Errno> {
        self.bytes(&[text, &[0]].concat())
    }
    /// Puts texts so that the first lies lowest; gives where each is.
    fn texts(&mut self, texts: &[Vec<u8>]) -> Result<Vec<u64>, Errno> {
        let mut places = Vec::new();
        for text in texts.iter().rev() {
            places.push(self.text(text)?);
        }
        places.reverse();
        Ok(places)
    }
}
