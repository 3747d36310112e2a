//! Linux's side: a process on this machine, and those that it forked.

use crate::call::{Answer, Bases, Call, FILES, FIRST_FILE, MASK_BITS, Name, USERFAULT};
use crate::child::{self, BUFFER, BUFFER_BYTES, Child, Program, REQUEST};
use crate::side::{AreaSeen, Failed, Foreign, PageSeen, Side, WORDS, size_of};
use crate::userfault::{self, Request};
use foliant_linux::SegmentStat;
use foliant_linux::sysv::IPC_STAT;
use std::io;
use std::ops::Range;

/// Where the arena begins.
pub(crate) const ARENA: u64 = 0x10_0000_0000;

/// Linux's side.
pub(crate) struct Host {
    // Before the family: a line that is closed ends its child.
    children: Vec<Child>,
    family: child::Family,
    bases: Bases,
    /// What was mapped before the first call, and stays.
    pub(crate) foreign: Vec<AreaSeen>,
    /// Kilobytes that the process had before the first call, at most.
    began_with: u64,
}

impl Host {
    /// Starts a process, and takes out of it what it does not need.
    pub(crate) fn start(program: &Program) -> io::Result<Host> {
        let (family, mut first) = child::Family::start(program)?;
        for area in areas_of(&first)?.iter().filter(|area| !is_own(area)) {
            // What the kernel does not let go of stays, and is foreign.
            let bytes = area.end - area.start;
            first.ask(libc::SYS_munmap as u64, [area.start, bytes, 0, 0, 0, 0], 0)?;
        }
        let mut ask =
            |what: i64, args| Ok::<u64, io::Error>(first.ask(what as u64, args, 0)?.result);
        let heap = ask(libc::SYS_brk, [0; 6])?;
        let page = ask(libc::SYS_mmap, [0, 4096, 0, 0x22, u64::MAX, 0])?;
        ask(libc::SYS_munmap, [page, 4096, 0, 0, 0, 0])?;
        let bases = Bases { arena: ARENA, top: page + 4096, heap };
        make_files(&mut first)?;
        if program.has_userfaults {
            let made = first.ask(
                libc::SYS_userfaultfd as u64,
                [userfault::FLAGS.into(), 0, 0, 0, 0, 0],
                0,
            )?;
            let api = request(&mut first, &Request::api())?;
            if made.result != USERFAULT || api != Answer::Word(0) {
                return Err(io::Error::other(format!("no userfaultfd: {made:?}, {api}")));
            }
        }
        let foreign = areas_of(&first)?;
        let size = size_of(&first.file("status")?, "", Foreign::default());
        let began_with = size.iter().find(|(name, _)| name == "VmPeak:").map_or(0, |(_, kb)| *kb);
        Ok(Host { children: vec![first], family, bases, foreign, began_with })
    }
    /// Kilobytes that the process had before the first call, at most.
    pub(crate) fn began_with(&self) -> u64 {
        self.began_with
    }
    /// The addresses of its process.
    pub(crate) fn bases(&self) -> Bases {
        self.bases
    }
}

/// Makes the files that all processes of a sequence have.
fn make_files(child: &mut Child) -> io::Result<()> {
    for (descriptor, (name, flags, bytes)) in (FIRST_FILE..).zip(FILES) {
        let (at, word) = child::text(name);
        let made =
            child.ask(libc::SYS_memfd_create as u64, [at, flags.into(), 0, 0, 0, word], 0)?;
        let sized = child.ask(libc::SYS_ftruncate as u64, [descriptor, bytes, 0, 0, 0, 0], 0)?;
        if (made.result, sized.result) != (descriptor, 0) {
            return Err(io::Error::other(format!("no file in memory: {made:?}, {sized:?}")));
        }
    }
    Ok(())
}

/// Has a process ask its descriptor of `userfaultfd` for something.
fn request(child: &mut Child, asked: &Request) -> io::Result<Answer> {
    let bytes: Vec<u8> = asked.words.iter().flat_map(|word| word.to_le_bytes()).collect();
    child.put(REQUEST, &bytes)?;
    let args = [USERFAULT, asked.number, REQUEST, 0, 0, 0];
    let result = child.ask(libc::SYS_ioctl as u64, args, 0)?.result;
    let Some(told) = asked.told else { return Ok(Answer::Word(result)) };
    let mut word = [0; 8];
    child.read(REQUEST + 8 * told as u64, &mut word)?;
    Ok(Answer::Filled(result, u64::from_le_bytes(word)))
}

/// Bytes of what `IPC_STAT` tells, and where the mode is: a `struct shmid64_ds` of this processor.
const STAT_BYTES: usize = 112;
const STAT_MODE: usize = 20;

/// What is compared of it.
fn stat_of(bytes: &[u8; STAT_BYTES]) -> SegmentStat {
    let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
    let (bytes, attached) = (word(48), word(88));
    SegmentStat { key: half(0) as i32, mode: half(STAT_MODE), bytes, attached }
}

/// Whether an area is the program's own.
fn is_own(area: &AreaSeen) -> bool {
    (child::DATA..child::DATA + (2 << 32)).contains(&area.start)
}

/// The areas of a process.
fn areas_of(child: &Child) -> io::Result<Vec<AreaSeen>> {
    let text = child.file("maps")?;
    let areas: Option<Vec<AreaSeen>> =
        text.lines().filter(|line| !line.ends_with("[vsyscall]")).map(AreaSeen::parse).collect();
    areas.ok_or_else(|| io::Error::other("a line of /proc/PID/maps is not understood"))
}

impl Side for Host {
    fn processes(&self) -> usize {
        self.children.len()
    }
    fn call(&mut self, who: usize, call: &Call) -> Result<Answer, Failed> {
        let mut args = call.values(&self.bases);
        match call.name {
            Name::Fork => {
                if !self.family.has_spare() {
                    return Ok(Answer::Word(0));
                }
                let (reply, forked) = self.family.fork(&mut self.children[who])?;
                let result = if forked.is_some() { 0 } else { reply.result };
                self.children.extend(forked);
                return Ok(Answer::Word(result));
            }
            Name::Exit => {
                if who > 0 {
                    self.children.remove(who).end()?;
                }
                return Ok(Answer::Word(0));
            }
            Name::ClearRefs => {
                let done = self.children[who].write("clear_refs", &args[0].to_string());
                let errno = |why: io::Error| i64::from(why.raw_os_error().unwrap_or_default());
                let word = done.map_or_else(|why| errno(why).wrapping_neg() as u64, |()| 0);
                return Ok(Answer::Word(word));
            }
            Name::Userfault => {
                let [what, start, len, mode, byte, from] = args;
                let child = &mut self.children[who];
                child.put(BUFFER, &[byte as u8; BUFFER_BYTES as usize])?;
                let asked = Request::drawn([what, start, len, mode], [BUFFER, from]);
                return Ok(request(child, &asked)?);
            }
            Name::Mincore => args[2] = BUFFER,
            Name::Pread => args[1] = BUFFER,
            Name::Shmctl => {
                let mut bytes = [0; STAT_BYTES];
                bytes[STAT_MODE..STAT_MODE + 4].copy_from_slice(&(args[2] as u32).to_le_bytes());
                self.children[who].put(BUFFER, &bytes)?;
                args[2] = BUFFER;
            }
            Name::Mbind => {
                self.children[who].put(BUFFER, &args[3].to_le_bytes())?;
                args = [args[0], args[1], args[2], BUFFER, MASK_BITS, args[4]];
            }
            Name::Pwrite => {
                let bytes = vec![args[1] as u8; args[2].min(BUFFER_BYTES) as usize];
                self.children[who].put(BUFFER, &bytes)?;
                args[1] = BUFFER;
            }
            _ => {}
        }
        let child = &mut self.children[who];
        let what = match call.name {
            Name::Load => child::LOAD,
            Name::Store => child::STORE,
            name => u64::from(name.number().expect("a system call")),
        };
        let reply = child.ask(what, args, 0)?;
        if reply.signal != 0 {
            return Ok(Answer::Signal(reply.signal as u32, reply.code as u32, reply.addr));
        }
        if call.name == Name::Mincore && reply.result == 0 {
            let mut pages = vec![0; (args[1].div_ceil(4096)).min(BUFFER_BYTES) as usize];
            child.read(BUFFER, &mut pages)?;
            return Ok(Answer::Pages(pages));
        }
        if call.name == Name::Shmctl && args[1] as u32 == IPC_STAT && reply.result == 0 {
            let mut bytes = [0; STAT_BYTES];
            child.read(BUFFER, &mut bytes)?;
            return Ok(Answer::Segment(stat_of(&bytes)));
        }
        if call.name == Name::Pread && reply.result <= BUFFER_BYTES {
            let mut bytes = vec![0; reply.result as usize];
            child.read(BUFFER, &mut bytes)?;
            return Ok(Answer::Bytes(bytes));
        }
        Ok(Answer::Word(reply.result))
    }
    fn areas(&self, who: usize) -> Result<Vec<AreaSeen>, Failed> {
        let mut areas = areas_of(&self.children[who])?;
        areas.retain(|area| !self.foreign.contains(area));
        Ok(areas)
    }
    fn smaps(&self, who: usize) -> Result<String, Failed> {
        Ok(self.children[who].file("smaps")?)
    }
    fn size(&self, who: usize) -> Result<Vec<(String, u64)>, Failed> {
        let child = &self.children[who];
        let mut foreign = Foreign::default();
        for area in &self.foreign {
            let mut words = vec![0; ((area.end - area.start) / 4096 * 8) as usize];
            child.pagemap(area.start, &mut words)?;
            let pages = words.chunks_exact(8).map(|word| word.try_into().expect("eight bytes"));
            for page in pages.map(|word| PageSeen::of(u64::from_le_bytes(word))) {
                foreign.anonymous += 4 * u64::from(page.is_anonymous());
                foreign.of_files += 4 * u64::from(page.is_files() && area.is_of_file());
            }
        }
        Ok(size_of(&child.file("status")?, &child.file("statm")?, foreign))
    }
    fn pages(&self, who: usize, area: &AreaSeen, of: &Range<u64>) -> Result<Vec<PageSeen>, Failed> {
        let child = &self.children[who];
        let mut words = vec![0; ((of.end - of.start) / 4096 * 8) as usize];
        child.pagemap(of.start, &mut words)?;
        let mut pages = Vec::new();
        for (nth, word) in words.chunks_exact(8).enumerate() {
            let mut bytes: [u8; 8] = word.try_into().expect("eight bytes");
            let mut page = PageSeen::of(u64::from_le_bytes(bytes));
            if page.is_there() && area.is_readable() {
                for (seen, at) in page.words.iter_mut().zip(WORDS) {
                    child.read(of.start + nth as u64 * 4096 + at, &mut bytes)?;
                    *seen = u64::from_le_bytes(bytes);
                }
            }
            pages.push(page);
        }
        Ok(pages)
    }
}
