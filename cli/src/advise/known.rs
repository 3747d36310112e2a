//! Settings of allocators and runtimes about large pages, by the names of files that a program has
//! mapped.
//!
//! A recording shows which files there were, not which version they are of, unless the name says
//! so: each text says since when a setting is honoured.
//!
//! **Not here**: the kernel's switches (`shell`); programs that carry their allocator or runtime in
//! their own file, as Go's do, which no name gives away.

use foliant_trace::Mapping;
use std::collections::BTreeSet;

/// What is known of one of them.
struct Known {
    /// The file's name begins so.
    file: &'static str,
    /// What sets it, and what that does.
    setting: &'static str,
}

const ALL: [Known; 8] = [
    Known {
        file: "libjvm.so",
        setting: "Java: -XX:+UseTransparentHugePages advises the heap, with -Xms as large as -Xmx and \
                  -XX:+AlwaysPreTouch at once; it takes the switch of 2m (or of all sizes) at madvise",
    },
    Known {
        file: "redis-server",
        setting: "redis: since 6.2 it switches large pages off for itself, and `disable-thp no` leaves \
                  them on; each page that is written while a child saves is copied whole",
    },
    Known {
        file: "libjemalloc.so",
        setting: "jemalloc: MALLOC_CONF=thp:always advises all of its memory, thp:never forbids it \
                  (since 5.1)",
    },
    Known {
        file: "libmimalloc.so",
        setting: "mimalloc: MIMALLOC_ALLOW_LARGE_OS_PAGES=1 asks for pages of 2m, from the pool or by \
                  advice (since 1.7, and 2.0)",
    },
    Known {
        file: "libtcmalloc",
        setting: "tcmalloc (gperftools): TCMALLOC_MEMFS_MALLOC_PATH=/dev/hugepages takes pages of the \
                  pool; it advises nothing",
    },
    Known {
        file: "go",
        setting: "Go: GODEBUG=disablethp=1 forbids large pages for its heap (1.21.6 and later); \
                  it advises none by itself since then",
    },
    Known {
        file: "libc-2.",
        setting: "glibc: GLIBC_TUNABLES=glibc.malloc.hugetlb=1 advises what malloc maps where the \
                  switch of all sizes is at madvise, in steps of 2m (since 2.35)",
    },
    Known {
        file: "libc.so.6",
        setting: "glibc: GLIBC_TUNABLES=glibc.malloc.hugetlb=1 advises what malloc maps where the \
                  switch of all sizes is at madvise, in steps of 2m (since 2.35)",
    },
];

/// Whether this version of the C library is too old for its setting, as far as its name says.
fn is_too_old(file: &str) -> bool {
    let version = file.strip_prefix("libc-2.").and_then(|rest| rest.split('.').next());
    version.and_then(|minor| minor.parse().ok()).is_some_and(|minor: u32| minor < 35)
}

/// The settings of what mappings name, an allocator's or a runtime's before the C library's.
pub(super) fn settings<'m>(mappings: impl IntoIterator<Item = &'m Mapping>) -> Vec<&'static str> {
    let file = |mapping: &'m Mapping| match mapping {
        Mapping::Data(file) | Mapping::Arena(Some(file)) => Some(file.as_str()),
        Mapping::Made { site: Some(site), .. } => Some(site.object.as_str()),
        _ => None,
    };
    let files: BTreeSet<&str> = mappings.into_iter().filter_map(file).collect();
    let is_there = |known: &&Known| {
        files.iter().any(|file| {
            let is_its = match known.file {
                "go" | "redis-server" => *file == known.file,
                start => file.starts_with(start),
            };
            is_its && !is_too_old(file)
        })
    };
    ALL.iter().filter(is_there).map(|known| known.setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_named_where_its_file_is_mapped_and_new_enough() {
        let check = |files: &[&str], starts: &[&str]| {
            let mappings: Vec<Mapping> =
                files.iter().map(|file| Mapping::Data((*file).to_owned())).collect();
            let found = settings(&mappings);
            assert_eq!(found.len(), starts.len(), "{files:?}: {found:?}");
            for (found, start) in found.iter().zip(starts) {
                assert!(found.starts_with(start), "{found}");
            }
        };
        check(&["libc.so.6", "libjvm.so"], &["Java", "glibc"]);
        check(&["libc-2.31.so"], &[]);
        check(&["libc-2.36.so"], &["glibc"]);
        check(&["redis-server", "libjemalloc.so.2"], &["redis", "jemalloc"]);
        check(&["gofmt", "redis-server-tool", "prog"], &[]);
        check(&["go"], &["Go"]);
        let arena = [Mapping::Arena(Some("libtcmalloc_minimal.so.4".to_owned()))];
        assert_eq!(settings(&arena).len(), 1);
    }
}
