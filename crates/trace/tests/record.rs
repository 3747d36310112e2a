//! Recording real programs: what they did is in the trace, neither more nor less.
//!
//! The programs are tests of this very file: `child_*`, which do their work in a map of a size that
//! nothing else uses, so their faults are easily told from the test harness's. Where the system
//! forbids counting or following, the tests say so and pass.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(unsafe_code)]

mod i386;

use foliant_trace::record::{AccessWish, Options, RecordError, Summary};
use foliant_trace::*;
use foliant_units::VaRange;
use std::ffi::OsString;

const PAGE: usize = 4096;
/// Pages of the children's map.
const PAGES: usize = 613;

/// Memory for a child to work in; never unmapped.
fn memory() -> &'static mut [u8] {
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGES * PAGE, prot, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: the mapping is that long, readable, writable, and nobody else's.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), PAGES * PAGE) }
}

fn touch(memory: &mut [u8]) {
    for page in memory.chunks_mut(PAGE) {
        // SAFETY: the pointer is that of a live byte.
        unsafe { std::ptr::write_volatile(&mut page[7], 1) };
    }
}

fn look(memory: &[u8]) {
    for page in memory.chunks(PAGE) {
        // SAFETY: the pointer is that of a live byte.
        unsafe { std::ptr::read_volatile(&page[7]) };
    }
}

fn advise(memory: &mut [u8], advice: i32) {
    // SAFETY: the range is the child's own; dropping its content is what the child wants.
    let n = unsafe { libc::madvise(memory.as_mut_ptr().cast(), memory.len(), advice) };
    assert_eq!(n, 0);
}

#[test]
fn child_touches() {
    touch(memory());
}

#[test]
fn child_looks_then_touches() {
    let memory = memory();
    look(memory);
    touch(&mut memory[..100 * PAGE]);
}

#[test]
fn child_drops_and_touches_again() {
    let memory = memory();
    touch(memory);
    advise(&mut memory[..50 * PAGE], libc::MADV_DONTNEED);
    touch(memory);
    advise(memory, libc::MADV_FREE);
    touch(memory);
}

#[test]
fn child_forks() {
    let memory = memory();
    touch(&mut memory[..200 * PAGE]);
    // SAFETY: the child makes system calls and touches memory, nothing else.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        touch(&mut memory[..150 * PAGE]);
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for the child; `status` is a live int.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    touch(&mut memory[..250 * PAGE]);
}

#[test]
fn child_has_threads() {
    let (low, high) = memory().split_at_mut(300 * PAGE);
    std::thread::scope(|scope| {
        scope.spawn(|| touch(low));
        scope.spawn(|| touch(high));
    });
}

#[test]
fn child_closes_and_opens() {
    let memory = memory();
    touch(memory);
    for prot in [libc::PROT_NONE, libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
        // SAFETY: nothing touches the range until it is writable again.
        unsafe { libc::mprotect(memory.as_mut_ptr().cast(), memory.len(), prot) };
    }
    touch(memory);
}

#[test]
fn child_moves() {
    let memory = memory();
    touch(memory);
    let (from, bytes) = (memory.as_mut_ptr().cast(), memory.len());
    // SAFETY: the range is the child's own and not used under its old address afterwards.
    let at = unsafe { libc::mremap(from, bytes, 2 * bytes, libc::MREMAP_MAYMOVE) };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: the mapping is that long, readable, writable, and nobody else's.
    touch(unsafe { std::slice::from_raw_parts_mut(at.cast(), 2 * bytes) });
}

/// Ends a child of a child: 0 where it got memory of its own and could write to it.
extern "C" fn works(_: *mut libc::c_void) -> libc::c_int {
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, prot, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return 1;
    }
    // SAFETY: the mapping has been made and is writable.
    unsafe { at.cast::<u8>().write_volatile(1) };
    0
}

fn exit_code(child: libc::c_int) -> libc::c_int {
    assert!(child > 0, "{}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: waits for the child; `status` is a live int.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, libc::__WALL) }, child);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 }
}

#[test]
fn child_clones_untraced() {
    touch(memory());
    let untraced = libc::CLONE_UNTRACED | libc::SIGCHLD;
    for flags in [untraced, untraced | libc::CLONE_VM | libc::CLONE_VFORK] {
        let mut stack = vec![0u8; 1 << 16];
        let top = stack.as_mut_ptr_range().end;
        // SAFETY: the child has a stack of its own, makes system calls and ends before the stack
        // does.
        let child = unsafe { libc::clone(works, top.cast(), flags, std::ptr::null_mut()) };
        assert_eq!(exit_code(child), 0, "{flags:x}");
    }
    // The register with the flags is as it was, in both.
    for flags in [untraced, libc::SIGCHLD] {
        let (flags, number, child, after) = (flags as u64, libc::SYS_clone as u64, 0u64, 0u64);
        let (mut child, mut after) = (child, after);
        // SAFETY: without a stack and without shared memory the child goes on in a copy of this
        // one.
        unsafe {
            std::arch::asm!("syscall", inout("rax") number => child, inout("rdi") flags => after,
                in("rsi") 0, in("rdx") 0, in("r10") 0, in("r8") 0, out("rcx") _, out("r11") _);
        }
        if child == 0 {
            let done = if after == flags { works(std::ptr::null_mut()) } else { 2 };
            // SAFETY: ends the child.
            unsafe { libc::_exit(done) };
        }
        assert_eq!(after, flags, "the parent's");
        assert_eq!(exit_code(child as libc::c_int), 0, "the child's: {flags:x}");
    }
    // clone3 with it is refused as by a kernel that has no clone3; without, it is followed.
    let mut wish = [0u64; 11];
    (wish[0], wish[4]) = (libc::CLONE_UNTRACED as u64, libc::SIGCHLD as u64);
    // SAFETY: the kernel reads the live structure; were a child made, it would go on in a copy and
    // end below.
    let child = unsafe { libc::syscall(libc::SYS_clone3, wish.as_ptr(), size_of_val(&wish)) };
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(works(std::ptr::null_mut())) };
    }
    match child {
        -1 => assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS)),
        child => assert_eq!(exit_code(child as libc::c_int), 0),
    }
}

#[test]
fn child_asks_for_large_pages() {
    touch(memory());
    let ask = |args: [usize; 4]| {
        let [disable, flags, a, b] = args;
        // SAFETY: takes numbers only.
        match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, disable, flags, a, b) } {
            -1 => std::io::Error::last_os_error().raw_os_error(),
            _ => None,
        }
    };
    assert_eq!(ask([1, 0, 0, 0]), None);
    for bad in [[1, 7, 7, 7], [1, 0, 0, 1], [0, 2, 0, 0], [1, 4, 0, 0]] {
        assert_eq!(ask(bad), Some(libc::EINVAL), "{bad:?}");
    }
    assert_eq!(ask([0, 0, 0, 0]), None);
}

fn options(command: &str, args: &[&str], access: AccessWish) -> Options {
    let mut options = Options::new(command, args.iter().map(OsString::from));
    options.access = access;
    options.check_pages = true;
    options
}

/// Records a program, or says why it is skipped.
fn recorded(options: Options) -> Option<(Summary, Trace)> {
    let mut bytes = Vec::new();
    match record(options, &mut bytes) {
        Ok(summary) => {
            let trace = Trace::read(&bytes[..], &Budget::default()).unwrap();
            assert_eq!(trace.trailer, summary.trailer);
            Some((summary, trace))
        }
        Err(e) if e.is_forbidden() => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Records a child in both ways and checks that its map has taken these faults: reads and writes.
fn check(child: &str, reads: usize, writes: usize) {
    for access in [AccessWish::Best, AccessWish::Decoded] {
        let program = std::env::current_exe().unwrap();
        let args = ["--exact", child, "--test-threads=1"];
        let options = options(program.to_str().unwrap(), &args, access);
        let Some((summary, trace)) = recorded(options) else { return };
        assert_eq!(summary.trailer.ending, Ending::Exited(0));
        assert!(summary.trailer.is_complete(), "{:?}", summary.trailer);
        assert_eq!(summary.replay.mismatched, 0, "{child}: {:?}", summary.replay.mismatches);
        let residue = summary.residue;
        if trace.header.kernel_faults {
            assert_eq!((residue.only_kernel, residue.only_replay), (0, 0), "{child}: {residue:?}");
        }
        let mut ours: Vec<VaRange> = Vec::new();
        let (mut read, mut written) = (0, 0);
        for event in &trace.events {
            match &event.kind {
                EventKind::Map(area) if area.range.pages().get() == PAGES as u64 => {
                    assert_eq!((area.kind, area.prot), (AreaKind::Anonymous, Prot::RW));
                    ours.push(area.range);
                }
                EventKind::Remap { new, .. } if new.pages().get() == 2 * PAGES as u64 => {
                    ours.push(*new);
                }
                EventKind::Fault(f) if ours.iter().any(|r| r.contains(f.va)) => match f.access {
                    Access::Read => read += 1,
                    Access::Write => written += 1,
                    Access::Exec => panic!("{f:?}"),
                },
                _ => {}
            }
        }
        assert!(!ours.is_empty(), "{child} has mapped nothing");
        assert_eq!((read, written), (reads, writes), "{child}, {access:?}");
    }
}

#[test]
fn every_touched_page_is_one_fault() {
    check("child_touches", 0, PAGES);
}

#[test]
fn reads_and_writes_are_told_apart() {
    check("child_looks_then_touches", PAGES, 100);
}

#[test]
fn dropped_pages_are_seen_again() {
    check("child_drops_and_touches_again", 0, PAGES + 50);
}

#[test]
fn forks_are_followed() {
    check("child_forks", 0, 200 + 150 + 200 + 50);
}

#[test]
fn threads_are_followed() {
    check("child_has_threads", 0, PAGES);
}

#[test]
fn rights_are_followed() {
    check("child_closes_and_opens", 0, PAGES);
}

#[test]
fn moves_are_followed() {
    check("child_moves", 0, 2 * PAGES);
}

/// Files by their names, the child's map by the code of this very file that made it, and threads'
/// stacks by the threads that come to run on them.
#[test]
fn what_is_mapped_has_names() {
    let program = std::env::current_exe().unwrap();
    let own = program.file_name().unwrap().to_str().unwrap().to_owned();
    let args = ["--exact", "child_has_threads", "--test-threads=1"];
    let options = options(program.to_str().unwrap(), &args, AccessWish::Best);
    let Some((_, trace)) = recorded(options) else { return };
    let names: Vec<(VaRange, &Name)> = trace
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Name { range, name } => Some((*range, name)),
            _ => None,
        })
        .collect();
    let has = |file: &str| names.iter().any(|(_, name)| **name == Name::File(file.to_owned()));
    assert!(has(&own) && has("libc.so.6"), "{names:?}");
    let bytes = (PAGES * PAGE) as u64;
    let made: Vec<&Name> =
        names.iter().filter(|(r, _)| r.bytes().get() == bytes).map(|(_, name)| *name).collect();
    let [Name::Made { site: Some(site), through }] = made[..] else { panic!("{made:?}") };
    assert_eq!(site.object, own);
    assert_eq!(*through, None, "the wrapper of mmap has no frame, and no allocator was asked");
    let threads: Vec<ThreadId> = names
        .iter()
        .filter_map(|(_, name)| if let Name::Stack(thread) = name { Some(*thread) } else { None })
        .collect();
    // The harness runs the test on a thread of its own, or on the first.
    assert!(threads.len() >= 2, "{threads:?}");
    let born = trace.events.iter().filter_map(|event| match event.kind {
        EventKind::Share { thread, process: false } => Some(thread),
        _ => None,
    });
    assert_eq!(threads, born.collect::<Vec<_>>());
    let description = describe(&trace.events, &Budget::default()).unwrap();
    let faults = |mapping: &dyn Fn(&Mapping) -> bool| {
        let all = description.mappings.iter().filter(|(its, _)| mapping(its));
        all.map(|(_, faults)| *faults).sum::<u64>()
    };
    let is_own =
        |mapping: &Mapping| matches!(mapping, Mapping::Made { site: Some(its), .. } if its == site);
    assert_eq!(faults(&is_own), PAGES as u64);
    assert!(faults(&|m| matches!(m, Mapping::ThreadStack(Some(_)))) >= 2);
}

/// `mmap: Function not implemented` in the child: nobody followed it, and the filter was with it.
#[test]
fn finding_x7_children_that_want_no_tracer_are_followed() {
    let program = std::env::current_exe().unwrap();
    let args = ["--exact", "child_clones_untraced", "--test-threads=1"];
    let options = options(program.to_str().unwrap(), &args, AccessWish::Best);
    let Some((summary, trace)) = recorded(options) else { return };
    assert_eq!(summary.trailer.ending, Ending::Exited(0));
    let remarks: Vec<&String> = trace.trailer.remarks.iter().collect();
    assert!(remarks.len() == 1 && remarks[0].contains("clone3"), "{remarks:?}");
    let forks = trace.events.iter().filter(|e| matches!(e.kind, EventKind::Fork { .. })).count();
    assert_eq!(
        forks, 3,
        "each child is a space of its own, but for the one that shared its parent's"
    );
}

/// Whatever was asked, the answer was 0.
#[test]
fn finding_x7_bad_wishes_for_large_pages_are_refused() {
    let program = std::env::current_exe().unwrap();
    let args = ["--exact", "child_asks_for_large_pages", "--test-threads=1"];
    let options = options(program.to_str().unwrap(), &args, AccessWish::Best);
    let Some((summary, trace)) = recorded(options) else { return };
    assert_eq!(summary.trailer.ending, Ending::Exited(0));
    let wishes = trace.events.iter().filter_map(|event| match event.kind {
        EventKind::ThpPrctl { args } => Some(args),
        _ => None,
    });
    assert_eq!(wishes.collect::<Vec<_>>(), [[1, 0], [0, 0]]);
}

fn shell(script: &str) -> Option<(Summary, Trace)> {
    let found = recorded(options("sh", &["-c", script], AccessWish::Best))?;
    assert_eq!(found.0.replay.mismatched, 0, "{script}: {:?}", found.0.replay.mismatches);
    assert!(found.0.trailer.is_complete(), "{script}: {:?}", found.0.trailer);
    Some(found)
}

#[test]
fn the_programs_end_is_told() {
    for (script, ending) in [
        ("exit 7", Ending::Exited(7)),
        ("kill -9 $$", Ending::Signaled(9)),
        ("kill -TERM $$", Ending::Signaled(15)),
        ("trap 'exit 5' USR1; kill -USR1 $$; exit 6", Ending::Exited(5)),
        // A group stop and its end. The child may not have stopped yet, so it is woken until it is
        // gone.
        (
            "sh -c 'kill -STOP $$; exit 4' & \
             while kill -CONT $! 2>/dev/null; do /bin/true; done; wait $!",
            Ending::Exited(4),
        ),
    ] {
        let Some((summary, _)) = shell(script) else { return };
        assert_eq!(summary.trailer.ending, ending, "{script}");
    }
}

#[test]
fn programs_and_spaces_are_counted() {
    let Some((_, trace)) = shell("/bin/true; (/bin/true; exit 0); exec /bin/echo -n") else {
        return;
    };
    let found = describe(&trace.events, &Budget::default()).unwrap();
    let ends_with = |name: &str| found.programs.iter().filter(|p| p.ends_with(name)).count();
    assert_eq!((ends_with("/true"), ends_with("/echo")), (2, 1), "{:?}", found.programs);
    assert_eq!(found.events, trace.trailer.events);
    assert!(found.peak_mapped.get() > 0);
}

#[test]
fn decoding_agrees_with_the_hardware() {
    let mut options = options("sh", &["-c", "ls / | sort"], AccessWish::Best);
    options.check_decoding = true;
    let Some((summary, trace)) = recorded(options) else { return };
    if trace.header.access_source != AccessSource::Tracepoint {
        eprintln!("skipped: tracepoints are not permitted");
        return;
    }
    let agreement = summary.agreement;
    assert!(agreement.same > 100, "{agreement:?}");
    // Bytes are read a moment after the fault; a process that is killed in between keeps them.
    assert!(agreement.different + agreement.undecoded <= agreement.same / 20, "{agreement:?}");
}

#[test]
fn a_full_ring_is_reported() {
    let program = std::env::current_exe().unwrap();
    let args = ["--exact", "child_touches", "--test-threads=1"];
    let mut options = options(program.to_str().unwrap(), &args, AccessWish::Best);
    options.ring_bytes = 0;
    let Some((summary, _)) = recorded(options) else { return };
    // Whether it ran full depends on the machine's load; that it is told does not.
    let counted = summary.trailer.faults + summary.trailer.lost;
    assert!(counted > PAGES as u64, "{:?}", summary.trailer);
}

#[test]
fn bad_programs_are_named_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.trace");
    let error = record_to_file(Options::new("no-such-program", []), &file).unwrap_err();
    assert!(matches!(error, RecordError::NotFound { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "there is no program 'no-such-program'; give its path or check PATH"
    );
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "no program").unwrap();
    let error = record_to_file(Options::new(&plain, []), &file).unwrap_err();
    assert!(matches!(error, RecordError::NotExecutable { .. }), "{error:?}");
    let nowhere = dir.path().join("missing/out.trace");
    let error = record_to_file(Options::new("true", []), &nowhere).unwrap_err();
    assert!(matches!(error, RecordError::Output { .. }), "{error:?}");
    let error = record_to_file(Options::new("true", []), dir.path()).unwrap_err();
    assert!(matches!(error, RecordError::Output { .. }), "{error:?}");
    // A file that may be run and is no program: the kernel refuses it, after the child was made.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&plain, mode).unwrap();
    match record_to_file(Options::new(&plain, []), &file).unwrap_err() {
        RecordError::NotExecutable { why, .. } => {
            assert_eq!(why.raw_os_error(), Some(libc::ENOEXEC))
        }
        e => eprintln!("skipped: {e}"),
    }
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["plain"]);
}

#[test]
fn a_file_appears_whole() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.trace");
    std::fs::write(&file, "what was there before").unwrap();
    match record_to_file(Options::new("true", []), &file) {
        Ok(summary) => {
            assert_eq!(Trace::open(&file, &Budget::default()).unwrap().trailer, summary.trailer)
        }
        Err(e) => eprintln!("skipped: {e}"),
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_device_stays_a_device() {
    match record_to_file(Options::new("true", []), "/dev/null".as_ref()) {
        Ok(_) => {}
        Err(e) if e.is_forbidden() => {}
        Err(e) => panic!("{e}"),
    }
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}

fn measure(command: &[OsString]) -> Result<record::Measured, RecordError> {
    let (remedy, barred) = (&Remedy::NONE, record::Barred::Nothing);
    record::measure(&record::Program { command, user: None, remedy, barred })
}

/// What `measure` says of a shell's script, or nothing where it is forbidden here.
fn measured(script: &str) -> Option<record::Measured> {
    match measure(&["sh", "-c", script].map(OsString::from)) {
        Ok(measured) => Some(measured),
        Err(e @ RecordError::PerfForbidden { .. }) => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_measured_run_lasts_as_long_as_what_the_program_leaves_behind() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let later = format!("sleep 0.5; echo >{}", done.display());
    let daemon = format!("(setsid sh -c '{later}' &) & exit 3");
    let Some(with) = measured(&daemon) else { return };
    assert!(done.exists(), "the run is over when the daemon is");
    assert_eq!(with.ending, Ending::Exited(3), "and ends as the program did");
    // What the daemon took is counted.
    let without = measured("exit 3").unwrap();
    assert!(with.faults > without.faults + 100, "{with:?} {without:?}");
    let signaled = measured("kill -KILL $$").unwrap();
    assert_eq!(signaled.ending, Ending::Signaled(libc::SIGKILL as u8));
}

#[test]
fn a_measured_program_is_named_and_grouped_as_it_was_called() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    let script = "tr '\\0' '\\n' </proc/$$/cmdline; cut -d' ' -f5 /proc/$$/stat; cat";
    let Some(_) = measured(&format!("({script}) >{}", told.display())) else { return };
    let told = std::fs::read_to_string(told).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "sh", "its first word is the one that it was called by");
    let own = std::fs::read_to_string("/proc/self/stat").unwrap();
    assert_ne!(lines.last(), own.split(' ').nth(4).as_ref(), "its group is its own: {told}");
    let command = ["no-such-program"].map(OsString::from);
    assert!(matches!(measure(&command), Err(RecordError::NotFound { .. })));
    let command = [folder.path().join("told").into_os_string()];
    let refused = measure(&command);
    assert!(matches!(refused, Err(RecordError::NotExecutable { .. })), "{refused:?}");
}

#[test]
fn programs_of_32_bits_are_followed() {
    const PAGES: u32 = 64;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small");
    std::fs::write(&path, i386::program(PAGES)).unwrap();
    let rights = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, rights).unwrap();
    match std::process::Command::new(&path).status() {
        Ok(status) => assert_eq!(status.code(), Some(5), "by itself"),
        Err(why) => return eprintln!("skipped: this kernel runs no programs of 32 bits ({why})"),
    }
    for access in [AccessWish::Best, AccessWish::Decoded] {
        let options = options(path.to_str().unwrap(), &[], access);
        let Some((summary, trace)) = recorded(options) else { return };
        assert_eq!(summary.trailer.ending, Ending::Exited(5));
        let report = &summary.replay;
        assert_eq!((report.mismatched, report.strays), (0, 0), "{report:?}");
        assert!(summary.trailer.remarks.is_empty(), "{:?}", summary.trailer.remarks);
        let is_write = |event: &&Event| matches!(&event.kind, EventKind::Fault(f) if f.access == Access::Write);
        let writes = trace.events.iter().filter(is_write).count();
        assert!(writes >= 2 * PAGES as usize, "{access:?}: {writes}");
        let ours = |event: &Event| match &event.kind {
            EventKind::Map(area) if area.range.pages().get() == PAGES.into() => Some(area.kind),
            _ => None,
        };
        let ours: Vec<AreaKind> = trace.events.iter().filter_map(ours).collect();
        assert_eq!(ours, [AreaKind::Anonymous; 2]);
        let gone = |event: &&Event| matches!(event.kind, EventKind::Unmap { .. });
        assert_eq!(trace.events.iter().filter(gone).count(), 1);
        if trace.header.kernel_faults {
            let residue = summary.residue;
            assert_eq!((residue.only_kernel, residue.only_replay), (0, 0), "{residue:?}");
        }
    }
}
