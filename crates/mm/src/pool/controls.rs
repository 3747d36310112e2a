//! Counters and switches of the pools under Linux's names: a table that a kernel can publish as
//! files.
//!
//! ```text
//!   hugepages-2048kB/nr_hugepages             At::Pool(Order::SIZE_2M)
//!   node1/hugepages-2048kB/nr_hugepages       At::Node(Order::SIZE_2M, Node(1))
//!   hugetlb_optimize_vmemmap                  At::Machine
//! ```
//!
//! Values are read as [`Value`]s, which print as Linux prints them, and written as text.

use super::{Budget, Demoted, Folding, PoolCounters, PoolError, Pools, Resized};
use crate::table::Paging;
use core::{error, fmt};
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

impl<'a, 'm, M: Machine, P: Paging> Pools<'a, 'm, M, P> {
    /// Gives the value of a control.
    pub fn read(&self, control: Control, scope: Scope) -> Result<Value, ControlError<'static>> {
        if control.rights() == ControlAccess::Write {
            return Err(ControlError::WriteOnly(control));
        }
        if !control.is_at(scope) {
            return Err(ControlError::Elsewhere(control, scope));
        }
        let counters: PoolCounters = match scope {
            Scope::Machine => PoolCounters::default(),
            Scope::Pool(order) => self.counters(order)?,
            Scope::Node(order, node) => self.counters_on(order, node)?,
        };
        Ok(match control {
            Control::NrHugepages => Value::Count(counters.nr_hugepages),
            Control::FreeHugepages => Value::Count(counters.free_hugepages),
            Control::ResvHugepages => Value::Count(counters.resv_hugepages),
            Control::SurplusHugepages => Value::Count(counters.surplus_hugepages),
            Control::NrOvercommitHugepages => Value::Count(counters.nr_overcommit_hugepages),
            Control::DemoteSize => Value::Size(Order::SIZE_2M),
            Control::HugetlbOptimizeVmemmap => {
                Value::Count(u64::from(self.folding() == Folding::On))
            }
            Control::Demote => return Err(ControlError::WriteOnly(control)),
        })
    }

    /// Writes a control. White space around the text is ignored.
    pub fn write<'t>(
        &self,
        control: Control,
        scope: Scope,
        text: &'t str,
    ) -> Result<Wrote, ControlError<'t>> {
        if control.rights() == ControlAccess::Read {
            return Err(ControlError::ReadOnly(control));
        }
        if !control.is_at(scope) {
            return Err(ControlError::Elsewhere(control, scope));
        }
        let text = text.trim();
        let count = || {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let count = text.parse::<u64>().ok().filter(|_| digits);
            count.ok_or(ControlError::NotACount(control, text))
        };
        match (control, scope) {
            (Control::HugetlbOptimizeVmemmap, _) => {
                self.set_folding(match text {
                    "0" => Folding::Off,
                    "1" => Folding::On,
                    _ => return Err(ControlError::NotASwitch(control, text)),
                });
                Ok(Wrote::Set)
            }
            (Control::NrHugepages, Scope::Node(order, node)) => {
                Ok(Wrote::Resized(self.resize_on(order, node, count()?, Budget::ALL)?))
            }
            (Control::NrHugepages, Scope::Pool(order)) => {
                Ok(Wrote::Resized(self.resize(order, count()?, Budget::ALL)?))
            }
            (Control::NrOvercommitHugepages, Scope::Pool(order)) => {
                self.set_overcommit(order, count()?)?;
                Ok(Wrote::Set)
            }
            (Control::Demote, _) => Ok(Wrote::Demoted(self.demote(count()?))),
            (Control::DemoteSize, _) if is_2m(text) => Ok(Wrote::Set),
            (Control::DemoteSize, _) => Err(ControlError::DemoteSize(text)),
            (control, scope) => Err(ControlError::Elsewhere(control, scope)),
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
