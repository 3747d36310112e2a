//! `foliant run --switches`: the switches are the plan's while the program runs.
//!
//! ```text
//!   terminal ──▶ the group: this process, which waits, and the program
//!                  a signal of the terminal   the program has it too: not sent on
//!                  one of somebody's          sent on
//!                  the program stops          this one stops as well, and both go on together
//! ```
//!
//! **Invariants**
//! - Y1. The switches are put back when the program itself has ended, however it did; after a kill
//!   of this process the next check, or run of this kind, does (`settings`).
//!
//! **Not here**: what is injected into the program, which is a `foliant run` without the option.

use crate::args::Run;
use crate::failure::{Done, Failure, why};
use crate::settings::{Alone, RUN, Settings, Switch, recover};
use foliant::fault::Size;
use foliant_trace::record::with_signals;
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::path::Path;
use std::process::Command;

/// What a terminal sends to a group, or somebody to this process alone.
const SENT: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGTSTP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];
/// The code of a signal that the kernel made.
const FROM_KERNEL: i32 = 0x80;

/// The claim to be the only one who changes switches, with everything as it was before others did.
pub(super) fn alone() -> Done<Alone> {
    let alone = Alone::claim(Path::new(RUN))?;
    recover(&alone)?;
    Ok(alone)
}

pub(super) fn run(args: &Run, alone: Alone, differing: &[(&Switch, Size)]) -> Done {
    let found =
        |(switch, _): &(&Switch, Size)| (switch.path.clone(), switch.position.label().to_owned());
    let found: Vec<_> = differing.iter().map(found).collect();
    let settings = Settings::new(alone, found)?;
    let mut signals = SigSet::empty();
    SENT.into_iter().chain([Signal::SIGCHLD]).for_each(|signal| signals.add(signal));
    let failed = |e: &dyn std::fmt::Display| {
        Failure::new(format_args!("signals cannot be waited for ({e}); nothing was changed"))
    };
    signals.thread_block().map_err(|e| failed(&e))?;
    let signals = SignalFd::new(&signals).map_err(|e| failed(&e))?;
    for (switch, position) in differing {
        settings.write(&switch.path, position.label())?;
    }
    let ended = started(args).and_then(|program| wait(program, &signals));
    settings.restore()?;
    end_as(ended?)
}

/// Starts the program as this command does without the option.
fn started(args: &Run) -> Done<Pid> {
    let own = std::env::current_exe();
    let mut command = Command::new(own.unwrap_or_else(|_| "foliant".into()));
    command.arg("run").arg("--plan").arg(&args.plan);
    if let Some(form) = args.stats {
        command.args(["--stats", form.word()]);
    }
    with_signals(command.arg("--").args(&args.command));
    let child = command.spawn().map_err(|e| {
        Failure::new(format_args!("foliant cannot be started ({}); check its file", why(&e)))
    })?;
    Ok(Pid::from_raw(child.id() as i32))
}

/// Waits for the program's end, and is to it what the group's leader would be.
fn wait(program: Pid, signals: &SignalFd) -> Done<WaitStatus> {
    let failed = |e| Failure::new(format_args!("the program cannot be waited for: {e}"));
    loop {
        let Some(signal) = signals.read_signal().map_err(failed)? else { continue };
        match Signal::try_from(signal.ssi_signo as i32) {
            Ok(Signal::SIGCHLD) => {}
            Ok(sent) => {
                if signal.ssi_code != FROM_KERNEL {
                    let _ = kill(program, sent); // gone by itself meanwhile
                }
                continue;
            }
            Err(_) => continue,
        }
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        match waitpid(program, Some(flags)).map_err(failed)? {
            WaitStatus::Stopped(..) => {
                let _ = raise(Signal::SIGSTOP); // goes on when somebody has this one go on
                let _ = kill(program, Signal::SIGCONT);
            }
            ended @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => return Ok(ended),
            _ => {}
        }
    }
}

/// Ends as the program did.
fn end_as(ended: WaitStatus) -> Done {
    match ended {
        WaitStatus::Exited(_, 0) => Ok(()),
        WaitStatus::Exited(_, code) => Err(Failure::Code(code as u8)),
        WaitStatus::Signaled(_, signal, _) => {
            let _ = SigSet::all().thread_unblock();
            let _ = raise(signal);
            // It is one that this process outlives.
            Err(Failure::Code(128u8.saturating_add(signal as u8)))
        }
        _ => Ok(()),
    }
}
