//! How long the manager is, tests and models left out. A feature that fits into what is there adds
//! little; one that is built beside it shows here.

use super::rooms::room_of;

/// Lines of the manager's rooms.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Lines {
    /// All of them.
    pub(super) all: usize,
    /// Those that are neither empty nor a comment.
    pub(super) code: usize,
}

impl Lines {
    /// Adds those of a file, if it belongs to a room and is no test.
    pub(super) fn note(&mut self, name: &str, text: &str) {
        if room_of(name).is_none() {
            return;
        }
        let text = without_tests(text);
        self.all += text.lines().count();
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        self.code += text.lines().filter(is_code).count();
    }
}

/// The part of a file that stands before the tests in it.
fn without_tests(text: &str) -> &str {
    let (mut at, mut marked) = (0, None); // where the attributes of tests begin
    for line in text.split_inclusive('\n') {
        let is_mark =
            line.starts_with("#[cfg(") && ["test", "loom"].iter().any(|w| line.contains(w));
        match marked {
            _ if is_mark => marked = marked.or(Some(at)),
            Some(tests) if line.starts_with("mod ") && line.ends_with("{\n") => {
                return &text[..tests];
            }
            Some(_) if line.starts_with("#[") => {}
            _ => marked = None,
        }
        at += line.len();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_comments_are_no_code() {
        let file = "//! What for.\n\nfn f() {\n    // why\n    g();\n}\n\n";
        let tests = "#[cfg(test)]\n#[allow(unused)]\nmod tests {\n    fn t() {}\n}\n";
        let named = "#[cfg(test)]\nmod tests;\nmod more;\n";
        for (name, text, all, code) in [
            ("crates/mm/src/zero/run.rs", file.to_string(), 7, 3),
            ("crates/mm/src/zero/run.rs", file.to_string() + tests, 7, 3),
            ("crates/mm/src/zero/mod.rs", file.to_string() + named + tests, 10, 6),
            ("crates/mm/src/zero/plan_model.rs", file.to_string(), 0, 0),
            ("crates/sim/src/cache.rs", file.to_string(), 0, 0),
        ] {
            let mut lines = Lines::default();
            lines.note(name, &text);
            assert_eq!(lines, Lines { all, code }, "{name}");
        }
    }
}
