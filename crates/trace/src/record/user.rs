//! As whom a program runs that root records or measures for somebody else.
//!
//! Who types `sudo foliant check -- make` lends root's privilege to Foliant, for its counters and
//! the kernel's settings, not to the Makefile. So behind sudo the program runs as the user who
//! called it, with that user's groups and home.
//!
//! **Invariants**
//! - A1. Between fork and exec groups are set first, then the group, then the user, each for good
//!   (real, effective and saved), and a program that could not be given all three is not started.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// More groups than this a kernel gives nobody.
const GROUPS_MAX: usize = 65_536;

/// A user who is not root, as the system knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
    name: OsString,
    home: OsString,
}

impl User {
    /// The user who called sudo to run this process as root; nobody where it is not root's, or root
    /// is who called.
    pub fn behind_sudo() -> io::Result<Option<User>> {
        if !super::sys::is_root() {
            return Ok(None);
        }
        let Some(uid) = number("SUDO_UID")? else { return Ok(None) };
        if uid == 0 {
            return Ok(None);
        }
        let Some(gid) = number("SUDO_GID")? else {
            return Err(bad(
                "SUDO_UID is set and SUDO_GID is not; call foliant with sudo, or unset both",
            ));
        };
        User::find(uid, gid).map(Some)
    }

    /// Whether this process is root's, so that what it starts is root's as well.
    pub fn is_root() -> bool {
        super::sys::is_root()
    }

    /// The user's name.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// The user's home.
    pub fn home(&self) -> &OsStr {
        &self.home
    }

    /// The numbers of the user and of the user's group.
    pub fn ids(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    /// What the environment says of who runs the program.
    pub(crate) fn environment(&self) -> [(&'static str, &OsStr); 3] {
        [("HOME", &self.home), ("USER", &self.name), ("LOGNAME", &self.name)]
    }

    fn find(uid: libc::uid_t, gid: libc::gid_t) -> io::Result<User> {
        // SAFETY: a struct of numbers and pointers, for which zeros are legal values.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        let mut text = vec![0; 1 << 16];
        let (at, room) = (text.as_mut_ptr(), text.len());
        // SAFETY: all four point to what is live and has the size that is told.
        let error = unsafe { libc::getpwuid_r(uid, &mut entry, at, room, &mut found) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        if found.is_null() {
            // Nobody that the system has a name for: the numbers are all there is to know.
            let (name, home) = (OsString::from(uid.to_string()), OsString::from("/"));
            return Ok(User { uid, gid, groups: vec![gid], name, home });
        }
        let copied = |from: *const libc::c_char| {
            // SAFETY: the call filled the entry with texts that end in `text`, which is still
            // there.
            OsString::from_vec(unsafe { CStr::from_ptr(from) }.to_bytes().to_vec())
        };
        let (name, home) = (copied(entry.pw_name), copied(entry.pw_dir));
        let groups = groups(&name, gid)?;
        Ok(User { uid, gid, groups, name, home })
    }

    /// Becomes this user for good (A1). Makes nothing but system calls, so a child may call it
    /// after fork.
    pub(crate) fn become_now(&self) -> io::Result<()> {
        let done = |n: libc::c_int| if n == -1 { Err(io::Error::last_os_error()) } else { Ok(()) };
        // SAFETY: the kernel reads so many numbers from a live list.
        done(unsafe { libc::setgroups(self.groups.len() as libc::size_t, self.groups.as_ptr()) })?;
        // SAFETY: takes numbers only.
        done(unsafe { libc::setresgid(self.gid, self.gid, self.gid) })?;
        // SAFETY: takes numbers only.
        done(unsafe { libc::setresuid(self.uid, self.uid, self.uid) })
    }

    /// Lets a command run as this user.
    pub fn runs(&self, command: &mut Command) {
        let user = self.clone();
        command.envs(self.environment());
        // SAFETY: `become_now` makes nothing but system calls.
        unsafe { command.pre_exec(move || user.become_now()) };
    }

    /// Gives a file of root's to this user.
    pub(crate) fn owns(&self, file: &std::fs::File) -> io::Result<()> {
        std::os::unix::fs::fchown(file, Some(self.uid), Some(self.gid))
    }
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// A user's or group's number in the environment.
fn number(name: &str) -> io::Result<Option<u32>> {
    let Some(value) = std::env::var_os(name) else { return Ok(None) };
    let number = value.to_str().and_then(|text| text.parse::<u32>().ok());
    // The largest means "leave as it is" to the calls that set it.
    match number.filter(|n| *n != u32::MAX) {
        Some(number) => Ok(Some(number)),
        None => Err(bad(&format!(
            "{name} is '{}', which is no number of a user or group; unset it, or call sudo",
            value.display()
        ))),
    }
}

/// All groups of a user.
fn groups(name: &OsStr, gid: libc::gid_t) -> io::Result<Vec<libc::gid_t>> {
    let name = CString::new(name.as_encoded_bytes()).map_err(|_| bad("a user's name holds a 0"))?;
    let mut groups = vec![0; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the name is a live C string, and the list has room for `count` numbers.
        let n = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        if n != -1 {
            groups.truncate(count.max(0) as usize);
            return Ok(groups);
        }
        if groups.len() >= GROUPS_MAX {
            return Err(bad("a user is in more groups than a kernel knows"));
        }
        groups.resize(groups.len() * 2, 0);
    }
}
