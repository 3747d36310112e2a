//! The situation of a range, beside a walk over all parts of vmas.

use super::*;
use crate::vma::Vma;

/// All ranges over and around areas that touch, lie apart and differ.
#[test]
fn a_situation_is_what_a_walk_finds() {
    with(|p, _| {
        for (page, pages, prot) in [(1, 2, RW), (3, 2, PROT_READ), (8, 1, RW), (9, 3, PROT_READ)] {
            put(p, page, pages, prot);
        }
        put(p, 14, 6, RW);
        let parts: Vec<Vma> = p.parts_in(0, u64::MAX).collect();
        let at = |page: u64| BASE + page * PAGE;
        for (start, end) in (0..22).flat_map(|start| (start + 1..23).map(move |end| (start, end))) {
            let (start, end) = (at(start), at(end));
            let situation = p.situation(start, end);
            let inside = || parts.iter().filter(|v| v.start() < end && v.end() > start).copied();
            let below = parts.iter().find(|v| v.start() < start && v.end() >= start).copied();
            let above = parts.iter().find(|v| v.start() <= end && v.end() > end).copied();
            let pages: u64 =
                inside().map(|v| (v.end().min(end) - v.start().max(start)) / PAGE).sum();
            assert_eq!(situation.beside(), [below, above], "{start:x}..{end:x}");
            assert_eq!(situation.is_free(), inside().next().is_none(), "{start:x}..{end:x}");
            assert!(p.parts_on(&situation).eq(inside()), "{start:x}..{end:x}");
            assert_eq!(p.pages_on(&situation), pages, "{start:x}..{end:x}");
        }
    });
}
