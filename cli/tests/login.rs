//! A login under QEMU, at a terminal: a shell with jobs, sizes that change, keys that signal, and
//! the person's terminal as it was when all is over.
#![cfg(target_os = "linux")]

mod seat;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use seat::{Seat, has_qemu};
use std::process::Command;

const PROMPT: &str = "foliant:~# ";

impl Seat {
    /// Boots with these words at a terminal of 30 rows and 100 columns. `None` where QEMU or
    /// busybox is missing.
    fn boot(words: &[&str]) -> Option<Seat> {
        let busyboxes = ["/bin/busybox", "/usr/bin/busybox"];
        let has_busybox = busyboxes.iter().any(|it| std::path::Path::new(it).is_file());
        if !has_busybox || !has_qemu() {
            eprintln!("skipped: a login needs QEMU and busybox");
            return None;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
        command.args(["boot", "--cpus", "2", "--memory", "256m", "--timeout", "300"]).args(words);
        Some(Seat::of(&mut command, [30, 100]))
    }
    /// What is shown up to the next prompt, without what asks the terminal where its cursor is.
    #[track_caller]
    fn told(&mut self) -> String {
        self.until(PROMPT).replace("\x1b[6n", "").replace("\x1b[J", "")
    }
    /// The lines behind the typed one.
    #[track_caller]
    fn answer(&mut self, line: &str) -> Vec<String> {
        self.type_in(&format!("{line}\r"));
        self.told().lines().skip(1).map(str::to_owned).collect()
    }
    /// Runs something in the foreground, types keys when it says `up`, and gives what follows.
    #[track_caller]
    fn interrupted(&mut self, line: &str, keys: &str) -> String {
        self.type_in(&format!("{line}\r"));
        self.until("\nup\n");
        self.type_in(keys);
        self.told()
    }
}

#[test]
fn a_person_logs_in_and_has_jobs() {
    let Some(mut seat) = Seat::boot(&["--shell"]) else { return };
    let before = format!("{:?}", tcgetattr(&seat.line).unwrap().local_modes);
    seat.told();
    let raw = format!("{:?}", tcgetattr(&seat.line).unwrap().local_modes);
    assert_ne!(before, raw, "keys go to the guest as they are typed");

    assert_eq!(
        seat.answer("tty; stty size; echo $HOME $0"),
        ["/dev/console", "30 100", "/root -sh"]
    );
    let settings = seat.answer("stty -a");
    assert!(settings[0].starts_with("speed 38400 baud; rows 30; columns 100;"), "{settings:?}");
    let sum = "printf '1 2\\n3 4\\n' | awk '{ sum += $1 * $2 } END { print \"sum\", sum }'";
    assert_eq!(seat.answer(sum), ["sum 14"]);
    assert_eq!(seat.answer("whoami; /bin/sh -c 'ls -d /root'"), ["root", "/root"]);
    assert_eq!(seat.answer("echo abx\x7fc"), ["abc"]);

    // Keys signal who is in front, and the shell goes on.
    let sleeps = "sh -c 'echo up; exec sleep 500'";
    assert_eq!(seat.interrupted(sleeps, "\x03").trim(), "^C");
    assert_eq!(seat.answer("echo $?"), ["130"]);
    let stopped = seat.interrupted(sleeps, "\x1a");
    assert!(stopped.contains("[1]+  Stopped"), "{stopped}");
    assert!(seat.answer("jobs")[0].contains("Stopped"));
    assert!(seat.answer("ps -o stat,args | grep 'sleep [5]'")[0].starts_with('T'));
    assert!(seat.answer("bg")[0].starts_with("[1] "));
    assert!(seat.answer("jobs")[0].contains("Running"));
    seat.type_in("fg\r");
    seat.until("exec sleep 500\"\n");
    seat.type_in("\x03");
    assert_eq!(seat.told().trim(), "^C");
    assert!(seat.answer("jobs").is_empty());

    // A program that reads lines, and their end.
    seat.type_in("sh -c 'echo up; exec cat -n'\r");
    seat.until("\nup\n");
    seat.type_in("onx\x7fe\r");
    assert!(seat.until("1\tone\n").starts_with("onx\x08 \x08e\n"));
    seat.type_in("\x04");
    assert_eq!(seat.told(), "");

    // Another size, of which programs hear.
    let wait = "sh -c 'trap \"stty size; exit\" WINCH; echo up; while :; do sleep 0.1; done'";
    seat.type_in(&format!("{wait}\r"));
    seat.until("\nup\n");
    let size = Winsize { ws_row: 43, ws_col: 300, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&seat.terminal, size).unwrap();
    assert_eq!(seat.told(), "43 300\n");

    seat.type_in("exit 3\r");
    assert_eq!(seat.child.wait().unwrap().code(), Some(3));
    assert_eq!(format!("{:?}", tcgetattr(&seat.line).unwrap().local_modes), before);
}

#[test]
fn a_program_has_the_terminal_and_gives_it_back_however_it_ends() {
    let script = "tty; test -t 0 && test -t 1 && echo terminal; stty -echo; read line; echo \"<$line>\"; \
                  exec sleep 500";
    let ends: [(&str, Option<Signal>, i32); 3] =
        [("\x03", None, 130), ("\x1dx", None, 130), ("", Some(Signal::SIGTERM), 130)];
    for (keys, signal, code) in ends {
        let Some(mut seat) = Seat::boot(&["--", "busybox", "sh", "-c", script]) else { return };
        let modes = |seat: &Seat| format!("{:?}", tcgetattr(&seat.line).unwrap().local_modes);
        let before = modes(&seat);
        seat.until("/dev/console\nterminal\n");
        assert_ne!(modes(&seat), before);
        seat.type_in("typed\r");
        seat.until("<typed>\n");
        seat.type_in(keys);
        if let Some(signal) = signal {
            kill(Pid::from_raw(seat.child.id() as i32), signal).unwrap();
        }
        assert_eq!(seat.child.wait().unwrap().code(), Some(code), "{keys:?}");
        assert_eq!(modes(&seat), before, "{keys:?}");
    }
}
