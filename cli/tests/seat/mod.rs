//! The command at a pseudo terminal of this host, where a test sits.

use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Nothing takes so long that is about to come at all: the kernel may have to be built first, and
/// the guest is ended before.
const PATIENCE: Duration = Duration::from_secs(600);

/// The command at a terminal.
pub(crate) struct Seat {
    pub(crate) child: Child,
    pub(crate) terminal: File,
    /// The end that the command has.
    #[allow(dead_code)] // only some tests ask what it is set to
    pub(crate) line: OwnedFd,
    told: Receiver<Vec<u8>>,
    /// What was shown and not yet looked at.
    shown: String,
}

impl Seat {
    /// Starts a command at a terminal of so many rows and columns.
    pub(crate) fn of(command: &mut Command, [rows, columns]: [u16; 2]) -> Seat {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(Some(&size), None).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let mut reader = File::from(master.try_clone().unwrap());
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                if tell.send(bytes[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        let (terminal, shown) = (File::from(master), String::new());
        Seat { child, terminal, line: slave, told, shown }
    }
    pub(crate) fn type_in(&mut self, typed: &str) {
        self.terminal.write_all(typed.as_bytes()).unwrap();
    }
    /// What is shown up to this text, which is left out. Carriage returns are dropped.
    #[track_caller]
    pub(crate) fn until(&mut self, text: &str) -> String {
        loop {
            if let Some((before, behind)) = self.shown.split_once(text) {
                let (before, behind) = (before.to_owned(), behind.to_owned());
                self.shown = behind;
                return before;
            }
            let Ok(more) = self.told.recv_timeout(PATIENCE) else {
                panic!("{text:?} does not come; there is {:?}", self.shown)
            };
            self.shown.extend(String::from_utf8(more).unwrap().chars().filter(|c| *c != '\r'));
        }
    }
}

/// A test that failed leaves no guest behind.
impl Drop for Seat {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

pub(crate) fn has_qemu() -> bool {
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    let has = qemu.is_ok_and(|output| output.status.success());
    if !has {
        eprintln!("skipped: qemu-system-x86_64 is not installed");
    }
    has
}
