//! The allocator, for callers that may look and not touch.

use super::{CpuCount, Folios, FrameState, FreeBlocks, Usage};
use core::fmt;
use foliant_units::{Cpu, Frame, FrameRange, Node, Order, Pages};

/// A view of an allocator that belongs to a manager. It tells the state of frames and blocks, and
/// changes nothing that is handed out or known: each block has its holder, and knowing a frame's
/// number makes no other caller one.
///
/// ```
/// use foliant_folio::{FrameState, View};
/// fn look(folios: View<'_, '_>, frame: foliant_units::Frame) -> FrameState {
///     folios.state(frame)
/// }
/// ```
/// ```compile_fail
/// use foliant_folio::View;
/// fn give(folios: View<'_, '_>, frame: foliant_units::Frame) {
///     folios.free(foliant_units::Cpu(0), frame, foliant_units::Order::BASE).unwrap(); // not the viewer's to free
/// }
/// ```
/// ```compile_fail
/// use foliant_folio::View;
/// fn lie(folios: View<'_, '_>, range: foliant_units::FrameRange) {
///     folios.declare_zero(range); // nor to vouch for
/// }
/// ```
#[derive(Clone, Copy)]
pub struct View<'a, 'm>(&'a Folios<'m>);

impl<'m> Folios<'m> {
    /// A view for a caller that may only look.
    pub const fn view(&self) -> View<'_, 'm> {
        View(self)
    }
}

impl<'a, 'm> View<'a, 'm> {
    /// [`Folios::cpus`].
    pub fn cpus(self) -> CpuCount {
        self.0.cpus()
    }
    /// [`Folios::state`].
    pub fn state(self, frame: Frame) -> FrameState {
        self.0.state(frame)
    }
    /// [`Folios::usage`].
    pub fn usage(self, frame: Frame) -> Usage {
        self.0.usage(frame)
    }
    /// [`Folios::node_of`].
    pub fn node_of(self, frame: Frame) -> Option<Node> {
        self.0.node_of(frame)
    }
    /// [`Folios::nodes`].
    pub fn nodes(self) -> impl Iterator<Item = Node> + use<'a, 'm> {
        self.0.nodes()
    }
    /// [`Folios::ranges`].
    pub fn ranges(self) -> impl Iterator<Item = FrameRange> + use<'a, 'm> {
        self.0.ranges()
    }
    /// [`Folios::end`].
    pub fn end(self) -> Frame {
        self.0.end()
    }
    /// [`Folios::free_frames`].
    pub fn free_frames(self) -> Pages {
        self.0.free_frames()
    }
    /// [`Folios::free_blocks`].
    pub fn free_blocks(self, order: Order) -> u64 {
        self.0.free_blocks(order)
    }
    /// [`Folios::census`].
    pub fn census(self) -> FreeBlocks {
        self.0.census()
    }
    /// [`Folios::known_zero`].
    pub fn known_zero(self) -> Pages {
        self.0.known_zero()
    }
    /// [`Folios::drain`]: preferences only, no block changes hands.
    pub fn drain(self, cpu: Cpu) {
        self.0.drain(cpu);
    }
}

impl fmt::Debug for View<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
