//! Policies of ranges, and where pages are.

use super::*;
use crate::PageStatus;
use crate::mempolicy::*;
use alloc::string::ToString;
use linux_raw_sys::errno::{EIO, ENOENT};

/// Gives pages from one on a policy.
fn bind(p: &mut P<'_, '_>, first: u64, pages: u64, mode: u32, nodes: &Nodes) -> Result<u64, Errno> {
    p.mbind(BASE + first * PAGE, pages * PAGE, Mode::of(mode).unwrap(), nodes, 0)
}
/// The policies of its areas, as `numa_maps` shows them, with what is there.
fn rows(p: &P<'_, '_>) -> Vec<String> {
    let (mut from, mut rows) = (0, Vec::new());
    loop {
        let mut row = String::new();
        match p.numa_maps_row(from, None, &mut row).unwrap() {
            Some(end) => from = end,
            None => return rows,
        }
        let row = row.trim_end();
        rows.push(row.split_once(' ').unwrap().1.to_string());
    }
}

#[test]
fn a_range_gets_a_policy_where_linux_gives_it_one() {
    with(|p, sim| {
        let (inval, fault, io) = (Err(Errno::INVAL), Err(Errno::FAULT), Err(Errno(EIO)));
        put(p, 0, 2, RW);
        put(p, 3, 2, RW);
        assert_eq!(store(p, sim, BASE + PAGE, 5), Ok(()));
        let strict = MPOL_MF_STRICT;
        for (addr, len, mode, nodes, flags, answer) in [
            (BASE, PAGE, MPOL_BIND, Nodes::ALL, 8, inval),
            (BASE + 1, PAGE, MPOL_BIND, Nodes::ALL, 0, inval),
            (BASE, PAGE.wrapping_neg(), MPOL_BIND, Nodes::ALL, 0, inval),
            (BASE, u64::MAX, MPOL_BIND, Nodes::NONE, 0, Ok(0)),
            (BASE, 0, MPOL_BIND, Nodes::NONE, 0, Ok(0)),
            (BASE, PAGE, MPOL_BIND, Nodes::NONE, 0, inval),
            (BASE, 3 * PAGE, MPOL_BIND, Nodes::ALL, 0, fault),
            (BASE + 2 * PAGE, 2 * PAGE, MPOL_BIND, Nodes::ALL, 0, fault),
            (BASE + 2 * PAGE, PAGE, MPOL_DEFAULT, Nodes::NONE, 0, fault),
            (BASE, 8 * PAGE, MPOL_DEFAULT, Nodes::NONE, strict, Ok(0)),
            (BASE, 2 * PAGE, MPOL_LOCAL, Nodes::NONE, strict, io),
            (BASE, 3 * PAGE, MPOL_LOCAL, Nodes::NONE, strict, fault),
            (BASE, PAGE, MPOL_LOCAL, Nodes::NONE, strict, Ok(0)),
            (BASE, 2 * PAGE, MPOL_LOCAL, Nodes::NONE, strict | MPOL_MF_MOVE, Ok(0)),
            (BASE, 2 * PAGE, MPOL_BIND, Nodes::ALL, strict, Ok(0)),
            (BASE + PAGE, 9, MPOL_DEFAULT, Nodes::NONE, 0, Ok(0)),
        ] {
            let mode = Mode::of(mode).unwrap();
            let got = p.mbind(addr, len, mode, &nodes, flags);
            assert_eq!(got, answer, "{addr:#x} {len:#x} {mode:?} {flags}");
        }
        let page = "default anon=1 dirty=1 N0=1 kernelpagesize_kB=4";
        assert_eq!(rows(p), ["bind:0", page, "default"]);
        let told = p.policy_at(BASE + 7).map(Mempolicy::told);
        assert_eq!(told, Ok((MPOL_BIND, Nodes::ALL)));
        assert_eq!(p.policy_at(BASE + PAGE), Ok(None));
        assert_eq!(p.policy_at(BASE + 2 * PAGE), Err(Errno::FAULT));
    });
}

#[test]
fn neighbours_are_one_where_their_policies_are_equal() {
    with(|p, sim| {
        put(p, 0, 8, RW);
        assert_eq!(bind(p, 2, 2, MPOL_BIND, &Nodes::ALL), Ok(0));
        assert_eq!(bind(p, 4, 2, MPOL_INTERLEAVE, &Nodes::ALL), Ok(0));
        assert_eq!(areas(p), [(0, 2, RW), (2, 2, RW), (4, 2, RW), (6, 2, RW)]);
        // A page of its own takes no family of a neighbour with another policy.
        for page in [1, 3, 5] {
            assert_eq!(store(p, sim, BASE + page * PAGE, 5), Ok(()));
        }
        assert_eq!(bind(p, 4, 2, MPOL_BIND, &Nodes::ALL), Ok(0));
        assert_eq!(areas(p), [(0, 2, RW), (2, 2, RW), (4, 2, RW), (6, 2, RW)]);
        assert_eq!(bind(p, 6, 2, MPOL_BIND, &Nodes::ALL), Ok(0));
        assert_eq!(areas(p), [(0, 2, RW), (2, 2, RW), (4, 4, RW)]);
        // What moves takes its policy along, and what is mapped there next has none.
        let to = BASE + 32 * PAGE;
        let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
        assert_eq!(p.mremap(BASE + 2 * PAGE, 2 * PAGE, 3 * PAGE, flags, to), Ok(to));
        put(p, 2, 2, RW);
        let policies = |p: &P<'_, '_>| {
            let bare = |row: &String| row.split(" anon").next().map(ToString::to_string);
            rows(p).iter().filter_map(bare).collect::<Vec<_>>()
        };
        assert_eq!(policies(p), ["default", "bind:0", "bind:0"]);
        let child = p.fork().unwrap();
        assert_eq!(policies(&child), ["default", "bind:0", "bind:0"]);
        child.end().unwrap();
    });
}

#[test]
fn a_home_node_is_named_for_what_has_a_policy() {
    with(|p, _| {
        put(p, 0, 4, RW);
        let none = Err(Errno(ENOENT));
        assert_eq!(bind(p, 1, 1, MPOL_BIND, &Nodes::ALL), Ok(0));
        assert_eq!(bind(p, 3, 1, MPOL_INTERLEAVE, &Nodes::ALL), Ok(0));
        for (addr, len, node, flags, answer) in [
            (BASE + 1, PAGE, 0, 0, Err(Errno::INVAL)),
            (BASE, PAGE, 1, 0, Err(Errno::INVAL)),
            (BASE, PAGE, 0, 1, Err(Errno::INVAL)),
            (BASE, 0, 0, 0, Ok(0)),
            (BASE, PAGE, 0, 0, none),
            (BASE + 4 * PAGE, PAGE, 0, 0, none),
            (BASE, 3 * PAGE, 0, 0, Ok(0)),
            (BASE, 4 * PAGE, 0, 0, Err(Errno::OPNOTSUPP)),
        ] {
            assert_eq!(p.set_home_node(addr, len, node, flags), answer, "{addr:#x} {len:#x}");
        }
        // One with a home is not one without.
        assert_eq!(bind(p, 2, 1, MPOL_BIND, &Nodes::ALL), Ok(0));
        assert_eq!(areas(p), [(0, 1, RW), (1, 1, RW), (2, 1, RW), (3, 1, RW)]);
    });
}

#[test]
fn numbers_of_policies_that_no_area_has_are_given_again() {
    with(|p, _| {
        put(p, 0, 64, RW);
        let nodes = |nth: u64| Nodes::read(1, 65, |_| Ok(nth << 1 | 1)).unwrap();
        let mode = MPOL_BIND | MPOL_F_STATIC_NODES;
        for page in 0..63 {
            assert_eq!(bind(p, page, 1, mode, &nodes(page)), Ok(0), "{page}");
        }
        assert_eq!(bind(p, 63, 1, mode, &nodes(63)), Err(Errno::NOMEM));
        assert_eq!(bind(p, 63, 1, mode, &nodes(7)), Ok(0));
        assert_eq!(bind(p, 7, 1, MPOL_DEFAULT, &Nodes::NONE), Ok(0));
        assert_eq!(bind(p, 20, 1, MPOL_DEFAULT, &Nodes::NONE), Ok(0));
        assert_eq!(bind(p, 20, 1, mode, &nodes(63)), Ok(0));
        let told = |page: u64| Mempolicy::told(p.policy_at(BASE + page * PAGE).unwrap()).1;
        assert_eq!((told(63), told(20), told(19)), (nodes(7), nodes(63), nodes(19)));
    });
}

#[test]
fn pages_of_a_pool_keep_one_policy_each() {
    with(|p, _| {
        sys::write(p.manager(), "hugepages/hugepages-2048kB/nr_hugepages", "2").unwrap();
        let flags = FIXED | MAP_HUGETLB;
        assert_eq!(p.mmap(BASE, 2 * HUGE, RW, flags, None, 0), Ok(BASE));
        assert_eq!(bind(p, 0, 1, MPOL_BIND, &Nodes::ALL), Err(Errno::INVAL));
        assert_eq!(bind(p, 0, 512, MPOL_BIND, &Nodes::ALL), Ok(0));
        assert_eq!(p.fault_alone(BASE, Access::Write), Fault::Done);
        let name = "file=/anon_hugepage\\040(deleted) huge";
        let first = format!("bind:0 {name} anon=1 dirty=1 N0=1 kernelpagesize_kB=2048");
        assert_eq!(rows(p), [first, format!("default {name}")]);
    });
}

#[test]
fn a_page_is_on_the_node_or_is_none() {
    with(|p, sim| {
        put(p, 0, 3, RW);
        assert_eq!(store(p, sim, BASE, 5), Ok(()));
        assert_eq!(p.fault(BASE + PAGE, Access::Read), Fault::Done);
        let words = [0, 1, 2, 3].map(|page| p.page_status(BASE + page * PAGE + 9).word());
        assert_eq!(words, [0, -14, -2, -14]);
        assert_eq!(p.page_status(u64::MAX), PageStatus::Fault);
    });
}
