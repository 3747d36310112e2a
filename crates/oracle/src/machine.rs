//! The other side: the crate `foliant-linux` on the simulated machine.

use crate::call::{Answer, Bases, Call, FILES, FIRST_FILE, MASK_BITS, Name};
use crate::side::{AreaSeen, Failed, Foreign, PageSeen, Side, WORDS, size_of};
use crate::userfault;
use foliant::manager::Setup;
use foliant::table::X86_64;
use foliant::{Access, Manager, Policy};
use foliant_linux::mempolicy::{Mode, Nodes};
use foliant_linux::raw::general::{
    _UFFDIO_CONTINUE, _UFFDIO_COPY, _UFFDIO_MOVE, _UFFDIO_POISON, _UFFDIO_REGISTER,
    _UFFDIO_UNREGISTER, _UFFDIO_WRITEPROTECT, _UFFDIO_ZEROPAGE, BUS_ADRERR, BUS_MCEERR_AR,
    F_ADD_SEALS, F_GET_SEALS, MADV_DONTDUMP, MADV_POPULATE_READ, MADV_RANDOM, MADV_WIPEONFORK,
    PROT_EXEC, PROT_READ, PROT_WRITE, SIGBUS, UFFD_API, uffdio_api, uffdio_continue, uffdio_copy,
    uffdio_move, uffdio_poison, uffdio_range, uffdio_register, uffdio_writeprotect,
    uffdio_zeropage,
};
use foliant_linux::sysv::{IPC_SET, IPC_STAT};
use foliant_linux::{
    Errno, Fault, Frames, Layout, Limits, MemoryFile, Process, Segments, Userfaultfd,
};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Cpu, Va};
use std::ops::Range;

/// Page tables as this machine's.
type Format = X86_64<4>;
/// Memory of the simulated machine: more than a sequence takes.
const MEMORY: Bytes = Bytes::new(768 << 20);
/// Faults that one access may take.
const FAULTS_MAX: usize = 8;
/// How many processes a sequence may have.
const PROCESSES_MAX: usize = 3;

/// What is wrong with the crate on purpose, so that a test sees it found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Planted {
    /// Nothing.
    #[default]
    Nothing,
    /// `mprotect` says that all is well where it ended at a hole.
    HoleIgnored,
    /// A store to a page that is not there is lost.
    StoreLost,
}

/// What the machine is like: what this host says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Likeness {
    pub(crate) policy: Policy,
    pub(crate) limits: Limits,
    /// Whether signals say that memory is broken.
    pub(crate) tells_broken: bool,
    /// Whether it has memory policies, and one node.
    pub(crate) has_one_node: bool,
    pub(crate) planted: Planted,
}

/// The other side.
pub(crate) struct Machine<'a, 'm> {
    sim: &'m Sim,
    processes: Vec<Process<'a, 'm, Sim, Format>>,
    /// What all processes have as descriptors, from [`FIRST_FILE`] on.
    files: Vec<MemoryFile<'a, 'm, Sim, Format>>,
    segments: Segments<'a, 'm, Sim, Format>,
    /// The first process's.
    userfault: Userfaultfd,
    /// Of those before, how many were forked.
    forked: usize,
    bases: Bases,
    foreign: Vec<AreaSeen>,
    tells_broken: bool,
    planted: Planted,
}

/// Runs `work` with a machine that has the areas of a process at its beginning.
pub(crate) fn with<R>(
    like: &Likeness,
    bases: Bases,
    foreign: &[AreaSeen],
    work: impl FnOnce(&mut Machine<'_, '_>) -> Result<R, Failed>,
) -> Result<R, Failed> {
    let sim = Sim::new(Config::seeded(1, MEMORY, 1)).map_err(Failed::ours)?;
    let setup = Setup::of(&sim.config().memory, like.policy);
    let mm: Manager<'_, Sim, Format> = Manager::new(&sim, &setup).map_err(Failed::ours)?;
    sim.on(Cpu(0), || mm.online());
    let layout = Layout { heap: Va::new(bases.heap), top: Va::new(bases.top), stack: Va::new(0) };
    let mut first = Process::new(&mm, layout, like.limits).map_err(Failed::ours)?;
    let userfault = open_userfault(&mut first).map_err(Failed::ours)?;
    let mut machine = Machine {
        sim: &sim,
        processes: vec![first],
        files: files(&mm)?,
        segments: Segments::default(),
        userfault,
        forked: 0,
        bases,
        foreign: foreign.to_vec(),
        tells_broken: like.tells_broken,
        planted: like.planted,
    };
    machine.map_foreign()?;
    let done = work(&mut machine)?;
    machine.end()?;
    drop(machine);
    mm.audit(&[]).map_err(|why| Failed::Ours(format!("the recount: {why:?}")))?;
    let found = sim.violations();
    match found.first() {
        Some(first) => Err(Failed::Ours(format!("a checker of the machine: {first:?}"))),
        None => Ok(done),
    }
}

/// The files that a sequence begins with.
fn files<'a, 'm>(
    mm: &'a Manager<'m, Sim, Format>,
) -> Result<Vec<MemoryFile<'a, 'm, Sim, Format>>, Failed> {
    let make = |(name, flags, bytes): (&str, u32, u64)| {
        let file = MemoryFile::memfd(mm, name.as_bytes(), flags)?;
        file.ftruncate(bytes as i64).map(|_| file)
    };
    FILES.into_iter().map(make).collect::<Result<_, Errno>>().map_err(Failed::ours)
}

/// The descriptor of `userfaultfd` that the first process has.
fn open_userfault(process: &mut Process<'_, '_, Sim, Format>) -> Result<Userfaultfd, Errno> {
    let mut opened = process.userfaultfd(userfault::FLAGS)?;
    let mut api = uffdio_api { api: UFFD_API.into(), features: userfault::FEATURES, ioctls: 0 };
    process.uffdio_api(&mut opened, &mut api)?;
    Ok(opened)
}

impl<'a, 'm> Machine<'a, 'm> {
    /// Maps what the program on the other side has of its own.
    fn map_foreign(&mut self) -> Result<(), Failed> {
        for area in self.foreign.clone() {
            let rights = area.rights.bytes();
            let prot = rights.zip([PROT_READ, PROT_WRITE, PROT_EXEC]);
            let prot = prot.map(|(letter, bit)| if letter == b'-' { 0 } else { bit }).sum();
            let flags = 0x32; // private, anonymous, fixed
            let bytes = area.end - area.start;
            let process = &mut self.processes[0];
            process.mmap(area.start, bytes, prot, flags, None, 0).map_err(Failed::ours)?;
            // They are of a file, and so not one with what the sequence maps beside them.
            for advice in [MADV_RANDOM, MADV_DONTDUMP, MADV_WIPEONFORK] {
                process.madvise(area.start, bytes, advice).map_err(Failed::ours)?;
            }
        }
        touch(&mut self.processes[0], &self.foreign)
    }
    fn end(&mut self) -> Result<(), Failed> {
        for process in self.processes.drain(..) {
            let mm = process.manager();
            mm.switch(None).map_err(Failed::ours)?;
            process.end().map_err(Failed::ours)?;
        }
        Ok(())
    }

    /// An access of the program, with as many faults as it takes.
    fn access(&mut self, who: usize, addr: u64, store: Option<u8>) -> Result<Answer, Failed> {
        let process = &mut self.processes[who];
        process.manager().switch(Some(process.space())).map_err(Failed::ours)?;
        let access = if store.is_some() { Access::Write } else { Access::Read };
        for _ in 0..FAULTS_MAX {
            let done = match store {
                None => self.sim.user_load(Va::new(addr), 1),
                Some(byte) => self.sim.user_store(Va::new(addr), 1, u64::from(byte)).map(|()| 0),
            };
            if let Ok(value) = done {
                return Ok(Answer::Word(value));
            }
            let fault = match process.fault(addr, access) {
                Fault::Alone => process.fault_alone(addr, access),
                fault => fault,
            };
            match fault {
                Fault::Done if self.planted == Planted::StoreLost && store.is_some() => {
                    return Ok(Answer::Word(0));
                }
                Fault::Done => {}
                Fault::Signal(signal) => {
                    // A kernel without a notion of broken memory does not name its kind.
                    let code = match signal.code {
                        BUS_MCEERR_AR if signal.number == SIGBUS && !self.tells_broken => {
                            BUS_ADRERR
                        }
                        code => code,
                    };
                    return Ok(Answer::Signal(signal.number, code, signal.addr));
                }
                other => return Err(Failed::Ours(format!("an access ended with {other:?}"))),
            }
        }
        Err(Failed::Ours(format!("an access to {addr:#x} never got through")))
    }

    /// A word of a page that is there. A translation from before the page could
    /// be read ends with a fault.
    fn word(&self, process: &Process<'_, '_, Sim, Format>, va: Va) -> Result<u64, Failed> {
        for _ in 0..FAULTS_MAX {
            match self.sim.user_load(va, 8) {
                Ok(word) => return Ok(word),
                Err(_) => process.fault(va.get(), Access::Read),
            };
        }
        Err(Failed::Ours(format!("a page at {va} that is there is never read")))
    }

    fn system_call(&mut self, who: usize, call: &Call) -> Result<Answer, Errno> {
        let [a, b, c, d, e, f] = call.values(&self.bases);
        let file = |descriptor: u64| {
            let nth = u64::from(descriptor as u32).checked_sub(FIRST_FILE)?;
            self.files.get(nth as usize)
        };
        let process = &mut self.processes[who];
        let word = match call.name {
            Name::Mmap => process.mmap(a, b, c as u32, d as u32, file(e), f)?,
            Name::Ftruncate => file(a).ok_or(Errno::BADF)?.ftruncate(b as i64)?,
            Name::Fcntl => {
                let file = file(a).ok_or(Errno::BADF)?;
                match b as u32 {
                    F_ADD_SEALS => file.add_seals(c as u32)?,
                    F_GET_SEALS => file.seals().into(),
                    _ => return Err(Errno::INVAL),
                }
            }
            Name::Fallocate => {
                let file = file(a).ok_or(Errno::BADF)?;
                file.fallocate(b as u32, c as i64, d as i64)?
            }
            // Linux asks so before it looks for the file.
            Name::Pread | Name::Pwrite if (d as i64) < 0 => return Err(Errno::INVAL),
            Name::Pread => {
                let mut bytes = vec![0; c as usize];
                let read = file(a).ok_or(Errno::BADF)?.pread(&mut bytes, d as i64)?;
                bytes.truncate(read as usize);
                return Ok(Answer::Bytes(bytes));
            }
            Name::Pwrite => {
                let bytes = vec![b as u8; c as usize];
                file(a).ok_or(Errno::BADF)?.pwrite(&bytes, d as i64)?
            }
            Name::Shmget => process.shmget(&mut self.segments, a as i32, b, c as u32)?,
            Name::Shmat => process.shmat(&mut self.segments, a as i32, b, c as u32)?,
            Name::Shmdt => process.shmdt(a)?,
            Name::Shmctl => match b as u32 {
                IPC_STAT => return self.segments.stat(a as i32).map(Answer::Segment),
                IPC_SET => self.segments.set_mode(a as i32, c as u32)?,
                command => self.segments.shmctl(a as i32, command)?,
            },
            Name::Munmap => process.munmap(a, b)?,
            Name::Mprotect => match process.mprotect(a, b, c as u32) {
                Err(Errno::NOMEM) if self.planted == Planted::HoleIgnored => 0,
                done => done?,
            },
            Name::Mremap => process.mremap(a, b, c, d as u32, e)?,
            Name::Madvise => process.madvise(a, b, c as u32)?,
            Name::Brk => process.brk(a),
            Name::Mlock => process.mlock(a, b)?,
            Name::Mlock2 => process.mlock2(a, b, c as u32)?,
            Name::Munlock => process.munlock(a, b)?,
            Name::Mlockall => process.mlockall(a as u32)?,
            Name::Munlockall => process.munlockall()?,
            Name::Msync => process.msync(a, b, c as u32)?,
            Name::Mseal => process.mseal(a, b, c)?,
            Name::Mbind => {
                let (mode, nodes) = (Mode::of(c as u32)?, Nodes::read(1, MASK_BITS, |_| Ok(d))?);
                process.mbind(a, b, mode, &nodes, e as u32)?
            }
            Name::HomeNode => process.set_home_node(a, b, c, d)?,
            Name::ClearRefs => {
                process.clear_refs(&a.to_string())?;
                0
            }
            Name::Mincore => {
                let mut pages = Vec::new();
                process.mincore(a, b, |page| pages.push(page))?;
                return Ok(Answer::Pages(pages));
            }
            Name::Userfault | Name::Load | Name::Store | Name::Fork | Name::Exit => {
                unreachable!("no system calls")
            }
        };
        Ok(Answer::Word(word))
    }

    /// A request of the first process to its descriptor.
    fn request(&mut self, who: usize, call: &Call) -> Answer {
        let [what, start, len, mode, byte, from] = call.values(&self.bases);
        let (process, fd) = (&mut self.processes[who], &self.userfault);
        let range = uffdio_range { start, len };
        let word = |result: Result<u64, Errno>| result.unwrap_or_else(Errno::word);
        let result = match what as u32 {
            _UFFDIO_REGISTER => {
                let mut asked = uffdio_register { range, mode, ioctls: 0 };
                process.uffdio_register(fd, &mut asked)
            }
            _UFFDIO_UNREGISTER => process.uffdio_unregister(fd, &range).result,
            _UFFDIO_COPY => {
                // `read` gives what was drawn, wherever the source is.
                let mut asked = uffdio_copy { dst: start, src: start, len, mode, copy: 0 };
                let read = |_, bytes: &mut [u8]| {
                    bytes.fill(byte as u8);
                    Ok(())
                };
                let done = process.uffdio_copy(fd, &mut asked, read);
                return Answer::Filled(word(done.result), asked.copy as u64);
            }
            _UFFDIO_ZEROPAGE => {
                let mut asked = uffdio_zeropage { range, mode, zeropage: 0 };
                let done = process.uffdio_zeropage(fd, &mut asked);
                return Answer::Filled(word(done.result), asked.zeropage as u64);
            }
            _UFFDIO_CONTINUE => {
                let mut asked = uffdio_continue { range, mode, mapped: 0 };
                let done = process.uffdio_continue(fd, &mut asked);
                return Answer::Filled(word(done.result), asked.mapped as u64);
            }
            _UFFDIO_MOVE => {
                let mut asked = uffdio_move { dst: start, src: from, len, mode, move_: 0 };
                let done = process.uffdio_move(fd, &mut asked);
                return Answer::Filled(word(done.result), asked.move_ as u64);
            }
            _UFFDIO_POISON => {
                let mut asked = uffdio_poison { range, mode, updated: 0 };
                let done = process.uffdio_poison(fd, &mut asked);
                return Answer::Filled(word(done.result), asked.updated as u64);
            }
            _UFFDIO_WRITEPROTECT => {
                process.uffdio_writeprotect(fd, &uffdio_writeprotect { range, mode }).result
            }
            _ => process.uffdio_wake(fd, &range).result,
        };
        Answer::Word(word(result))
    }

    fn fork(&mut self, who: usize) -> Answer {
        if self.forked + 1 == PROCESSES_MAX {
            return Answer::Word(0);
        }
        match self.processes[who].fork() {
            Ok(mut child) => {
                self.forked += 1;
                let _ = touch(&mut child, &self.foreign);
                self.processes.push(child);
                Answer::Word(0)
            }
            Err(why) => Answer::Word(why.word()),
        }
    }
    fn exit(&mut self, who: usize) -> Result<(), Failed> {
        if who > 0 {
            let process = self.processes.remove(who);
            process.manager().switch(None).map_err(Failed::ours)?;
            process.end().map_err(Failed::ours)?;
        }
        Ok(())
    }
}

/// Has the page tables made that the program on the other side needs for its own.
fn touch(process: &mut Process<'_, '_, Sim, Format>, foreign: &[AreaSeen]) -> Result<(), Failed> {
    for area in foreign.iter().filter(|area| area.is_readable()) {
        process.madvise(area.start, 4096, MADV_POPULATE_READ).map_err(Failed::ours)?;
    }
    Ok(())
}

impl Side for Machine<'_, '_> {
    fn processes(&self) -> usize {
        self.processes.len()
    }
    fn call(&mut self, who: usize, call: &Call) -> Result<Answer, Failed> {
        let [addr, value, ..] = call.values(&self.bases);
        match call.name {
            Name::Load => self.access(who, addr, None),
            Name::Store => self.access(who, addr, Some(value as u8)),
            Name::Userfault => Ok(self.request(who, call)),
            Name::Fork => Ok(self.fork(who)),
            Name::Exit => self.exit(who).map(|()| Answer::Word(0)),
            _ => {
                let done = self.system_call(who, call);
                Ok(done.unwrap_or_else(|why| Answer::Word(why.word())))
            }
        }
    }
    fn areas(&self, who: usize) -> Result<Vec<AreaSeen>, Failed> {
        let mut text = String::new();
        self.processes[who].maps(&mut text).map_err(Failed::ours)?;
        let areas: Option<Vec<AreaSeen>> = text.lines().map(AreaSeen::parse).collect();
        let mut areas = areas.ok_or_else(|| Failed::Ours(format!("no list of areas: {text}")))?;
        areas.retain(|area| !self.foreign.iter().any(|other| other.start == area.start));
        Ok(areas)
    }
    fn smaps(&self, who: usize) -> Result<String, Failed> {
        let mut text = String::new();
        self.processes[who].smaps(&mut text).map_err(Failed::ours)?;
        Ok(text)
    }
    fn size(&self, who: usize) -> Result<Vec<(String, u64)>, Failed> {
        let process = &self.processes[who];
        let (mut status, mut statm) = (String::new(), String::new());
        process.status(&mut status).map_err(Failed::ours)?;
        process.statm(&mut statm).map_err(Failed::ours)?;
        let present = self.foreign.iter().map(|area| process.present_in(area.start, area.end));
        let foreign = Foreign { anonymous: present.sum::<u64>() * 4, of_files: 0 };
        Ok(size_of(&status, &statm, foreign))
    }
    fn pages(&self, who: usize, area: &AreaSeen, of: &Range<u64>) -> Result<Vec<PageSeen>, Failed> {
        let Range { start, end } = *of;
        let process = &self.processes[who];
        let mm = process.manager();
        mm.switch(Some(process.space())).map_err(Failed::ours)?;
        let mut words = vec![0; ((end - start) / 4096) as usize];
        process.pagemap(start / 4096 * 8, &mut words, Frames::Hidden).map_err(Failed::ours)?;
        let mut pages: Vec<PageSeen> = words.into_iter().map(PageSeen::of).collect();
        if area.is_readable() {
            for (nth, page) in pages.iter_mut().enumerate().filter(|(_, page)| page.is_there()) {
                for (seen, at) in page.words.iter_mut().zip(WORDS) {
                    *seen = self.word(process, Va::new(start + nth as u64 * 4096 + at))?;
                }
            }
        }
        Ok(pages)
    }
}
