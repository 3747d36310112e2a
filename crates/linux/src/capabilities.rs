//! What a task may do that its user and groups do not say: Linux's capabilities, as
//! `capabilities(7)` has them.
//!
//! ```text
//!   permitted ⊇ effective: what the task may do     bounding: what its programs may get as root's
//!      │ ∩ inheritable ⊇ ambient: what any program that it runs keeps
//!      ▼
//!   capset, set*uid, execve, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_SET_SECUREBITS move them
//! ```
//!
//! **Invariants**
//! - B1. What is effective is permitted; what is ambient is permitted, and inheritable.
//! - B2. No call makes more permitted, but `execve`: as root what is in the bounding set or
//!   inheritable. Nothing comes back to the bounding set.
//! - B3. A call that is refused changes nothing.
//!
//! **Not here**: capabilities of files, user name spaces; which call wants which one
//! (`credentials`, and the embedder).

use crate::errno::Errno;

/// One of them, by Linux's number: those that something here wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Capability {
    /// To give files away.
    Chown = 0,
    /// To read, write and execute what permissions refuse.
    DacOverride = 1,
    /// To read files and search folders that permissions refuse.
    DacReadSearch = 2,
    /// To change what is known of others' files.
    Fowner = 3,
    /// To keep the bits that make a program another user's.
    Fsetid = 4,
    /// To send others signals.
    Kill = 5,
    /// To be of any group.
    Setgid = 6,
    /// To be any user.
    Setuid = 7,
    /// To make capabilities inheritable, and to take some from the bounding set.
    Setpcap = 8,
    /// To have a low port.
    NetBindService = 10,
    /// To lock memory.
    IpcLock = 14,
    /// To use others' segments of System V.
    IpcOwner = 15,
    /// To look at others' memory.
    SysPtrace = 19,
    /// To mount, to name the machine, and much else.
    SysAdmin = 21,
    /// To end the machine.
    SysBoot = 22,
    /// To be scheduled before others.
    SysNice = 23,
    /// To go beyond limits.
    SysResource = 24,
}

/// Some capabilities, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct CapabilitySet(u64);

impl CapabilitySet {
    /// None.
    pub const NONE: CapabilitySet = CapabilitySet(0);
    /// All that Linux has.
    pub const ALL: CapabilitySet = CapabilitySet((1 << 41) - 1);
    /// Those about files, which follow the filesystem user: with the two that make nodes and keep
    /// files from changes, and the one beyond labels.
    const FILES: CapabilitySet = CapabilitySet(0b1_1111 | 1 << 9 | 1 << 27 | 1 << 32);

    /// Those of Linux whose bits these are.
    pub const fn from_bits(bits: u64) -> CapabilitySet {
        CapabilitySet(bits & CapabilitySet::ALL.0)
    }
    /// A bit for each.
    pub const fn bits(self) -> u64 {
        self.0
    }
    /// The one of this number, if Linux has it.
    pub fn of_number(number: u64) -> Result<CapabilitySet, Errno> {
        let one = 1u64.checked_shl(u32::try_from(number).unwrap_or(u32::MAX)).unwrap_or(0);
        if one & CapabilitySet::ALL.0 == 0 { Err(Errno::INVAL) } else { Ok(CapabilitySet(one)) }
    }
    /// Whether this one is in it.
    pub const fn has(self, one: Capability) -> bool {
        self.0 >> one as u8 & 1 != 0
    }
    /// Whether all of `other` are.
    pub const fn covers(self, other: CapabilitySet) -> bool {
        other.0 & !self.0 == 0
    }
    const fn and(self, other: CapabilitySet) -> CapabilitySet {
        CapabilitySet(self.0 & other.0)
    }
    const fn or(self, other: CapabilitySet) -> CapabilitySet {
        CapabilitySet(self.0 | other.0)
    }
    const fn without(self, other: CapabilitySet) -> CapabilitySet {
        CapabilitySet(self.0 & !other.0)
    }
}

/// What root is, as bits of `PR_SET_SECUREBITS`; the bit above each locks it.
mod secure {
    /// Programs that root runs get nothing for that.
    pub(super) const NO_ROOT: u32 = 1 << 0;
    /// Capabilities stay what they are whoever the task becomes.
    pub(super) const NO_FIXUP: u32 = 1 << 2;
    /// What is permitted stays when the task is root no more, until it runs a program.
    pub(super) const KEEP: u32 = 1 << 4;
    /// Nothing becomes ambient.
    pub(super) const NO_AMBIENT: u32 = 1 << 6;
    pub(super) const ALL: u32 = NO_ROOT | NO_FIXUP | KEEP | NO_AMBIENT;
    pub(super) const LOCKS: u32 = ALL << 1;
}

/// The capabilities of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    effective: CapabilitySet,
    permitted: CapabilitySet,
    inheritable: CapabilitySet,
    bounding: CapabilitySet,
    ambient: CapabilitySet,
    secure: u32,
}

/// Which of a task's users are root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Roots {
    /// The real, the effective or the saved one.
    pub(crate) any: bool,
    pub(crate) effective: bool,
}

/// How somebody runs a program.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// The program's real and effective user are root.
    pub(crate) is_root: [bool; 2],
    /// The effective user or group is not the real one of the task that ran it.
    pub(crate) is_other: bool,
    /// It gets nothing that the task had not.
    pub(crate) is_kept_low: bool,
}

impl Capabilities {
    /// Root's.
    pub const ROOT: Capabilities = Capabilities {
        effective: CapabilitySet::ALL,
        permitted: CapabilitySet::ALL,
        inheritable: CapabilitySet::NONE,
        bounding: CapabilitySet::ALL,
        ambient: CapabilitySet::NONE,
        secure: 0,
    };

    /// What the task may do now.
    pub fn effective(&self) -> CapabilitySet {
        self.effective
    }
    /// What it may make effective.
    pub fn permitted(&self) -> CapabilitySet {
        self.permitted
    }
    /// What it may make ambient, and what programs that ask for it keep.
    pub fn inheritable(&self) -> CapabilitySet {
        self.inheritable
    }
    /// What programs that it runs as root get at most.
    pub fn bounding(&self) -> CapabilitySet {
        self.bounding
    }
    /// What programs that it runs keep.
    pub fn ambient(&self) -> CapabilitySet {
        self.ambient
    }
    /// What `PR_GET_SECUREBITS` gives.
    pub fn secure_bits(&self) -> u32 {
        self.secure
    }
    /// Whether `PR_SET_KEEPCAPS` was the last to say so.
    pub fn are_kept(&self) -> bool {
        self.is_secure(secure::KEEP)
    }
    fn is_secure(&self, bit: u32) -> bool {
        self.secure & bit != 0
    }
    fn needs_setpcap(&self) -> Result<(), Errno> {
        if self.effective.has(Capability::Setpcap) { Ok(()) } else { Err(Errno::PERM) }
    }

    /// `capset`: what is effective, permitted and inheritable.
    pub fn set(
        &mut self,
        [effective, permitted, inheritable]: [CapabilitySet; 3],
    ) -> Result<(), Errno> {
        let (old, is_powerful) = (*self, self.effective.has(Capability::Setpcap));
        let may = (is_powerful || old.inheritable.or(old.permitted).covers(inheritable))
            && old.inheritable.or(old.bounding).covers(inheritable)
            && old.permitted.covers(permitted)
            && permitted.covers(effective);
        if !may {
            return Err(Errno::PERM);
        }
        let ambient = old.ambient.and(permitted).and(inheritable);
        *self = Capabilities { effective, permitted, inheritable, ambient, ..old };
        Ok(())
    }
    /// `PR_CAPBSET_DROP`.
    pub fn drop_bounding(&mut self, number: u64) -> Result<(), Errno> {
        self.needs_setpcap()?;
        self.bounding = self.bounding.without(CapabilitySet::of_number(number)?);
        Ok(())
    }
    /// `PR_CAP_AMBIENT_RAISE`.
    pub fn raise_ambient(&mut self, number: u64) -> Result<(), Errno> {
        let one = CapabilitySet::of_number(number)?;
        let may = self.permitted.and(self.inheritable).covers(one);
        if !may || self.is_secure(secure::NO_AMBIENT) {
            return Err(Errno::PERM);
        }
        self.ambient = self.ambient.or(one);
        Ok(())
    }
    /// `PR_CAP_AMBIENT_LOWER`.
    pub fn lower_ambient(&mut self, number: u64) -> Result<(), Errno> {
        self.ambient = self.ambient.without(CapabilitySet::of_number(number)?);
        Ok(())
    }
    /// `PR_CAP_AMBIENT_CLEAR_ALL`.
    pub fn clear_ambient(&mut self) {
        self.ambient = CapabilitySet::NONE;
    }
    /// `PR_SET_SECUREBITS`.
    pub fn set_secure_bits(&mut self, to: u64) -> Result<(), Errno> {
        self.needs_setpcap()?;
        let (old, all) = (self.secure, u64::from(secure::ALL | secure::LOCKS));
        let locked = (old & secure::LOCKS) >> 1;
        let changed = old ^ to as u32;
        if to & !all != 0 || changed & (locked | old & secure::LOCKS) != 0 {
            return Err(Errno::PERM);
        }
        self.secure = to as u32;
        Ok(())
    }
    /// `PR_SET_KEEPCAPS`.
    pub fn set_kept(&mut self, are_kept: bool) -> Result<(), Errno> {
        if self.is_secure(secure::KEEP << 1) {
            return Err(Errno::PERM);
        }
        self.secure = self.secure & !secure::KEEP | if are_kept { secure::KEEP } else { 0 };
        Ok(())
    }

    /// The task's user changes.
    pub(crate) fn follow(&mut self, before: Roots, after: Roots) {
        if self.is_secure(secure::NO_FIXUP) {
            return;
        }
        if before.any && !after.any {
            if !self.are_kept() {
                (self.effective, self.permitted) = (CapabilitySet::NONE, CapabilitySet::NONE);
            }
            self.ambient = CapabilitySet::NONE;
        }
        match [before.effective, after.effective] {
            [true, false] => self.effective = CapabilitySet::NONE,
            [false, true] => self.effective = self.permitted,
            _ => {}
        }
    }
    /// The same for the number for files, by itself.
    pub(crate) fn follow_files(&mut self, before: u32, after: u32) {
        let files = CapabilitySet::FILES;
        match [before, after].map(|id| id == 0) {
            _ if self.is_secure(secure::NO_FIXUP) => {}
            [true, false] => self.effective = self.effective.without(files),
            [false, true] => self.effective = self.effective.or(self.permitted.and(files)),
            _ => {}
        }
    }
    /// What `access` asks by, for this real user.
    pub(crate) fn as_real(mut self, user: u32) -> Capabilities {
        if !self.is_secure(secure::NO_FIXUP) {
            self.effective = if user == 0 { self.permitted } else { CapabilitySet::NONE };
        }
        self
    }
    /// What a program has that the task runs.
    pub(crate) fn running(mut self, run: Run) -> Capabilities {
        let old = self;
        let [is_real, is_effective] = run.is_root.map(|is| is && !old.is_secure(secure::NO_ROOT));
        self.permitted = match is_real || is_effective {
            true => old.bounding.or(old.inheritable),
            false => CapabilitySet::NONE,
        };
        if run.is_kept_low {
            self.permitted = self.permitted.and(old.permitted);
        }
        if run.is_other {
            self.ambient = CapabilitySet::NONE;
        }
        self.permitted = self.permitted.or(self.ambient);
        self.effective = if is_effective { self.permitted } else { self.ambient };
        self.secure &= !secure::KEEP;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: u32 = 65534;

    fn set(those: &[Capability]) -> CapabilitySet {
        CapabilitySet(those.iter().fold(0, |bits, one| bits | 1 << *one as u8))
    }
    /// B1.
    fn check(it: &Capabilities) {
        assert!(it.permitted.covers(it.effective), "{it:?}");
        assert!(it.permitted.and(it.inheritable).covers(it.ambient), "{it:?}");
    }
    const ROOT: Roots = Roots { any: true, effective: true };
    const AWAY: Roots = Roots { any: true, effective: false };
    const OTHER: Roots = Roots { any: false, effective: false };
    const AS_ROOT: Run = Run { is_root: [true; 2], is_other: false, is_kept_low: false };
    const AS_USER: Run = Run { is_root: [false; 2], ..AS_ROOT };

    #[test]
    fn what_was_given_up_does_not_come_back() {
        let mut own = Capabilities::ROOT;
        let (some, lock) = (set(&[Capability::IpcLock, Capability::Kill]), Capability::IpcLock);
        own.set([set(&[lock]), some, some]).unwrap();
        assert!(own.effective.has(lock) && !own.effective.has(Capability::Kill));
        let before = own;
        assert_eq!(own.set([CapabilitySet::ALL; 3]), Err(Errno::PERM));
        assert_eq!(own.set([some, set(&[lock]), some]), Err(Errno::PERM), "effective is permitted");
        let more = some.or(set(&[Capability::Setuid]));
        assert_eq!(own.set([some, some, more]), Err(Errno::PERM), "without CAP_SETPCAP");
        assert_eq!(own.drop_bounding(0), Err(Errno::PERM));
        assert_eq!(own, before);
        own.set([some, some, CapabilitySet::NONE]).unwrap();
        assert_eq!(own.running(AS_ROOT).permitted, CapabilitySet::ALL, "root's programs have all");
    }

    #[test]
    fn whoever_becomes_another_user_has_none() {
        let after = |mut it: Capabilities, from: Roots, to: Roots| {
            it.follow(from, to);
            check(&it);
            it
        };
        let user = after(Capabilities::ROOT, ROOT, OTHER);
        assert_eq!([user.effective, user.permitted], [CapabilitySet::NONE; 2]);
        let mut kept = Capabilities::ROOT;
        kept.set_kept(true).unwrap();
        let kept = after(kept, ROOT, OTHER);
        assert_eq!([kept.effective, kept.permitted], [CapabilitySet::NONE, CapabilitySet::ALL]);
        let away = after(Capabilities::ROOT, ROOT, AWAY);
        assert_eq!([away.effective, away.permitted], [CapabilitySet::NONE, CapabilitySet::ALL]);
        assert_eq!(after(away, AWAY, ROOT), Capabilities::ROOT);
        let mut fixed = Capabilities::ROOT;
        fixed.set_secure_bits(secure::NO_FIXUP.into()).unwrap();
        assert_eq!(after(fixed, ROOT, OTHER), fixed);
    }

    #[test]
    fn those_about_files_follow_their_number() {
        let mut own = Capabilities::ROOT;
        own.follow_files(0, NOBODY);
        assert!(!own.effective.has(Capability::DacOverride) && own.effective.has(Capability::Kill));
        own.follow_files(NOBODY, 7);
        own.follow_files(7, 0);
        assert_eq!(own, Capabilities::ROOT);
    }

    #[test]
    fn what_is_ambient_goes_with_every_program() {
        let lock = set(&[Capability::IpcLock]);
        let number = Capability::IpcLock as u64;
        let mut own = Capabilities::ROOT;
        assert_eq!(own.raise_ambient(number), Err(Errno::PERM), "it is not inheritable");
        own.set([CapabilitySet::ALL, CapabilitySet::ALL, lock]).unwrap();
        own.raise_ambient(number).unwrap();
        check(&own);
        let program = own.running(AS_USER);
        check(&program);
        assert_eq!([program.permitted, program.effective, program.ambient], [lock; 3]);
        let other = own.running(Run { is_other: true, ..AS_USER });
        assert_eq!(other.permitted, CapabilitySet::NONE);
        own.lower_ambient(number).unwrap();
        assert_eq!(own.running(AS_USER).permitted, CapabilitySet::NONE);
        own.set_secure_bits(secure::NO_AMBIENT.into()).unwrap();
        assert_eq!(own.raise_ambient(number), Err(Errno::PERM));
        assert_eq!(own.raise_ambient(41), Err(Errno::INVAL));
        assert_eq!(own.lower_ambient(1 << 40), Err(Errno::INVAL));
    }

    #[test]
    fn programs_of_root_have_what_is_in_bounds() {
        let mut own = Capabilities::ROOT;
        own.drop_bounding(Capability::SysBoot as u64).unwrap();
        assert_eq!(own.drop_bounding(64), Err(Errno::INVAL));
        assert!(own.permitted.has(Capability::SysBoot), "it has what it had");
        let program = own.running(AS_ROOT);
        assert!(
            !program.permitted.has(Capability::SysBoot) && program.effective == program.permitted
        );
        let real = own.running(Run { is_root: [true, false], ..AS_ROOT });
        assert_eq!([real.permitted, real.effective], [program.permitted, CapabilitySet::NONE]);
        let mut user = Capabilities::ROOT;
        user.follow(ROOT, OTHER);
        let low = user.running(Run { is_kept_low: true, is_other: true, ..AS_ROOT });
        assert_eq!(low.permitted, CapabilitySet::NONE);
        own.set_secure_bits(secure::NO_ROOT.into()).unwrap();
        assert_eq!(own.running(AS_ROOT).permitted, CapabilitySet::NONE);
    }

    #[test]
    fn what_is_locked_stays() {
        let mut own = Capabilities::ROOT;
        own.set_kept(true).unwrap();
        assert!(own.are_kept() && !own.running(AS_ROOT).are_kept(), "until a program is run");
        own.set_secure_bits((secure::KEEP << 1).into()).unwrap();
        let before = own;
        assert_eq!(own.set_kept(true), Err(Errno::PERM));
        for bits in [0, u64::from(secure::KEEP | secure::KEEP << 1), 1 << 8, 1 << 32] {
            assert_eq!(own.set_secure_bits(bits), Err(Errno::PERM));
        }
        assert_eq!(own, before);
        own.set_secure_bits(u64::from(secure::KEEP << 1 | secure::NO_ROOT)).unwrap();
    }
}
