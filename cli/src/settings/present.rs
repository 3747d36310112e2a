//! The kernel's switches of folio sizes as they are, and what a plan would have them be.
//!
//! ```text
//!   switch of a size    always, madvise, never; inherit: as the one of all sizes
//!   kernels before 6.8  have the one of all sizes alone, which is that of 2 MiB
//! ```
//!
//! **Invariants**
//! - N1. Positions are compared by what they do: `inherit` is what it inherits.
//!
//! **Not here**: writing them (`settings`).

use crate::failure::{Done, Failure};
use foliant::Policy;
use foliant::fault::{Global, Orders, Size, parse_order};
use foliant_units::{Bytes, Order};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel has them.
pub(crate) const ROOT: &str = "/sys/kernel/mm/transparent_hugepage";

/// The switch of one size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Switch {
    pub(crate) bytes: Bytes,
    /// `None` where Foliant has no such folios.
    pub(crate) order: Option<Order>,
    pub(crate) path: PathBuf,
    /// Its word.
    pub(crate) position: Size,
}

/// All of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Present {
    /// That of all sizes.
    pub(crate) global: Global,
    /// Those of single sizes, the smallest first.
    pub(crate) switches: Vec<Switch>,
}

/// Sizes that memory may have which is not advised, and which is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Allowed {
    pub(crate) unadvised: Orders,
    pub(crate) advised: Orders,
}

impl Allowed {
    /// By these switches.
    pub(crate) fn by(policy: &Policy) -> Allowed {
        let mut all = Allowed::default();
        for order in Orders::ANON.largest_first() {
            let (one, position) = (Orders::of(order), effective(policy.get(order), policy.global));
            if position == Size::Always {
                all.unadvised = all.unadvised.with(one);
            }
            if position != Size::Never {
                all.advised = all.advised.with(one);
            }
        }
        all
    }
}

/// What a switch does (N1).
fn effective(position: Size, global: Global) -> Size {
    match (position, global) {
        (Size::Inherit, Global::Always) => Size::Always,
        (Size::Inherit, Global::Madvise) => Size::Madvise,
        (Size::Inherit, Global::Never) => Size::Never,
        (position, _) => position,
    }
}

impl Present {
    /// Reads those of a kernel's folder.
    pub(crate) fn read(root: &Path) -> Done<Present> {
        let none = || {
            let root = root.display();
            Failure::new(format_args!(
                "this kernel has no switches for folio sizes in {root}; use one with transparent huge pages"
            ))
        };
        let path = root.join("enabled");
        let global =
            fs::read_to_string(&path).ok().and_then(|text| Global::parse(&chosen(&text)).ok());
        let entries = fs::read_dir(root).map_err(|_| none())?.flatten();
        let mut switches: Vec<Switch> = entries.filter_map(|entry| switch(&entry.path())).collect();
        switches.sort_by_key(|switch| switch.bytes);
        if let (true, Some(global)) = (switches.is_empty(), global) {
            let position = effective(Size::Inherit, global);
            let (bytes, order) = (Bytes::SIZE_2M, Some(Order::SIZE_2M));
            switches.push(Switch { bytes, order, path, position });
        }
        if switches.is_empty() {
            return Err(none());
        }
        Ok(Present { global: global.unwrap_or(Global::Never), switches })
    }

    /// The sizes that it offers and Foliant knows.
    pub(crate) fn offered(&self) -> Orders {
        let orders = self.switches.iter().filter_map(|switch| switch.order);
        orders.fold(Orders::NONE, |all, order| all.with(Orders::of(order)))
    }

    /// What each switch does.
    pub(crate) fn effective(&self) -> Vec<Size> {
        self.under(self.global)
    }

    /// What each switch would do with that of all sizes at `always`.
    pub(crate) fn always(&self) -> Vec<Size> {
        self.under(Global::Always)
    }

    fn under(&self, global: Global) -> Vec<Size> {
        self.switches.iter().map(|switch| effective(switch.position, global)).collect()
    }

    /// What a remedy would have each switch do; sizes that Foliant does not know are off.
    pub(crate) fn wanted(&self, policy: &Policy) -> Vec<Size> {
        let wanted = |switch: &Switch| {
            switch.order.map_or(Size::Never, |order| effective(policy.get(order), policy.global))
        };
        self.switches.iter().map(wanted).collect()
    }

    /// The switches that are not what a remedy's are, and what they would have to say.
    pub(crate) fn differing(&self, policy: &Policy) -> Vec<(&Switch, Size)> {
        let both = self.effective().into_iter().zip(self.wanted(policy));
        let differing = self.switches.iter().zip(both).filter(|(_, (is, wanted))| is != wanted);
        differing.map(|(switch, (_, wanted))| (switch, wanted)).collect()
    }

    /// A size that a remedy has a use for and this kernel does not offer.
    pub(crate) fn lacks(&self, policy: &Policy) -> Option<Order> {
        let used = Allowed::by(policy).advised;
        used.without(self.offered()).largest_first().last()
    }

    /// Whether sizes have no switches of their own.
    pub(crate) fn is_global_alone(&self) -> bool {
        self.switches.iter().all(|switch| !switch.path.parent().is_some_and(is_size))
    }
}

fn is_size(folder: &Path) -> bool {
    size_of(folder).is_some()
}

/// The size that a folder is named after.
fn size_of(folder: &Path) -> Option<u64> {
    let name = folder.file_name()?.to_str()?;
    name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()
}

/// The switch in a folder; sizes for files alone have none.
fn switch(folder: &Path) -> Option<Switch> {
    let kilobytes = size_of(folder)?;
    let path = folder.join("enabled");
    let position = Size::parse(&chosen(&fs::read_to_string(&path).ok()?)).ok()?;
    let order = parse_order(&format!("{kilobytes}k")).ok();
    Some(Switch { bytes: Bytes::new(kilobytes << 10), order, path, position })
}

/// The chosen word of `always [madvise] never`.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text.trim(), |(word, _)| word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::create_dir_all(root.path().join(name).parent().unwrap()).unwrap();
            fs::write(root.path().join(name), text).unwrap();
        }
        root
    }

    fn order(n: u8) -> Order {
        Order::new(n).unwrap()
    }

    fn orders(list: &[u8]) -> Orders {
        list.iter().fold(Orders::NONE, |all, n| all.with(Orders::of(order(*n))))
    }

    #[test]
    fn the_chosen_word_stands_in_brackets() {
        assert_eq!(chosen("always inherit madvise [never]\n"), "never");
        assert_eq!(chosen("10000\n"), "10000");
    }

    #[test]
    fn switches_are_what_they_do() {
        let root = root(&[
            ("enabled", "always [madvise] never"),
            ("hugepages-2048kB/enabled", "always [inherit] madvise never"),
            ("hugepages-64kB/enabled", "[always] inherit madvise never"),
            ("hugepages-32kB/enabled", "always inherit madvise [never]"),
            ("hugepages-8kB/enabled", "always inherit [madvise] never"),
            ("hugepages-16kB/shmem_enabled", "[never]"),
        ]);
        let present = Present::read(root.path()).unwrap();
        let sizes: Vec<u64> = present.switches.iter().map(|s| s.bytes.get() >> 10).collect();
        assert_eq!(sizes, [8, 32, 64, 2048]);
        assert_eq!(present.offered(), orders(&[3, 4, 9]));
        use Size::{Always, Madvise, Never};
        assert_eq!(present.effective(), [Madvise, Never, Always, Madvise]);
        assert_eq!(present.always(), [Madvise, Never, Always, Always]);
        assert!(!present.is_global_alone());
        let mut policy = Policy { global: Global::Always, ..Policy::BASE_ONLY };
        for (n, position) in [(3, Size::Madvise), (4, Size::Always), (9, Size::Inherit)] {
            policy.set(order(n), position).unwrap();
        }
        assert_eq!(
            Allowed::by(&policy),
            Allowed { unadvised: orders(&[4, 9]), advised: orders(&[3, 4, 9]) }
        );
        let differing: Vec<_> = present
            .differing(&policy)
            .into_iter()
            .map(|(switch, position)| (switch.bytes.get() >> 10, position))
            .collect();
        assert_eq!(differing, [(8, Size::Never), (32, Size::Madvise), (2048, Size::Always)]);
        assert_eq!(present.lacks(&policy), None);
        policy.set(order(5), Size::Inherit).unwrap();
        assert_eq!(present.lacks(&policy), Some(order(5)));
        policy.global = Global::Never;
        assert_eq!(present.lacks(&policy), None, "it is off");
    }

    #[test]
    fn a_kernel_without_sizes_has_one() {
        let root = root(&[("enabled", "always [madvise] never")]);
        let present = Present::read(root.path()).unwrap();
        assert_eq!(present.offered(), orders(&[9]));
        assert_eq!(present.effective(), [Size::Madvise]);
        assert!(present.is_global_alone());
        let differing = present.differing(&Policy::BASE_ONLY);
        assert_eq!(differing, [(&present.switches[0], Size::Never)]);
        assert_eq!(present.switches[0].path, root.path().join("enabled"));
        let none = tempfile::tempdir().unwrap();
        assert!(Present::read(none.path()).is_err());
    }
}
