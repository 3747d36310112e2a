//! File systems that were mounted: which folder begins one, of which kind, and what it was asked
//! for.
//!
//! ```text
//!   mount ─▶ Mount: folder, kind, options ── a new file below ─▶ its pages: usual ones, or huge ones of its subpool
//!                                         └─ umount2 ─▶ what was put there goes, and the subpool
//! ```
//!
//! All names are in one tree (`foliant-files`), and a mount hides nothing: what is below its folder
//! stays where it is. So the kinds that the kernel fills itself (proc, sysfs, debugfs) may be
//! mounted where they are, and nowhere else is anything of them.
//!
//! **Invariants**
//! - U1. The folder of a mount is held: it is not another one's by the same number.
//! - U2. What a file's pages are is settled when it is made; a mount that comes or goes changes it
//!   no more.
//!
//! **Locking**: one lock, taken under that of names.
//!
//! **Not here**: counting what `size=` and `min_size=` say of huge pages (`foliant::pool`). Sizes
//! of usual pages, and `nr_inodes=`, are shown and not kept to.

use super::content::{Bytes, Content};
use super::names;
use super::{File, world};
use crate::memory::manager;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write};
use foliant::pool::{SIZES, SubpoolId, SubpoolLimits};
use foliant_files::{Facts, Files, NodeId};
use foliant_linux::Errno;
use foliant_units::Order;
use linux_raw_sys::errno::{EACCES, EBUSY, EINVAL, ENODEV, ENOTDIR};
use linux_raw_sys::general::{
    DEBUGFS_MAGIC, DEVPTS_SUPER_MAGIC, HUGETLBFS_MAGIC, PROC_SUPER_MAGIC, SYSFS_MAGIC, TMPFS_MAGIC,
};
use spin::RwLock;

/// Kinds of file systems: name, and what `statfs` says.
pub(super) const KINDS: [(&str, u32); 7] = [
    ("proc", PROC_SUPER_MAGIC),
    ("sysfs", SYSFS_MAGIC),
    ("tmpfs", TMPFS_MAGIC),
    ("devtmpfs", TMPFS_MAGIC),
    ("devpts", DEVPTS_SUPER_MAGIC),
    ("debugfs", DEBUGFS_MAGIC),
    ("hugetlbfs", HUGETLBFS_MAGIC),
];
const HUGE: &str = "hugetlbfs";

/// A file system that was mounted.
#[derive(Clone)]
struct Mount {
    source: String,
    folder: NodeId,
    kind: &'static str,
    magic: u32,
    options: String,
    /// Bytes of a page of its files.
    page: u64,
    /// What its files may have of the pool, where that was said.
    subpool: Option<SubpoolId>,
    /// What is below came with it.
    is_own: bool,
}

/// What `statfs` says of where a file is.
#[derive(Clone, Copy)]
pub(super) struct Told {
    pub(super) magic: u32,
    pub(super) page: u64,
    pub(super) subpool: Option<SubpoolId>,
}

static MOUNTS: RwLock<Vec<Mount>> = RwLock::new(Vec::new());
const PAGE: u64 = Order::BASE.bytes().get();

/// Mounts what every machine has.
pub(super) fn start() -> Result<(), Errno> {
    for (kind, path) in [
        ("tmpfs", "/"),
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("debugfs", "/sys/kernel/debug"),
        ("devpts", "/dev/pts"),
        ("tmpfs", "/dev/shm"),
        (HUGE, "/dev/hugepages"),
    ] {
        let folder = names::find(path.as_bytes()).ok_or(Errno(ENOTDIR))?;
        let source = if path == "/" { "rootfs" } else { kind };
        mount(source, folder, kind, "")?;
    }
    Ok(())
}

/// A number of bytes as options give it: `2M`, `1g`, `2048k`, `4096`.
fn bytes(text: &str) -> Result<u64, Errno> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[end..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        _ => return Err(Errno(EINVAL)),
    };
    let number: u64 = text[..end].parse().map_err(|_| Errno(EINVAL))?;
    number.checked_shl(shift).filter(|all| all >> shift == number).ok_or(Errno(EINVAL))
}

/// What `size=` or `min_size=` says.
#[derive(Clone, Copy)]
enum Share {
    Bytes(u64),
    /// Of the pool.
    Percent(u64),
}

impl Share {
    fn of(text: &str) -> Result<Share, Errno> {
        match text.strip_suffix('%') {
            Some(part) => part.parse().map(Share::Percent).map_err(|_| Errno(EINVAL)),
            None => bytes(text).map(Share::Bytes),
        }
    }
    /// So many whole pages.
    fn pages(self, order: Order) -> u64 {
        match self {
            Share::Bytes(bytes) => bytes / order.bytes().get(),
            Share::Percent(part) => {
                let all = manager().pool(order).map_or(0, |pool| pool.persistent());
                (all as u128 * part as u128 / 100) as u64
            }
        }
    }
}

/// Mounts a file system.
pub(super) fn mount(source: &str, folder: NodeId, kind: &str, options: &str) -> Result<(), Errno> {
    let (kind, magic) = *KINDS.iter().find(|(name, _)| *name == kind).ok_or(Errno(ENODEV))?;
    let mut page = if kind == HUGE { Order::SIZE_2M.bytes().get() } else { PAGE };
    let (mut mode, mut owner, mut shares) = (None, [None; 2], [None; 2]);
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "pagesize" if kind == HUGE => page = bytes(value)?,
            "size" | "min_size" if kind == HUGE => {
                shares[usize::from(name == "min_size")] = Some(Share::of(value)?);
            }
            "size" | "min_size" | "nr_inodes" if value.ends_with('%') => {}
            "size" | "min_size" | "nr_inodes" | "nr_blocks" => drop(bytes(value)?),
            "mode" => mode = Some(u32::from_str_radix(value, 8).map_err(|_| Errno(EINVAL))?),
            "uid" | "gid" if matches!(kind, "tmpfs" | HUGE) => {
                owner[usize::from(name == "gid")] = Some(value.parse().map_err(|_| Errno(EINVAL))?);
            }
            _ if kind == HUGE && name != "rw" => {
                return Err(Errno(EINVAL));
            }
            _ => {}
        }
    }
    let pool = SIZES.into_iter().find(|size| size.bytes().get() == page);
    if kind == HUGE && pool.is_none() {
        return Err(Errno(EINVAL));
    }
    if !world().files.read().is_folder(folder) {
        return Err(Errno(ENOTDIR));
    }
    let told = shares.map(|share| share.zip(pool).map(|(share, order)| share.pages(order)));
    let subpool = subpool(pool, told)?;
    let mut files = world().files.write();
    if !files.is_folder(folder) {
        end(subpool);
        return Err(Errno(ENOTDIR));
    }
    files.hold(folder); // U1
    let set = |facts: &mut Facts| {
        facts.mode = mode.map_or(facts.mode, |mode| mode & 0o7777);
        facts.uid = owner[0].unwrap_or(facts.uid);
        facts.gid = owner[1].unwrap_or(facts.gid);
    };
    let _ = files.change_facts(folder, set); // it is there
    let is_own = matches!(kind, "tmpfs" | HUGE) && files.entries(folder, 0).count() == 2;
    let options = match pool.filter(|_| kind == HUGE) {
        Some(order) => shown_of_huge(order, options, told),
        None => shown(options),
    };
    let source = source.to_string();
    MOUNTS.write().push(Mount { source, folder, kind, magic, options, page, subpool, is_own });
    Ok(())
}
/// The subpool of a file system of huge pages that may have at most so many pages, and has at least
/// so many kept for it, where either was said.
fn subpool(
    pool: Option<Order>,
    [most, least]: [Option<u64>; 2],
) -> Result<Option<SubpoolId>, Errno> {
    let Some(order) = pool.filter(|_| most.or(least).is_some()) else { return Ok(None) };
    let limits = SubpoolLimits { most: most.unwrap_or(u64::MAX), least: least.unwrap_or(0) };
    Ok(Some(manager().pools().make_subpool(order, limits)?))
}
fn end(subpool: Option<SubpoolId>) {
    if let Some(id) = subpool {
        manager().pools().end_subpool(id);
    }
}
/// The options as they are shown: as they came.
fn shown(options: &str) -> String {
    let others = options.split(',').filter(|option| !option.is_empty() && *option != "rw");
    others.fold("rw,relatime".to_string(), |all, option| all + "," + option)
}
/// Those of a file system of huge pages: in Linux' order, and sizes as they were taken.
fn shown_of_huge(order: Order, options: &str, sizes: [Option<u64>; 2]) -> String {
    let page = order.bytes().get();
    let others = ["uid", "gid", "mode", "nr_inodes"].into_iter().filter_map(|name| {
        let said = |option: &&str| option.split('=').next() == Some(name);
        options.split(',').rfind(said).map(String::from)
    });
    let sizes = ["size", "min_size"].into_iter().zip(sizes);
    let sizes = sizes.filter_map(|(name, pages)| Some(format!("{name}={}", pages? * page)));
    let all = others.chain([format!("pagesize={}M", page >> 20)]).chain(sizes);
    all.fold("rw,relatime".to_string(), |all, option| all + "," + &option)
}

/// Takes the last mount of a folder away, and what came with it.
pub(super) fn unmount(folder: NodeId) -> Result<(), Errno> {
    if folder == world().files.read().root() {
        return Err(Errno(EBUSY));
    }
    let gone = {
        let mut mounts = MOUNTS.write();
        let nth = mounts.iter().rposition(|mount| mount.folder == folder).ok_or(Errno(EINVAL))?;
        mounts.remove(nth)
    };
    let path = world().files.read().path_of(folder);
    if let Some(path) = path.filter(|_| gone.is_own) {
        names::clear(&path);
    }
    let content = world().files.write().let_go(folder);
    drop(content);
    end(gone.subpool);
    Ok(())
}

/// The mount that a folder is in.
fn of(files: &Files<Content>, folder: NodeId) -> Option<Mount> {
    let mounts = MOUNTS.read();
    let mut at = folder;
    loop {
        if let Some(mount) = mounts.iter().rev().find(|mount| mount.folder == at) {
            return Some(mount.clone());
        }
        let above = files.parent(at)?;
        if above == at {
            return None;
        }
        at = above;
    }
}
/// What `statfs` says of a node.
pub(super) fn told(files: &Files<Content>, node: NodeId) -> Told {
    let usual = Told { magic: TMPFS_MAGIC, page: PAGE, subpool: None };
    let folder = if files.is_folder(node) { Some(node) } else { files.folder_of(node) };
    let found = folder.and_then(|folder| of(files, folder));
    let subpool = found.as_ref().and_then(|mount| mount.subpool);
    if let Some(Content::Memory(bytes)) = files.leaf(node)
        && bytes.file.page_bytes() > PAGE
    {
        return Told { magic: HUGETLBFS_MAGIC, page: bytes.file.page_bytes(), subpool };
    }
    found.map_or(usual, |mount| Told { magic: mount.magic, page: mount.page, subpool })
}
/// What a new file of a folder has in it.
pub(super) fn new_file(
    files: &Files<Content>,
    folder: NodeId,
    name: &[u8],
) -> Result<Content, Errno> {
    let mount = of(files, folder);
    // What the kernel fills itself has the names that it gives.
    if mount.as_ref().is_some_and(|it| [PROC_SUPER_MAGIC, SYSFS_MAGIC].contains(&it.magic)) {
        return Err(Errno(EACCES));
    }
    let (page, subpool) = mount.map_or((PAGE, None), |mount| (mount.page, mount.subpool));
    if page == PAGE {
        return Ok(Content::Packed(&[]));
    }
    let path = [&files.path_of(folder).unwrap_or_default()[..], b"/", name].concat();
    let file = File::huge_at_path(manager(), &path, (foliant_units::Bytes::new(page), subpool))?;
    Ok(Content::Memory(Bytes::of(file)))
}

/// Writes `/proc/mounts`.
pub(super) fn show(out: &mut String) -> fmt::Result {
    let files = world().files.read();
    for mount in MOUNTS.read().iter() {
        let path = files.path_of(mount.folder).unwrap_or_default();
        let path = String::from_utf8_lossy(&path).replace(' ', "\\040");
        writeln!(out, "{} {path} {} {} 0 0", mount.source, mount.kind, mount.options)?;
    }
    Ok(())
}
/// Writes `/proc/PID/mountinfo`.
pub(super) fn show_more(out: &mut String) -> fmt::Result {
    let files = world().files.read();
    for (nth, mount) in (1..).zip(MOUNTS.read().iter()) {
        let path = files.path_of(mount.folder).unwrap_or_default();
        let path = String::from_utf8_lossy(&path).replace(' ', "\\040");
        let Mount { source, kind, options, .. } = mount;
        writeln!(out, "{nth} 1 0:{nth} / {path} rw,relatime - {kind} {source} {options}")?;
    }
    Ok(())
}
