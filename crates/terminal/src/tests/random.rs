//! Random bytes and settings, to a terminal of ours and to one of this host. What both show, give
//! to reads and keep is the same after each step. A failure tells its seed and its steps;
//! `FOLIANT_TERMINAL_SEED` runs one seed alone.

use super::Ours;
use super::host::Host;
use crate::Settings;
use linux_raw_sys::general::{
    ECHO, ECHOCTL, ECHOE, ECHOK, ECHOKE, ECHONL, ECHOPRT, ICANON, ICRNL, IEXTEN, IGNCR, INLCR,
    ISIG, ISTRIP, IUCLC, IUTF8, IXANY, IXON, NOFLSH, OCRNL, OLCUC, ONLCR, ONLRET, ONOCR, OPOST,
    PARMRK, TOSTOP, VEOL, VEOL2, VERASE, VINTR, VKILL, VMIN, VTIME, XTABS,
};
use std::time::Duration;

const SEQUENCES: u64 = 120;
const STEPS: usize = 40;

/// Numbers that depend on a seed alone (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
    fn flags(&mut self, usual: u32, all: &[u32]) -> u32 {
        let changed: u32 = all.iter().filter(|_| self.one_in(5)).sum();
        usual ^ changed
    }
    fn byte(&mut self) -> u8 {
        const CONTROL: &[u8] =
            b"\x03\x04\x11\x13\x12\x15\x16\x17\x1a\x1c\x7f\x7f\x7f\x08\r\n\r\n\t\t\0\x01\x0f\x1b";
        const OTHER: &[u8] = b"\xff\xc3\xa4\xe4\xc4\x80\xdf\xf7_-QZ";
        match self.below(8) {
            0..=3 => b'a' + self.below(4) as u8,
            4 => b' ',
            5 => OTHER[self.below(OTHER.len())],
            _ => CONTROL[self.below(CONTROL.len())],
        }
    }
    fn bytes(&mut self) -> Vec<u8> {
        let count = if self.one_in(6) { 1 + self.below(60) } else { 1 + self.below(6) };
        (0..count).map(|_| self.byte()).collect()
    }
    fn settings(&mut self) -> Settings {
        let mut all = Settings::USUAL;
        all.input = self
            .flags(all.input, &[ICRNL, INLCR, IGNCR, ISTRIP, IUCLC, IXON, IXANY, IUTF8, PARMRK]);
        all.output = self.flags(all.output, &[OPOST, ONLCR, OCRNL, ONOCR, ONLRET, OLCUC, XTABS]);
        let local = [
            ISIG, ICANON, ECHO, ECHOE, ECHOK, ECHOCTL, ECHOKE, ECHONL, ECHOPRT, IEXTEN, NOFLSH,
            TOSTOP,
        ];
        all.local = self.flags(all.local, &local);
        if self.one_in(3) {
            let which = [VEOL, VEOL2, VERASE, VKILL, VINTR][self.below(5)];
            all.chars[which as usize] = self.byte();
        }
        if self.one_in(3) {
            all.chars[VMIN as usize] = self.below(4) as u8;
            all.chars[VTIME as usize] = self.below(2) as u8;
        }
        if self.one_in(8) {
            all = Settings { input: 0, output: 0, local: 0, ..all };
        }
        all
    }
}

#[derive(Clone, Debug)]
enum Step {
    Receive(Vec<u8>),
    Write(Vec<u8>),
    Read(usize),
    Set(Settings),
}

fn steps(seed: u64) -> Vec<Step> {
    let mut random = Random(seed);
    let step = |_| match random.below(10) {
        0 => Step::Set(random.settings()),
        1 => Step::Write(random.bytes()),
        2..=4 => Step::Read(if random.one_in(2) { 1 + random.below(5) } else { 100 }),
        _ => Step::Receive(random.bytes()),
    };
    (0..STEPS).map(step).collect()
}

/// Where both differ first, and how. `None` where they do not.
fn difference(steps: &[Step], pause: Duration) -> Option<String> {
    let mut host = Host::new(pause)?;
    let mut ours = Ours::new(Settings::USUAL);
    for (nth, step) in steps.iter().enumerate() {
        let told = |what: &str, ours: &dyn core::fmt::Debug, host: &dyn core::fmt::Debug| {
            Some(format!("step {nth}: {what}: {ours:02x?}, the host: {host:02x?}"))
        };
        match step {
            Step::Receive(bytes) => {
                host.receive(bytes);
                assert_eq!(ours.receive(bytes).taken, bytes.len());
            }
            Step::Write(bytes) => {
                let counts = (ours.write(bytes), host.write(bytes));
                if counts.0 != counts.1 {
                    return told("taken", &counts.0, &counts.1);
                }
            }
            Step::Read(most) => {
                let read = (ours.read(*most), host.read(*most));
                if read.0 != read.1 {
                    return told("read", &read.0, &read.1);
                }
            }
            Step::Set(settings) => {
                host.set(settings);
                ours.set(*settings);
                let settings = (ours.discipline.settings(), host.settings());
                if *settings.0 != settings.1 {
                    return told("settings", &settings.0, &settings.1);
                }
            }
        }
        let shown = (ours.shown(), host.shown());
        if shown.0 != shown.1 {
            return told("shown", &shown.0, &shown.1);
        }
        let left = (ours.discipline.count(), host.count());
        if left.0 != left.1 {
            return told("left", &left.0, &left.1);
        }
        let ready = (ours.discipline.is_ready(), host.is_ready());
        if ready.0 != ready.1 {
            return told("ready", &ready.0, &ready.1);
        }
    }
    None
}

/// A host that is busy takes its time: it gets more, twice, before a difference counts.
fn check(seed: u64) {
    let mut steps = steps(seed);
    let long = Duration::from_millis(200);
    let pauses = [Duration::from_micros(200), Duration::from_millis(20), long];
    if pauses.into_iter().any(|pause| difference(&steps, pause).is_none()) {
        return;
    }
    // Made short: what can be left out is.
    let mut nth = 0;
    while nth < steps.len() {
        let mut fewer = steps.clone();
        fewer.remove(nth);
        match difference(&fewer, Duration::from_millis(2)) {
            Some(_) => steps = fewer,
            None => nth += 1,
        }
    }
    let said = difference(&steps, long);
    let lines: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
    panic!("seed {seed}: {said:?}\n{}", lines.join("\n"));
}

#[test]
fn both_show_and_give_the_same() {
    if Host::new(Duration::ZERO).is_none() {
        eprintln!("skipped: this host has no pseudo terminals");
        return;
    }
    match std::env::var("FOLIANT_TERMINAL_SEED") {
        Ok(seed) => check(seed.parse().unwrap()),
        Err(_) => (0..SEQUENCES).for_each(check),
    }
}
