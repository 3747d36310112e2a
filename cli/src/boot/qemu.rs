//! Finding QEMU, starting it, following its output, and ending it in time.
//!
//! ```text
//!   run     the kernel's words   ◀── COM1 ── stdout, line by line (a shell's: as they are)
//!   stream  the kernel's words   ◀── COM1 ── a file
//!           a program's streams  ◀─▶ COM2 ── stdin, framed, and stdout
//!                                ◀── port 0xe9 ── stderr
//!   both    the verdict          ◀── port 0xf4 ── QEMU's status
//! ```

use super::{Mode, Options, board, frame, seat};
use crate::args::{self, Threads};
use crate::failure::{Done, Failure, why};
use crate::{progress, shown};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

/// The emulator, where nothing else is named.
const PROGRAM: &str = "qemu-system-x86_64";
/// The variable that names another one.
const VARIABLE: &str = "FOLIANT_QEMU";
/// The processor of guests whose instructions are compared: without strings that are moved by one
/// instruction, of which the clock counts each byte.
const COUNTED: &str = "max,erms=off,fsrm=off";
/// What the kernel adds its code to, so that it is told from QEMU's own exit codes.
const CODE_BASE: i32 = 0x10;
/// How often a wait looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(50);
/// How long QEMU gets to end by itself when it is asked to, to put the terminal back.
const GRACE: Duration = Duration::from_secs(2);

/// How the guest ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The kernel's own code: 0 passed, 1 failed, 101 panicked.
    Verdict(u8),
    /// The machine reset: QEMU's status is 0, and nobody said that all is well.
    Reset,
    /// QEMU's own error, with its exit status.
    Failed(i32),
    /// A signal ended QEMU.
    Killed,
    /// It took too long.
    TimedOut,
    /// Ctrl-C.
    Interrupted,
}

impl Ended {
    fn of(status: ExitStatus) -> Ended {
        match status.code() {
            None => Ended::Killed,
            Some(0) => Ended::Reset,
            // The debug port doubles what it is told and adds one.
            Some(status) if status & 1 == 1 && status >> 1 >= CODE_BASE => {
                Ended::Verdict((status >> 1) as u8 - CODE_BASE as u8)
            }
            Some(status) => Ended::Failed(status),
        }
    }
}

/// Finds the emulator.
pub(super) fn find() -> Done<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        let path = PathBuf::from(named);
        if !path.is_file() {
            return Err(Failure::new(format_args!(
                "{VARIABLE} names {}, which is no file; name QEMU there, or unset it",
                shown::path(&path)
            )));
        }
        return Ok(path);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|folder| folder.join(PROGRAM)).find(|p| p.is_file());
    found.ok_or_else(|| {
        Failure::new(format_args!(
            "{PROGRAM} is not installed; get it with `apt-get install --no-install-recommends qemu-system-x86 seabios`, \
             `dnf install qemu-system-x86-core`, `pacman -S qemu-system-x86` or `brew install qemu`, or name it in {VARIABLE}"
        ))
    })
}

/// Whether QEMU may give each CPU a thread, where nothing else is asked for. With more than two
/// spinning CPUs for each of the host's, one that waits keeps the one that it waits for from
/// running; turns are several times faster then. Counting instructions needs turns.
fn threads(cpus: usize, guest: &args::Guest, host: usize) -> Threads {
    let usual = if cpus > 2 * host { Threads::Single } else { Threads::Multi };
    if guest.icount { Threads::Single } else { guest.threads.unwrap_or(usual) }
}

/// What QEMU is told.
fn arguments(image: &Path, options: &Options, host: usize) -> Vec<OsString> {
    let line = match options.mode {
        // Ctrl-C is the guest's, as every other key but Ctrl-], behind which x ends QEMU.
        Mode::Shell => "-chardev stdio,id=line,mux=on,signal=off -serial chardev:line -echr 0x1d",
        _ => "-serial stdio",
    };
    // Twice: the second one is for the symbols of traces.
    [machine(options, host), split(line), booted(image, image, options)].concat()
}

/// What QEMU is told of a program: the kernel's words go to a file, and its streams to QEMU's own.
pub(super) fn streamed(kernel: &Path, files: &Files<'_>, options: &Options) -> Vec<OsString> {
    let mut words = OsString::from("file:");
    words.push(files.words);
    let mut lines = vec!["-serial".into(), words];
    lines.extend(split("-chardev stdio,id=streams,signal=off"));
    // COM2, also where a machine gives a second `-serial` no port: on microvm.
    lines.extend(split("-device isa-serial,index=1,chardev=streams"));
    lines.extend(split("-chardev file,id=errors,path=/dev/stderr"));
    lines.extend(split("-device isa-debugcon,iobase=0xe9,chardev=errors"));
    [machine(options, cpus_here()), lines, booted(kernel, files.archive, options)].concat()
}

/// What QEMU is told of a Linux whose first process says all there is to say.
pub(super) fn linux(
    kernel: &Path,
    archive: &Path,
    options: &Options,
    words: &str,
) -> Vec<OsString> {
    let mut lines = split("-serial stdio");
    lines.extend(["-kernel".into(), kernel.into(), "-initrd".into(), archive.into()]);
    lines.extend(["-append".into(), words.into()]);
    [machine(options, cpus_here()), lines].concat()
}

/// CPUs of this host.
fn cpus_here() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

fn split(text: &str) -> Vec<OsString> {
    text.split(' ').map(OsString::from).collect()
}

/// The machine.
fn machine(options: &Options, host: usize) -> Vec<OsString> {
    let (size, guest) = (&options.size, &options.guest);
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |text: &str| words.extend(split(text));
    let threads = match threads(size.cpus(), guest, host) {
        Threads::Multi => "multi",
        Threads::Single => "single",
    };
    let (board, memory) =
        (board(guest.machine.unwrap_or(args::Board::Q35)), options.memory().get() >> 20);
    let counts = matches!(options.mode, Mode::Program(linux) if linux.counts);
    let cpu = if counts { COUNTED } else { "max" };
    add(&format!("-M {board},memory-backend=ram -cpu {cpu} -accel tcg,thread={threads}"));
    // The host gives what is touched, and need not have all of it.
    add(&format!("-object memory-backend-ram,id=ram,size={memory}M,reserve=off"));
    if guest.icount {
        add("-icount shift=0,sleep=off");
    }
    add(&format!("-smp {} -m {memory}M", size.cpus()));
    add("-nodefaults -display none -no-reboot");
    words
}

/// The kernel, the module that its loader gives it, and its words.
fn booted(kernel: &Path, module: &Path, options: &Options) -> Vec<OsString> {
    let mut words = split("-device isa-debug-exit,iobase=0xf4,iosize=4");
    words.extend(["-kernel".into(), kernel.into(), "-initrd".into(), module.into()]);
    words.extend(["-append".into(), options.words().into()]);
    words
}

/// Ctrl-C was pressed, or the command was asked to end.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn catch_interrupts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Where it cannot be caught Ctrl-C ends this program at once, and QEMU with it.
        let _ = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed));
    });
}

/// A running QEMU, which does not outlive this value.
struct Guest {
    child: Child,
    deadline: Option<Instant>,
}

impl Guest {
    /// Why it must end now, if it must.
    fn due(&self) -> Option<Ended> {
        if INTERRUPTED.load(Ordering::Relaxed) {
            return Some(Ended::Interrupted);
        }
        let late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        late.then_some(Ended::TimedOut)
    }

    /// Starts it; `timeout` runs from here on.
    fn start(
        program: &Path,
        arguments: Vec<OsString>,
        [input, output, errors]: [Stdio; 3],
        timeout: Option<Duration>,
    ) -> Done<Guest> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(input).stdout(output).stderr(errors);
        let child = command.spawn().map_err(|e| {
            let program = shown::path(program);
            Failure::new(format_args!(
                "{program} does not start ({}); name QEMU in {VARIABLE}",
                why(&e)
            ))
        })?;
        Ok(Guest { child, deadline: timeout.map(|time| Instant::now() + time) })
    }

    /// Follows what it says to its end.
    fn follow<T>(
        &self,
        said: &Receiver<T>,
        mut hear: impl FnMut(T) -> Done,
    ) -> Done<Option<Ended>> {
        loop {
            match said.recv_timeout(LOOK) {
                Ok(piece) => hear(piece)?,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(None),
            }
            if let Some(why) = self.due() {
                return Ok(Some(why));
            }
        }
    }

    /// Waits for its end, or ends it.
    fn wait(&mut self) -> Done<Ended> {
        loop {
            let status = self.child.try_wait();
            if let Some(status) =
                status.map_err(|e| Failure::new(format_args!("QEMU is lost: {e}")))?
            {
                let interrupted = INTERRUPTED.load(Ordering::Relaxed);
                return Ok(if interrupted { Ended::Interrupted } else { Ended::of(status) });
            }
            match self.due() {
                Some(why) => return Ok(why),
                None => std::thread::sleep(LOOK),
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let until = Instant::now() + GRACE;
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        }
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK);
        }
        let _ = self.child.kill(); // refused where it has ended already
        let _ = self.child.wait();
    }
}

/// The lines of an output. The thread ends with QEMU, whose output it reads.
fn lines(output: ChildStdout) -> Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut text = Vec::new();
        while output.read_until(b'\n', &mut text).is_ok_and(|n| n > 0) {
            if send.send(String::from_utf8_lossy(&text).into_owned()).is_err() {
                return;
            }
            text.clear();
        }
    });
    receive
}

/// A piece of what a program says.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Piece {
    Output(Vec<u8>),
    Errors(Vec<u8>),
}

/// How many pieces wait at most for who reads this command's output.
const PIECES: usize = 64;

/// Sends on what comes, as it comes. The thread ends with QEMU, whose output it reads.
fn pump(mut from: impl Read + Send + 'static, to: SyncSender<Piece>, piece: fn(Vec<u8>) -> Piece) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        loop {
            match from.read(&mut bytes) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return,
                Ok(n) if to.send(piece(bytes[..n].to_vec())).is_err() => return,
                Ok(_) => {}
            }
        }
    });
}

/// Hands on what comes down a pipe, and what ends a shell behind its end.
fn feed(mut input: ChildStdin) {
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut input);
    let _ = input.write_all(b"\n\x04"); // QEMU may be gone
}

/// Runs the guest. `line` hears each line of its output; a shell's goes to the terminal as it is.
pub(super) fn run(
    program: &Path,
    image: &Path,
    options: &Options,
    mut line: impl FnMut(&str) -> Done,
) -> Done<Ended> {
    catch_interrupts();
    let host = cpus_here();
    let shell = matches!(options.mode, Mode::Shell);
    let is_typed = std::io::stdin().is_terminal();
    let (input, output) = match (shell, is_typed) {
        (true, true) => (Stdio::inherit(), Stdio::inherit()),
        (true, false) => (Stdio::piped(), Stdio::inherit()),
        (false, _) => (Stdio::null(), Stdio::piped()),
    };
    if shell && is_typed {
        crate::failure::tell("Ctrl-] and then x ends the guest, whatever it does");
    }
    let arguments = arguments(image, options, host);
    let streams = [input, output, Stdio::inherit()];
    let mut guest = Guest::start(program, arguments, streams, options.timeout())?;
    if let Some(input) = guest.child.stdin.take() {
        std::thread::spawn(move || feed(input));
    }
    if let Some(output) = guest.child.stdout.take() {
        let spinner = progress::spinner("the kernel runs");
        let why = guest.follow(&lines(output), |text| {
            let text = text.trim_end_matches(['\r', '\n']);
            spinner.suspend(|| line(text))
        });
        spinner.finish_and_clear();
        if let Some(why) = why? {
            return Ok(why);
        }
    }
    guest.wait()
}

/// The files of a guest that runs a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files<'f> {
    /// What the guest finds.
    pub(super) archive: &'f Path,
    /// Where the kernel's words go.
    pub(super) words: &'f Path,
}

/// What a program reads.
pub(super) enum Input {
    Nothing,
    /// Bytes, and their end.
    Bytes(Box<dyn Read + Send>),
    /// Keys of a terminal, whose size may change.
    Keys(Box<dyn Read + Send>),
}

impl Input {
    /// Hands it on. It may wait for more when all else has ended, and ends with this command.
    fn feed(self, to: ChildStdin) {
        let to = Arc::new(Mutex::new(to));
        match self {
            Input::Nothing => {}
            Input::Bytes(mut input) => {
                std::thread::spawn(move || frame::feed(&mut input, &to));
            }
            Input::Keys(mut input) => {
                let sizes = to.clone();
                std::thread::spawn(move || hand_sizes(&sizes));
                std::thread::spawn(move || {
                    if frame::feed_keys(&mut input, &to) {
                        INTERRUPTED.store(true, Ordering::Relaxed);
                    }
                });
            }
        }
    }
}

/// Hands on each size that the terminal gets, to the guest's end.
fn hand_sizes(to: &Mutex<ChildStdin>) {
    let mut known = seat::size();
    loop {
        std::thread::sleep(LOOK);
        let size = seat::size();
        if size != known && frame::hand(&frame::window(size), to).is_err() {
            return;
        }
        known = size;
    }
}

/// Runs a guest that runs a program, which reads `input`. `hear` hears what it says.
pub(super) fn stream(
    program: &Path,
    arguments: Vec<OsString>,
    timeout: Option<Duration>,
    input: Input,
    hear: impl FnMut(Piece) -> Done,
) -> Done<Ended> {
    catch_interrupts();
    let reads = match input {
        Input::Nothing => Stdio::null(),
        Input::Bytes(_) | Input::Keys(_) => Stdio::piped(),
    };
    let streams = [reads, Stdio::piped(), Stdio::piped()];
    let mut guest = Guest::start(program, arguments, streams, timeout)?;
    if let Some(to) = guest.child.stdin.take() {
        input.feed(to);
    }
    let (send, said) = mpsc::sync_channel(PIECES);
    if let Some(output) = guest.child.stdout.take() {
        pump(output, send.clone(), Piece::Output);
    }
    if let Some(errors) = guest.child.stderr.take() {
        pump(errors, send.clone(), Piece::Errors);
    }
    drop(send); // the end of both is the end
    match guest.follow(&said, hear)? {
        Some(why) => Ok(why),
        None => guest.wait(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::tests::options;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_status_says_how_the_guest_ended() {
        for (status, expect) in [
            (0, Ended::Reset),
            (33, Ended::Verdict(0)),
            (35, Ended::Verdict(1)),
            (235, Ended::Verdict(101)),
            (255, Ended::Verdict(111)),
            (1, Ended::Failed(1)),
            (31, Ended::Failed(31)),
            (34, Ended::Failed(34)),
        ] {
            assert_eq!(Ended::of(ExitStatus::from_raw(status << 8)), expect, "{status}");
        }
        assert_eq!(Ended::of(ExitStatus::from_raw(9)), Ended::Killed);
    }

    #[test]
    fn a_program_s_streams_go_through_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (archive, words) = (at("archive"), at("words"));
        std::fs::write(&archive, "070701").unwrap();
        std::fs::write(at("words.input"), "").unwrap();
        let files = Files { archive: &archive, words: &words };
        let fake = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_streams.sh"));
        let options = options(Mode::Calls, false);
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let input = Input::Bytes(Box::new(&b"typed\xff\n"[..]));
        let arguments = streamed(Path::new("kernel"), &files, &options);
        let ended = stream(fake, arguments, options.timeout(), input, |piece| {
            match piece {
                Piece::Output(bytes) => output.extend(bytes),
                Piece::Errors(bytes) => errors.extend(bytes),
            }
            Ok(())
        });
        assert_eq!(ended.unwrap(), Ended::Verdict(0));
        let fed = [&frame::BEGIN[..], b"typed\xff\xff\n\xff\0"].concat();
        assert_eq!(std::fs::read(at("words.input")).unwrap(), fed);
        assert!(std::fs::read_to_string(&words).unwrap().ends_with("\r\nended exit=3\r\n"));
        assert_eq!(errors, b"an error\xfe");
        assert_eq!(output.pop(), Some(0xff));
        let told = String::from_utf8(output).unwrap();
        for part in [
            "-M q35,memory-backend=ram".to_owned(),
            format!("-serial file:{} -chardev stdio,id=streams,signal=off", words.display()),
            "-device isa-serial,index=1,chardev=streams".to_owned(),
            "-chardev file,id=errors,path=/dev/stderr".to_owned(),
            "-device isa-debugcon,iobase=0xe9,chardev=errors".to_owned(),
            "-device isa-debug-exit,iobase=0xf4,iosize=4".to_owned(),
            format!("-kernel kernel -initrd {} -append mode=linux", archive.display()),
        ] {
            assert!(told.contains(&part), "{part}: {told}");
        }
    }

    /// Input that never ends keeps nothing from ending, and neither does a guest that hangs.
    #[test]
    fn a_guest_that_hangs_is_ended_whatever_waits_for_input() {
        let fake = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_streams.sh"));
        let folder = tempfile::tempdir().unwrap();
        let words = folder.path().join("words");
        let files = Files { archive: &words, words: &words };
        let mut options = options(Mode::Calls, false);
        options.guest.timeout = Some(Duration::from_millis(100));
        let (input, _keep) = std::io::pipe().unwrap();
        let arguments = streamed(&words, &files, &options);
        let input = Input::Bytes(Box::new(input));
        let ended = stream(fake, arguments, options.timeout(), input, |_| Ok(()));
        assert_eq!(ended.unwrap(), Ended::TimedOut);
    }

    #[test]
    fn cpus_that_would_starve_each_other_take_turns() {
        let (machine, timeout, kernel) = (None, None, None);
        let usual =
            args::Guest { icount: false, threads: None, xapic: false, timeout, machine, kernel };
        assert_eq!(threads(4, &usual, 2), Threads::Multi);
        assert_eq!(threads(5, &usual, 2), Threads::Single);
        let multi = args::Guest { threads: Some(Threads::Multi), ..usual.clone() };
        assert_eq!(threads(16, &multi, 2), Threads::Multi);
        let counted = args::Guest { icount: true, ..usual };
        assert_eq!(threads(1, &counted, 64), Threads::Single);
    }
}
