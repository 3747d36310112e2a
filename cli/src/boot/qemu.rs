//! Finding QEMU, starting it, following its output, and ending it in time.

use super::{Mode, Options, board};
use crate::args::{self, Threads};
use crate::failure::{Done, Failure, why};
use crate::{progress, shown};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, mpsc};
use std::time::{Duration, Instant};

/// The emulator, where nothing else is named.
const PROGRAM: &str = "qemu-system-x86_64";
/// The variable that names another one.
const VARIABLE: &str = "FOLIANT_QEMU";
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
    let (size, guest) = (&options.size, &options.guest);
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |text: &str| words.extend(text.split(' ').map(OsString::from));
    let threads = match threads(size.cpus(), guest, host) {
        Threads::Multi => "multi",
        Threads::Single => "single",
    };
    let (board, memory) =
        (board(guest.machine.unwrap_or(args::Board::Q35)), options.memory().get() >> 20);
    add(&format!("-M {board},memory-backend=ram -cpu max -accel tcg,thread={threads}"));
    // The host gives what is touched, and need not have all of it.
    add(&format!("-object memory-backend-ram,id=ram,size={memory}M,reserve=off"));
    if guest.icount {
        add("-icount shift=0,sleep=off");
    }
    add(&format!("-smp {} -m {memory}M", size.cpus()));
    add("-nodefaults -display none -no-reboot");
    match options.mode {
        // Ctrl-C is the guest's, as every other key but Ctrl-], behind which x ends QEMU.
        Mode::Shell => {
            add("-chardev stdio,id=line,mux=on,signal=off -serial chardev:line -echr 0x1d");
        }
        _ => add("-serial stdio"),
    }
    add("-device isa-debug-exit,iobase=0xf4,iosize=4");
    let image = image.as_os_str().to_owned();
    // Twice: the second one is for the symbols of traces.
    words.extend(["-kernel".into(), image.clone(), "-initrd".into(), image]);
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

    /// Follows the output to its end.
    fn follow(
        &self,
        output: ChildStdout,
        mut line: impl FnMut(&str) -> Done,
    ) -> Done<Option<Ended>> {
        let (send, receive) = mpsc::channel();
        // It ends with QEMU, whose output it reads.
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
        loop {
            match receive.recv_timeout(LOOK) {
                Ok(text) => line(text.trim_end_matches(['\r', '\n']))?,
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
    let host = std::thread::available_parallelism().map_or(1, |n| n.get());
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
    let mut command = Command::new(program);
    command.args(arguments(image, options, host)).stdin(input).stdout(output);
    let child = command.spawn().map_err(|e| {
        let program = shown::path(program);
        Failure::new(format_args!(
            "{program} does not start ({}); name QEMU in {VARIABLE}",
            why(&e)
        ))
    })?;
    let deadline = options.timeout().map(|time| Instant::now() + time);
    let mut guest = Guest { child, deadline };
    if let Some(input) = guest.child.stdin.take() {
        std::thread::spawn(move || feed(input));
    }
    if let Some(output) = guest.child.stdout.take() {
        let spinner = progress::spinner("the kernel runs");
        let why = guest.follow(output, |text| spinner.suspend(|| line(text)));
        spinner.finish_and_clear();
        if let Some(why) = why? {
            return Ok(why);
        }
    }
    guest.wait()
}

#[cfg(test)]
mod tests {
    use super::*;
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
