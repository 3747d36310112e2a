//! `prctl`, of what is about memory: whether the process gets large folios, and whether what it may
//! write can become what it may execute.
//!
//! A child has both as its parent does, and so has the next program: [`Process::take_switches`].
//! Refusals of execution end with the process where they are not to be inherited.

use crate::errno::Errno;
use crate::process::Process;
use foliant::fault::ProcessSwitch;
use foliant::table::Paging;
use foliant_machine::Machine;
use linux_raw_sys::prctl::{
    PR_GET_MDWE, PR_GET_THP_DISABLE, PR_MDWE_NO_INHERIT, PR_MDWE_REFUSE_EXEC_GAIN, PR_SET_MDWE,
    PR_SET_THP_DISABLE,
};

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// `prctl`, if it is about memory.
    pub fn prctl(&mut self, what: u32, arguments: [u64; 4]) -> Option<Result<u64, Errno>> {
        let [first, rest @ ..] = arguments;
        let is_alone = rest == [0; 3];
        let is_bare = is_alone && first == 0;
        Some(match what {
            PR_SET_THP_DISABLE if is_alone => {
                let off = if first == 0 { ProcessSwitch::On } else { ProcessSwitch::Off };
                self.set_folios(off).map(|()| 0)
            }
            PR_GET_THP_DISABLE if is_bare => {
                Ok((self.switches.folios == ProcessSwitch::Off).into())
            }
            PR_SET_MDWE if is_alone => self.set_mdwe(first),
            PR_GET_MDWE if is_bare => Ok(self.switches.mdwe.into()),
            PR_SET_THP_DISABLE | PR_GET_THP_DISABLE | PR_SET_MDWE | PR_GET_MDWE => {
                Err(Errno::INVAL)
            }
            _ => return None,
        })
    }
    /// What is asked for once stays so.
    fn set_mdwe(&mut self, bits: u64) -> Result<u64, Errno> {
        let (gain, alone) = (PR_MDWE_REFUSE_EXEC_GAIN, PR_MDWE_NO_INHERIT);
        let known = [0, gain, gain | alone];
        let bits = known.into_iter().find(|known| bits == u64::from(*known)).ok_or(Errno::INVAL)?;
        if self.switches.mdwe != 0 && self.switches.mdwe != bits {
            return Err(Errno::PERM);
        }
        self.switches.mdwe = bits;
        Ok(0)
    }
    fn set_folios(&mut self, folios: ProcessSwitch) -> Result<(), Errno> {
        self.mm.set_process_switch(self.space, folios)?;
        self.switches.folios = folios;
        Ok(())
    }

    /// Sets what the program before set, and what is inherited of it: for `execve`.
    pub fn take_switches(&mut self, before: &Self) -> Result<(), Errno> {
        self.switches = before.switches.inherited();
        self.set_folios(self.switches.folios)
    }
}
