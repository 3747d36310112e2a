//! Panics of a history are findings, not noise on the terminal.

use std::any::Any;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static QUIET: AtomicU64 = AtomicU64::new(0);
static HOOK: Once = Once::new();

/// While one is alive, panics print nothing.
pub(crate) struct Quiet;

impl Quiet {
    pub(crate) fn begin() -> Quiet {
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if QUIET.load(Ordering::Relaxed) == 0
                    || std::env::var_os("FOLIANT_PANICS").is_some()
                {
                    before(info);
                }
            }));
        });
        QUIET.fetch_add(1, Ordering::Relaxed);
        Quiet
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        QUIET.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a panic said.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text.clone(),
        (_, Some(text)) => (*text).to_string(),
        _ => "a panic without words".into(),
    }
}
