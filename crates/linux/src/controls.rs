//! Counters and switches of the pools under Linux's names: a table that a kernel can publish as
//! files.
//!
//! ```text
//!   hugepages-2048kB/nr_hugepages             Scope::Pool(Order::SIZE_2M)
//!   node1/hugepages-2048kB/nr_hugepages       Scope::Node(Order::SIZE_2M, Node(1))
//!   hugetlb_optimize_vmemmap                  Scope::Machine
//! ```
//!
//! Values are read as [`Value`]s, which print as Linux prints them, and written as text.
//!
//! **Not here**: the paths of the files (`sys`), and what the pools do.

use core::{error, fmt};
use foliant::pool::{Budget, Demoted, Folding, PoolCounters, PoolError, Pools, Resized};
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, Node, Order};

/// One file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// How many pages there are; written: how many there shall be.
    NrHugepages,
    /// How many are free.
    FreeHugepages,
    /// How many are reserved.
    ResvHugepages,
    /// How many there are beyond the number asked for.
    SurplusHugepages,
    /// How many may be made on demand.
    NrOvercommitHugepages,
    /// Written: how many pages to cut into smaller ones.
    Demote,
    /// The size that they are cut into.
    DemoteSize,
    /// Whether pages made from now on give their descriptors back: 0 or 1.
    HugetlbOptimizeVmemmap,
}

/// Every control.
pub const CONTROLS: &[Control] = &[
    Control::NrHugepages,
    Control::FreeHugepages,
    Control::ResvHugepages,
    Control::SurplusHugepages,
    Control::NrOvercommitHugepages,
    Control::Demote,
    Control::DemoteSize,
    Control::HugetlbOptimizeVmemmap,
];

/// What a control may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlAccess {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    ReadWrite,
}

/// The machine, pool or part of a pool that a control is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The machine's.
    Machine,
    /// That of a pool.
    Pool(Order),
    /// That of a pool's part on one node.
    Node(Order, Node),
}

/// The value of a control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// A number.
    Count(u64),
    /// A size.
    Size(Order),
}

/// What a write did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrote {
    /// The value is set.
    Set,
    /// A pool was made larger or smaller, perhaps not all the way.
    Resized(Resized),
    /// Pages were cut, perhaps fewer than asked for.
    Demoted(Demoted),
}

/// Why a control was not read or written. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlError<'t> {
    /// It can only be read.
    ReadOnly(Control),
    /// It can only be written.
    WriteOnly(Control),
    /// There is no such control there.
    Elsewhere(Control, Scope),
    /// The text is no count.
    NotACount(Control, &'t str),
    /// The text is neither 0 nor 1.
    NotASwitch(Control, &'t str),
    /// Pages cannot be cut into such a size.
    DemoteSize(&'t str),
    /// There is no such pool.
    Pool(PoolError),
}

impl Control {
    /// The name of the file.
    pub const fn name(self) -> &'static str {
        match self {
            Control::NrHugepages => "nr_hugepages",
            Control::FreeHugepages => "free_hugepages",
            Control::ResvHugepages => "resv_hugepages",
            Control::SurplusHugepages => "surplus_hugepages",
            Control::NrOvercommitHugepages => "nr_overcommit_hugepages",
            Control::Demote => "demote",
            Control::DemoteSize => "demote_size",
            Control::HugetlbOptimizeVmemmap => "hugetlb_optimize_vmemmap",
        }
    }
    /// The control of that name.
    pub fn named(name: &str) -> Option<Control> {
        CONTROLS.iter().copied().find(|control| control.name() == name)
    }
    /// What it may be used for.
    pub const fn rights(self) -> ControlAccess {
        match self {
            Control::NrHugepages
            | Control::NrOvercommitHugepages
            | Control::DemoteSize
            | Control::HugetlbOptimizeVmemmap => ControlAccess::ReadWrite,
            Control::FreeHugepages | Control::ResvHugepages | Control::SurplusHugepages => {
                ControlAccess::Read
            }
            Control::Demote => ControlAccess::Write,
        }
    }
    /// Whether there is one at `scope`.
    pub fn is_at(self, scope: Scope) -> bool {
        match (self, scope) {
            (Control::HugetlbOptimizeVmemmap, _) => scope == Scope::Machine,
            (_, Scope::Machine) => false,
            (Control::Demote | Control::DemoteSize, _) => scope == Scope::Pool(Order::SIZE_1G),
            (Control::NrHugepages | Control::FreeHugepages | Control::SurplusHugepages, _) => true,
            (Control::ResvHugepages | Control::NrOvercommitHugepages, _) => {
                matches!(scope, Scope::Pool(_))
            }
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count(count) => count.fmt(f),
            Value::Size(order) => write!(f, "{}kB", order.bytes().get() >> 10),
        }
    }
}

impl fmt::Display for ControlError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::ReadOnly(control) => write!(f, "{} can only be read", control.name()),
            ControlError::WriteOnly(control) => write!(f, "{} can only be written", control.name()),
            ControlError::Elsewhere(control, scope) => {
                write!(f, "there is no {} of {scope:?}", control.name())
            }
            ControlError::NotACount(control, text) => {
                write!(
                    f,
                    "{}: {text:?} is no count of pages: write 0 to {}",
                    control.name(),
                    u64::MAX
                )
            }
            ControlError::NotASwitch(control, text) => {
                write!(f, "{}: {text:?} is no switch: write 0 or 1", control.name())
            }
            ControlError::DemoteSize(text) => {
                write!(f, "demote_size: pages of 1g cannot be cut into {text:?}: write 2048kB")
            }
            ControlError::Pool(error) => error.fmt(f),
        }
    }
}
impl error::Error for ControlError<'_> {}
impl From<PoolError> for ControlError<'_> {
    fn from(error: PoolError) -> Self {
        ControlError::Pool(error)
    }
}

impl Control {
    /// Its value.
    pub fn read<M: Machine, P: Paging>(
        self,
        pools: &Pools<'_, '_, M, P>,
        scope: Scope,
    ) -> Result<Value, ControlError<'static>> {
        if self.rights() == ControlAccess::Write {
            return Err(ControlError::WriteOnly(self));
        }
        if !self.is_at(scope) {
            return Err(ControlError::Elsewhere(self, scope));
        }
        let counters: PoolCounters = match scope {
            Scope::Machine => PoolCounters::default(),
            Scope::Pool(order) => pools.counters(order)?,
            Scope::Node(order, node) => pools.counters_on(order, node)?,
        };
        Ok(match self {
            Control::NrHugepages => Value::Count(counters.nr_hugepages),
            Control::FreeHugepages => Value::Count(counters.free_hugepages),
            Control::ResvHugepages => Value::Count(counters.resv_hugepages),
            Control::SurplusHugepages => Value::Count(counters.surplus_hugepages),
            Control::NrOvercommitHugepages => Value::Count(counters.nr_overcommit_hugepages),
            Control::DemoteSize => Value::Size(Order::SIZE_2M),
            Control::HugetlbOptimizeVmemmap => {
                Value::Count(u64::from(pools.folding() == Folding::On))
            }
            Control::Demote => return Err(ControlError::WriteOnly(self)),
        })
    }

    /// Writes it. White space around the text is ignored.
    pub fn write<'t, M: Machine, P: Paging>(
        self,
        pools: &Pools<'_, '_, M, P>,
        scope: Scope,
        text: &'t str,
    ) -> Result<Wrote, ControlError<'t>> {
        if self.rights() == ControlAccess::Read {
            return Err(ControlError::ReadOnly(self));
        }
        if !self.is_at(scope) {
            return Err(ControlError::Elsewhere(self, scope));
        }
        let text = text.trim();
        let count = || {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let count = text.parse::<u64>().ok().filter(|_| digits);
            count.ok_or(ControlError::NotACount(self, text))
        };
        match (self, scope) {
            (Control::HugetlbOptimizeVmemmap, _) => {
                pools.set_folding(match text {
                    "0" => Folding::Off,
                    "1" => Folding::On,
                    _ => return Err(ControlError::NotASwitch(self, text)),
                });
                Ok(Wrote::Set)
            }
            (Control::NrHugepages, Scope::Node(order, node)) => {
                Ok(Wrote::Resized(pools.resize_on(order, node, count()?, Budget::ALL)?))
            }
            (Control::NrHugepages, Scope::Pool(order)) => {
                Ok(Wrote::Resized(pools.resize(order, count()?, Budget::ALL)?))
            }
            (Control::NrOvercommitHugepages, Scope::Pool(order)) => {
                pools.set_overcommit(order, count()?)?;
                Ok(Wrote::Set)
            }
            (Control::Demote, _) => Ok(Wrote::Demoted(pools.demote(count()?))),
            (Control::DemoteSize, _) if is_2m(text) => Ok(Wrote::Set),
            (Control::DemoteSize, _) => Err(ControlError::DemoteSize(text)),
            (_, scope) => Err(ControlError::Elsewhere(self, scope)),
        }
    }
}

/// Whether the text means 2 MiB, in Linux's spelling (`2048kB`) or with a unit.
fn is_2m(text: &str) -> bool {
    let text = text.strip_suffix("kB").map_or_else(
        || Bytes::parse(text).ok(),
        |kilobytes| Some(Bytes::new(kilobytes.parse::<u64>().ok()?.checked_mul(1024)?)),
    );
    text == Some(Order::SIZE_2M.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant::manager::{BootPages, Setup};
    use foliant::pool::ResizeEnd;
    use foliant::table::X86_64;
    use foliant::{Manager, Policy};
    use foliant_sim::{Config, Sim};
    use foliant_units::{Frame, FrameRange, Pages};
    use std::string::ToString;

    const SIZE_2M: Order = Order::SIZE_2M;

    /// A machine with 64 MiB here and 64 MiB there.
    fn two_ranges() -> Sim {
        let mut config = Config::seeded(1, Bytes::new(1 << 20), 1);
        let range = |nth: u64| FrameRange::new(Frame::new(nth << 20), Pages::new(64 << 8));
        config.memory = [0, 1].into_iter().filter_map(range).collect();
        Sim::new(config).unwrap()
    }

    #[test]
    fn controls_have_linux_names_and_say_what_is_wrong() {
        let sim = two_ranges();
        let boot = BootPages { size_2m: 0, size_1g: 0, folding: Folding::On };
        let setup = Setup::of(&sim.config().memory, Policy::BASE_ONLY);
        let setup = Setup { nodes: &[Node(0), Node(1)], boot, ..setup };
        let mm = Manager::<_, X86_64<4>>::new(&sim, &setup);
        let mm = mm.unwrap();
        mm.online();
        let pools = mm.pools();
        let control = |name| Control::named(name).unwrap();
        let size_2m = Scope::Pool(SIZE_2M);
        let read = |name, scope| control(name).read(&pools, scope).map(|value| value.to_string());
        assert_eq!(
            control("nr_hugepages").write(&pools, size_2m, " 7\n"),
            Ok(Wrote::Resized(Resized { reached: 7, end: ResizeEnd::Reached }))
        );
        assert_eq!(read("nr_hugepages", size_2m), Ok("7".into()));
        assert_eq!(read("free_hugepages", Scope::Node(SIZE_2M, Node(1))), Ok("3".into()));
        assert_eq!(read("demote_size", Scope::Pool(Order::SIZE_1G)), Ok("2048kB".into()));
        assert_eq!(read("hugetlb_optimize_vmemmap", Scope::Machine), Ok("1".into()));
        control("hugetlb_optimize_vmemmap").write(&pools, Scope::Machine, "0").unwrap();
        assert_eq!(mm.folding(), Folding::Off);
        control("nr_overcommit_hugepages").write(&pools, size_2m, "4").unwrap();
        assert_eq!(mm.pool(SIZE_2M).unwrap().nr_overcommit_hugepages, 4);
        let size_1g = Scope::Pool(Order::SIZE_1G);
        for text in ["2048kB", "2m", "2097152"] {
            assert_eq!(
                control("demote_size").write(&pools, size_1g, text),
                Ok(Wrote::Set),
                "{text}"
            );
        }
        let fail = |name, scope, text: &'static str| {
            control(name).write(&pools, scope, text).unwrap_err().to_string()
        };
        for (name, scope, text, expect) in [
            ("nr_hugepages", size_2m, "-1", "nr_hugepages: \"-1\" is no count"),
            ("nr_hugepages", size_2m, "18446744073709551616", "write 0 to 18446744073709551615"),
            ("nr_hugepages", size_2m, "", "\"\" is no count"),
            ("nr_hugepages", Scope::Machine, "1", "there is no nr_hugepages of Machine"),
            ("nr_hugepages", Scope::Node(SIZE_2M, Node(5)), "1", "node 5 has no memory"),
            ("resv_hugepages", size_2m, "1", "resv_hugepages can only be read"),
            ("demote", size_2m, "1", "there is no demote of"),
            ("demote_size", size_1g, "64kB", "cannot be cut into \"64kB\": write 2048kB"),
            ("hugetlb_optimize_vmemmap", Scope::Machine, "on", "write 0 or 1"),
        ] {
            let got = fail(name, scope, text);
            assert!(got.contains(expect), "{got}");
        }
        let only = control("demote").read(&pools, size_1g).unwrap_err().to_string();
        assert!(only.contains("can only be written"), "{only}");
        let elsewhere = read("nr_hugepages", Scope::Machine).unwrap_err().to_string();
        assert!(elsewhere.contains("there is no nr_hugepages of Machine"), "{elsewhere}");
        control("hugetlb_optimize_vmemmap").write(&pools, Scope::Machine, "1").unwrap();
        assert_eq!(mm.folding(), Folding::On);
        for control in CONTROLS {
            assert_eq!(Control::named(control.name()), Some(*control));
            let at = |scope| control.is_at(scope);
            assert!([Scope::Machine, size_2m, size_1g].into_iter().any(at), "{control:?}");
        }
        assert_eq!(mm.pool(SIZE_2M).unwrap().nr_hugepages, 7);
    }
}
