//! The lab's scenarios on this machine. A tick is an instruction under `-icount`, else a cycle of
//! the counter.
#![allow(unsafe_code)]

use crate::layout::DIRECT;
use crate::memory::{Format, Memory, choice, machine, manager};
use crate::plant::Plant;
use crate::{shell, smp, user};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use foliant::folio::CpuCount;
use foliant::space::SpaceId;
use foliant::{Access, Outcome};
use foliant_lab::{LabError, Parameters, Report, Scenario, Stage, Stopped};
use foliant_units::{Bytes, Cpu, Frame, Order, Pages, VaRange};
use foliant_x86::X86;

/// With less memory free no scenario begins: its report needs some.
const FREE: Pages = Pages::new(1024);

/// Why there is no report.
pub(crate) enum Trouble {
    /// Only so much memory is free.
    Scarce(Pages),
    /// The command line names no scenario, or a parameter that is none.
    Words(String),
    /// The scenario gave up.
    Run(LabError),
}

/// That, in words.
pub(crate) struct Scarce(pub(crate) Pages);

impl fmt::Display for Scarce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (free, least) = (self.0.bytes(), FREE.bytes());
        write!(f, "only {free} are free, and a scenario takes {least} at least")
    }
}

/// Runs what `lab=NAME` names, with the words of the command line that are the scenario's.
pub(crate) fn run(command: &str) -> Result<Report, Trouble> {
    let words = || command.split_whitespace();
    let name = words().find_map(|word| word.strip_prefix("lab=")).unwrap_or("");
    let others = words().filter(|word| {
        word.contains('=') && !word.starts_with("mode=") && !word.starts_with("lab=")
    });
    run_named(name, others)
}

/// Runs the scenario of this name with these parameters.
pub(crate) fn run_named<'w>(
    name: &str,
    parameters: impl Iterator<Item = &'w str>,
) -> Result<Report, Trouble> {
    let scenario: Scenario = name
        .parse()
        .map_err(|why: foliant_lab::UnknownScenario| Trouble::Words(why.to_string()))?;
    let parameters =
        Parameters::parse(scenario, parameters).map_err(|why| Trouble::Words(format!("{why}")))?;
    let free = manager().memory().free;
    if free < FREE {
        return Err(Trouble::Scarce(free));
    }
    scenario.run(&OnSilicon, &parameters).map_err(Trouble::Run)
}

/// This kernel as a stage.
struct OnSilicon;

impl Stage<'static> for OnSilicon {
    type Machine = Plant<X86<'static, crate::memory::Here>>;
    type Paging = Format;

    fn name(&self) -> &'static str {
        "kernel"
    }
    fn manager(&self) -> &Memory {
        manager()
    }
    fn go_on(&self) -> Result<(), Stopped> {
        if shell::is_interrupted() { Err(Stopped::Interrupted) } else { Ok(()) }
    }
    fn together(&self, cpus: CpuCount, work: &(dyn Fn(Cpu) + Sync)) {
        smp::together(cpus.0.into(), work);
    }
    fn touch(
        &self,
        space: SpaceId,
        range: VaRange,
        stride: Bytes,
        access: Access,
    ) -> Result<(), Stopped> {
        user::for_space(space, || user::touch(range, stride, access)).map_err(|stop| match stop {
            user::Stop::Fault(va, Outcome::OutOfMemory | Outcome::OverLimit) => {
                Stopped::NoMemory(va)
            }
            user::Stop::Fault(va, _) | user::Stop::Outside(va) | user::Stop::Exception(_, va) => {
                Stopped::Refused(va)
            }
        })
    }
    fn ticks(&self) -> u64 {
        foliant_x86::ticks()
    }
    fn primitives(&self) -> Vec<String> {
        choice().rows().map(|row| row.clear.to_string()).collect()
    }
    fn clear_with(&self, nth: usize, (frame, order): (Frame, Order), grain: Bytes) {
        let Some(row) = choice().rows().nth(nth) else { return };
        let primitive = row.clear.here(machine().features());
        let at = (DIRECT + frame.pa().get()) as *mut u8;
        // SAFETY: the block was lent to the scenario, which is the caller; the direct map reaches
        // it.
        let block = unsafe { core::slice::from_raw_parts_mut(at, order.bytes().get() as usize) };
        primitive.expect("it was measured at the start").zero(block, grain);
    }
    fn elapsed(&self) -> u64 {
        foliant_x86::ticks()
    }
}
