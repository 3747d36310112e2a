//! The machine that the command runs on, as far as it matters to a reader of measured numbers.

use foliant_units::Bytes;
use std::fs::read_to_string;

/// The name of the processor.
pub(crate) fn processor() -> String {
    let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = field(&info, "model name").unwrap_or_else(|| "unknown processor".into());
    let family = field(&info, "cpu family").zip(field(&info, "model"));
    family.map_or(name.clone(), |(family, model)| format!("{name}, family {family} model {model}"))
}

/// The name of the machine.
pub(crate) fn name() -> String {
    let name = read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// The value of a line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find_map(|(key, value)| (key.trim() == name).then(|| value.trim().to_owned()))
}

/// The load of the last minute.
pub(crate) fn load() -> String {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

/// The operating system and its release.
pub(crate) fn system() -> String {
    let read = |name: &str| read_to_string(format!("/proc/sys/kernel/{name}")).ok();
    let words = ["ostype", "osrelease"].map(|name| read(name).unwrap_or_default());
    match words.join(" ").split_whitespace().collect::<Vec<_>>().join(" ") {
        none if none.is_empty() => std::env::consts::OS.to_owned(),
        words => words,
    }
}

/// CPUs that a process may use.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Memory, where the system says how much there is.
pub(crate) fn memory() -> Option<Bytes> {
    let info = read_to_string("/proc/meminfo").ok()?;
    let kib = field(&info, "MemTotal")?.strip_suffix(" kB")?.parse::<u64>().ok()?;
    Some(Bytes::new(kib << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let info = "model\t\t: 167\nmodel name\t: A: B\ncpu family\t: 6\n";
        assert_eq!(field(info, "model").as_deref(), Some("167"));
        assert_eq!(field(info, "model name").as_deref(), Some("A: B"));
        assert_eq!(field(info, "cpu"), None);
    }
}
