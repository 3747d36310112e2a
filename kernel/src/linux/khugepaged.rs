//! khugepaged: from time to time a CPU that goes round looks for what can be collapsed.
//!
//! ```text
//!   start ─▶ alarm ─▶ a go over the spaces of all processes ─▶ alarm, as long after as its files say
//!                ▲ at once ── a file that says so is written
//! ```
//!
//! **Locking**: one lock for its settings and counters, held while it looks; one for when it looks
//! next, with nothing under it.

use super::sched::{self, Alarm, Due};
use super::{clock, process};
use crate::memory::manager;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use foliant::space::SpaceId;
use foliant_linux::{Errno, Khugepaged};
use spin::{Mutex, Once};

/// Nanoseconds from the start to the first go: what its files begin with.
const FIRST: u64 = 10_000_000_000;
/// How the files end whose change it heeds at once.
const SLEEPS: &str = "_sleep_millisecs";

static OWN: Once<Mutex<Khugepaged>> = Once::new();
static NEXT: Mutex<Option<Due>> = Mutex::new(None);
/// What rings.
static GO: Once<Arc<Go>> = Once::new();

fn own() -> &'static Mutex<Khugepaged> {
    OWN.call_once(|| Mutex::new(Khugepaged::default()))
}

/// A go of it.
struct Go;

impl Alarm for Go {
    fn ring(self: Arc<Go>) {
        let memories = process::memories().into_iter();
        let spaces: Vec<SpaceId> =
            memories.map(|memory| memory.with(|memory| memory.space())).collect();
        let sleep = own().lock().scan(manager(), &spaces).0;
        again_in(sleep);
    }
}

/// Has it go in so many nanoseconds, and not before.
fn again_in(nanos: u64) {
    let go: &Arc<Go> = GO.call_once(|| Arc::new(Go));
    let alarm: Weak<dyn Alarm> = Arc::<Go>::downgrade(go);
    let due = sched::ring_at(clock::uptime().saturating_add(nanos), alarm);
    let before = NEXT.lock().replace(due);
    if let Some(before) = before {
        sched::put_off(before);
    }
}

/// Has it go from now on.
pub(super) fn start() {
    again_in(FIRST);
}
/// What a file of it shows.
pub(super) fn read(path: &str) -> Result<String, Errno> {
    own().lock().read(path)
}
/// Writes a file of it.
pub(super) fn write(path: &str, text: &str) -> Result<(), Errno> {
    own().lock().write(path, text)?;
    if path.ends_with(SLEEPS) {
        again_in(0);
    }
    Ok(())
}
