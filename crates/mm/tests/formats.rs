//! One life of a program on every page-table format, with the rules that are usual for it and every checker on.

mod common;
use common::*;
use foliant::fault::Orders;
use foliant::manager::Setup;
use foliant::space::{Advice, Flags, Move};
use foliant::table::{Aarch64, Paging, Riscv64, X86_64};
use foliant::{Manager, Policy};
use foliant_sim::{Config, Format, RiscvMode, Sim, X86Levels};
use foliant_units::Bytes;

fn life<P: Paging>(format: Format) {
    let config = Config::seeded(2, Bytes::new(64 * MB), 3).with_format(format);
    let sim = Sim::new(config).unwrap();
    let memory = sim.config().memory.clone();
    let policy = Policy::always(Orders::ANON);
    let setup = Setup::of(&memory, policy);
    let mm: Manager<'_, Sim, P> = Manager::new(&sim, &setup).unwrap();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    // The user half of Sv39 ends at 256 GiB.
    area(&mm, id, BASE, 4 * MB);
    for page in [0, 1, 511, 512, 600, 1023] {
        store(&sim, &mm, id, BASE + page * 4096, 100 + page);
    }
    mm.protect(id, range(BASE + 4096, 2 * MB - 4096), Flags::READ).unwrap();
    let child = mm.fork(id).unwrap();
    store(&sim, &mm, id, BASE, 1);
    store(&sim, &mm, id, BASE + 600 * 4096, 2);
    mm.switch(Some(child)).unwrap();
    for page in [0, 1, 511, 512, 600, 1023] {
        assert_eq!(load(&sim, &mm, child, BASE + page * 4096), 100 + page, "{format:?}");
    }
    store(&sim, &mm, child, BASE + 1023 * 4096, 3);
    let moved =
        mm.remap(child, range(BASE + 2 * MB, 2 * MB), Bytes::new(3 * MB), Move::MayMove).unwrap();
    assert_eq!(load(&sim, &mm, child, moved.start().get() + 511 * 4096), 3);
    mm.advise(child, range(BASE, 8192), Advice::Free).unwrap();
    mm.advise(child, range(BASE + 4096, 4096), Advice::DontNeed).unwrap();
    assert_eq!(load(&sim, &mm, child, BASE + 4096), 0);
    assert_eq!(load(&sim, &mm, child, BASE), 100);
    mm.switch(Some(id)).unwrap();
    mm.unmap(id, range(BASE + 511 * 4096, 8192)).unwrap();
    assert_eq!(load(&sim, &mm, id, BASE + 600 * 4096), 2);
    mm.protect(id, range(BASE, MB), Flags::READ_WRITE).unwrap();
    store(&sim, &mm, id, BASE + 4096, 9);
    assert_eq!(load(&sim, &mm, id, BASE), 1);
    finish(&sim, &mm, &[id, child]);
}

#[test]
fn x86_64_with_four_and_five_levels() {
    life::<X86_64<4>>(Format::X86_64(X86Levels::Four));
    life::<X86_64<5>>(Format::X86_64(X86Levels::Five));
}

#[test]
fn aarch64_breaks_before_it_makes() {
    life::<Aarch64>(Format::Aarch64);
}

#[test]
fn riscv64_with_three_to_five_levels() {
    life::<Riscv64<3>>(Format::Riscv64(RiscvMode::Sv39));
    life::<Riscv64<4>>(Format::Riscv64(RiscvMode::Sv48));
    life::<Riscv64<5>>(Format::Riscv64(RiscvMode::Sv57));
}
