//! All checkers together, and `counters_recount`.

use crate::*;

#[test]
fn a_recount_agrees_with_what_is_stated() {
    let sim = machine(X86);
    sim.recount("pages", 3, 3);
    clean(&sim);
    for (stated, counted) in [(3, 4), (4, 3)] {
        sim.recount("pages", stated, counted);
        let last = sim.violations().pop().unwrap();
        let text = format!("pages is stated as {stated}, a recount gives {counted}");
        assert_eq!((last.checker, last.text), ("counters_recount", text));
    }
}

#[test]
fn what_is_found_bears_its_cpu_and_step_and_the_first_are_kept() {
    let sim = machine(X86);
    sim.recount("pages", 1, 1);
    sim.on(Cpu(1), || sim.recount("pages", 1, 2));
    let first = sim.violations().remove(0);
    assert_eq!((first.cpu, first.step), (Cpu(1), 2));
    let shown = "counters_recount: cpu 1, step 2: pages is stated as 1, a recount gives 2";
    assert_eq!(first.to_string(), shown);
    (0..300).for_each(|n| sim.recount("pages", n, n + 1));
    let all = sim.violations();
    assert_eq!((all.len(), &all[0]), (256, &first));
    assert_eq!(all[255].step, 257);
}

#[test]
fn every_event_is_part_of_the_digest() {
    let digest = |work: &dyn Fn(&Sim)| {
        let sim = machine(X86);
        work(&sim);
        sim.digest()
    };
    let mut all = vec![
        digest(&|_| ()),
        digest(&|sim| own(sim, SIZE_1G, 1, Owner::Free)),
        digest(&|sim| own(sim, SIZE_1G, 1, Owner::User)),
        digest(&|sim| own(sim, SIZE_1G, 2, Owner::Free)),
        digest(&|sim| sim.on(Cpu(1), || own(sim, SIZE_1G, 1, Owner::Free))),
        digest(&|sim| put(sim, SIZE_1G, 0)),
        digest(&|sim| put(sim, SIZE_1G, 1)),
        digest(&|sim| clear(sim, SIZE_1G, 64)),
        digest(&|sim| sim.recount("pages", 1, 1)),
        digest(&|sim| sim.recount("frames", 1, 1)),
    ];
    assert_eq!(all[0], digest(&|_| ()));
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 10);
}
