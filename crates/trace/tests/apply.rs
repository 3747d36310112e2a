//! Applying wishes to real programs: who is wished for has the advice, nobody else, and the program
//! notices nothing.
//!
//! The programs are tests of this very file, `child_*`, which do nothing unless they are asked for
//! by a variable of the environment; they look at their own areas as the kernel lists them. Where
//! the system forbids counting or following, the tests say so and pass.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(unsafe_code)]

mod i386;

use foliant_trace::record::{Applied, Barred, Given, Measured, Place, Program, measure};
use foliant_trace::{Ending, Remedy, Site, Target, Wish, Wished};
use foliant_units::Bytes;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;
/// Bytes of the mappings that are wished for: of a size that nothing else has.
const BYTES: usize = 613 * PAGE;
/// Of others.
const OTHER: usize = 617 * PAGE;
/// Set for a child.
const ASKED: &str = "FOLIANT_TEST_CHILD";

fn is_asked() -> bool {
    std::env::var_os(ASKED).is_some()
}

fn mapped(bytes: usize) -> *mut u8 {
    let at = called(bytes);
    assert_ne!(at.cast(), libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    at
}

/// The call alone, in the code of who makes it.
#[inline(always)]
fn called(bytes: usize) -> *mut u8 {
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0) }.cast()
}

/// The kernel's flags of the area that an address is in.
fn flags_at(address: *const u8) -> String {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut inside, address) = (false, address.addr() as u64);
    for line in text.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let hex = |text| u64::from_str_radix(text, 16).ok();
        if let Some((start, end)) = range.and_then(|(a, b)| Some((hex(a)?, hex(b)?))) {
            inside = (start..end).contains(&address);
        }
        if let (true, Some(flags)) = (inside, line.strip_prefix("VmFlags:")) {
            return flags.to_owned();
        }
    }
    panic!("nothing is at {address:x}");
}

fn is_advised(address: *const u8) -> bool {
    flags_at(address).split(' ').any(|flag| flag == "hg")
}

#[test]
fn child_maps() {
    if !is_asked() {
        return;
    }
    let (ours, other) = (mapped(BYTES), mapped(OTHER));
    assert!(is_advised(ours) && !is_advised(other));
    assert!(is_advised(mapped(BYTES - 100)), "the kernel makes whole pages of it");
    // It stays with the area when that is moved.
    let old = ours.cast();
    // SAFETY: the range is the child's own and not used under its old address afterwards.
    let moved = unsafe { libc::mremap(old, BYTES, 4 * BYTES, libc::MREMAP_MAYMOVE) };
    assert!(is_advised(moved.cast()));
    // SAFETY: the last byte of the mapping, which is writable.
    unsafe { moved.cast::<u8>().wrapping_add(4 * BYTES - 1).write_volatile(1) };
    // A failure is the program's own.
    let (prot, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let odd: *mut libc::c_void = std::ptr::without_provenance_mut(1);
    // SAFETY: refused, as the address is not a page's.
    let refused = unsafe { libc::mmap(odd, BYTES, prot, flags | libc::MAP_FIXED, -1, 0) };
    let why = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((refused, why), (libc::MAP_FAILED, Some(libc::EINVAL)));
}

#[test]
fn child_grows_its_heap() {
    if !is_asked() {
        return;
    }
    let mut last = std::ptr::null_mut::<u8>();
    for _ in 0..50 {
        // SAFETY: the allocator of this program allows for others who move the break.
        last = unsafe { libc::sbrk(3 * PAGE as libc::intptr_t + 16) }.cast();
        assert_ne!(last.addr(), usize::MAX);
        // SAFETY: the break has just been moved beyond it.
        unsafe { last.write_volatile(1) };
    }
    assert!(is_advised(last) && is_advised(last.wrapping_sub(40 * PAGE)));
}

#[test]
fn child_looks_at_its_stack() {
    if !is_asked() {
        return;
    }
    let text = std::fs::read_to_string("/proc/self/maps").unwrap();
    let stack = text.lines().find(|line| line.ends_with("[stack]")).unwrap();
    let start = usize::from_str_radix(stack.split('-').next().unwrap(), 16).unwrap();
    assert!(is_advised(std::ptr::without_provenance(start)), "{stack}");
    assert!(!is_advised(mapped(BYTES)));
}

/// Ends a child of a child: 0 where its mapping is advised.
extern "C" fn looks(_: *mut libc::c_void) -> libc::c_int {
    i32::from(!is_advised(mapped(BYTES)))
}

fn exit_code(child: libc::c_int) -> libc::c_int {
    assert!(child > 0, "{}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: waits for the child; `status` is a live int.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, libc::__WALL) }, child);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 }
}

#[test]
fn child_bears() {
    if !is_asked() {
        return;
    }
    let untraced = libc::CLONE_UNTRACED | libc::SIGCHLD;
    for flags in [libc::SIGCHLD, untraced, untraced | libc::CLONE_VM | libc::CLONE_VFORK] {
        let mut stack = vec![0u8; 1 << 18];
        let top = stack.as_mut_ptr_range().end;
        // SAFETY: the child has a stack of its own, and ends before that does.
        let child = unsafe { libc::clone(looks, top.cast(), flags, std::ptr::null_mut()) };
        assert_eq!(exit_code(child), 0, "{flags:x}");
    }
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
            let done = if after == flags { looks(std::ptr::null_mut()) } else { 2 };
            // SAFETY: ends the child.
            unsafe { libc::_exit(done) };
        }
        assert_eq!(after, flags, "the parent's");
        assert_eq!(exit_code(child as libc::c_int), 0, "the child's: {flags:x}");
    }
    let mut wish = [0u64; 11];
    (wish[0], wish[4]) = (libc::CLONE_UNTRACED as u64, libc::SIGCHLD as u64);
    // SAFETY: the kernel reads the live structure; were a child made, it would go on in a copy and
    // end below.
    let child = unsafe { libc::syscall(libc::SYS_clone3, wish.as_ptr(), size_of_val(&wish)) };
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(looks(std::ptr::null_mut())) };
    }
    assert_eq!(child, -1);
    // A program of its own, made with vfork by the standard library.
    let own = std::env::current_exe().unwrap();
    let status = std::process::Command::new(own).args(["--exact", "child_maps"]).status();
    assert!(status.unwrap().success());
}

const THREADS: usize = 8;
const EACH: usize = 150;
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handle(_: libc::c_int) {
    // A call of the handler's own, between others of its thread.
    let at = mapped(OTHER);
    // SAFETY: the mapping has just been made and is used by nobody.
    unsafe { libc::munmap(at.cast(), OTHER) };
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn child_maps_with_threads_and_signals() {
    if !is_asked() {
        return;
    }
    // SAFETY: the handler makes two calls and counts.
    unsafe { libc::signal(libc::SIGALRM, handle as *const () as libc::sighandler_t) };
    let often = libc::timeval { tv_sec: 0, tv_usec: 300 };
    let timer = libc::itimerval { it_interval: often, it_value: often };
    // SAFETY: the kernel reads a live struct.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || {
                let mut all = Vec::new();
                for at in 0..EACH {
                    let memory = mapped(BYTES);
                    // SAFETY: the first byte of the mapping, which is writable.
                    unsafe { memory.write_volatile((number + at) as u8) };
                    all.push(memory);
                }
                for (at, memory) in all.iter().enumerate() {
                    // SAFETY: as above.
                    assert_eq!(unsafe { memory.read_volatile() }, (number + at) as u8);
                }
                assert!(is_advised(all[EACH - 1]) && is_advised(all[0]));
            });
        }
    });
    assert!(HANDLED.load(Ordering::Relaxed) > 0);
    // SAFETY: a set of signals is plain data, for which zeros are a legal value.
    let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes the thread's mask to a live set.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, std::ptr::null(), &mut mask) };
    // SAFETY: the set is live.
    assert_eq!(unsafe { libc::sigismember(&mask, libc::SIGALRM) }, 0, "none stays blocked");
}

/// Lets all calls pass but `madvise`, for which the process is killed.
fn kills_for_advice() {
    let op = |code: u16, k: u32, jt: u8, jf: u8| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        op(0x20, 0, 0, 0),
        op(0x15, libc::SYS_madvise as u32, 0, 1),
        op(0x06, libc::SECCOMP_RET_KILL_PROCESS, 0, 0),
        op(0x06, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let filter = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1usize, 0usize, 0usize, 0usize) };
    let at: *const libc::sock_fprog = &filter;
    // SAFETY: the kernel copies the filter, which is live.
    let n = unsafe { libc::prctl(libc::PR_SET_SECCOMP, 2usize, at, 0usize, 0usize) };
    assert_eq!(n, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn child_filters_its_own_calls() {
    if !is_asked() {
        return;
    }
    // A question is no filter.
    let action = libc::SECCOMP_RET_KILL_PROCESS;
    let at: *const u32 = &action;
    // SAFETY: the kernel reads a live number.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, at) };
    assert!(is_advised(mapped(BYTES)));
    // What its end takes of advice is given before: threads free their stacks with it.
    // SAFETY: the child makes calls and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        kills_for_advice();
        let memory = mapped(BYTES);
        // SAFETY: as above.
        let grandchild = unsafe { libc::fork() };
        if grandchild == 0 {
            mapped(BYTES);
        }
        let is_well = grandchild == 0 || exit_code(grandchild) == 0;
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!is_well || is_advised(memory))) };
    }
    assert_eq!(exit_code(child), 0);
    // It stays with what the process becomes.
    // SAFETY: the child makes calls and becomes another program.
    let child = unsafe { libc::fork() };
    if child == 0 {
        kills_for_advice();
        let words = [c"true".as_ptr(), std::ptr::null()];
        // SAFETY: the words are live and end with null.
        unsafe { libc::execv(c"/bin/true".as_ptr(), words.as_ptr()) };
        // SAFETY: ends the process.
        unsafe { libc::_exit(3) };
    }
    assert_eq!(exit_code(child), 0);
    assert!(is_advised(mapped(BYTES)), "the parent's calls are as free as before");
}

#[inline(never)]
fn here() -> *mut u8 {
    std::hint::black_box(called(BYTES))
}

#[inline(never)]
fn there() -> *mut u8 {
    // So that this is no copy of the other.
    std::hint::black_box(called(BYTES).wrapping_add(1)).wrapping_sub(1)
}

#[test]
fn child_maps_at_two_places() {
    if !is_asked() {
        return;
    }
    let (first, second, third) = (here(), there(), here());
    assert_eq!([first, second, third].map(|at| is_advised(at)), [true, false, true]);
}

/// Sites of all instructions of a function's first bytes, in this program's file.
fn sites_of(function: fn() -> *mut u8) -> Vec<Site> {
    let (text, at) = (std::fs::read_to_string("/proc/self/maps").unwrap(), function as usize);
    let hex = |text: &str| usize::from_str_radix(text, 16).unwrap();
    let own = std::env::current_exe().unwrap();
    let object = own.file_name().unwrap().to_str().unwrap().to_owned();
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        if (hex(start)..hex(end)).contains(&at) {
            let offset = (at - hex(start) + hex(words[2])) as u64;
            return (offset..offset + 64)
                .map(|offset| Site { object: object.clone(), offset })
                .collect();
        }
    }
    panic!("the function is in no area");
}

fn wished(target: Target) -> Wished {
    Wished { target, wish: Wish::HugePage }
}

fn made(site: Option<Site>, bytes: usize) -> Wished {
    let bytes = Bytes::new(bytes as u64);
    wished(Target::Made { site, least: bytes, most: bytes })
}

/// Runs a command with these wishes, or says why it is skipped.
fn applied(command: &[OsString], wishes: Vec<Wished>) -> Option<Measured> {
    let remedy = Remedy { wishes, ..Remedy::NONE };
    let barred = Barred::Nothing;
    match measure(&Program { command, user: None, remedy: &remedy, barred }) {
        Ok(measured) => Some(measured),
        Err(e) if e.is_forbidden() => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn child(name: &str, wishes: Vec<Wished>) -> Option<Applied> {
    let asked = OsString::from(format!("{ASKED}=1"));
    let own = std::env::current_exe().unwrap().into_os_string();
    let words = ["--exact", name, "--test-threads=1", "--nocapture"].map(OsString::from);
    let command = [vec!["env".into(), asked, own], words.into()].concat();
    let measured = applied(&command, wishes)?;
    assert_eq!(measured.ending, Ending::Exited(0), "{name}: {:?}", measured.applied);
    Some(measured.applied)
}

/// What was given of one kind, and nothing else was.
fn only(applied: &Applied, place: Place) -> &Given {
    assert_eq!(applied.given.len(), 1, "{applied:?}");
    let given = &applied.given[&(place, Wish::HugePage)];
    assert_eq!(given.refused, BTreeMap::new());
    given
}

fn check(name: &str, calls: usize) {
    let Some(applied) = child(name, vec![made(None, BYTES)]) else { return };
    let given = only(&applied, Place::Mapping);
    assert_eq!((given.calls, given.bytes), (calls as u64, (calls * BYTES) as u64), "{name}");
    assert_eq!(applied.passed_over, 0);
}

#[test]
fn mappings_of_a_size_are_advised_and_no_others() {
    check("child_maps", 2);
}

#[test]
fn what_a_program_starts_is_advised() {
    let Some(applied) = child("child_bears", vec![made(None, BYTES)]) else { return };
    assert_eq!(only(&applied, Place::Mapping).calls, 3 + 2 + 2);
    let remarks: Vec<&String> = applied.remarks.iter().collect();
    assert!(remarks.len() == 1 && remarks[0].contains("clone3"), "{remarks:?}");
}

#[test]
fn threads_map_at_the_same_time_and_take_signals() {
    check("child_maps_with_threads_and_signals", THREADS * EACH);
}

#[test]
fn the_heap_is_advised_as_it_grows() {
    let Some(applied) = child("child_grows_its_heap", vec![wished(Target::Heap)]) else { return };
    let given = only(&applied, Place::Heap);
    assert!(given.calls >= 50 && given.bytes >= 150 * PAGE as u64, "{given:?}");
    // Each page once.
    assert!(given.bytes < 1000 * PAGE as u64, "{given:?}");
}

#[test]
fn the_stack_is_advised_before_the_program_begins() {
    let name = "child_looks_at_its_stack";
    let Some(applied) = child(name, vec![wished(Target::Stack)]) else { return };
    assert_eq!(only(&applied, Place::Stack).calls, 2, "of env, and of the child");
    assert_eq!(applied.stops, 0, "there is no filter");
}

#[test]
fn who_filters_its_own_calls_is_left_alone() {
    let name = "child_filters_its_own_calls";
    let wishes = vec![made(None, BYTES), wished(Target::Stack)];
    let Some(applied) = child(name, wishes) else { return };
    let calls =
        [Place::Mapping, Place::Stack].map(|place| applied.given[&(place, Wish::HugePage)].calls);
    assert_eq!(calls, [2, 2]);
    assert_eq!(applied.passed_over, 3, "its own, its child's, and the stack of what one becomes");
}

#[test]
fn a_site_is_told_from_another() {
    let wishes = sites_of(here).into_iter().map(|site| made(Some(site), BYTES)).collect();
    let Some(applied) = child("child_maps_at_two_places", wishes) else { return };
    assert_eq!(only(&applied, Place::Mapping).calls, 2);
    assert!(applied.stops >= 3);
    let nowhere = Site { object: "nowhere".to_owned(), offset: 1 };
    let applied = child("child_maps_at_two_places_not", vec![made(Some(nowhere), BYTES)]);
    assert_eq!(applied.unwrap().given, BTreeMap::new());
}

#[test]
fn refused_advice_is_counted_and_the_program_goes_on() {
    let collapse = Wished { wish: Wish::Collapse, ..made(None, BYTES) };
    let command = ["env".into(), format!("{ASKED}=1").into()].into_iter();
    let own = std::env::current_exe().unwrap().into_os_string();
    let words = ["--exact", "child_maps", "--test-threads=1"].map(OsString::from);
    let command: Vec<OsString> = command.chain([own]).chain(words).collect();
    let Some(measured) = applied(&command, vec![collapse]) else { return };
    assert_eq!(measured.ending, Ending::Exited(101), "it misses the advice, and ends as it does");
    let given = &measured.applied.given[&(Place::Mapping, Wish::Collapse)];
    assert_eq!((given.calls, given.refused.values().sum::<u64>()), (0, 1), "nothing is there yet");
    assert_eq!(measured.applied.refused(), 1);
}

#[test]
fn programs_of_32_bits_are_advised() {
    const PAGES: usize = 64;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small");
    std::fs::write(&path, i386::program(PAGES as u32)).unwrap();
    let rights = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, rights).unwrap();
    if let Err(why) = std::process::Command::new(&path).status() {
        return eprintln!("skipped: this kernel runs no programs of 32 bits ({why})");
    }
    let wishes = vec![made(None, PAGES * PAGE), wished(Target::Stack)];
    let Some(measured) = applied(&[path.into_os_string()], wishes) else { return };
    assert_eq!(measured.ending, Ending::Exited(5));
    let calls = [Place::Mapping, Place::Stack]
        .map(|place| &measured.applied.given[&(place, Wish::HugePage)])
        .map(|given| (given.calls, given.refused.len()));
    assert_eq!(calls, [(2, 0), (1, 0)], "mapped by both calls");
}

#[test]
fn the_end_and_stops_are_the_programs() {
    for (script, ending) in [
        ("exit 7", Ending::Exited(7)),
        ("kill -9 $$", Ending::Signaled(9)),
        ("kill -TERM $$", Ending::Signaled(15)),
        ("trap 'exit 5' USR1; kill -USR1 $$; exit 6", Ending::Exited(5)),
        (
            "sh -c 'kill -STOP $$; exit 4' & \
             while kill -CONT $! 2>/dev/null; do /bin/true; done; wait $!",
            Ending::Exited(4),
        ),
        // Killed while its threads and children do what stops.
        ("(while :; do /bin/true; done) & kill -9 $!; exit 3", Ending::Exited(3)),
    ] {
        let command = ["sh", "-c", script].map(OsString::from);
        let everything =
            Target::Made { site: None, least: Bytes::new(1), most: Bytes::new(1 << 40) };
        let wishes = vec![wished(Target::Heap), wished(Target::Stack), wished(everything)];
        let Some(measured) = applied(&command, wishes) else { return };
        assert_eq!(measured.ending, ending, "{script}");
        assert_eq!(measured.applied.refused(), 0, "{script}: {:?}", measured.applied);
    }
}

#[test]
fn what_a_run_took_is_told() {
    let spend = |script: &str, wishes| {
        applied(&["sh", "-c", script].map(OsString::from), wishes)
            .map(|m| (m.user.0, m.system.0, m))
    };
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let Some((user, _, measured)) = spend(busy, vec![]) else { return };
    assert!(user > 10_000_000 && measured.elapsed.0 >= user, "{measured:?}");
    assert_eq!(measured.applying.map(|n| n.0), [0, 0]);
    // Also of what it leaves behind, though not in its own time.
    let daemon = format!("(setsid sh -c 'sleep 0.3; {busy}' &) & exit 0");
    let Some((user, _, measured)) = spend(&daemon, vec![wished(Target::Heap)]) else { return };
    assert!(user > 10_000_000 && measured.elapsed.0 < 300_000_000, "{measured:?}");
    assert!(measured.applying.iter().map(|n| n.0).sum::<u64>() > 0);
}

#[test]
fn a_program_that_is_not_there_is_named() {
    for name in ["no-such-program", "/"] {
        let remedy = Remedy { wishes: vec![wished(Target::Heap)], ..Remedy::NONE };
        let (command, barred) = ([OsString::from(name)], Barred::Nothing);
        let e = measure(&Program { command: &command, user: None, remedy: &remedy, barred });
        let said = e.unwrap_err().to_string();
        let skipped = ["forbids counting", "forbids following"];
        assert!(said.contains(name) || skipped.iter().any(|s| said.contains(s)), "{said}");
    }
}
