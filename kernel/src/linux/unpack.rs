//! The files that a program finds when it starts: those of the archive, devices, and the texts of
//! `/proc` and `/sys`.

use super::content::{Content, Device};
use super::names::make;
use super::{proc_fd, terminal, texts, world};
use crate::archive;
use foliant_files::{Body, Refused};
use linux_raw_sys::general::{S_IFCHR, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

/// Makes everything.
pub(super) fn all() -> Result<(), Refused> {
    for entry in archive::entries() {
        if archive::is_own(entry.name()) || entry.name() == "." {
            continue;
        }
        let (mode, file) = (entry.mode().bits(), entry.file());
        let body = match mode & S_IFMT {
            S_IFDIR => Body::Folder,
            S_IFLNK => Body::Link(file.to_vec()),
            S_IFREG => Body::Leaf(Content::Packed(file)),
            _ => continue, // devices are the kernel's to make
        };
        let node = make(entry.name().as_bytes(), mode, body)?;
        let (uid, gid) = (entry.uid(), entry.gid());
        world().files.write().change_facts(node, |facts| (facts.uid, facts.gid) = (uid, gid))?;
    }
    for (name, _, device) in Device::ALL {
        let content = Content::Device(device);
        let mode = if device == Device::Userfault { 0o600 } else { 0o666 };
        make(&[b"dev/", name.as_bytes()].concat(), S_IFCHR | mode, Body::Leaf(content))?;
    }
    make(b"dev/shm", 0o1777, Body::Folder)?;
    make(b"tmp", 0o1777, Body::Folder)?;
    make(b"dev/hugepages", 0o755, Body::Folder)?;
    terminal::make_names()?;
    proc_fd::make_devices()?;
    texts::make_all()
}
