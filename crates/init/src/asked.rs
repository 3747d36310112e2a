//! What is asked for, and the file systems that it is told with.

use crate::experiments::Experiment;
use nix::mount::{MsFlags, mount as mount_one};
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// This program.
pub(crate) const SELF: &str = "/proc/self/exe";
/// Where words lie that the first process is started without.
const NOTES: &str = "/.foliant";

/// What the first process does.
pub(crate) struct Measure {
    /// Sizes of folios, in bytes.
    pub(crate) sizes: Vec<u64>,
    pub(crate) rounds: u32,
    /// The program's path, its name and arguments.
    pub(crate) program: Vec<OsString>,
    pub(crate) variables: Vec<(OsString, OsString)>,
    pub(crate) folder: PathBuf,
}

/// What a process of one size does.
pub(crate) struct Round {
    pub(crate) size: u64,
    pub(crate) rounds: u32,
    pub(crate) program: PathBuf,
    /// Its name first.
    pub(crate) arguments: Vec<OsString>,
}

pub(crate) enum Asked {
    Measure(Measure),
    Round(Round),
    /// Experiments, one behind the other.
    Published(Vec<Experiment>),
    /// One of them, by a process of its own.
    Experiment(Experiment),
}

impl Asked {
    pub(crate) fn read() -> Result<Asked, Box<dyn Error>> {
        let mut words: Vec<OsString> = env::args_os().skip(1).collect();
        let mut variables: Vec<_> = env::vars_os().collect();
        let mut folder = env::current_dir()?;
        if std::process::id() == 1 && Path::new(NOTES).is_dir() {
            words = noted("arguments")?.into_iter().skip(1).collect();
            variables = noted("environment")?.iter().filter_map(|text| variable(text)).collect();
            folder = fs::read(Path::new(NOTES).join("folder")).map(path)?;
        }
        Asked::of(words, variables, folder)
    }
    fn of(
        mut words: Vec<OsString>,
        variables: Vec<(OsString, OsString)>,
        folder: PathBuf,
    ) -> Result<Asked, Box<dyn Error>> {
        const USAGE: &str = "measure SIZES ROUNDS PROGRAM NAME ARGUMENTS..., round SIZE ..., \
                             published NAME=AMOUNT..., or experiment NAME AMOUNT";
        if let Some(asked) = Asked::experiments(&words) {
            return asked;
        }
        if words.len() < 5 {
            return Err(USAGE.into());
        }
        let program = words.split_off(3);
        let [what, sizes, rounds] = &words[..] else { return Err(USAGE.into()) };
        let text = |word: &OsStr| word.to_string_lossy().into_owned();
        let sizes: Result<Vec<u64>, _> = text(sizes).split(',').map(str::parse).collect();
        let (sizes, rounds) = (sizes?, text(rounds).parse()?);
        match (text(what).as_str(), &sizes[..]) {
            ("measure", _) => {
                Ok(Asked::Measure(Measure { sizes, rounds, program, variables, folder }))
            }
            ("round", [size]) => {
                let mut arguments = program;
                let program = PathBuf::from(arguments.remove(0));
                Ok(Asked::Round(Round { size: *size, rounds, program, arguments }))
            }
            _ => Err(USAGE.into()),
        }
    }
}

impl Asked {
    fn experiments(words: &[OsString]) -> Option<Result<Asked, Box<dyn Error>>> {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let (what, words) = words.split_first()?;
        let published = |word: &str| match word.split_once('=') {
            Some((name, amount)) => Experiment::of(name, amount),
            None => Err(format!("{word} has no amount").into()),
        };
        match (&**what, words) {
            ("published", words) => {
                let all: Result<Vec<_>, _> = words.iter().map(|word| published(word)).collect();
                Some(all.map(Asked::Published))
            }
            ("experiment", [name, amount]) => {
                Some(Experiment::of(name, amount).map(Asked::Experiment))
            }
            _ => None,
        }
    }
}

/// Texts of a file, each ended by a zero.
fn noted(name: &str) -> Result<Vec<OsString>, Box<dyn Error>> {
    let bytes = fs::read(Path::new(NOTES).join(name))?;
    let texts = bytes.split_inclusive(|byte| *byte == 0);
    Ok(texts.map(|text| OsStr::from_bytes(&text[..text.len() - 1]).to_owned()).collect())
}
fn path(bytes: Vec<u8>) -> PathBuf {
    OsStr::from_bytes(&bytes).into()
}
fn variable(text: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    let [name, value] = [&bytes[..at], &bytes[at + 1..]].map(|part| OsStr::from_bytes(part).into());
    Some((name, value))
}

/// Mounts what is not there: Linux begins with nothing.
pub(crate) fn mount() -> Result<(), Box<dyn Error>> {
    let all = [
        ("proc", "/proc", "/proc/self"),
        ("sysfs", "/sys", "/sys/kernel"),
        ("devtmpfs", "/dev", "/dev/null"),
    ];
    // Foliant's kernel has all of it. What is packed lies in memory, in `/tmp` as well.
    for (kind, at, _) in all.iter().filter(|(.., has)| !Path::new(has).exists()) {
        mount_one(Some(*kind), *at, Some(*kind), MsFlags::empty(), None::<&str>)
            .map_err(|why| format!("{kind} is not mounted at {at}: {why}"))?;
    }
    Ok(())
}
