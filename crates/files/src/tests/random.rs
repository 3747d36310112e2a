//! Random sequences of calls, to the crate and to the host. A failure tells its seed and its
//! lines, which may go into `scripts`; `FOLIANT_FILES_SEED` runs one seed alone.

use super::host::Twins;
use alloc::vec::Vec;
use std::fmt::Write;

const SEQUENCES: u64 = 400;
const STEPS: usize = 60;

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
    fn of<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all[self.below(all.len())]
    }

    /// A path of one to three parts that goes up twice at most.
    fn path(&mut self) -> String {
        let (mut path, mut ups) = (String::new(), 0);
        let parts = 1 + self.below(8).saturating_sub(4).min(2);
        for part in 0..parts {
            if part > 0 {
                path += if self.one_in(12) { "//" } else { "/" };
            }
            let name = self.of(&["a", "b", "c", "d", "a", "b", "c", "d", "a", "b", ".", ".."]);
            let name = if name == ".." && ups == 2 { "a" } else { name };
            ups += usize::from(name == "..");
            path += name;
        }
        if self.one_in(5) {
            path += if self.one_in(4) { "//" } else { "/" };
        }
        path
    }
    /// A path from a handle; now and then one that is too long, or empty.
    fn at(&mut self, handles: usize) -> String {
        let handle = if self.one_in(3) { self.below(handles) } else { 0 };
        let path = match self.below(60) {
            0 => self
                .of(&[
                    "\"\"",
                    "name255",
                    "name256",
                    "a/name256",
                    "name256/a",
                    "name255/",
                    "name256/",
                ])
                .into(),
            1 => {
                self.of(&["dots4094/a", "dots4096", "a/dots4093", "dots4095", "a/dots4094"]).into()
            }
            _ => self.path(),
        };
        format!("{handle}:{path}")
    }
    fn line(&mut self, handles: usize) -> String {
        let call = self.of(&[
            "mkdir",
            "mkdir",
            "mkdir",
            "mkdir",
            "creat",
            "creat",
            "creat-excl",
            "creat-nofollow",
            "mknod",
            "symlink",
            "symlink",
            "symlink",
            "link",
            "link-follow",
            "unlink",
            "unlink",
            "rmdir",
            "rmdir",
            "rename",
            "rename",
            "rename",
            "rename-noreplace",
            "exchange",
            "exchange",
            "rename-wrong",
            "stat",
            "stat",
            "lstat",
            "readlink",
            "list",
            "hold",
            "hold",
            "hold-link",
            "tmpfile",
            "link-handle",
            "drop",
            "drop",
        ]);
        match call {
            "symlink" => format!("symlink {} {}", self.path(), self.at(handles)),
            "link-handle" => format!("link-handle {} {}", self.below(handles), self.at(handles)),
            "link" | "link-follow" | "rename" | "rename-noreplace" | "exchange"
            | "rename-wrong" => {
                format!("{call} {} {}", self.at(handles), self.at(handles))
            }
            "drop" => "drop".into(),
            _ => format!("{call} {}", self.at(handles)),
        }
    }
}

fn sequence(twins: &mut Twins, seed: u64) -> Result<usize, String> {
    let (mut random, mut lines) = (Random(seed), String::new());
    twins.restart();
    let mut succeeded = 0;
    for _ in 0..STEPS {
        let line = match twins.model.handles.len() {
            6.. => "drop".into(),
            handles => random.line(handles),
        };
        let _ = writeln!(lines, "    {line}");
        let told = twins.line(&line).map_err(|why| format!("seed {seed}: {why}\n{lines}"))?;
        succeeded += usize::from(told.is_ok());
    }
    twins.compare().map_err(|why| format!("seed {seed}: {why}\n{lines}"))?;
    Ok(succeeded)
}

#[test]
fn random_sequences_do_what_the_host_does() {
    let seeds: Vec<u64> = match std::env::var("FOLIANT_FILES_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..SEQUENCES).collect(),
    };
    let (mut twins, mut succeeded) = (Twins::new(), 0);
    for seed in &seeds {
        succeeded += sequence(&mut twins, *seed).unwrap_or_else(|why| panic!("{why}"));
    }
    // Sequences of nothing but refusals would say little.
    assert!(succeeded > seeds.len() * STEPS / 5, "only {succeeded} calls succeeded");
}
