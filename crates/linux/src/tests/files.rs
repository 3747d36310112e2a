//! Files of `/sys` and `/proc` about the machine: what they show, to the byte, and what they take.

use super::shared::F;
use super::*;
use crate::ShmemEnabled;

#[test]
fn words_of_shmem_enabled_stand_for_switches_of_objects() {
    with(|p, sim| {
        let mm = p.manager();
        let mut words = ShmemEnabled::new(mm);
        let of = |name: &str| format!("transparent_hugepage/{name}shmem_enabled");
        let (all, base) = (of(""), of("hugepages-64kB/"));
        let (inval, enoent) = (Err(Errno::INVAL), Err(Errno(ENOENT)));
        let first = "always within_size advise [never] deny force\n";
        assert_eq!(words.read(&all).as_deref(), Ok(first));
        let of_2m = words.read(&of("hugepages-2048kB/"));
        assert_eq!(of_2m.as_deref(), Ok("always [inherit] within_size advise never\n"));
        let of_64k = words.read(&base);
        assert_eq!(of_64k.as_deref(), Ok("always inherit within_size advise [never]\n"));
        assert_eq!(ShmemEnabled::names().len(), 10, "8 KiB to 2 MiB, and all");
        for (path, text, answer) in [
            (&all, "inherit", inval),
            (&all, "", inval),
            (&all, "always\n\n", inval),
            (&base, "deny", inval),
            (&base, "force", inval),
            (&base, "auto", inval),
            (&of("hugepages-8kB/"), "never\n", Ok(())),
            (&of("hugepages-8kB/"), "always", inval),
            (&of("hugepages-4kB/"), "never", enoent),
            (&of("hugepages-4096kB/"), "never", enoent),
            (&"transparent_hugepage/enabled".into(), "never", enoent),
            // 2 MiB alone is forced, where 2 MiB alone inherits.
            (&base, "inherit", Ok(())),
            (&all, "force", inval),
            (&base, "never", Ok(())),
            (&all, "force", Ok(())),
            (&base, "inherit", inval),
            (&base, "within_size\n", Ok(())),
            (&of("hugepages-2048kB/"), "inherit", Ok(())),
        ] {
            assert_eq!(words.write(mm, path, text), answer, "{path} {text:?}");
        }
        for name in ShmemEnabled::names() {
            let text = words.read(&name).unwrap();
            let word = text.split(['[', ']']).nth(1).unwrap();
            let (words_before, policy) = (words.clone(), mm.object_policy());
            assert_eq!(words.write(mm, &name, word), Ok(()), "{name}");
            assert_eq!((&words, mm.object_policy()), (&words_before, policy), "{name}: {word}");
        }

        // What a write to a file brings.
        let file = F::memfd(mm, b"f", 0).unwrap();
        assert_eq!(file.ftruncate(2 * HUGE as i64), Ok(0));
        let at = BASE & !(HUGE - 1);
        let shared = MAP_SHARED | MAP_FIXED;
        assert_eq!(p.mmap(at, 2 * HUGE, RW, shared, Some(&file), 0), Ok(at));
        let mut pages = |p: &mut P<'_, '_>, word: &str, sizes: &str| {
            assert_eq!(file.ftruncate(0), Ok(0));
            assert_eq!(file.ftruncate(2 * HUGE as i64 - 8 * PAGE as i64), Ok(0));
            assert_eq!(words.write(p.manager(), &all, word), Ok(()));
            assert_eq!(words.write(p.manager(), &base, sizes), Ok(()));
            assert_eq!(store(p, sim, at, 1), Ok(()));
            assert_eq!(store(p, sim, at + HUGE, 1), Ok(()));
            assert_eq!(store(p, sim, at + 2 * HUGE - 9 * PAGE, 1), Ok(()));
            let there = |from: u64, to| p.present_in(at + from, at + to);
            let last = 2 * HUGE - 64 * 1024;
            (there(0, HUGE), there(HUGE, last), there(last, 2 * HUGE))
        };
        assert_eq!(pages(p, "never", "never"), (1, 1, 1));
        assert_eq!(pages(p, "always", "never"), (512, 1, 1), "no folio reaches beyond the end");
        assert_eq!(pages(p, "within_size", "always"), (512, 16, 1));
        assert_eq!(pages(p, "deny", "always"), (1, 1, 1), "all are off");
        assert_eq!(pages(p, "force", "always"), (512, 1, 1), "2 MiB alone");
        assert_eq!(pages(p, "never", "within_size"), (16, 16, 1));
        assert_eq!(pages(p, "advise", "advise"), (1, 1, 1));
    });
}
