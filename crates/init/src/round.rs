//! A program's runs at one size, each a line.
//!
//! ```text
//!   round size=65536 nth=0 ticks=123 user=100 faults=4 peak=8192 shootdowns=0 exit=0 length=5 output=1f
//!   said a word of a program that failed
//!   made size=65536 of=65536 folios=12
//! ```
//!
//! | word | what it is |
//! |---|---|
//! | `ticks` | of the clock that counts instructions under `-icount`, from before the program to behind its end |
//! | `user` | microseconds of its own, as the kernel says: instructions / 1000 where it counts them |
//! | `faults` | of it and its children |
//! | `peak` | KiB that it or a child of it had at most, in any round |
//! | `shootdowns` | interrupts of that kind, of all CPUs |
//! | `exit`, `signal` | how it ended |
//! | `length`, `output` | bytes that it said, and a hash of them |

use crate::asked::Round;
use crate::counts::{Interrupts, ticks};
use crate::switches;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::error::Error;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

/// So many lines of a program that failed are shown.
const SHOWN: usize = 5;
/// Where the program's words go.
const SAID: &str = "/tmp/foliant-said";

/// Runs the program as often as is asked for.
pub(crate) fn all(asked: &Round) -> Result<(), Box<dyn Error>> {
    let before = switches::made()?;
    for nth in 0..asked.rounds {
        one(asked, nth)?;
    }
    let size = asked.size;
    for ((of, now), (_, before)) in switches::made()?.into_iter().zip(before) {
        println!("made size={size} of={of} folios={}", now - before);
    }
    Ok(())
}

fn one(asked: &Round, nth: u32) -> Result<(), Box<dyn Error>> {
    let said = File::create(SAID).map_err(|why| format!("{SAID}: {why}"))?;
    let errors = said.try_clone()?;
    let mut command = Command::new(&asked.program);
    let name = asked.arguments.first().map_or(asked.program.as_os_str(), |name| name);
    command.arg0(name).args(asked.arguments.iter().skip(1));
    command.stdin(Stdio::null()).stdout(said).stderr(errors);
    let (interrupts, before) = (Interrupts::now(), getrusage(UsageWho::RUSAGE_CHILDREN)?);
    let start = ticks();
    let status = command.status().map_err(|why| format!("the program does not start: {why}"))?;
    let ticks = ticks() - start;
    let after = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let user = (after.user_time() - before.user_time()).num_microseconds();
    let faults = after.minor_page_faults() - before.minor_page_faults();
    let peak = after.max_rss();
    let shootdowns = Interrupts::now().since(interrupts).shootdowns;
    let end = match status.signal() {
        Some(number) => format!("signal={number}"),
        None => format!("exit={}", status.code().unwrap_or_default()),
    };
    let text = fs::read(SAID)?;
    if nth == 0 && !status.success() {
        let lines = String::from_utf8_lossy(&text);
        lines.lines().take(SHOWN).for_each(|line| println!("said {line}"));
    }
    let mut hash = DefaultHasher::new();
    hash.write(&text);
    println!(
        "round size={} nth={nth} ticks={ticks} user={user} faults={faults} peak={peak} \
         shootdowns={shootdowns} {end} length={} output={:x}",
        asked.size,
        text.len(),
        hash.finish()
    );
    Ok(())
}
