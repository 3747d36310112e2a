//! The file that a calibration is kept in: one for each machine, in the user's data folder.
//!
//! ```text
//!   $XDG_DATA_HOME or ~/.local/share / foliant / calibration-HOST.json
//! ```
//!
//! Behind sudo it is the folder of who called it, and root acts as that user while it is there: a
//! link in the folder leads nowhere that the user could not go, and what is made is the user's.
//!
//! **Invariants**
//! - L1. The file is there whole or not at all.
//! - L2. What is read was made on this machine, has a price for known work only, each once, and
//!   none that is not positive. Whatever else is there is refused in a sentence.
//!
//! **Not here**: what is measured (`calibrate`).

use super::model::{Calibration, is_sound, model};
use crate::failure::{Done, Failure, why};
use crate::{host, shown};
use foliant_sim::CostModel;
use foliant_trace::record::User;
use nix::libc;
use nix::unistd::{Gid, Uid, getegid, geteuid, setegid, seteuid};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// A file has some ten prices; what is longer is none.
const BYTES_MOST: u64 = 1 << 16;

/// The model that a command takes: the one that was named, else that of this machine if it was
/// calibrated, else the default.
pub(crate) fn chosen(named: Option<CostModel>) -> Done<CostModel> {
    match named {
        Some(model) => Ok(model),
        None => Ok(here()?.unwrap_or_else(CostModel::xeon_guest_2)),
    }
}

/// The model of this machine, if it was calibrated.
pub(crate) fn here() -> Done<Option<CostModel>> {
    // Who has no data folder has no calibration in it.
    let Ok(place) = Place::of_user() else { return Ok(None) };
    Ok(place.read()?.map(|calibration| model(&calibration)))
}

/// Where calibrations are kept, and as whom.
pub(crate) struct Place {
    folder: PathBuf,
    user: Option<User>,
}

impl Place {
    /// The data folder of this user; behind sudo of who called it.
    pub(crate) fn of_user() -> Done<Place> {
        let user = User::behind_sudo()
            .map_err(|e| Failure::new(format_args!("it is not known who called sudo: {e}")))?;
        let absolute = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
        };
        let home =
            user.as_ref().map(|user| PathBuf::from(user.home())).or_else(|| absolute("HOME"));
        let data = absolute("XDG_DATA_HOME").or_else(|| Some(home?.join(".local/share")));
        let data = data.ok_or_else(|| {
            Failure::new("neither XDG_DATA_HOME nor HOME is an absolute path; set one of them")
        })?;
        Ok(Place { folder: data.join("foliant"), user })
    }

    /// The file of this machine.
    pub(crate) fn file(&self) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let host: String = host::name().chars().map(plain).take(64).collect();
        self.folder.join(format!("calibration-{host}.json"))
    }

    /// Keeps it, in the place of an older one (L1).
    pub(crate) fn keep(&self, calibration: &Calibration) -> Done {
        let text = crate::document::pretty(calibration)?;
        let written = self.as_user(|| {
            fs::create_dir_all(&self.folder)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(self.file()).map(drop).map_err(|e| e.error)
        });
        written.map_err(|e| {
            let path = shown::path(&self.file());
            Failure::new(format_args!(
                "{path} cannot be written ({}); name another folder with XDG_DATA_HOME",
                why(&e)
            ))
        })
    }

    /// What is kept for this machine, if anything is (L2).
    pub(crate) fn read(&self) -> Done<Option<Calibration>> {
        let path = self.file();
        let refused = |why: &str| {
            let path = shown::path(&path);
            Failure::new(format_args!(
                "{path} {why}; run `foliant calibrate` again, remove the file, or choose a model with --model"
            ))
        };
        let text = match self.as_user(|| self.text()) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(e) => return Err(refused(&format!("cannot be read ({})", why(&e)))),
            Ok(text) => text,
        };
        let read: Option<Calibration> = serde_json::from_slice(&text).ok();
        let Some(calibration) = read.filter(is_sound) else {
            return Err(refused("is damaged or no calibration"));
        };
        if calibration.host != host::name() || calibration.processor != host::processor() {
            let (host, processor) =
                (shown::shown(&calibration.host), shown::shown(&calibration.processor));
            return Err(refused(&format!("is of another machine ({host}, {processor})")));
        }
        Ok(Some(calibration))
    }

    fn text(&self) -> io::Result<Vec<u8>> {
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.file())?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let mut text = Vec::new();
        file.take(BYTES_MOST).read_to_end(&mut text)?;
        Ok(text)
    }

    /// Does it as the user whose folder it is.
    fn as_user<R>(&self, work: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        let Some((uid, gid)) = self.user.as_ref().map(User::ids) else { return work() };
        let _back = Back(geteuid(), getegid());
        setegid(Gid::from_raw(gid))?;
        seteuid(Uid::from_raw(uid))?;
        work()
    }
}

/// Gives root its rights back.
struct Back(Uid, Gid);

impl Drop for Back {
    fn drop(&mut self) {
        // Root may take back what it has lent; the user first, who may set no group.
        let _ = seteuid(self.0).and_then(|()| setegid(self.1));
    }
}
