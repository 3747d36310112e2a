//! A program of tests: what it has, and one test run in a process of its own.

use crate::boot::{self, Boot};
use crate::switch::Switch;
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Programs that are one test: the explorer's, which forks and so has no harness.
const WHOLE: [&str; 1] = ["scenes"];
/// In the name of every test that is a model.
const MODELS: [&str; 2] = ["loom", "interleavings"];
/// What a test may take of memory before it counts as running away.
const MEMORY_MOST: u64 = 2 << 30;

/// A program of tests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Program {
    /// The package, and the program's name where it is not the library's.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Where its tests expect to be.
    folder: PathBuf,
    what: What,
}

/// What its tests are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Tests,
    /// Models, which loom runs in every order; other tests do not run under loom.
    Models,
    /// Boots of the kernel.
    Boots,
}

/// How a test ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum End {
    Passed,
    Failed,
    /// It took many times as long as it does.
    TimedOut,
    /// It took more memory than any test does.
    RanAway,
}

impl Program {
    /// The programs of models that cargo says it built.
    pub(crate) fn models(messages: &[Value]) -> Vec<Program> {
        let model = |program: Program| Program {
            name: format!("{}/loom", program.name),
            what: What::Models,
            ..program
        };
        Program::of(messages).into_iter().map(model).collect()
    }
    /// The programs that cargo says it built.
    pub(crate) fn of(messages: &[Value]) -> Vec<Program> {
        let mut programs: Vec<Program> =
            messages.iter().filter_map(Program::from_message).collect();
        programs.sort_by(|a, b| a.name.cmp(&b.name));
        programs
    }

    fn from_message(message: &Value) -> Option<Program> {
        let is_test =
            message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let path = message["executable"].as_str().filter(|_| is_test)?;
        let manifest = Path::new(message["manifest_path"].as_str()?);
        let folder = manifest.parent()?.to_owned();
        let package = folder.file_name()?.to_str()?.to_owned();
        let target = &message["target"];
        let name = match target["kind"][0] == "lib" {
            true => package,
            false => format!("{package}/{}", target["name"].as_str()?),
        };
        Some(Program { name, path: path.into(), folder, what: What::Tests })
    }
    /// The kernel at `path`.
    pub(crate) fn kernel(path: PathBuf) -> Program {
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        Program { name: "kernel".into(), path, folder, what: What::Boots }
    }
    /// Whether its tests are asked about mutants of a room.
    pub(crate) fn asks(&self, room: &str) -> bool {
        self.what != What::Boots || boot::ROOMS.contains(&room)
    }

    /// The names of its tests.
    pub(crate) fn tests(&self) -> Result<Vec<String>, String> {
        if self.what == What::Boots {
            return Ok(boot::names());
        }
        if let Some(whole) = WHOLE.iter().find(|whole| self.name.ends_with(**whole)) {
            return Ok(vec![(*whole).to_owned()]);
        }
        let output = Command::new(&self.path).arg("--list").output();
        let output = output.map_err(|why| format!("{}: {why}", self.path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let is_asked = |name: &&str| {
            self.what != What::Models || MODELS.iter().any(|model| name.contains(model))
        };
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.filter(is_asked).map(str::to_owned).collect())
    }

    /// Runs one test for at most so long.
    pub(crate) fn run(
        &self,
        test: &str,
        switch: Switch<'_>,
        most: Duration,
    ) -> Result<(End, Duration), String> {
        if self.what == What::Boots {
            let boot = Boot::new(&self.path, switch)?;
            let ended = self.follow(boot.command(test)?, most, boot::passed)?;
            if let Switch::Note(path) = switch {
                boot.note(path)?;
            }
            return Ok(ended);
        }
        let mut command = Command::new(&self.path);
        if !WHOLE.contains(&test) {
            command.args(["--exact", test, "--test-threads=1", "--quiet"]);
        }
        match switch {
            Switch::On(number) => command.env("FOLIANT_MUTANT", number.to_string()),
            Switch::Note(path) => command.env("FOLIANT_MUTANTS_REACHED", path),
        };
        self.follow(command, most, |status| status.success())
    }
    fn follow(
        &self,
        mut command: Command,
        most: Duration,
        passed: fn(ExitStatus) -> bool,
    ) -> Result<(End, Duration), String> {
        command
            .current_dir(&self.folder)
            // The cases are the same each time; one that fails is not made smaller, nor remembered
            // for the next mutant.
            .envs([("PROPTEST_RNG_SEED", "1"), ("PROPTEST_MAX_SHRINK_ITERS", "0")])
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let begun = Instant::now();
        let failed = |why| format!("{}: {why}", self.path.display());
        let mut child = command.spawn().map_err(failed)?;
        let end = watch(&mut child, begun, most, passed).map_err(failed)?;
        Ok((end, begun.elapsed()))
    }
}

fn watch(
    child: &mut Child,
    begun: Instant,
    most: Duration,
    passed: fn(ExitStatus) -> bool,
) -> std::io::Result<End> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if passed(status) { End::Passed } else { End::Failed });
        }
        let end = match () {
            () if begun.elapsed() > most => End::TimedOut,
            () if memory(child.id()) > MEMORY_MOST => End::RanAway,
            () => {
                std::thread::sleep(pause);
                pause = (pause * 3 / 2).min(Duration::from_millis(30));
                continue;
            }
        };
        // Its forks end as well, because it leads a group.
        let group = format!("-{}", child.id());
        Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status()?;
        child.wait()?;
        return Ok(end);
    }
}

/// Bytes of memory that a process has now.
fn memory(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}
