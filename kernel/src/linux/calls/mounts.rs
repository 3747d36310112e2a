//! Calls about file systems.

use super::super::thread::Thread;
use super::super::{mounts, user, world};
use super::Answer;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant_files::{Last, NodeId};
use foliant_linux::Errno;
use foliant_linux::capabilities::Capability;
use linux_raw_sys::errno::{EINVAL, ENOTDIR};
use linux_raw_sys::general::{
    MNT_DETACH, MNT_EXPIRE, MNT_FORCE, MS_BIND, MS_MOVE, MS_PRIVATE, MS_REMOUNT, MS_SHARED,
    MS_SLAVE, MS_UNBINDABLE,
};

type Six = [u64; 6];

/// Bytes of options.
const OPTIONS_MAX: usize = 4096;
/// `UMOUNT_NOFOLLOW`.
const NO_FOLLOW: u32 = 8;

fn text(at: u64) -> Result<String, Errno> {
    let bytes: Vec<u8> = if at == 0 { Vec::new() } else { user::get_text(at, OPTIONS_MAX)? };
    String::from_utf8(bytes).map_err(|_| Errno(EINVAL))
}
fn folder(thread: &Thread, at: u64, last: Last) -> Result<NodeId, Errno> {
    let path = user::get_path(at)?;
    let node = thread.process.walk(&thread.credentials(), thread.process.folder(), &path, last)?;
    if world().files.read().is_folder(node) { Ok(node) } else { Err(Errno(ENOTDIR)) }
}

/// Mounts one. Binding, moving, and who sees what, are not there: nothing is hidden by a mount.
pub(super) fn mount(thread: &Arc<Thread>, [source, at, kind, flags, options, _]: Six) -> Answer {
    let flags = flags as u32;
    if flags & (MS_BIND | MS_MOVE) != 0 {
        return Err(Errno(EINVAL));
    }
    let folder = folder(thread, at, Last::Follow)?;
    thread.needs(Capability::SysAdmin)?;
    if flags & (MS_REMOUNT | MS_PRIVATE | MS_SHARED | MS_SLAVE | MS_UNBINDABLE) != 0 {
        return Ok(0);
    }
    let (kind, source) = (text(kind)?, text(source)?);
    let source = if source.is_empty() { "none" } else { &source };
    mounts::mount(source, folder, &kind, &text(options)?).map(|()| 0)
}
pub(super) fn umount2(thread: &Arc<Thread>, [at, flags, ..]: Six) -> Answer {
    let flags = flags as u32;
    if flags & !(MNT_FORCE | MNT_DETACH | MNT_EXPIRE | NO_FOLLOW) != 0 {
        return Err(Errno(EINVAL));
    }
    let last = if flags & NO_FOLLOW != 0 { Last::Keep } else { Last::Follow };
    let folder = folder(thread, at, last)?;
    thread.needs(Capability::SysAdmin)?;
    mounts::unmount(folder).map(|()| 0)
}
