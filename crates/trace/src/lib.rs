//! Recorded workloads: what a program did to its address spaces and every page fault it took, as a
//! file.
//!
//! Policies for page sizes are judged on what real programs do, so this crate turns a run of a
//! program into a *trace* that can be replayed, again and again and anywhere, through a memory
//! manager.
//!
//! ```text
//!   program ──record──▶ Event, Event, ... ──Writer──▶ file ──Reader──▶ replay, naive_replay, describe
//! ```
//!
//! - [`event`]: what a trace says. [`lineage`]: who runs where.
//! - [`format`](mod@format), [`writer`], [`reader`], [`error`]: compact, versioned, checksummed,
//!   streamed.
//! - [`budget`]: the memory and the work that a file of others may take, for all of these together.
//! - `record`: the recorder, for x86-64 Linux, without privilege for one's own programs.
//! - [`naive`]: the obvious model of 4 KiB pages, which says for each fault whether it had to be.
//! - [`mapping`]: memory as a person knows it. [`describe()`]: a summary.
//! - [`replay`]: a trace through the real manager on a simulated machine, one row per policy.
//! - [`wish`]: switches and advice for a program. [`site`]: what names a mapping from run to run.
//!
//! **Not here**: the `foliant` command.

pub mod budget;
pub mod describe;
pub mod error;
pub mod event;
pub mod format;
pub mod lineage;
pub mod mapping;
pub mod naive;
mod objects;
mod piece;
pub mod reader;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod record;
pub mod replay;
pub mod site;
pub mod wish;
pub mod writer;

pub use budget::{Budget, Spent, Thing};
pub use describe::{Describer, Description, describe};
pub use error::TraceError;
pub use event::{
    Access, Area, AreaKind, Backing, Event, EventKind, Exec, Fault, Found, MapFlags, Name,
    ObjectId, Origin, Prot, Source, SpaceId, Standing, ThreadId,
};
pub use format::{AccessSource, Ending, Header, Trailer, VERSION};
pub use lineage::Lineage;
pub use mapping::Mapping;
pub use naive::{Naive, Report, classify, naive_replay};
pub use reader::{About, Reader, Trace};
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use record::{Options, RecordError, Summary, record, record_running_to_file, record_to_file};
pub use site::Site;
pub use wish::{Remedy, Target, Wish, Wished};
pub use writer::Writer;
