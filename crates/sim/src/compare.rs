//! What CPUs have cached against what the tables say, while nothing is under way.
//!
//! A translation may outlive its word until the flush; it may not outlive the operation that
//! changed the word. So a machine on which no CPU is at work has, under the roots that run, nothing
//! cached that names other memory than the tables, or allows more.
//!
//! **Not here**: what is kept under the tag of a root that does not run; pointers to tables, of
//! which `no_stale_translation` sees those to freed ones.

use crate::Sim;
use crate::cache::Cached;
use crate::check::Event;
use crate::format::{Decoded, Half, Leaf, Rights};
use foliant_machine::Root;
use foliant_units::{Cpu, Pa};

impl Sim {
    /// Compares every translation that a CPU has cached and can use with what the tables say now.
    /// One that names other memory or allows more is a violation. Nothing may be under way.
    pub fn compare_caches(&self) {
        for cpu in (0..self.cpus.len()).map(|cpu| Cpu(cpu as u16)) {
            let root = self.cpus[cpu.index()].core.lock().root;
            let Some(root) = root else { continue };
            let used = |entry: &Cached| !entry.table && entry.is_used_under(root.user);
            for entry in self.cached(cpu).into_iter().filter(used) {
                if !self.is_backed(root, &entry) {
                    self.tell(cpu, || Event::Outlived { entry });
                }
            }
        }
    }

    /// Whether the tables of `root` say of all that `entry` covers what it says.
    fn is_backed(&self, root: Root, entry: &Cached) -> bool {
        let (mut at, end) = (entry.va.get(), entry.va.get() + (entry.bytes() - 1));
        loop {
            let Some(leaf) = self.leaf_of(root, at) else { return false };
            let inside = at & ((1 << leaf.shift) - 1);
            let base = entry.base.add(at - entry.va.get());
            let forgets = entry.dirty && !entry.is_group() && !leaf.dirty;
            if leaf.base.add(inside) != base || exceeds(entry.rights, leaf.rights) || forgets {
                return false;
            }
            let left = (1 << leaf.shift) - inside;
            if left > end - at {
                return true;
            }
            at += left;
        }
    }

    /// The leaf for `va` with the rights of its path, read without a trace.
    fn leaf_of(&self, root: Root, va: u64) -> Option<Leaf> {
        let format = self.config.format;
        let kernel = format.half(va)? == Half::Kernel && !format.one_root();
        let mut table: Pa = if kernel { root.kernel } else { root.user };
        let mut path = Rights::ALL;
        for level in (0..format.levels()).rev() {
            let index = va >> (12 + 9 * u32::from(level)) & 511;
            match format.decode(level, self.memory.load(table.add(index * 8))?) {
                Decoded::Nothing => return None,
                Decoded::Table { table: next, rights, .. } => {
                    (table, path) = (next, path.and(rights))
                }
                Decoded::Leaf(leaf) => {
                    let rights = format.settled(path.and(leaf.rights));
                    return Some(Leaf { rights, ..leaf });
                }
            }
        }
        None
    }
}

/// Whether the rights allow something that `least` does not.
fn exceeds(rights: Rights, least: Rights) -> bool {
    let both = rights.and(least);
    Rights { global: rights.global, ..both } != rights
}
