//! Calls about capabilities.

use super::super::thread::Thread;
use super::super::{process, user};
use super::Answer;
use super::ids::change;
use super::numbers::{CAPABILITY_VERSION_1, CAPABILITY_VERSION_2, CAPABILITY_VERSION_3};
use alloc::sync::Arc;
use foliant_linux::Errno;
use foliant_linux::capabilities::{Capabilities, CapabilitySet};
use linux_raw_sys::errno::{EINVAL, EPERM, ESRCH};
use linux_raw_sys::prctl::{
    PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, PR_CAP_AMBIENT_IS_SET, PR_CAP_AMBIENT_LOWER,
    PR_CAP_AMBIENT_RAISE, PR_CAPBSET_DROP, PR_CAPBSET_READ, PR_GET_KEEPCAPS, PR_GET_SECUREBITS,
    PR_SET_KEEPCAPS, PR_SET_SECUREBITS,
};

type Six = [u64; 6];

/// How many words a version of the calls about capabilities has.
fn words_of(at: u64) -> Result<u64, Errno> {
    match user::get::<u32>(at)? {
        CAPABILITY_VERSION_1 => Ok(1),
        CAPABILITY_VERSION_2 | CAPABILITY_VERSION_3 => Ok(2),
        _ => {
            user::put(at, &CAPABILITY_VERSION_3)?;
            Err(Errno(EINVAL))
        }
    }
}
pub(super) fn capget(thread: &Arc<Thread>, [head, into, ..]: Six) -> Answer {
    let words = match words_of(head) {
        Err(Errno(EINVAL)) if into == 0 => return Ok(0),
        words => words?,
    };
    let id: u32 = user::get(head.wrapping_add(4))?;
    let whose = match id {
        0 => thread.credentials(),
        id => process::of_id(id).ok_or(Errno(ESRCH))?.credentials.get(),
    };
    let has = whose.capabilities;
    let told = [has.effective(), has.permitted(), has.inheritable()];
    for nth in 0..words {
        let bytes = told.map(|set| ((set.bits() >> (32 * nth)) as u32).to_le_bytes());
        user::put_bytes(into.wrapping_add(nth * 12), bytes.as_flattened())?;
    }
    Ok(0)
}
pub(super) fn capset(thread: &Arc<Thread>, [head, from, ..]: Six) -> Answer {
    let words = words_of(head)?;
    let id: u32 = user::get(head.wrapping_add(4))?;
    if id != 0 && id != thread.process.id {
        return Err(Errno(EPERM));
    }
    let mut asked = [0u64; 3];
    for nth in 0..words {
        let words = user::get::<[u32; 3]>(from.wrapping_add(nth * 12))?;
        for (set, word) in asked.iter_mut().zip(words) {
            *set |= u64::from(word) << (32 * nth);
        }
    }
    let asked = asked.map(CapabilitySet::from_bits);
    become_able(thread, |own| own.set(asked))
}

fn become_able(
    thread: &Arc<Thread>,
    able: impl FnOnce(&mut Capabilities) -> Result<(), Errno>,
) -> Answer {
    change(thread, |own| able(&mut own.capabilities).map(|()| 0))
}
/// What `prctl` does about them, if it is that.
pub(super) fn prctl(
    thread: &Arc<Thread>,
    what: u32,
    [at, third, rest @ ..]: [u64; 4],
) -> Option<Answer> {
    let own = || thread.credentials().capabilities;
    let in_set = |set: CapabilitySet, number: u64| {
        CapabilitySet::of_number(number).map(|one| set.covers(one).into())
    };
    Some(match what {
        PR_GET_KEEPCAPS => Ok(own().are_kept().into()),
        PR_SET_KEEPCAPS if at > 1 => Err(Errno::INVAL),
        PR_SET_KEEPCAPS => become_able(thread, |own| own.set_kept(at == 1)),
        PR_GET_SECUREBITS => Ok(own().secure_bits().into()),
        PR_SET_SECUREBITS => become_able(thread, |own| own.set_secure_bits(at)),
        PR_CAPBSET_READ => in_set(own().bounding(), at),
        PR_CAPBSET_DROP => become_able(thread, |own| own.drop_bounding(at)),
        PR_CAP_AMBIENT if rest != [0; 2] => Err(Errno::INVAL),
        PR_CAP_AMBIENT => match at as u32 {
            PR_CAP_AMBIENT_CLEAR_ALL if third == 0 => become_able(thread, |own| {
                own.clear_ambient();
                Ok(())
            }),
            PR_CAP_AMBIENT_IS_SET => in_set(own().ambient(), third),
            PR_CAP_AMBIENT_RAISE => become_able(thread, |own| own.raise_ambient(third)),
            PR_CAP_AMBIENT_LOWER => become_able(thread, |own| own.lower_ambient(third)),
            _ => Err(Errno::INVAL),
        },
        _ => return None,
    })
}
