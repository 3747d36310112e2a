//! Who a task is, and what it may do by that: Linux's credentials, as `credentials(7)` has them.
//!
//! ```text
//!   setuid, setresgid, setgroups … ─▶ Credentials ── may ─▶ a file's permissions
//!   execve: bits of the file ───────▶            ├─ may_signal, may_look_at ─▶ another task's
//!                                                └─ may_segment ─▶ a segment of System V
//! ```
//!
//! What goes beyond is a task's by its [`Capabilities`], which follow its user.
//!
//! **Invariants**
//! - K1. No number but those of [`Ids`] becomes one of them, unless the task has the capability for
//!   that, or runs a file with the set-user-ID or set-group-ID bit.
//! - K2. A number is kept by [`KEEP`], and no task has that one.
//! - K3. The filesystem number is the effective one after each change but `setfsuid`, `setfsgid`.
//! - K4. Groups are in order, at most [`GROUPS_MAX`].
//! - K5. A call that is refused changes nothing.
//!
//! **Not here**: whose credentials they are, and when: the embedder has them for each task.

use crate::capabilities::{Capabilities, Capability, Roots, Run};
use crate::errno::Errno;
use alloc::vec::Vec;
use linux_raw_sys::general::{R_OK, S_IFDIR, S_IFMT, S_ISGID, S_ISUID, S_IXGRP, W_OK, X_OK};

/// The number that stands for the one that is there: -1.
pub const KEEP: u32 = u32::MAX;
/// How many groups a task may have besides.
pub const GROUPS_MAX: usize = 65_536;

/// The numbers of a task's user, or of its group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Ids {
    /// Whose the task is.
    pub real: u32,
    /// By which it may do what it does.
    pub effective: u32,
    /// What it may become again.
    pub saved: u32,
    /// By which it reaches files, and whose its new ones are.
    pub files: u32,
}

/// Whether somebody may become anybody.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Power {
    Any,
    None,
}

impl Ids {
    /// All the same.
    pub const fn all(id: u32) -> Ids {
        Ids { real: id, effective: id, saved: id, files: id }
    }
    fn roots(&self) -> Roots {
        let any = [self.real, self.effective, self.saved].contains(&0);
        Roots { any, effective: self.effective == 0 }
    }
    fn set(&mut self, id: u32, power: Power) -> Result<(), Errno> {
        match power {
            _ if id == KEEP => return Err(Errno::INVAL),
            Power::Any => *self = Ids::all(id),
            Power::None if id == self.real || id == self.saved => {
                (self.effective, self.files) = (id, id);
            }
            Power::None => return Err(Errno::PERM),
        }
        Ok(())
    }
    fn set_two(&mut self, [real, effective]: [u32; 2], power: Power) -> Result<(), Errno> {
        let before = *self;
        let may = |id: u32, those: &[u32]| {
            if id == KEEP || power == Power::Any || those.contains(&id) {
                Ok(())
            } else {
                Err(Errno::PERM)
            }
        };
        may(real, &[before.real, before.effective])?;
        may(effective, &[before.real, before.effective, before.saved])?;
        let given = |id: u32, before: u32| if id == KEEP { before } else { id };
        self.real = given(real, before.real);
        self.effective = given(effective, before.effective);
        if real != KEEP || effective != KEEP && effective != before.real {
            self.saved = self.effective;
        }
        self.files = self.effective; // K3
        Ok(())
    }
    fn set_three(&mut self, to: [u32; 3], power: Power) -> Result<(), Errno> {
        let Ids { real, effective, saved, files } = *self;
        let own = [real, effective, saved];
        let same = |id: u32, own: u32| id == KEEP || id == own;
        let is_same = to.iter().zip(own).all(|(id, own)| same(*id, own));
        if is_same && same(to[1], files) {
            return Ok(());
        }
        if power == Power::None && !to.iter().all(|id| *id == KEEP || own.contains(id)) {
            return Err(Errno::PERM);
        }
        let given = |nth: usize| if to[nth] == KEEP { own[nth] } else { to[nth] };
        *self = Ids { real: given(0), effective: given(1), saved: given(2), files: given(1) };
        Ok(())
    }
    /// Sets the number for files where that is allowed; gives the one before.
    fn set_files(&mut self, id: u32, power: Power) -> u32 {
        let Ids { real, effective, saved, files } = *self;
        let may = power == Power::Any || [real, effective, saved, files].contains(&id);
        if id != KEEP && may {
            self.files = id;
        }
        files
    }
}

/// Whose a file or a segment is, and what its permission bits are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guarded {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The mode, with the kind of file (`S_IFMT`) where it is one.
    pub mode: u32,
}

/// What one task wants of another one's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// It is looked at through a file.
    Files,
    /// A call reaches it.
    Call,
}

/// What the set-user-ID and set-group-ID bits of a file do when it is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetIds {
    /// They make the task another one.
    Count,
    /// Nothing: the task said so by `PR_SET_NO_NEW_PRIVS`.
    Ignored,
}

/// Users, groups and capabilities of a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// The user.
    pub user: Ids,
    /// The group.
    pub group: Ids,
    groups: Vec<u32>,
    /// What it may do beyond what these say.
    pub capabilities: Capabilities,
}

impl Credentials {
    /// Root's, without other groups.
    pub const ROOT: Credentials = Credentials {
        user: Ids::all(0),
        group: Ids::all(0),
        groups: Vec::new(),
        capabilities: Capabilities::ROOT,
    };

    /// Whether the task has a capability now.
    pub fn has(&self, one: Capability) -> bool {
        self.capabilities.effective().has(one)
    }
    fn power(&self, one: Capability) -> Power {
        if self.has(one) { Power::Any } else { Power::None }
    }
    fn set_user(
        &mut self,
        set: impl FnOnce(&mut Ids, Power) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (before, power) = (self.user, self.power(Capability::Setuid));
        set(&mut self.user, power)?;
        self.capabilities.follow(before.roots(), self.user.roots());
        Ok(())
    }
    fn set_group(
        &mut self,
        set: impl FnOnce(&mut Ids, Power) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let power = self.power(Capability::Setgid);
        set(&mut self.group, power)
    }

    /// `setuid`.
    pub fn setuid(&mut self, id: u32) -> Result<(), Errno> {
        self.set_user(|user, power| user.set(id, power))
    }
    /// `setgid`.
    pub fn setgid(&mut self, id: u32) -> Result<(), Errno> {
        self.set_group(|group, power| group.set(id, power))
    }
    /// `setreuid`: the real and the effective number.
    pub fn setreuid(&mut self, ids: [u32; 2]) -> Result<(), Errno> {
        self.set_user(|user, power| user.set_two(ids, power))
    }
    /// `setregid`: the real and the effective number.
    pub fn setregid(&mut self, ids: [u32; 2]) -> Result<(), Errno> {
        self.set_group(|group, power| group.set_two(ids, power))
    }
    /// `setresuid`: the real, the effective and the saved number.
    pub fn setresuid(&mut self, ids: [u32; 3]) -> Result<(), Errno> {
        self.set_user(|user, power| user.set_three(ids, power))
    }
    /// `setresgid`: the real, the effective and the saved number.
    pub fn setresgid(&mut self, ids: [u32; 3]) -> Result<(), Errno> {
        self.set_group(|group, power| group.set_three(ids, power))
    }
    /// `setfsuid`, which gives the number before, whether or not it is another one now.
    pub fn setfsuid(&mut self, id: u32) -> u32 {
        let before = self.user.set_files(id, self.power(Capability::Setuid));
        self.capabilities.follow_files(before, self.user.files);
        before
    }
    /// `setfsgid`, which gives the number before, whether or not it is another one now.
    pub fn setfsgid(&mut self, id: u32) -> u32 {
        self.group.set_files(id, self.power(Capability::Setgid))
    }
    /// Whether the task may set its groups, and so many: what `setgroups` asks before it looks at
    /// them.
    pub fn may_set_groups(&self, count: usize) -> Result<(), Errno> {
        match () {
            () if !self.has(Capability::Setgid) => Err(Errno::PERM),
            () if count > GROUPS_MAX => Err(Errno::INVAL),
            () => Ok(()),
        }
    }
    /// `setgroups`.
    pub fn setgroups(&mut self, mut groups: Vec<u32>) -> Result<(), Errno> {
        self.may_set_groups(groups.len())?;
        if groups.contains(&KEEP) {
            return Err(Errno::INVAL);
        }
        groups.sort_unstable(); // K4
        self.groups = groups;
        Ok(())
    }
    /// The groups besides, in order: what `getgroups` gives.
    pub fn groups(&self) -> &[u32] {
        &self.groups
    }
    /// Whether files of a group are the task's as a member's.
    pub fn is_member(&self, group: u32) -> bool {
        self.group.files == group || self.groups.binary_search(&group).is_ok()
    }

    /// Whether a file lets the task do all of `wanted`: `R_OK`, `W_OK`, `X_OK`. The first class of
    /// owner, group and others that the task is in decides. With the capability a task may do
    /// everything but execute what nobody may, and search every folder.
    pub fn may(&self, file: &Guarded, wanted: u32) -> bool {
        let (mode, wanted) = (file.mode, wanted & 7);
        let granted = match () {
            () if file.uid == self.user.files => mode >> 6,
            () if self.is_member(file.gid) => mode >> 3,
            () => mode,
        };
        let is_folder = mode & S_IFMT == S_IFDIR;
        let overrides = is_folder || wanted & X_OK == 0 || mode & 0o111 != 0;
        let searches = if is_folder { wanted & W_OK == 0 } else { wanted == R_OK };
        wanted & !granted == 0
            || self.has(Capability::DacOverride) && overrides
            || self.has(Capability::DacReadSearch) && searches
    }
    /// Whether the task may change what is known of a file of this user.
    pub fn owns(&self, uid: u32) -> bool {
        self.user.files == uid || self.has(Capability::Fowner)
    }
    /// The same for `access`, which asks for the real user and group.
    pub fn as_real(&self) -> Credentials {
        let mut real = self.clone();
        (real.user.files, real.group.files) = (self.user.real, self.group.real);
        real.capabilities = self.capabilities.as_real(self.user.real);
        real
    }
    /// The owner and group of a file that `chown` sets, where the task may do that; [`KEEP`] leaves
    /// one what it is.
    pub fn chown(&self, file: &Guarded, to: [u32; 2]) -> Result<Guarded, Errno> {
        let (is_own, may_any) = (self.user.files == file.uid, self.has(Capability::Chown));
        let may_user = to[0] == KEEP || is_own && to[0] == file.uid;
        let may_group = to[1] == KEEP || is_own && (to[1] == file.gid || self.is_member(to[1]));
        if !(may_any || may_user && may_group) {
            return Err(Errno::PERM);
        }
        let given = |id: u32, before: u32| if id == KEEP { before } else { id };
        let mode = match file.mode & S_IFMT {
            S_IFDIR => file.mode,
            _ => self.without_set_ids(file),
        };
        Ok(Guarded { uid: given(to[0], file.uid), gid: given(to[1], file.gid), mode })
    }
    /// The mode that `chmod` sets, where the task may do that.
    pub fn chmod(&self, file: &Guarded, mode: u32) -> Result<u32, Errno> {
        if !self.owns(file.uid) {
            return Err(Errno::PERM);
        }
        let is_member = self.is_member(file.gid) || self.has(Capability::Fsetid);
        let mode = if is_member { mode } else { mode & !S_ISGID };
        Ok(file.mode & S_IFMT | mode & 0o7777)
    }
    /// The mode of a new file that is no folder, in a folder: where that hands its group on, nobody
    /// gets a file that makes others members of a group that the task is no member of.
    pub fn new_mode(&self, folder: &Guarded, mode: u32) -> u32 {
        let both = S_ISGID | S_IXGRP;
        let is_member = self.is_member(folder.gid) || self.has(Capability::Fsetid);
        let drops = folder.mode & S_ISGID != 0 && mode & both == both && !is_member;
        if drops { mode & !S_ISGID } else { mode }
    }
    /// The mode of a file that changes hands or is written: one that nobody becomes another by.
    pub fn without_set_ids(&self, file: &Guarded) -> u32 {
        let is_member = self.is_member(file.gid) || self.has(Capability::Fsetid);
        let drops_group = file.mode & S_IXGRP != 0 || !is_member;
        file.mode & !S_ISUID & if drops_group { !S_ISGID } else { u32::MAX }
    }

    /// What the task is while it runs a file.
    pub fn running(&self, file: &Guarded, bits: SetIds) -> Credentials {
        let mut new = self.clone();
        if bits == SetIds::Count {
            if file.mode & S_ISUID != 0 {
                new.user.effective = file.uid;
            }
            if file.mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP {
                new.group.effective = file.gid;
            }
        }
        for ids in [&mut new.user, &mut new.group] {
            (ids.saved, ids.files) = (ids.effective, ids.effective);
        }
        new.capabilities = self.capabilities.running(Run {
            is_root: [new.user.real == 0, new.user.effective == 0],
            is_other: new.user.effective != self.user.real
                || new.group.effective != self.group.real,
            is_kept_low: bits == SetIds::Ignored,
        });
        new
    }
    /// Whether a program that a task which was `before` begins must not trust it: `AT_SECURE`.
    pub fn is_secure(&self, before: &Credentials) -> bool {
        let differs = |ids: &Ids| ids.real != ids.effective;
        let is_other = self.user.effective != before.user.effective;
        let is_foreign = !before.is_member(self.group.effective);
        is_other || is_foreign || differs(&self.user) || differs(&self.group)
    }
    /// Whether a task that was `before` is not to be looked at by others any more.
    pub fn hides_from(&self, before: &Credentials) -> bool {
        let of = |ids: &Ids| [ids.effective, ids.files];
        let (own, had) = (self.capabilities.permitted(), before.capabilities.permitted());
        of(&self.user) != of(&before.user)
            || of(&self.group) != of(&before.group)
            || !had.covers(own)
    }

    /// Whether the task may send a signal to another one, but for one of its own process, and for
    /// `SIGCONT` within a session.
    pub fn may_signal(&self, to: &Credentials) -> bool {
        let is_own = |id: u32| id == to.user.real || id == to.user.saved;
        self.has(Capability::Kill) || is_own(self.user.real) || is_own(self.user.effective)
    }
    /// Whether the task may look at another one's memory, and change its limits. One that is not to
    /// be looked at is for `CAP_SYS_PTRACE` alone; the embedder knows which.
    pub fn may_look_at(&self, other: &Credentials, by: By) -> bool {
        let (user, group) = match by {
            By::Files => (self.user.files, self.group.files),
            By::Call => (self.user.real, self.group.real),
        };
        let is_all = |ids: &Ids, id: u32| [ids.real, ids.effective, ids.saved] == [id; 3];
        let has_no_more = || {
            let own = match by {
                By::Files => self.capabilities.effective(),
                By::Call => self.capabilities.permitted(),
            };
            own.covers(other.capabilities.permitted())
        };
        self.has(Capability::SysPtrace)
            || is_all(&other.user, user) && is_all(&other.group, group) && has_no_more()
    }
    /// Whether the task may set how another one is scheduled.
    pub fn may_schedule(&self, other: &Credentials) -> bool {
        let own = self.user.effective;
        self.has(Capability::SysNice) || own == other.user.real || own == other.user.effective
    }

    /// Whether a segment of System V, whose maker's user and group are `maker`, lets the task do
    /// what the bits of a mode say in any class.
    pub fn may_segment(&self, segment: &Guarded, maker: [u32; 2], wanted: u32) -> bool {
        let wanted = wanted >> 6 | wanted >> 3 | wanted;
        let granted = match () {
            () if self.has_segment(segment, maker) => segment.mode >> 6,
            () if self.is_member(maker[1]) || self.is_member(segment.gid) => segment.mode >> 3,
            () => segment.mode,
        };
        wanted & 7 & !granted == 0 || self.has(Capability::IpcOwner)
    }
    /// Whether a segment is the task's, to be changed and removed by it.
    pub fn may_change_segment(&self, segment: &Guarded, maker: [u32; 2]) -> bool {
        self.has(Capability::SysAdmin) || self.has_segment(segment, maker)
    }
    fn has_segment(&self, segment: &Guarded, maker: [u32; 2]) -> bool {
        [segment.uid, maker[0]].contains(&self.user.effective)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::general::S_IFREG;

    const NOBODY: u32 = 65534;

    fn user(real: u32, effective: u32, saved: u32) -> Credentials {
        let mut it = Credentials::ROOT;
        it.setresuid([real, effective, saved]).unwrap();
        it
    }
    fn numbers(ids: &Ids) -> [u32; 4] {
        [ids.real, ids.effective, ids.saved, ids.files]
    }
    /// What a call makes of a task, and that one that is refused makes nothing of it (K5).
    fn check(
        from: &Credentials,
        call: impl FnOnce(&mut Credentials) -> Result<(), Errno>,
        expect: Result<[u32; 4], Errno>,
    ) {
        let mut new = from.clone();
        match call(&mut new) {
            Ok(()) => assert_eq!(Ok(numbers(&new.user)), expect),
            Err(why) => {
                assert_eq!(Err(why), expect);
                assert_eq!(new, *from);
            }
        }
    }

    #[test]
    fn setuid_is_for_good_for_root_alone() {
        check(&Credentials::ROOT, |it| it.setuid(7), Ok([7; 4]));
        check(&Credentials::ROOT, |it| it.setuid(KEEP), Err(Errno::INVAL));
        check(&user(0, 7, 9), |it| it.setuid(0), Ok([0, 0, 9, 0]));
        check(&user(0, 7, 9), |it| it.setuid(9), Ok([0, 9, 9, 9]));
        check(&user(5, 7, 9), |it| it.setuid(7), Err(Errno::PERM));
        check(&user(7, 7, 7), |it| it.setuid(0), Err(Errno::PERM));
        let mut root_in_group = Credentials::ROOT;
        root_in_group.setgid(5).unwrap();
        assert_eq!(root_in_group.group, Ids::all(5));
        root_in_group.setuid(7).unwrap();
        assert_eq!(root_in_group.setgid(0), Err(Errno::PERM), "the user decides");
    }

    #[test]
    fn setreuid_saves_what_may_come_back() {
        check(&Credentials::ROOT, |it| it.setreuid([7, 9]), Ok([7, 9, 9, 9]));
        check(&Credentials::ROOT, |it| it.setreuid([KEEP, 9]), Ok([0, 9, 9, 9]));
        check(&Credentials::ROOT, |it| it.setreuid([KEEP, 0]), Ok([0; 4]));
        check(&Credentials::ROOT, |it| it.setreuid([7, KEEP]), Ok([7, 0, 0, 0]));
        check(&user(5, 7, 9), |it| it.setreuid([7, 5]), Ok([7, 5, 5, 5]));
        check(&user(5, 7, 9), |it| it.setreuid([KEEP, 9]), Ok([5, 9, 9, 9]));
        check(&user(5, 7, 9), |it| it.setreuid([KEEP, 5]), Ok([5, 5, 9, 5]));
        check(&user(5, 7, 9), |it| it.setreuid([9, KEEP]), Err(Errno::PERM));
        check(&user(5, 7, 9), |it| it.setreuid([5, 0]), Err(Errno::PERM));
    }

    #[test]
    fn setresuid_takes_what_the_task_has() {
        check(&Credentials::ROOT, |it| it.setresuid([7, 8, 9]), Ok([7, 8, 9, 8]));
        check(&user(5, 7, 9), |it| it.setresuid([9, 5, 7]), Ok([9, 5, 7, 5]));
        check(&user(5, 7, 9), |it| it.setresuid([KEEP, 9, KEEP]), Ok([5, 9, 9, 9]));
        for nth in 0..3 {
            let mut to = [KEEP; 3];
            to[nth] = 6;
            check(&user(5, 7, 9), |it| it.setresuid(to), Err(Errno::PERM));
        }
        let mut own = user(5, 7, 9);
        assert_eq!(own.setfsuid(9), 7);
        check(&own, |it| it.setresuid([KEEP, KEEP, 9]), Ok([5, 7, 9, 9]));
        check(&own, |it| it.setresuid([KEEP, 7, KEEP]), Ok([5, 7, 9, 7]));
        check(&own, |it| it.setresuid([7, KEEP, KEEP]), Ok([7, 7, 9, 7]));
    }

    #[test]
    fn setfsuid_tells_what_was_there() {
        let mut root = Credentials::ROOT;
        assert_eq!(root.setfsuid(NOBODY), 0);
        assert!(root.has(Capability::Kill) && !root.has(Capability::Fowner));
        assert_eq!(root.setfsuid(KEEP), NOBODY);
        assert_eq!(root.setfsuid(0), NOBODY);
        let mut own = user(5, 7, 9);
        assert_eq!(own.setfsuid(6), 7, "it is not allowed, and nobody is told");
        assert_eq!([own.setfsuid(5), own.setfsuid(9), own.setfsuid(9)], [7, 5, 9]);
        assert_eq!([own.setfsgid(3), own.setfsgid(0)], [0, 0]);
    }

    /// K1 and K3, whatever is called.
    #[test]
    fn nobody_becomes_what_it_was_not() {
        let mut seed = 1u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for _ in 0..20_000 {
            let mut id = || [0, 5, 7, 9, KEEP][next(5) as usize];
            let before = user(id() % 10, id() % 10, id() % 10);
            let (one, two, three) = (id(), id(), id());
            let mut after = before.clone();
            let _ = match next(4) {
                0 => after.setuid(one),
                1 => after.setreuid([one, two]),
                2 => after.setresuid([one, two, three]),
                _ => {
                    after.setfsuid(one);
                    Ok(())
                }
            };
            let had = numbers(&before.user);
            let has = numbers(&after.user);
            assert!(!has.contains(&KEEP));
            assert!(
                before.has(Capability::Setuid) || has.iter().all(|id| had.contains(id)),
                "{had:?} {has:?}"
            );
        }
    }

    #[test]
    fn groups_are_root_s_to_set() {
        let mut own = Credentials::ROOT;
        own.setgroups([9, 4, 9].into()).unwrap();
        assert_eq!(own.groups(), [4, 9, 9]);
        assert_eq!(own.setgroups([1, KEEP].into()), Err(Errno::INVAL));
        assert_eq!(own.setgroups(alloc::vec![1; GROUPS_MAX + 1]), Err(Errno::INVAL));
        assert_eq!(own.groups(), [4, 9, 9]);
        assert!([0, 4, 9].into_iter().all(|group| own.is_member(group)) && !own.is_member(5));
        own.setuid(7).unwrap();
        assert_eq!(own.setgroups(Vec::new()), Err(Errno::PERM));
        assert_eq!(own.may_set_groups(GROUPS_MAX + 1), Err(Errno::PERM), "before the count");
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let mut own = user(7, 7, 7);
        own.group = Ids::all(3);
        own.groups = [8].into();
        let all = [R_OK, W_OK, X_OK];
        let may = |uid, gid, mode| {
            let file = Guarded { uid, gid, mode: S_IFREG | mode };
            all.map(|wanted| u32::from(own.may(&file, wanted)))
        };
        assert_eq!(may(7, 3, 0o077), [0, 0, 0], "an owner is no member");
        assert_eq!(may(7, 0, 0o500), [1, 0, 1]);
        assert_eq!(may(0, 3, 0o707), [0, 0, 0], "a member is none of the others");
        assert_eq!([may(0, 3, 0o020), may(0, 8, 0o020)], [[0, 1, 0]; 2]);
        assert_eq!(may(0, 0, 0o771), [0, 0, 1]);
        let file = Guarded { uid: 7, gid: 0, mode: S_IFREG | 0o400 };
        assert!(own.may(&file, 0) && !own.may(&file, R_OK | W_OK), "all, or nothing");
    }

    #[test]
    fn root_may_all_but_execute_what_nobody_may() {
        let root = Credentials::ROOT;
        let file = |mode| Guarded { uid: 7, gid: 7, mode };
        assert!(root.may(&file(S_IFREG), R_OK | W_OK) && !root.may(&file(S_IFREG), X_OK));
        assert!(root.may(&file(S_IFREG | 0o010), R_OK | W_OK | X_OK));
        assert!(root.may(&file(S_IFDIR), R_OK | W_OK | X_OK));
        let mut of_files = root.clone();
        of_files.setfsuid(NOBODY);
        assert!(!of_files.may(&file(S_IFREG), R_OK));
        let mut own = user(0, 7, 7);
        assert!(!own.may(&Guarded { uid: 0, gid: 5, mode: 0o600 }, R_OK));
        assert!(own.as_real().may(&file(S_IFREG), R_OK), "the real user is root");
        own.setfsuid(0);
        assert!(own.may(&file(S_IFREG), R_OK), "capabilities about files follow its number");
    }

    #[test]
    fn owners_change_what_is_known_of_files() {
        let mut own = user(7, 7, 7);
        own.groups = [8].into();
        let mode = S_IFREG | S_ISUID | S_ISGID | 0o755;
        let file = Guarded { uid: 7, gid: 0, mode };
        let others = Guarded { uid: 9, ..file };
        let bare = S_IFREG | 0o755;
        assert_eq!(own.chown(&file, [KEEP, 8]), Ok(Guarded { uid: 7, gid: 8, mode: bare }));
        assert_eq!(own.chown(&file, [7, KEEP]), Ok(Guarded { mode: bare, ..file }));
        for (file, to) in
            [(file, [9, KEEP]), (file, [KEEP, 5]), (others, [KEEP, 8]), (others, [9, KEEP])]
        {
            assert_eq!(own.chown(&file, to), Err(Errno::PERM));
        }
        let root = Credentials::ROOT;
        assert_eq!(root.chown(&file, [9, 5]), Ok(Guarded { uid: 9, gid: 5, mode: bare }));
        let folder = Guarded { mode: S_IFDIR | S_ISGID | 0o755, ..file };
        assert_eq!(root.chown(&folder, [9, 5]).unwrap().mode, folder.mode);
        let locked = Guarded { gid: 5, mode: S_IFREG | S_ISGID | 0o644, ..file };
        assert_eq!(root.chown(&locked, [KEEP; 2]).unwrap().mode, locked.mode, "no bit to execute");
        assert_eq!(own.chown(&locked, [KEEP; 2]).unwrap().mode, S_IFREG | 0o644);
        assert_eq!(own.chmod(&others, 0o644), Err(Errno::PERM));
        assert_eq!(own.chmod(&file, 0o2711), Ok(S_IFREG | 0o2711), "it is in group 0");
        assert_eq!(own.chmod(&locked, 0o12711), Ok(S_IFREG | 0o711), "the kind stays");
        assert_eq!(root.chmod(&locked, 0o2711), Ok(S_IFREG | 0o2711));
        let above = Guarded { uid: 1, gid: 5, mode: S_IFDIR | S_ISGID | 0o777 };
        assert_eq!(own.new_mode(&above, S_ISGID | 0o711), 0o711);
        assert_eq!(own.new_mode(&above, S_ISGID | 0o701), S_ISGID | 0o701);
        assert_eq!(root.new_mode(&above, S_ISGID | 0o711), S_ISGID | 0o711);
        let members = Guarded { gid: 8, ..above };
        assert_eq!(own.new_mode(&members, S_ISGID | 0o711), S_ISGID | 0o711);
        let plain = Guarded { mode: S_IFDIR | 0o777, ..above };
        assert_eq!(own.new_mode(&plain, S_ISGID | 0o711), S_ISGID | 0o711);
    }

    #[test]
    fn a_file_s_bits_make_another_one() {
        let mut own = user(7, 7, 7);
        own.group = Ids::all(3);
        let file = |bits| Guarded { uid: 0, gid: 5, mode: S_IFREG | 0o755 | bits };
        let plain = own.running(&file(0), SetIds::Count);
        assert!(plain == own && !plain.is_secure(&own) && !plain.hides_from(&own));
        let new = own.running(&file(S_ISUID | S_ISGID), SetIds::Count);
        assert_eq!((numbers(&new.user), numbers(&new.group)), ([7, 0, 0, 0], [3, 5, 5, 5]));
        assert!(new.is_secure(&own) && new.hides_from(&own));
        assert_eq!(own.running(&file(S_ISUID | S_ISGID), SetIds::Ignored), own);
        let lock = Guarded { mode: S_IFREG | S_ISGID | 0o745, ..file(0) };
        assert_eq!(own.running(&lock, SetIds::Count), own, "without the group's x it is no bit");
        let before = user(0, 7, 0);
        let back = before.running(&file(0), SetIds::Count);
        assert_eq!(numbers(&back.user), [0, 7, 7, 7], "what was saved goes");
        assert!(back.is_secure(&before) && !back.hides_from(&before));
        let real = user(0, 7, 7).running(&file(S_ISUID), SetIds::Count);
        assert!(real.is_secure(&before), "it is itself again, and was not before");
        let mut of_files = Credentials::ROOT;
        of_files.setfsuid(7);
        let root = of_files.running(&file(0), SetIds::Count);
        assert!(root == Credentials::ROOT && !root.is_secure(&of_files));
        assert!(root.hides_from(&of_files));
    }

    #[test]
    fn signals_and_looks_go_to_one_s_own() {
        let to = user(5, 7, 9);
        for (from, may) in [
            (user(5, 1, 1), true),
            (user(1, 9, 1), true),
            (user(7, 7, 7), false),
            (user(1, 1, 9), false),
            (user(1, 0, 1), true),
        ] {
            assert_eq!(from.may_signal(&to), may, "{from:?}");
        }
        let own = user(7, 7, 7);
        for by in [By::Files, By::Call] {
            assert!(own.may_look_at(&own, by) && Credentials::ROOT.may_look_at(&to, by));
            assert!(!own.may_look_at(&to, by));
            let other_group = Credentials { group: Ids::all(3), ..own.clone() };
            assert!(!own.may_look_at(&other_group, by));
        }
        let mut files = user(5, 7, 7);
        assert!(files.may_look_at(&own, By::Files) && !files.may_look_at(&own, By::Call));
        files.setfsuid(5);
        assert!(!files.may_look_at(&own, By::Files));
        assert!(own.may_schedule(&to) && !user(9, 9, 9).may_schedule(&to));
    }

    #[test]
    fn a_segment_is_its_owner_s_and_its_maker_s() {
        let own = user(7, 7, 7);
        let mut member = user(8, 8, 8);
        member.group = Ids::all(3);
        let segment = |uid, gid, mode| Guarded { uid, gid, mode };
        let may = |it: &Credentials, at: &Guarded, maker, wanted| it.may_segment(at, maker, wanted);
        assert!(may(&own, &segment(7, 0, 0o600), [1, 1], 0o666));
        assert!(may(&own, &segment(1, 0, 0o600), [7, 1], 0o600), "who made it");
        assert!(!may(&own, &segment(7, 3, 0o477), [1, 1], 0o200), "the first class decides");
        assert!(may(&member, &segment(7, 3, 0o640), [7, 7], 0o444));
        assert!(may(&member, &segment(7, 7, 0o640), [7, 3], 0o400), "the maker's group");
        assert!(!may(&member, &segment(7, 3, 0o640), [7, 7], 0o666));
        assert!(!may(&member, &segment(7, 7, 0o640), [7, 7], 0o444));
        assert!(may(&Credentials::ROOT, &segment(7, 7, 0), [7, 7], 0o777));
        assert!(own.may_change_segment(&segment(1, 1, 0), [7, 7]));
        assert!(!member.may_change_segment(&segment(7, 3, 0o666), [7, 3]));
    }
}
