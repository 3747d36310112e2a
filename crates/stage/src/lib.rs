//! The lab's stage on the simulated machine, for the command and for tests of the lab.
//!
//! A crate of its own: the simulator must not know the manager, the lab uses no operating system,
//! and there are two users.
//!
//! ```
//! use foliant_lab::{Parameters, Scenario};
//! use foliant_sim::Config;
//! use foliant_stage::SimStage;
//! use foliant_units::Bytes;
//!
//! let machine = SimStage::machine(Config::seeded(4, Bytes::new(64 << 20), 1)).unwrap();
//! let stage = SimStage::new(&machine).unwrap();
//! let parameters = Parameters::parse(Scenario::Flush, ["pages=64"]).unwrap();
//! let report = Scenario::Flush.run(&stage, &parameters).unwrap();
//! assert_eq!(report.rows[0].counts.get("shootdowns"), Some(&64)); // grain 1: one for each page
//! assert_eq!(report.rows[4].counts.get("shootdowns"), Some(&1)); // grain whole
//! ```
//!
//! **Not here**: scenarios (`foliant-lab`), what a fault does (`foliant`).
#![forbid(unsafe_code)]

mod deadlines;

pub use deadlines::{DeadlinesError, Row, Scale, deadlines};

use foliant::folio::CpuCount;
use foliant::manager::{Setup, SetupError};
use foliant::space::SpaceId;
use foliant::table::X86_64;
use foliant::{Access, Manager, Outcome, Policy};
use foliant_lab::{AREAS, Caches, Counted, PoolStep, Stage, Stopped};
use foliant_machine::Cpus;
use foliant_sim::{Config, Sim, SimError, Work};
use foliant_units::{Bytes, Cpu, Va, VaRange};

/// Faults that one access may take.
const FAULTS_MAX: u32 = 64;

/// A manager on a simulated x86-64 machine. One tick is a nanosecond of modelled kernel time.
pub struct SimStage<'m> {
    manager: Manager<'m, Counted<Sim>, X86_64<4>>,
}

impl<'m> SimStage<'m> {
    /// The machine that `config` describes, counted.
    pub fn machine(config: Config) -> Result<Counted<Sim>, SimError> {
        Ok(Counted::new(Sim::new(config)?, |sim| sim.kernel_time(sim.me()).0))
    }

    /// A manager of all memory of the machine, with every CPU ready.
    pub fn new(machine: &'m Counted<Sim>) -> Result<SimStage<'m>, SetupError> {
        let sim = machine.machine();
        let setup = Setup { areas: AREAS, ..Setup::of(&sim.config().memory, Policy::BASE_ONLY) };
        let manager = Manager::new(machine, &setup)?;
        for cpu in manager.cpus() {
            sim.on(cpu, || manager.online());
        }
        Ok(SimStage { manager })
    }

    fn sim(&self) -> &'m Sim {
        self.manager.machine().machine()
    }

    fn access(&self, space: SpaceId, va: Va, access: Access) -> Result<(), Stopped> {
        for _ in 0..FAULTS_MAX {
            let went = match access {
                Access::Write => self.sim().user_store(va, 8, va.get()),
                Access::Read => self.sim().user_load(va, 8).map(drop),
                Access::Execute => self.sim().user_touch(va, foliant_sim::Access::Exec),
            };
            if went.is_ok() {
                return Ok(());
            }
            match self.manager.fault(space, va, access) {
                Outcome::OutOfMemory | Outcome::OverLimit => return Err(Stopped::NoMemory(va)),
                Outcome::Refused(_)
                | Outcome::Userfault(_)
                | Outcome::UserfaultWrite(_)
                | Outcome::UserfaultPresent(_) => break,
                _ => {}
            }
        }
        Err(Stopped::Refused(va))
    }
}

impl<'m> Stage<'m> for SimStage<'m> {
    type Machine = Sim;
    type Paging = X86_64<4>;

    fn name(&self) -> &'static str {
        "simulator"
    }
    fn manager(&self) -> &Manager<'m, Counted<Sim>, X86_64<4>> {
        &self.manager
    }
    fn together(&self, cpus: CpuCount, work: &(dyn Fn(Cpu) + Sync)) {
        self.sim().parallel(cpus.0.into(), work);
    }
    fn touch(
        &self,
        space: SpaceId,
        range: VaRange,
        stride: Bytes,
        access: Access,
    ) -> Result<(), Stopped> {
        let mut va = range.start();
        while va < range.end() {
            self.access(space, va, access)?;
            match va.checked_add(stride.get().max(1)) {
                Some(next) => va = next,
                None => break,
            }
        }
        Ok(())
    }
    fn ticks(&self) -> u64 {
        self.sim().kernel_time_total().0
    }
    fn elapsed(&self) -> u64 {
        self.sim().kernel_time(Cpu(0)).0
    }
    fn pooled(&self, step: PoolStep, pages: u64) {
        let work = match step {
            PoolStep::Fill => Work::PoolFill,
            PoolStep::Drain => Work::PoolDrain,
            PoolStep::Fold => Work::Fold,
        };
        self.sim().charge_work(work, pages);
    }
    fn caches(&self) -> Option<&'static Caches> {
        Some(&Caches::SKYLAKE)
    }
    fn walked(&self, walks: u64) {
        self.sim().charge_work(Work::Walk, walks);
    }
}
