//! `prctl`, of what is about memory.

use super::*;
use foliant::fault::Orders;
use foliant_units::Order;
use linux_raw_sys::prctl::*;

const GAIN: u64 = PR_MDWE_REFUSE_EXEC_GAIN as u64;
const ALONE: u64 = GAIN | PR_MDWE_NO_INHERIT as u64;
const RX: u32 = PROT_READ | PROT_EXEC;
const ACCES: Result<u64, Errno> = Err(Errno(EACCES));
const INVAL: Result<u64, Errno> = Err(Errno::INVAL);

fn ask(p: &mut P<'_, '_>, what: u32, first: u64) -> Result<u64, Errno> {
    p.prctl(what, [first, 0, 0, 0]).expect("it is about memory")
}
fn smaps(p: &P<'_, '_>) -> String {
    let mut text = String::new();
    p.smaps(&mut text).unwrap();
    text
}

#[test]
fn what_is_not_about_memory_is_the_embedders() {
    with(|p, _| {
        assert_eq!(p.prctl(PR_SET_NAME, [0; 4]), None);
        for what in [PR_SET_THP_DISABLE, PR_GET_THP_DISABLE, PR_SET_MDWE, PR_GET_MDWE] {
            for nth in 1..4 {
                let mut arguments = [0; 4];
                arguments[nth] = 7;
                assert_eq!(p.prctl(what, arguments), Some(INVAL), "{what} {nth}");
            }
            assert_eq!(ask(p, what, 0), Ok(0));
        }
        assert_eq!([ask(p, PR_GET_THP_DISABLE, 1), ask(p, PR_GET_MDWE, 1)], [INVAL; 2]);
    });
}

#[test]
fn a_process_has_its_large_folios_switched_off() {
    with(|p, sim| {
        p.manager().set_policy(Policy::always(Orders::of(Order::SIZE_2M)));
        let map = |p: &mut P<'_, '_>, at: u64| p.mmap(at, HUGE, RW, FIXED, None, 0).unwrap();
        let first = map(p, BASE);
        assert!(smaps(p).contains("THPeligible:           1"));
        assert_eq!(ask(p, PR_SET_THP_DISABLE, 5), Ok(0));
        assert_eq!(ask(p, PR_GET_THP_DISABLE, 0), Ok(1));
        assert!(smaps(p).contains("THPeligible:           0"));
        let mut status = String::new();
        p.status(&mut status).unwrap();
        assert!(status.contains("THP_enabled:\t0\n"), "{status}");
        store(p, sim, first, 1).unwrap();
        assert!(smaps(p).contains("Rss:                   4 kB"));
        // A child has it so, and so has the next program, until it asks for another.
        let mut child = p.fork().unwrap();
        assert_eq!(ask(&mut child, PR_GET_THP_DISABLE, 0), Ok(1));
        let mut next = P::new(p.manager(), LAYOUT, Limits::NONE).unwrap();
        next.take_switches(&child).unwrap();
        assert_eq!(ask(&mut next, PR_GET_THP_DISABLE, 0), Ok(1));
        child.end().unwrap();
        next.end().unwrap();
        assert_eq!(ask(p, PR_SET_THP_DISABLE, 0), Ok(0));
        let second = map(p, BASE + 4 * HUGE);
        store(p, sim, second, 1).unwrap();
        assert!(smaps(p).contains("AnonHugePages:      2048 kB"));
    });
}

#[test]
fn what_may_be_written_does_not_become_what_may_be_executed() {
    with(|p, _| {
        let rwx = RW | PROT_EXEC;
        let map = |p: &mut P<'_, '_>, prot| p.mmap(BASE, PAGE, prot, FIXED, None, 0);
        let protect = |p: &mut P<'_, '_>, prot| p.mprotect(BASE, PAGE, prot);
        for bits in [2, 4, 5, 1 << 32 | 1] {
            assert_eq!(ask(p, PR_SET_MDWE, bits), INVAL);
        }
        // What was there before stays.
        map(p, rwx).unwrap();
        assert_eq!(ask(p, PR_SET_MDWE, GAIN), Ok(0));
        assert_eq!(ask(p, PR_GET_MDWE, 0), Ok(GAIN));
        assert_eq!([ask(p, PR_SET_MDWE, 0), ask(p, PR_SET_MDWE, ALONE)], [Err(Errno::PERM); 2]);
        assert_eq!(ask(p, PR_SET_MDWE, GAIN), Ok(0));
        assert_eq!([protect(p, rwx), protect(p, RX), protect(p, rwx)], [ACCES, Ok(0), ACCES]);
        // Rights go, and do not come back.
        assert_eq!([protect(p, PROT_READ), protect(p, RX)], [Ok(0), ACCES]);
        assert_eq!([map(p, rwx), map(p, RX), map(p, PROT_EXEC)], [ACCES, Ok(BASE), Ok(BASE)]);
        assert_eq!([protect(p, RW), protect(p, PROT_NONE), protect(p, RX)], [Ok(0), Ok(0), ACCES]);
        let mut child = p.fork().unwrap();
        assert_eq!([ask(&mut child, PR_GET_MDWE, 0), map(&mut child, rwx)], [Ok(GAIN), ACCES]);
        child.end().unwrap();
    });
    with(|p, _| {
        assert_eq!(ask(p, PR_SET_MDWE, ALONE), Ok(0));
        assert_eq!(p.mmap(BASE, PAGE, RW | PROT_EXEC, FIXED, None, 0), ACCES);
        let mut child = p.fork().unwrap();
        assert_eq!(ask(&mut child, PR_GET_MDWE, 0), Ok(0));
        assert_eq!(child.mmap(BASE, PAGE, RW | PROT_EXEC, FIXED, None, 0), Ok(BASE));
        let mut next = P::new(p.manager(), LAYOUT, Limits::NONE).unwrap();
        next.take_switches(p).unwrap();
        assert_eq!(ask(&mut next, PR_GET_MDWE, 0), Ok(0));
        next.end().unwrap();
        child.end().unwrap();
    });
}
